"""TOML files become runs; errors name the table and what would be right."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.tiny_data import OWN_DATA, experiment_text, own_experiment, tiny_tnbc

from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.experiments import Experiment, OwnData, open_experiment, read_experiment, shipped_experiments
from sparseshot.experiments.experiment import Subject
from sparseshot.experiments.experiment_file import HEADLINE
from sparseshot.experiments.paper import paper_table
from sparseshot.files import read_as, write_json

WHOLE = """\
title = "All there is"
profile = "quick"

[settings]
steps = 40

[losses.weak]
loss = "ce"
title = "two rounds"
rounds = 2
tau = 0.5

[losses.strict]
loss = "ece"
options = { rho = { schedule = "linear", top = 0.5 }, alpha = 0.05 }

[[grid]]
datasets = ["TNBC", "brca-m2c"]
tasks = ["detect"]
losses = ["weak", "strict", "ce"]
fractions = [0.2, 1, 0.3]
seeds = [0, 1]

[[grid]]
datasets = ["tnbc"]
tasks = ["detect", "segment"]
losses = ["ce"]
fractions = [0.3]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def error_of(tmp_path: Path, text: str) -> str:
    with pytest.raises(FormatError) as caught:
        read_experiment(written(tmp_path, text))
    return str(caught.value)


def test_a_file_becomes_its_runs_each_once(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE))
    names = [run.name for run in experiment.runs]
    assert len(names) == len(set(names)) == 2 * 3 * 3 * 2 + 1
    assert experiment.datasets == ("tnbc", "brca_m2c")
    assert names[-1] == "tnbc-segment-ce-0.3-s0"
    weak, strict = experiment.runs[0].method, experiment.runs[1].method
    assert (weak.weak.rounds, weak.weak.tau, weak.title) == (2, 0.5, "two rounds")
    config = experiment.runs[1].config()
    assert (config.steps, config.loss, (config.loss_options or {})["alpha"]) == (40, "ece", 0.05)
    assert strict.name == "strict"


def test_the_most_informative_runs_come_first(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE))
    grid = experiment.runs[:36]
    assert [run.seed for run in grid] == [0] * 18 + [1] * 18
    assert [run.fraction for run in grid[:18]] == [0.3] * 6 + [1.0] * 6 + [0.2] * 6
    assert {run.method.name for run in grid[:3]} == {"weak", "strict", "ce"}
    assert HEADLINE[0] == 0.3


def test_a_loss_may_be_left_to_the_run() -> None:
    runs = {run.method.name: run.config() for run in open_experiment("starter").runs}
    assert runs["starter"].loss is None
    assert (runs["scratch"].loss, runs["ce-scratch"].loss) == ("adaptive", "ce")


def test_an_experiment_survives_json(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, WHOLE))
    write_json(tmp_path / "plan.json", experiment)
    again = read_as(tmp_path / "plan.json", Experiment)
    assert again.runs == experiment.runs
    assert again.title == experiment.title


@pytest.mark.parametrize("name", shipped_experiments())
def test_shipped_files_are_valid(name: str) -> None:
    experiment = open_experiment(name)
    assert experiment.runs
    assert experiment.about
    if experiment.paper_table is not None:
        rows = {run.method.paper for run in experiment.runs} - {None}
        assert rows == set(paper_table(experiment.paper_table))


def test_the_record_has_the_losses_of_the_paper_and_three_seeds() -> None:
    runs = open_experiment("record").runs
    asked = {(run.subject.dataset, run.task, run.method.name, run.fraction, run.seed) for run in runs}
    six = ("ece", "ece-nki", "adaptive", "ce", "focal", "huber")
    places = {("brca_m2c", "detect"), ("crchisto", "detect")}
    places |= {(name, task) for name in ("tnbc", "monuseg", "wbc_zheng") for task in ("segment", "detect")}
    for loss, fraction, seed in product(six, (0.1, 0.3, 1.0), (0, 1, 2)):
        assert {(*place, loss, fraction, seed) for place in places} <= asked
    others = ("recalibration", "nnpu", "elr", "annotated-only", "oracle")
    assert {("tnbc", "segment", loss, 0.3, 0) for loss in others} <= asked


def test_the_experiments_of_the_results_share_one_folder() -> None:
    """Runs of one name have the same settings, so that one folder and one JSON hold them all."""
    names = ("record", "authors-size", "adaptive", "annealing", "weak-supervision", "exclusive-recall")
    recipes: dict[str, Any] = {}
    for name in names:
        for run in open_experiment(name, profile="quick").runs:
            assert recipes.setdefault(run.name, run.recipe({})) == run.recipe({})


def test_another_profile_replaces_that_of_the_file() -> None:
    assert {run.profile for run in open_experiment("annealing", profile="quick").runs} == {"quick"}
    with pytest.raises(InputError, match=r"no profile 'fast'.* quick, paper"):
        open_experiment("annealing", profile="fast")


def test_an_unknown_name_lists_the_shipped_experiments() -> None:
    with pytest.raises(DataNotFoundError, match="tnbc-headline"):
        open_experiment("tnbc-headlin")
    with pytest.raises(DataNotFoundError, match="cannot be read"):
        open_experiment("nowhere.toml")


@pytest.mark.parametrize(
    ("old", "new", "place", "parts"),
    [
        (
            '"ce"]\nfractions = [0.2',
            '"foacl"]\nfractions = [0.2',
            "[[grid]] 1",
            ["no loss 'foacl'", "'focal'", "weak"],
        ),
        ('"brca-m2c"]', '"brca-m3c"]', "[[grid]] 1", ["'brca-m3c'", "did you mean 'brca_m2c'", "monuseg"]),
        (
            '["detect"]',
            '["detct"]',
            "[[grid]] 1",
            ["no task 'detct'", "did you mean 'detect'", "segment, detect"],
        ),
        ('profile = "quick"', 'profile = "quik"', "", ["no profile 'quik'", "'quick'", "paper"]),
        ("[0.2, 1, 0.3]", "[0.2, 0, 0.3]", "[[grid]] 1", ["fractions is 0", "greater than 0"]),
        (
            "[0.2, 1, 0.3]",
            "[0.2,\n  -0.3,\n  0.3]",
            "[[grid]] 1",
            ["fractions is -0.3", "greater than 0"],
        ),
        ("[0.2, 1, 0.3]", "[]", "[[grid]] 1", ["fractions is []", "at least 1 item"]),
        ("fractions = [0.2, 1, 0.3]\n", "", "[[grid]] 1", ["no fractions here", "add fractions"]),
        ("seeds = [0, 1]", 'seeds = [0, "a"]', "[[grid]] 1", ["seeds is 'a'", "integer"]),
        ("steps = 40", "stpes = 40", "[settings]", ["no setting 'stpes'", "did you mean 'steps'"]),
        ("steps = 40", "steps = -1", "[settings]", ["steps", "at least 1"]),
        ("steps = 40", 'steps = "many"', "[settings]", ["steps = 'many' is not possible"]),
        ("steps = 40", "task = 'segment'", "[settings]", ["no setting 'task'"]),
        ("steps = 40", "crop_px = 100", "[settings]", ["for the task detect", "crop_px", "take 96"]),
        ("tau = 0.5", "tau = 1.5", "[losses.weak]", ["tau is 1.5", "between 0 and 1"]),
        ("rounds = 2", "rounds = 2.5", "[losses.weak]", ["rounds is 2.5", "integer"]),
        ("tau = 0.5", f"tau = {'9' * 400}", "[losses.weak]", ["tau is 9999"]),
        ('loss = "ce"', 'loss = "ce\\u0000"', "[losses.weak]", ["no loss 'ce\\x00'"]),
        ("rounds = 2", "round = 2", "[losses.weak]", ["no key 'round'", "did you mean 'rounds'"]),
        ("alpha = 0.05", "alfa = 0.05", "[losses.strict]", ["no option 'alfa'", "did you mean 'alpha'"]),
        ('schedule = "linear"', 'schedule = "liner"', "[losses.strict]", ["no schedule 'liner'", "'linear'"]),
        ('loss = "ce"', 'loss = "cee"', "[losses.weak]", ["no loss 'cee'", "did you mean"]),
        ("title = ", "titel = ", "", ["no key 'titel'", "did you mean 'title'"]),
        ("seeds = [0, 1]", 'classes = ["lymphocite"]', "[[grid]] 1", ["lymphocite", "nucleus"]),
    ],
)
def test_an_error_names_the_table_and_what_would_be_right(
    tmp_path: Path, old: str, new: str, place: str, parts: list[str]
) -> None:
    assert WHOLE.count(old) >= 1
    message = error_of(tmp_path, WHOLE.replace(old, new, 1))
    assert message.startswith(f"{tmp_path / 'mine.toml'}: {place}"), message
    for part in parts:
        assert part in message


def test_classes_are_checked_against_the_data_set(tmp_path: Path) -> None:
    text = experiment_text(datasets=["brca_m2c"], classes=["lymphocite"])
    assert "did you mean 'lymphocyte'?" in error_of(tmp_path, text)


@pytest.mark.parametrize("text", ["title = ", "", '[grid]\ndatasets = ["tnbc"]', "\x00"])
def test_a_file_without_an_experiment_is_refused(tmp_path: Path, text: str) -> None:
    assert re.search(r"is not TOML|no runs|\[\[grid\]\]", error_of(tmp_path, text))


def test_a_class_cannot_be_positive_and_negative(tmp_path: Path) -> None:
    text = experiment_text(datasets=["brca_m2c"], classes=["tumour"], negative_classes=["tumour"])
    assert "'tumour' is in classes and in negative_classes" in error_of(tmp_path, text)


def classes_text(*classes: list[str]) -> str:
    """Return an experiment with a grid for each list of classes."""
    grid = "\n[[grid]]\ndatasets = ['mine']\ntasks = ['detect']\nlosses = ['ce']\nfractions = [1.0]\n"
    return OWN_DATA + "".join(f"{grid}classes = {names}\n" for names in classes)


def test_classes_that_differ_in_signs_are_different_runs(tmp_path: Path) -> None:
    text = classes_text(["CD3+"], ["CD3-"], ["CD3/"])
    runs = read_experiment(written(tmp_path, text)).runs
    assert [run.subject.classes for run in runs] == [("CD3+",), ("CD3-",), ("CD3/",)]
    assert len({run.name for run in runs}) == 3


def test_two_runs_do_not_share_a_name(tmp_path: Path) -> None:
    text = classes_text(["a b"], ["a_b"])
    assert "two different runs have the name mine.a_b-detect-ce-1-s0" in error_of(tmp_path, text)


class TestOwnData:
    def test_paths_are_relative_to_the_file(self, tmp_path: Path) -> None:
        own = own_experiment(tmp_path).runs[0].subject.own
        assert own == OwnData(
            "My slides", str(tmp_path / "images/train.csv"), str(tmp_path / "images/test.csv"), 0.25
        )

    def test_a_missing_csv_is_an_error(self, tmp_path: Path) -> None:
        subject = own_experiment(tmp_path).runs[0].subject
        (tmp_path / "images" / "test.csv").unlink()
        with pytest.raises(DataNotFoundError, match=r"test\.csv: cannot be read \(No such file"):
            subject.check_data(None)

    def test_a_csv_without_images_is_an_error(self, tmp_path: Path) -> None:
        subject = own_experiment(tmp_path).runs[0].subject
        (tmp_path / "images" / "train.csv").write_text("slide,marks\n")
        with pytest.raises(FormatError, match=r"train\.csv: names no images; add a row"):
            subject.check_data(None)

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("train =", "trian =", "did you mean 'train'"),
            ("[data.mine]", "[data.tnbc]", "'tnbc' is a known data set"),
            ('train = "images/train.csv"', "", "there is no train here; add train"),
            ("mpp = 0.25\n", "mpp = -1\n", "mpp is -1"),
            ("['mine']", "['mein']", "yours are mine"),
        ],
    )
    def test_an_error_says_what_would_be_right(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        text = experiment_text(datasets=["mine"]) + OWN_DATA
        assert old in text
        before, after = text.rsplit(old, 1)
        assert message in error_of(tmp_path, before + new + after)

    def test_without_a_root_a_published_set_cannot_be_found(self) -> None:
        with pytest.raises(InputError, match=r"TNBC .* --root DIR"):
            Subject("tnbc").check_data(None)


class TestData:
    def test_a_missing_root_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(DataNotFoundError, match="no such folder; for TNBC"):
            Subject("tnbc").check_data(tmp_path / "nowhere")

    def test_an_empty_data_set_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "data" / "tnbc").mkdir(parents=True)
        with pytest.raises(DataNotFoundError, match="no image of TNBC"):
            Subject("tnbc").check_data(tmp_path / "data")

    def test_a_set_without_test_images_is_an_error(self, tmp_path: Path) -> None:
        root = tiny_tnbc(tmp_path / "data")
        for path in root.rglob("09_1*"):
            path.unlink()
        with pytest.raises(DataNotFoundError, match="TNBC has no test images here; complete"):
            Subject("tnbc").check_data(root)


def test_the_examples_of_the_documentation_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert read_experiment(written(tmp_path, example)).runs
    listed = re.findall(r"^\| `([\w-]+)` .*\| *(\d+) \| (\w+) \|$", page, re.MULTILINE)
    shipped = {name: open_experiment(name) for name in shipped_experiments()}
    assert {name: (int(runs), profile) for name, runs, profile in listed} == {
        name: (len(experiment.runs), experiment.runs[0].profile) for name, experiment in shipped.items()
    }
