import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.training.blobs import blobs, saying, tiny_config, tiny_request

from sparseshot.cells import Cells
from sparseshot.datasets import load_dataset
from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    InputError,
    OutputError,
    SparseshotWarning,
    TrainingWarning,
)
from sparseshot.models.config import make_config
from sparseshot.models.labelling import SUGGESTED, Labelling
from sparseshot.models.task import IGNORED
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.canvas import BlockCache
from sparseshot.training.held_out import prepare
from sparseshot.training.mark_checks import describe_classes
from sparseshot.training.pairs import find_pairs, pairs_in_csv, pairs_of
from sparseshot.training.recipe import WeakSupervision
from sparseshot.training.runs import train_run


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folders_are_paired_by_name(tmp_path: Path) -> None:
    images, marks = tmp_path / "images", tmp_path / "marks"
    touch(images / "a 0.98.png", images / "b.svs", images / "notes.txt", images / "c.png")
    touch(marks / "a 0.98.geojson.gz", marks / "b.svs.geojson", marks / "b2.geojson")
    with pytest.raises(DataNotFoundError, match="named like an image"):
        pairs_of(images, tmp_path)
    touch(marks / "b.geojson")
    (marks / "b.svs.geojson").unlink()
    assert pairs_of(images, marks) == [
        (images / "a 0.98.png", marks / "a 0.98.geojson.gz"),
        (images / "b.svs", marks / "b.geojson"),
    ]


def test_one_folder_may_hold_both(tmp_path: Path) -> None:
    touch(tmp_path / "a.png", tmp_path / "a.geojson")
    assert pairs_of(tmp_path, tmp_path) == [(tmp_path / "a.png", tmp_path / "a.geojson")]


def test_ambiguous_marks_are_an_error(tmp_path: Path) -> None:
    touch(tmp_path / "a.png", tmp_path / "a.geojson", tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"a\.csv and a\.geojson; leave one"):
        pairs_of(tmp_path, tmp_path)


def test_two_images_of_one_name_are_an_error(tmp_path: Path) -> None:
    touch(tmp_path / "a.svs", tmp_path / "a.tif", tmp_path / "marks" / "a.xml")
    with pytest.raises(InputError, match=r"fits both a\.svs and a\.tif"):
        pairs_of(tmp_path, tmp_path / "marks")


def test_a_file_with_a_folder_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path / "a.png")
    with pytest.raises(InputError, match="a file and a folder"):
        pairs_of(tmp_path / "a.png", tmp_path)
    with pytest.raises(DataNotFoundError, match="no such file"):
        pairs_of(tmp_path / "no.png", tmp_path)
    with pytest.raises(InputError, match="2 slides and 1 files of marks"):
        find_pairs([tmp_path, tmp_path], [tmp_path], None)


def test_pairs_from_a_table(tmp_path: Path) -> None:
    touch(tmp_path / "s" / "a.svs", tmp_path / "a.geojson")
    table = tmp_path / "pairs.csv"
    table.write_text("slide,marks\ns/a.svs,a.geojson\n")
    assert pairs_in_csv(table) == [(tmp_path / "s" / "a.svs", tmp_path / "a.geojson")]
    table.write_text("Marks; Slide;note\n a.geojson ;s/a.svs\n;;\n\n")
    assert pairs_in_csv(table) == [(tmp_path / "s" / "a.svs", tmp_path / "a.geojson")]
    (tmp_path / "b.ome.zarr").mkdir()
    (tmp_path / "b.ome.zarr" / "zarr.json").write_text("{}")
    table.write_text("slide,marks\nb.ome.zarr,a.geojson\n")
    assert pairs_in_csv(table) == [(tmp_path / "b.ome.zarr", tmp_path / "a.geojson")]
    table.write_text("slide,marks\ns/b.svs,a.geojson\n")
    with pytest.raises(DataNotFoundError, match=r"b\.svs: named in"):
        pairs_in_csv(table)
    table.write_text("image,label\n")
    with pytest.raises(FormatError, match="must be slide and marks"):
        pairs_in_csv(table)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", FormatError, "must be slide and marks"),
        (b"slide,marks\na.svs\n", DataNotFoundError, "there is no such file"),
        (b"slide,marks\ncaf\xe9.svs,a.geojson\n", FormatError, "not text in UTF-8"),
        (b"slide,marks\n" + b"a" * 300 + b".svs,a.geojson\n", DataNotFoundError, "there is no such file"),
        (b"slide,marks\n" + b"a" * 200_000 + b".svs,a.geojson\n", FormatError, "line 2 is not CSV"),
    ],
)
def test_a_damaged_table_of_pairs_is_an_error(
    tmp_path: Path, content: bytes, error: type[Exception], message: str
) -> None:
    table = tmp_path / "pairs.csv"
    table.write_bytes(content)
    with pytest.raises(error, match=message):
        pairs_in_csv(table)


def test_a_source_survives_its_file(tmp_path: Path) -> None:
    data = TrainingData(pairs=((Path("a.png"), Path("a.geojson")),), fraction=0.5, seed=3, mpp=0.25)
    for each in (data, replace(data, mpp=(0.25,))):
        (tmp_path / "source.json").write_text(json.dumps(vars(each), default=str))
        assert TrainingData.read(tmp_path / "source.json") == each


def test_each_slide_may_have_a_pixel_size(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "b.png"
    other.write_bytes(pair[0].read_bytes())
    slides, _ = TrainingData(pairs=(pair, (other, pair[1])), mpp=(0.5, 0.25)).load()
    assert [item.slide.mpp for item in slides] == [0.5, 0.25]
    with pytest.raises(InputError, match="1 pixel sizes for 2 slides"):
        TrainingData(pairs=(pair, pair), mpp=(0.5,))


def test_bad_sources_are_told(tmp_path: Path) -> None:
    for fraction in (0.0, math.inf, -1.0):
        with pytest.raises(InputError, match="share of the marks"):
            TrainingData(dataset="tnbc", root=tmp_path, fraction=fraction)
    with pytest.raises(DataNotFoundError, match="no such folder"):
        TrainingData(dataset="tnbc", root=tmp_path / "no")


def test_settings_come_from_profile_file_and_command(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text("steps = 7\nbatch = 2\n")
    config = make_config("paper", file, {"steps": 5})
    assert (config.steps, config.batch, config.width) == (5, 2, 64)
    file.write_text("stepps = 7\n")
    with pytest.raises(InputError, match="did you mean 'steps'"):
        make_config("quick", file, {})
    file.write_text(f"loss = 'ece'\nloss_options = {{ beta = {'9' * 400} }}\n")
    with pytest.raises(InputError, match="beta is 999"):
        make_config("quick", file, {})
    file.write_text("steps = = 7\n")
    with pytest.raises(FormatError, match="is not TOML"):
        make_config("quick", file, {})
    with pytest.raises(InputError, match="quick, paper"):
        make_config("slow", None, {})


def test_the_real_set_keeps_a_fraction_and_remembers_the_rest(real_data: Path) -> None:
    slides, held_out = TrainingData(dataset="tnbc", root=real_data, fraction=0.3).load()
    marks = sum(len(item.marks) for item in slides)
    truth = sum(len(item.cells) for item in slides)
    assert marks == pytest.approx(0.3 * truth, abs=1)
    assert held_out
    training, validation = TrainingData(dataset="monuseg", root=real_data).load()
    assert len(training) + len(validation) == 20
    groups = load_dataset("monuseg", real_data, split="train").hold_out(1 / 6)
    assert not set(groups[0].groups) & set(groups[1].groups)


@pytest.mark.filterwarnings("ignore:.*times as much is found")  # after so short a training
def test_own_pairs_through_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sparseshot.cli import main

    for number in range(3):
        slide, truth = blobs(number)
        Image.fromarray(slide.pixels).save(tmp_path / f"i{number}.png")
        Cells(truth.xy, outline=truth.outline).write(tmp_path / f"i{number}.geojson")
    (tmp_path / "small.toml").write_text(
        "start = 'scratch'\nwidth = 4\ndepth = 2\nbatch = 4\ncrop_px = 64\n"
        "validations = 1\nprecision = '32'\n"
    )
    run = tmp_path / "run"
    command = [
        "train",
        "--images",
        str(tmp_path),
        "--marks",
        str(tmp_path),
        "--config",
        str(tmp_path / "small.toml"),
    ]
    assert main([*command, "--out", str(run), "--steps", "6"]) == 1
    assert "--mpp 0.25" in capsys.readouterr().err
    assert main([*command, "--out", str(run), "--steps", "6", "--mpp", "0.5"]) == 0
    assert "calibrated threshold" in capsys.readouterr().out
    evaluation = ["evaluate", str(run), "--images", str(tmp_path), "--marks", str(tmp_path), "--mpp", "0.5"]
    assert main([*evaluation, "--json"]) == 0
    assert '"cells": 90' in capsys.readouterr().out
    one = ["--images", str(tmp_path / "i0.png"), "--marks", str(tmp_path / "i0.geojson"), "--mpp", "0.5"]
    assert main(["evaluate", str(run), *one]) == 0
    assert "nan" not in capsys.readouterr().out
    assert {"evaluation.json", "evaluation.png", "model.pt", "recipe.json", "state.json"} <= {
        path.name for path in run.iterdir()
    }
    rounds = [
        "--out",
        str(tmp_path / "weak"),
        "--steps",
        "3",
        "--mpp",
        "0.5",
        "--rounds",
        "2",
        "--tau",
        "0.5",
    ]
    assert main([*command, *rounds]) == 0
    assert (tmp_path / "weak" / "rounds" / "1" / "model.pt").exists()
    assert (tmp_path / "weak" / "model.pt").exists()
    assert main(["train", "--out", str(run)]) == 2
    assert "--dataset with --root" in capsys.readouterr().err
    assert main([*command, "--out", str(run), "--steps", "6", "--mpp", "0.5", "--loss", "cee"]) == 2
    assert "did you mean 'ce'" in capsys.readouterr().err


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    slide, truth = blobs(0)
    Image.fromarray(slide.pixels).save(tmp_path / "a.png")
    Cells(truth.xy).write(tmp_path / "a.geojson")
    return tmp_path / "a.png", tmp_path / "a.geojson"


def test_a_finished_run_is_loaded_without_opening_its_slides(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = tiny_request("detect", steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    first = train_run(config, data, tmp_path / "run")
    monkeypatch.setattr(TrainingData, "load", lambda _: pytest.fail("it was opened"))
    assert train_run(config, data, tmp_path / "run").step == first.step


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("changed", ["marks", "image", "rounds"])
def test_changed_inputs_of_a_run_are_refused(
    changed: str, finished: bool, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    config, data = tiny_request("detect", steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    train_run(config, data, tmp_path / "run")
    if not finished:
        (tmp_path / "run" / "model.pt").rename(tmp_path / "run" / "last.pt")  # as if it had been killed
    slide, truth = blobs(1)
    if changed == "image":
        Image.fromarray(slide.pixels).save(pair[0])
    if changed == "marks":
        Cells([*truth.xy, *truth.xy[:3] + 5.5]).write(pair[1])  # they would choose another radius too
    weak = WeakSupervision(2 if changed == "rounds" else 1)
    expected = "rounds" if changed == "rounds" else pair[changed == "marks"].name
    with pytest.raises(OutputError, match=expected):
        train_run(config, data, tmp_path / "run", weak=weak)


def test_every_round_holds_out_the_same_marks(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, truth = blobs(0)
    Cells(truth.xy[:12]).write(pair[1])
    held: list[list[Any]] = []

    def found_all(item: AnnotatedSlide, *_: object, **__: object) -> AnnotatedSlide:
        return replace(item, marks=truth)

    def watched(*args: Any, **options: Any) -> Any:
        canvases, held_out = prepare(*args, **options)
        held.append([(part.box, part.xy.tolist()) for part in held_out])
        return canvases, held_out

    monkeypatch.setattr("sparseshot.training.runs.promoted", found_all)
    monkeypatch.setattr("sparseshot.training.runs.prepare", watched)
    config, data = tiny_request("detect", steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    train_run(config, data, tmp_path / "run", weak=WeakSupervision(2))
    assert len(held) == 2
    assert held[0] == held[1]


def test_unclassified_marks_are_counted_once() -> None:
    cells = Cells([[0, 0]] * 3, classes=("a",), label=[0, -1, -1])
    told = describe_classes(Labelling(), [cells], own_marks=True)
    assert "a (1 mark), unclassified (2 marks)" in told


def test_marks_in_micrometres_are_placed_by_the_slide(pair: tuple[Path, Path]) -> None:
    file = pair[1].with_suffix(".csv")
    file.write_text("x_um,y_um\n10,20\n")
    ((item,), _) = TrainingData(pairs=((pair[0], file),), mpp=0.5).load()
    assert item.marks.xy.tolist() == [[20, 40]]


def test_marks_outside_the_slide_are_left_out_or_refused(pair: tuple[Path, Path]) -> None:
    file = pair[1]
    Cells([[10, 10], [-5, 10], [20, 9999], [30, 30]]).write(file)
    with pytest.warns(TrainingWarning, match=r"a\.geojson: 2 of 4 marks lie outside a\.png.*192 × 192"):
        ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5).load()
    assert item.marks.xy.tolist() == [[10, 10], [30, 30]]
    Cells([[-10, -10], [-50, -10], [30, 30]]).write(file)
    with pytest.raises(InputError, match="marks of another slide"):
        TrainingData(pairs=(pair,), mpp=0.5).load()
    parquet = file.with_suffix(".parquet")
    Cells([[10, 10]], mpp=0.25).write(parquet)
    with pytest.raises(InputError, match=r"0\.25 µm per pixel, and a\.png has 0\.5"):
        TrainingData(pairs=((pair[0], parquet),), mpp=0.5).load()


def test_marks_that_are_refused_claim_no_folder(pair: tuple[Path, Path], tmp_path: Path) -> None:
    data, config = TrainingData(pairs=(pair,), mpp=0.5), tiny_request("detect", steps=2, validations=1)
    with pytest.raises(InputError, match="no mark is of class 'tumor'"):
        train_run(replace(config, classes=("tumor",)), data, tmp_path / "run")
    whole = pair[1].read_bytes()
    Cells(np.empty((0, 2))).write(pair[1])
    with pytest.raises(InputError, match="a mark to learn from"):
        train_run(config, data, tmp_path / "run")
    pair[1].write_bytes(whole)
    train_run(config, data, tmp_path / "run")


def test_marks_of_one_slide_in_two_files_are_put_together(pair: tuple[Path, Path], tmp_path: Path) -> None:
    _, truth = blobs(0)
    Cells(truth.xy[:12]).write(pair[1])
    Cells(truth.xy[12:20]).write(tmp_path / "b.geojson")
    again = (tmp_path / ".." / tmp_path.name / "a.png", tmp_path / "b.geojson")
    data = TrainingData(pairs=(pair, again), mpp=0.5)
    ((item,), _) = data.load()
    assert np.allclose(item.marks.xy, truth.xy[:20], atol=0.1)
    config = tiny_config("detect", steps=2, validations=1)
    canvases, held_out = prepare([item], [], config)
    assert held_out
    assert all((canvases[0].cut(part.box, BlockCache(0)).label == IGNORED).all() for part in held_out)
    train_run(config, data, tmp_path / "run")


def test_an_outline_larger_than_a_cell_is_no_cell(pair: tuple[Path, Path]) -> None:
    file = pair[1]
    outline = np.array([shapely.box(10, 10, 20, 20), shapely.box(0, 0, 190, 190)], object)
    Cells([[15, 15], [95, 95]], outline=outline).write(file)
    with pytest.warns(SparseshotWarning, match="taken for a region"):
        ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5).load()
    assert len(item.marks) == 1
    ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5, keep_large=True).load()
    assert len(item.marks) == 2


def test_a_suggested_region_is_no_cell(pair: tuple[Path, Path]) -> None:
    outline = np.array([None, shapely.box(0, 0, 80, 80)], object)
    Cells([[15, 15], [40, 40]], outline=outline, classes=("tumour", SUGGESTED), label=[0, 1]).write(pair[1])
    ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5).load()
    assert item.marks.counts() == {"tumour": 1}


def test_thinned_marks_are_not_exhaustive(pair: tuple[Path, Path]) -> None:
    _, truth = blobs(0)
    Cells(truth.xy, regions=np.array([shapely.box(0, 0, 192, 192)], object)).write(pair[1])
    for fraction, regions in ((0.5, 0), (10, 0), (1.0, 1), (1000, 1)):
        ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5, fraction=fraction).load()
        assert len(item.marks.regions) == regions, fraction


def test_the_marks_choose_the_task_and_the_classes_are_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    _, truth = blobs(0)
    label = (np.arange(len(truth)) % 3 == 0).astype(np.int16)
    config, data = tiny_request(None, steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    lines: list[str] = []
    checkpoint = train_run(config, data, tmp_path / "points", report=saying(lines))
    assert checkpoint.config.task == "detect"
    assert lines[0].startswith("task detect, because all 30 marks are points")
    assert lines[1].startswith("one detection within 4 µm")
    assert checkpoint.config.radius_um == 4
    assert "learning cell (30 marks)" in lines[2]
    assert lines[3] == "from random weights, 2 steps"
    again = train_run(config, data, tmp_path / "points")
    assert again.config == checkpoint.config
    Cells(truth.xy, outline=truth.outline, classes=("Tumor", "Debris"), label=label).write(pair[1])
    lines.clear()
    with pytest.warns(TrainingWarning, match="class 'Debris' are learned as cells.*--negative Debris"):
        checkpoint = train_run(config, data, tmp_path / "outlines", report=saying(lines))
    assert checkpoint.config.task == "segment"
    assert lines[1] == "learning Tumor (20 marks), Debris (10 marks) as one class, cell"
    config = replace(config, negative_classes=("Debris",), task="detect")
    lines.clear()
    checkpoint = train_run(config, data, tmp_path / "negatives", report=saying(lines))
    assert lines[-2] == "learning Tumor (20 marks); certain negatives: Debris (10 marks)"
    assert checkpoint.classes == ("Tumor",)
    assert checkpoint.config.radius_um == pytest.approx(3, abs=0.1)  # 0.6 of discs of 5 µm


@pytest.mark.filterwarnings("ignore:.*20 marks are of cells that another mark is of")
def test_a_model_keeps_the_class_and_colour_of_its_marks(pair: tuple[Path, Path], tmp_path: Path) -> None:
    _, truth = blobs(0)
    twice = np.concatenate([truth.xy, truth.xy[:20]])  # a cell that was clicked twice changes nothing
    Cells(twice, classes=("Nucleus",), label=np.zeros(len(twice), np.int16), colors=[(0, 170, 255)]).write(
        pair[1]
    )
    config, data = tiny_request(None, steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    checkpoint = train_run(config, data, tmp_path / "run")
    assert (checkpoint.classes, checkpoint.config.colors) == (("Nucleus",), ("#00aaff",))
    assert checkpoint.config.radius_um == 4
    ((item,), _) = TrainingData(pairs=(pair,), mpp=0.5).load()
    found = item.look_at(checkpoint.network(), checkpoint.config, threshold=0.01).cells
    assert (found.classes, found.colors) == (("Nucleus",), ((0, 170, 255),))
    assert train_run(config, data, tmp_path / "run").config == checkpoint.config
    with pytest.raises(OutputError, match=r"another configuration.*classes"):
        train_run(replace(config, classes=("Nucleus", "other")), data, tmp_path / "run")


@pytest.mark.parametrize("given", [{"classes": ("Tumor",)}, {"task": "segment"}, {"radius_um": 2.0}])
def test_a_run_is_resumed_with_the_settings_that_were_given(
    pair: tuple[Path, Path], tmp_path: Path, given: dict[str, Any]
) -> None:
    _, truth = blobs(0)
    label = (np.arange(len(truth)) % 3 == 0).astype(np.int16)
    Cells(truth.xy, classes=("Tumor", "Stroma"), label=label).write(pair[1])
    plain, data = tiny_request(None, steps=2, validations=1), TrainingData(pairs=(pair,), mpp=0.5)
    config, run = replace(plain, **given), tmp_path / "run"
    checkpoint = train_run(config, data, run)
    assert train_run(config, data, run).config == checkpoint.config
    with pytest.raises(OutputError, match=f"another configuration.*{next(iter(given))}"):
        train_run(plain, data, run)
    (run / "model.pt").unlink()  # not finished
    with pytest.raises(OutputError, match=f"another configuration.*{next(iter(given))}"):
        train_run(plain, data, run)
