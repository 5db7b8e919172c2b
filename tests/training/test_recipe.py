"""What a run does, as one function decides it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from tests.models.test_model_files import random_model
from tests.training.blobs import blobs, tiny_config, tiny_request

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import FormatError, OutputError, SparseshotError, TrainingWarning
from sparseshot.files import write_json
from sparseshot.models.config import SCRATCH, STARTER, TrainConfig, TrainSettings
from sparseshot.models.model_files import load_starter
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.held_out import certainty_of
from sparseshot.training.lineage import MarkChanges, Start
from sparseshot.training.loop import begin_from
from sparseshot.training.recipe import (
    TrainRecipe,
    TrainRequest,
    WeakSupervision,
    read_run,
    resolve,
    run_data,
    steps_for,
)
from sparseshot.training.runs import steps_in, train_run
from sparseshot.work.folder import as_json

POINTS = Cells([[10.0 * k, 20.0] for k in range(100)], classes=("tumour",), label=[0] * 100, mpp=0.5)
OWN = TrainingData(pairs=((Path("a.svs"), Path("a.geojson")),))


def settled(
    config: TrainConfig, start: Start | None = None, *, data: TrainingData = OWN, marks: Cells = POINTS
) -> tuple[TrainSettings, list[str]]:
    recipe, said = resolve(TrainRequest(config, data), [marks], start)
    return recipe.settings, said


def test_the_marks_decide_what_is_left_open() -> None:
    settings, said = settled(TrainConfig())
    assert (settings.task, settings.classes, settings.radius_um) == ("detect", ("tumour",), 4.0)
    assert (settings.start, settings.steps, settings.learning_rate) == (SCRATCH, 300, 3e-3)
    assert said[0].startswith("task detect, because")
    assert "learning tumour (100 marks)" in said[2]
    assert said[-1] == "from random weights, 300 steps"
    benchmark, _ = settled(TrainConfig(), data=TrainingData("tnbc"))
    assert (benchmark.classes, benchmark.radius_um) == ((), 0.0)


def test_what_is_given_stays_though_it_is_what_would_be_the_default(tmp_path: Path) -> None:
    parent = replace(random_model(tiny_config("detect", mpp=0.25)), path=tmp_path / "model.pt")
    start = Start(parent, changes=MarkChanges(new=4))
    asked = tiny_request("detect", start=str(tmp_path), steps=None, validations=None)
    chosen, _ = settled(asked, start)
    assert (chosen.mpp, chosen.validations, chosen.steps) == (0.25, 1, 25)
    given: dict[str, Any] = {
        "mpp": 0.5,
        "validations": 3,
        "loss_options": {},
        "classes": (),
        "radius_um": 0.0,
    }
    with pytest.warns(TrainingWarning, match=r"works at 0\.25 µm/px and this run at 0\.5,"):
        kept, _ = settled(replace(asked, **given), start)
    assert {name: getattr(kept, name) for name in given} == given


def test_the_starter_is_taken_if_it_fits() -> None:
    start = Start(load_starter("detect"))
    settings, said = settled(TrainConfig(), start)
    assert (settings.start, settings.steps, settings.learning_rate) == (STARTER, 200, 5e-4)
    assert said[-1] == "from the starter, 200 steps"
    assert settled(TrainConfig(mpp=0.25), start)[0].mpp == 0.25
    wide, said = settled(TrainConfig(width=8), start)
    assert wide.start == SCRATCH
    assert "random weights" in said[-1]
    assert "size" in said[-1]
    with pytest.raises(SparseshotError, match="another size"):
        settled(TrainConfig(width=8, start=STARTER), start)


def test_a_start_that_knows_cells_has_the_options_of_its_loss() -> None:
    start = Start(load_starter("segment"))
    outlined = blobs(0)[1]
    assert settled(TrainConfig(), start, marks=outlined)[0].loss_options == {"teacher_from": 0.4}
    given = TrainConfig(loss_options={"warm_up": 0.2})
    assert settled(given, start, marks=outlined)[0].loss_options == {"warm_up": 0.2}
    assert settled(TrainConfig(), None, marks=outlined)[0].loss_options == {}


def test_other_classes_get_a_new_last_layer() -> None:
    parent = random_model(tiny_config("detect"))
    marks = replace(POINTS, classes=("a", "b"), label=np.arange(100, dtype=np.int16) % 2)
    config = tiny_request("detect", start="parent", classes=("a", "b"))
    settings, said = settled(config, Start(parent), marks=marks)
    assert "a new last layer for the classes a, b" in said[-1]
    for own, kept in ((settings, False), (tiny_config("detect"), True)):
        network = own.make_task().network()
        fresh = {name: weight.clone() for name, weight in network.state_dict().items()}
        begin_from(parent, network, own)
        for name, weight in network.state_dict().items():
            is_new = name.startswith("head") and not kept
            assert torch.equal(weight, fresh[name] if is_new else parent.weights[name]), name


def test_a_parent_that_does_not_fit_is_refused() -> None:
    start = Start(random_model(tiny_config("detect")))
    outlined = blobs(0)[1]
    with pytest.raises(SparseshotError, match="task detect, this run has the task segment"):
        settled(tiny_request("segment", start="parent"), start, marks=outlined)
    with pytest.raises(SparseshotError, match="another size"):
        settled(tiny_request("detect", start="parent", width=7), start)


def test_steps() -> None:
    assert [steps_for(marks) for marks in (1, 100, 10_000)] == [150, 200, 300]
    config = tiny_config("detect")
    assert steps_in(0.05, config) < steps_in(5, config)
    limits: list[tuple[dict[str, Any], int]] = [({"minutes": 1.0}, 1000), ({"most_minutes": 1.0}, 300)]
    for minutes, steps in limits:
        recipe, _ = resolve(
            TrainRequest(TrainConfig(), OWN, **minutes), [POINTS], None, affordable_steps=lambda _: 1000
        )
        assert recipe.settings.steps == steps
        given = TrainRequest(TrainConfig(steps=7), OWN, **minutes)
        assert resolve(given, [POINTS], None, affordable_steps=lambda _: 1000)[0].settings.steps == 7


def test_a_recipe_knows_its_request() -> None:
    request = TrainRequest(TrainConfig(width=8), OWN)
    recipe, _ = resolve(request, [POINTS], None, files={"a.svs": "1"})
    assert not recipe.difference(request, {"a.svs": "1"})
    assert not recipe.difference(TrainRequest(TrainConfig(width=8, steps=300), OWN), {})
    for other, files, said in (
        (TrainRequest(TrainConfig(width=8, steps=301), OWN), {}, "steps 300 instead of 301"),
        (TrainRequest(TrainConfig(), OWN), {}, "width 8 instead of 16"),
        (replace(request, weak=WeakSupervision(2)), {}, "rounds"),
        (request, {"a.svs": "2"}, r"another content of a.svs"),
    ):
        assert said in recipe.difference(other, files)


def test_a_recipe_survives_its_file(tmp_path: Path) -> None:
    recipe, _ = resolve(TrainRequest(TrainConfig(classes=("tumour",)), OWN), [POINTS], None, files={"a": "b"})
    write_json(tmp_path / "recipe.json", as_json(recipe))
    assert read_run(tmp_path) == recipe
    write_json(tmp_path / "recipe.json", {"request": 3})
    with pytest.raises(FormatError, match="other content"):
        read_run(tmp_path)


def old_run(folder: Path, recipe: TrainRecipe, given: list[str]) -> None:
    """Write the files with which version 0.2 described a run."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(recipe.settings.to_json())
    write_json(
        folder / "source.json",
        as_json(recipe.request.data)
        | {"dataset": None, "root": None, "weak": {"rounds": 1, "tau": 0.75}}
        | {"fingerprint": dict(recipe.files), "given": given, "parents": []},
    )


def test_a_run_of_an_earlier_version_is_resumed(tmp_path: Path, recwarn: object) -> None:
    from PIL import Image

    slide, cells = blobs(1)
    Image.fromarray(slide.pixels).save(tmp_path / "a.png")
    cells[:12].write(tmp_path / "a.geojson")
    data = TrainingData(pairs=((tmp_path / "a.png", tmp_path / "a.geojson"),), mpp=0.5)
    config = tiny_request(None, steps=4, validations=1)
    whole = train_run(config, data, tmp_path / "new")
    recipe = read_run(tmp_path / "new")
    assert recipe is not None
    old_run(tmp_path / "old", recipe, ["start", "steps", "validations"])
    again = read_run(tmp_path / "old")
    assert again is not None
    assert again.request.config == config
    assert run_data(tmp_path / "old") == data
    with pytest.raises(OutputError, match="width 4 instead of 5"):
        train_run(replace(config, width=5), data, tmp_path / "old")
    resumed = train_run(config, data, tmp_path / "old")
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name]), name


def test_a_start_that_knows_the_marked_cells_is_held_on_to() -> None:
    model = load_starter("detect")
    known, said = settled(TrainConfig(), Start(model, certainty=0.8))
    assert (known.loss, dict(known.loss_options)) == ("distil", {"threshold": model.threshold})
    assert "held on to" in said[-1]
    unknown, _ = settled(TrainConfig(), Start(model, certainty=0.4))
    assert unknown.loss == "adaptive"
    given, _ = settled(TrainConfig(loss="ce"), Start(model, certainty=0.8))
    assert given.loss == "ce"


def test_a_run_is_held_on_to_if_its_own_start_was() -> None:
    model = load_starter("detect")
    changes = MarkChanges(new=4)
    learned = Start(model, is_run=True, changes=changes, certainty=0.9)
    assert settled(TrainConfig(), learned)[0].loss == "adaptive"
    held = replace(model, config=replace(model.config, loss="distil"))
    assert settled(TrainConfig(), learned._replace(model=held))[0].loss == "distil"


def test_the_starter_is_certain_of_nuclei_but_not_of_empty_places() -> None:
    slide = SyntheticTissue(seed=12, size_px=(400, 400), mpp=0.5, tissue_fraction=1.0)
    cells, model = slide.cells(), load_starter("detect")
    assert certainty_of(model, TrainConfig(), [AnnotatedSlide(slide, cells[::5])]) > 0.6
    far = np.random.default_rng(0).uniform(20, 380, (400, 2))
    far = far[cKDTree(cells.xy).query(far)[0] > 14]
    assert certainty_of(model, TrainConfig(), [AnnotatedSlide(slide, Cells(far, mpp=0.5))]) < 0.4
