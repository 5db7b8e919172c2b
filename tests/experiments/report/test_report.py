"""The report shows the metrics and what is missing, and is the same whenever it is made."""

import base64
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.made_results import runs_of, write_results
from tests.experiments.tiny_data import experiment_text

from sparseshot.cli import main
from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.experiments import Results, open_experiment
from sparseshot.experiments.experiment import Experiment, Method, Run
from sparseshot.experiments.report import make_report, raw_metrics, write_raw_metrics, write_report
from sparseshot.experiments.report.comparisons import compare
from sparseshot.experiments.results import plan_path
from sparseshot.files import write_json
from sparseshot.pages import Part, Picture, pictures_of, to_html, to_markdown

FRACTIONS = [0.1, 0.3, 0.6, 1.0]


def sweep(
    *datasets: str,
    losses: tuple[str, ...] = ("ece", "ce"),
    seeds: tuple[int, ...] = (0,),
    name: str = "sweep",
) -> Experiment:
    methods = [Method(loss, loss, f"method {loss}") for loss in losses]
    return Experiment(
        name, "A sweep", "What it shows.", runs_of(datasets or ("tnbc",), methods, FRACTIONS, seeds)
    )


def report_of(out: Path, **options: Any) -> list[Part]:
    return make_report(Results.read(out), **options)


def text_of(parts: list[Part]) -> str:
    return to_markdown(parts, pictures=None).replace("\xa0", " ")


def tables(parts: list[Part], *, first: str) -> list[list[list[str]]]:
    """Return the tables whose first column has this title, as rows of cells."""
    texts = [part for part in parts if isinstance(part, str) and part.startswith(f"| {first} |")]
    found = [[re.split(r"\s*\|\s*", line)[1:-1] for line in text.splitlines()] for text in texts]
    return [[table[0], *table[2:]] for table in found]


def pictures(parts: list[Part]) -> dict[str, Picture]:
    return pictures_of(parts)


def test_the_numbers_on_the_page_are_those_of_the_metrics(tmp_path: Path) -> None:
    scores = {("ece", 0.3): (0.7123, 0.7456), ("ce", 1.0): (0.8001, 0.7999)}

    def score(run: Run) -> tuple[float, float]:
        return scores.get((run.method.name, run.fraction), (0.5, 0.6))

    write_results(tmp_path, sweep(), scores=score)
    (table,) = tables(report_of(tmp_path), first="Dice")
    assert table[0][2:6] == ["10\xa0%", "30\xa0%", "60\xa0%", "100\xa0%"]
    assert table[1][:4] == ["method ece", "0.5", "0.50", "0.71"]
    assert table[2][1:4] == ["calibrated", "0.60", "0.75"]
    assert table[3][1:4] == ["the paper", "0.73", "0.80"]
    assert table[4][5] == "0.80"
    assert "<td>0.71</td>" in re.sub("<td [^>]*>", "<td>", to_html(report_of(tmp_path)))


def test_seeds_become_a_mean_and_a_standard_error(tmp_path: Path) -> None:
    def score(run: Run) -> tuple[float, float]:
        return 0.70 + 0.04 * run.seed, 0.8 + 0.01 * run.seed - 0.05 * (run.method.name == "ce")

    write_results(tmp_path, sweep(seeds=(0, 1)), scores=score)
    (table,) = tables(report_of(tmp_path), first="Dice")
    assert table[1][2] == "0.72 ±0.02", "not bold: both methods are the same"
    assert table[2][2] == "**0.81 ±0.01**"
    assert table[5][2] == "0.76 ±0.01"


def test_missing_and_failed_runs_are_shown_as_such(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(), missing=("tnbc-segment-ece-0.6-s0",), failed=("tnbc-segment-ce-0.1-s0",))
    parts = report_of(tmp_path)
    (table,) = tables(parts, first="Dice")
    assert table[1][4] == "–"
    assert table[4][2] == "failed"
    (headline,) = tables(parts, first="")
    assert "failed" in headline[2]
    text = text_of(parts)
    assert "6 of 8 runs are done, **1 failed**, 1 are missing and shown as –" in text
    assert "not enough &lt;memory&gt;" in to_html([text])
    assert "`tnbc-segment-ece-0.6-s0`" in text


def test_nothing_run_yet_makes_a_report_too(tmp_path: Path) -> None:
    experiment = sweep()
    write_results(tmp_path, experiment, missing=tuple(run.name for run in experiment.runs))
    text = text_of(report_of(tmp_path))
    assert "0 of 8 runs are done" in text
    assert "nan" not in text


def test_the_same_runs_make_the_same_files(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    files = []
    for name in ("a", "b"):
        folder = tmp_path / name
        written = write_report(
            report_of(tmp_path / "out"), folder / "report.html", figures=folder / "figures"
        )
        files.append({path.relative_to(folder): path.read_bytes() for path in written})
    assert files[0] == files[1]


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    write_report(report_of(tmp_path / "out"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:image/", "#")) for source in sources)
    assert "<script" not in page
    first = next(source for source in sources if source.startswith("data:image/svg"))
    assert b"<svg" in base64.b64decode(first.split(",")[1])
    for anchor in re.findall(r'href="#([^"]*)"', page):
        assert f'id="{anchor}"' in page


def test_the_markdown_links_figures_that_exist(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    write_report(
        report_of(tmp_path / "out"), tmp_path / "docs" / "r.html", figures=tmp_path / "docs" / "pictures"
    )
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (tmp_path / "docs" / "r.md").read_text())
    assert len(links) == 3, "curves, exclusion, panels"
    for link in links:
        assert (tmp_path / "docs" / link).stat().st_size > 1000
    assert "![" not in text_of(report_of(tmp_path / "out"))


def test_images_with_a_restrictive_licence_are_not_shown(tmp_path: Path) -> None:
    write_results(tmp_path, sweep("tnbc", "monuseg", "consep"))
    shown = {file for file in pictures(report_of(tmp_path)) if file.endswith(".jpg")}
    assert shown == {"tnbc-segment-panels.jpg"}
    assert "MoNuSeg (CC BY-NC-SA 4.0)" in text_of(report_of(tmp_path))
    everything = {file for file in pictures(report_of(tmp_path, restricted_images=True)) if "panels" in file}
    assert everything == {f"{name}-segment-panels.jpg" for name in ("tnbc", "monuseg", "consep")}


def test_a_replaced_data_set_is_named(tmp_path: Path) -> None:
    write_results(tmp_path, sweep("wbc_zheng"))
    assert "The paper's numbers are of WBC-NuClick, which WBC-Zheng replaces." in text_of(report_of(tmp_path))


def test_two_experiments_share_runs_and_keep_their_titles(tmp_path: Path) -> None:
    table = open_experiment("annealing", profile="quick")
    both = sweep(name="curves")
    write_results(tmp_path, table)
    write_results(tmp_path, both)
    text = text_of(report_of(tmp_path))
    assert "ρ sigmoid of the linear one" in text
    assert "method ece" in text


def test_a_run_of_two_experiments_counts_once(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(name="one"))
    other = replace(sweep(name="two"), runs=tuple(_retitled(run) for run in sweep().runs))
    write_json(plan_path(tmp_path, "two"), other)
    (comparison,) = compare(Results.read(tmp_path))
    assert {len(each) for row in comparison.rows for each in row.results.values()} == {1}


def _retitled(run: Run) -> Run:
    return replace(run, method=replace(run.method, title="another title"))


def test_numbers_of_marks_are_no_fractions(tmp_path: Path) -> None:
    runs = runs_of(["tnbc"], [Method("ece", "ece")], [0.1, 1.0, 100])
    write_results(tmp_path, Experiment("x", "x", "x", runs), scores=lambda run: (0.5, 0.5))
    (comparison,) = compare(Results.read(tmp_path))
    assert list(comparison.fractions) == [0.1, 1.0, 100]
    figure = next(iter(pictures(report_of(tmp_path)).values())).content.decode()
    assert ">100<" in figure
    assert ">10000<" not in figure


def test_a_class_without_test_cells_has_no_recall(tmp_path: Path) -> None:
    experiment = open_experiment("exclusive-recall", profile="quick")
    write_results(tmp_path, experiment, scores=lambda run: (float("nan"), 0.65))
    for file in tmp_path.glob("runs/*/metrics.json"):
        file.write_text(file.read_text().replace("NaN", "null"))
    text_of(report_of(tmp_path))


def test_time_and_machine_are_shown(tmp_path: Path) -> None:
    write_results(tmp_path, sweep())
    text = text_of(report_of(tmp_path))
    assert "15 min 44 s of computing on Made CPU (2 cores, 1 threads per run)" in text
    assert "torch 2.13.0" in text
    assert "`sparseshot experiment sweep --profile quick --root DATA --out DIR`: 8 of 8 runs." in text


def test_raw_metrics_are_one_small_file(tmp_path: Path) -> None:
    write_results(
        tmp_path / "out", sweep(), failed=("tnbc-segment-ce-0.1-s0",), missing=("tnbc-segment-ce-1-s0",)
    )
    results = Results.read(tmp_path / "out")
    write_raw_metrics(results, tmp_path / "docs" / "metrics.json")
    text = (tmp_path / "docs" / "metrics.json").read_text()
    again = json.loads(text)
    assert again == json.loads(json.dumps(raw_metrics(results)))
    runs = {run["name"]: run for run in again["runs"]}
    assert len(runs) == 8
    done = results.results["tnbc-segment-ece-0.3-s0"]
    assert runs["tnbc-segment-ece-0.3-s0"]["half"]["pooled"] == pytest.approx(done.score("half"), abs=1e-4)
    assert runs["tnbc-segment-ce-0.1-s0"]["error"] == "not enough <memory>"
    assert runs["tnbc-segment-ce-1-s0"]["state"] == "missing"
    assert again["machines"][runs["tnbc-segment-ece-0.3-s0"]["machine"]]["processor"] == "Made CPU"
    assert again["versions"][runs["tnbc-segment-ece-0.3-s0"]["version"]]["sparseshot"] == "0.1.0"
    assert "machine" not in runs["tnbc-segment-ce-1-s0"]
    assert len(text) < 1000 * len(runs)


def test_raw_metrics_have_the_estimated_share_of_marks(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(losses=("adaptive", "ce")))
    for run in raw_metrics(Results.read(tmp_path))["runs"]:
        if run["method"] == "ce":
            assert "marked_share" not in run
        else:
            found = 0.9 * run["fraction"]
            assert run["marked_share"] == pytest.approx(
                {"true": run["fraction"], "found": found, "alpha": found / (2 - found)},
                abs=1e-4,
            )


def test_a_folder_without_experiments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="holds no experiment"):
        Results.read(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "x"}'])
def test_a_broken_plan_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "x.json").write_text(content)
    with pytest.raises(FormatError, match=r"x\.json: "):
        Results.read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"), [('"fraction": 1.0', '"fraction": "all"'), ('"dataset": "tnbc"', '"dataset": 3')]
)
def test_a_plan_with_values_of_other_types_is_an_error(tmp_path: Path, old: str, new: str) -> None:
    write_results(tmp_path, sweep())
    (plan,) = (tmp_path / "plans").iterdir()
    assert old in plan.read_text()
    plan.write_text(plan.read_text().replace(old, new))
    with pytest.raises(FormatError, match=rf"{plan.name}: .*('all'|3)"):
        Results.read(tmp_path)


@pytest.mark.parametrize("name", ["weak-supervision", "annealing", "exclusive-recall"])
def test_tables_of_the_paper_stand_beside_ours(tmp_path: Path, name: str) -> None:
    experiment = open_experiment(name, profile="quick")
    write_results(tmp_path, experiment, scores=lambda run: (0.61 + 0.1 * (run.method.name == "ece"), 0.65))
    title = "exclusive recall" if name == "exclusive-recall" else "F1"
    (table,) = tables(report_of(tmp_path), first=title)
    assert table[1][1] == "0.71"
    assert table[1][-1] == ("0.88" if name == "exclusive-recall" else "0.80")
    assert table[2][1] == "0.61"
    assert table[0][-1].endswith("the paper")
    assert not compare(Results.read(tmp_path)), "a table is not drawn as a curve"


def test_the_summary_shows_how_much_is_kept_with_few_marks(tmp_path: Path) -> None:
    def score(run: Run) -> tuple[float, float]:
        half = {"ece": 0.76 if run.fraction < 1 else 0.8, "ce": 0.04 if run.fraction < 0.5 else 0.8}
        return half[run.method.name], 0.8

    write_results(tmp_path, sweep(), scores=score)
    (table,) = tables(report_of(tmp_path), first="")
    assert [(row[1], row[-1].replace("\xa0", " ")) for row in table[1:]] == [
        ("method ece", "95 % / 100 %"),
        ("method ce", "5 % / 100 %"),
    ]


def test_the_summary_shows_every_method_that_was_run(tmp_path: Path) -> None:
    losses = ("focal", "adaptive", "ce", "huber")
    write_results(tmp_path, sweep(losses=losses), missing=("tnbc-segment-huber-1-s0",))
    (table,) = tables(report_of(tmp_path), first="")
    assert [row[1] for row in table[1:]] == [f"method {name}" for name in losses]
    assert table[-1][-1] == "", "without all marks nothing can be kept"


def test_more_may_be_kept_than_all_marks_give(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(), scores=lambda run: (0.7 if run.fraction < 1 else 0.6, 0.8))
    (table,) = tables(report_of(tmp_path), first="")
    assert table[1][-1].replace("\xa0", " ") == "117 % / 100 %"


def test_the_legend_of_many_methods_stays_on_the_figure(tmp_path: Path) -> None:
    methods = [Method(f"m{n}", "ece", f"method {n}, which has a rather long title") for n in range(11)]
    write_results(tmp_path, Experiment("many", "Many", "Methods.", runs_of(["tnbc"], methods, FRACTIONS)))
    drawing = pictures(report_of(tmp_path))["tnbc-segment-curves.svg"].content.decode()
    width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', drawing)[0])
    legend = drawing[drawing.index('id="legend_1"') :]
    places = [tuple(map(float, place)) for place in re.findall(r'<text [^>]*\bx="(\S+)" y="(\S+)"', legend)]
    assert len(places) >= 11
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    assert "method 10, which has a rather long title" in legend, "text is text"


def test_titles_from_files_are_shown_literally(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> ![x](http://example.org/x.png) | **b** `c`"
    runs = sweep().runs
    write_results(tmp_path / "out", Experiment("x", hostile, hostile, runs))
    write_report(report_of(tmp_path / "out"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    shown = "&lt;script&gt;alert(1)&lt;/script&gt; ![x](http://example.org/x.png) | **b** `c`"
    assert f"<h1>{shown}</h1>" in page
    assert f"<title>{shown}</title>" in page


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"evaluation": {}}', '{"evaluation": {"half": 1}}', "missing"]
)
def test_damaged_metrics_are_the_failure_of_one_run(tmp_path: Path, damage: str) -> None:
    write_results(tmp_path, sweep())
    path = tmp_path / "runs" / "tnbc-segment-ce-0.1-s0" / "metrics.json"
    if damage == "missing":
        for key in list(json.loads(path.read_text())):
            write_results(tmp_path, sweep())
            values = json.loads(path.read_text())
            del values[key]
            path.write_text(json.dumps(values))
            assert "runs are done" in text_of(report_of(tmp_path))
            raw_metrics(Results.read(tmp_path))
        return
    path.write_text(damage)
    parts = report_of(tmp_path)
    assert "7 of 8 runs are done, **1 failed**" in text_of(parts)
    (table,) = tables(parts, first="Dice")
    assert table[4][2] == "failed"
    assert "tnbc-segment-ce-0.1-s0/metrics.json" in text_of(parts).replace("\\", "")


@pytest.mark.parametrize(
    "log", ["", "loss\n1\n", "step,excluded\nx,0.1\n10,much\n20\n", "\0\0", "step,excluded\n²,1\n"]
)
def test_a_damaged_log_does_not_stop_a_report(tmp_path: Path, log: str) -> None:
    write_results(tmp_path / "out", sweep(losses=("ece", "adaptive")))
    for path in (tmp_path / "out").glob("runs/*-0.1-*/log.csv"):
        path.write_text(log)
    write_report(report_of(tmp_path / "out"), tmp_path / "report.html")
    raw_metrics(Results.read(tmp_path / "out"))


def test_one_fraction_makes_no_curves(tmp_path: Path) -> None:
    methods = [Method(loss, loss, f"method {loss}") for loss in ("ece", "ce")]
    write_results(tmp_path, Experiment("one", "One", "Fraction.", runs_of(["tnbc"], methods, [0.3], [0, 1])))
    assert "tnbc-segment-curves.svg" not in pictures(report_of(tmp_path))
    (table,) = tables(report_of(tmp_path), first="Dice")
    assert table[0][2:] == ["30\xa0%"]


def test_missing_cells_show_the_sign_of_the_legend(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(), missing=("tnbc-segment-ece-0.3-s0",))
    parts = report_of(tmp_path)
    assert "–: not run yet; blank: not planned" in text_of(parts)
    for table in (*tables(parts, first=""), *tables(parts, first="Dice")):
        column = table[0].index("30\xa0%")
        assert table[1][column] == "–"


def test_the_commands_of_a_report_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also for a file that is not in the package, from another folder."""
    path = tmp_path / "some where" / "cpm17.toml"
    path.parent.mkdir()
    path.write_text(experiment_text())
    for name in (str(path), "tnbc-headline"):
        out = tmp_path / Path(name).stem
        write_results(out, open_experiment(name))
        (line,) = re.findall(r"`(sparseshot experiment .*?)`", text_of(report_of(out)))
        words = shlex.split(line.replace("DATA", str(tmp_path)).replace("DIR", shlex.quote(str(out))))
        assert main(words[1:]) == 0
        assert "nothing to do" in capsys.readouterr().out
