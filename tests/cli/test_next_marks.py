"""The commands of the loop: suggest, quality, train --from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.prediction.networks import random_detector, save
from tests.training.blobs import blobs

from sparseshot.cells import Cells, read_cells
from sparseshot.cli import main
from sparseshot.metrics import Evidence, ScoreHistogram
from sparseshot.metrics.counts import Interval
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.training.lineage import kept_marks


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an image, its marks, and a model with evidence."""
    folder = tmp_path_factory.mktemp("loop")
    slide, cells = blobs(0, size=320, count=80)
    Image.fromarray(slide.pixels).save(folder / "a.png")
    Image.fromarray(slide.pixels[::-1]).save(folder / "b.png")
    cells[:30].write(folder / "a.geojson")
    random = np.random.default_rng(0)
    scores = np.concatenate([random.uniform(0.4, 1, 100), random.uniform(0, 0.5, 500)])
    evidence = Evidence(
        ScoreHistogram.of(scores[:40]),
        ScoreHistogram.of(scores),
        40,
        hits=ScoreHistogram.of(scores[:40]),
        own_hits=ScoreHistogram.of(scores[:40]),
        region_hits=ScoreHistogram.of(scores[:60]),
        region_found=ScoreHistogram.of(scores),
        region_cells=80,
        interval=Interval(0.3, 0.6),
        marked_share=0.4,
    )
    model = random_detector(threshold=0.5)
    save(Checkpoint(model.config, model.weights, 1, threshold=0.5, evidence=evidence), folder / "run")
    save(model, folder / "old")
    return folder


def test_evidence_is_in_the_checkpoint(place: Path) -> None:
    evidence = Checkpoint.load(place / "run" / "model.pt").evidence
    assert evidence is not None
    assert (evidence.marks, evidence.of_marks.total, evidence.of_all.total) == (40, 40, 600)
    assert (evidence.interval, evidence.marked_share, evidence.held_out) == (Interval(0.3, 0.6), 0.4, True)
    assert Checkpoint.load(place / "old" / "model.pt").evidence is None


def test_suggest_writes_a_file_for_each_slide(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slides = [str(place / "a.png"), str(place / "b.png"), "--mpp", "0.5"]
    more = ["--out", str(tmp_path / "next.geojson"), "--regions", "4", "--side-um", "40", "--json"]
    assert main(["suggest", str(place / "run"), *slides, *more]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert len(told["regions"]) == 4
    assert "does not record its marks" in err
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["next a.png.geojson", "next b.png.geojson"]
    assert main(["suggest", str(place / "run"), *slides[:1], *slides[2:], *more[:-1]]) == 0
    assert "next.geojson: drop it on" in capsys.readouterr().out
    assert main(["suggest", str(place / "gone"), *slides, *more]) == 1
    assert main(["suggest", str(place / "run"), *slides, *more, "--found", str(place)]) == 2
    assert "holds no prediction" in capsys.readouterr().err


def test_quality_of_a_model_and_of_slides(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, found = str(place / "run"), str(tmp_path / "found")
    assert main(["predict", run, str(place / "a.png"), "--mpp", "0.5", "--out", found]) == 0
    assert "from 120 held-out marks" in capsys.readouterr().out
    assert main(["quality", run, found]) == 0
    out = capsys.readouterr().out
    assert "of the cells are found" in out
    assert "a.png" in out
    assert main(["quality", run, f"{found}/a.png", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (slide,) = told["slides"]
    cells, low, high = slide["expected"]["cells"]
    assert low <= cells <= high
    assert told["quality"]["marks"] == 120
    assert main(["quality", str(place / "old"), found]) == 0
    assert "unknown: no mark was held out" in capsys.readouterr().out
    assert main(["quality", run, str(place)]) == 1
    assert "holds no prediction" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::sparseshot.errors.SparseshotWarning")
def test_training_goes_on_from_a_run(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.toml").write_text(
        "width = 4\nsteps = 2\nbatch = 2\ncrop_px = 64\nvalidations = 1\nlog_every = 1\n"
    )
    for name in ("a.png", "a.geojson"):
        shutil.copy(place / name, tmp_path)
    common = ["--slide", str(tmp_path / "a.png"), "--marks", str(tmp_path / "a.geojson"), "--mpp", "0.5"]
    common += ["--task", "detect", "--config", str(tmp_path / "tiny.toml"), "--device", "cpu"]
    assert main(["train", *common, "--from", "scratch", "--out", str(tmp_path / "one")]) == 0
    again = ["train", *common, "--from", str(tmp_path / "one"), "--out", str(tmp_path / "two")]
    assert main(again) == 0
    assert "marks since then: none changed" in capsys.readouterr().err
    assert main(["quality", str(tmp_path / "two")]) == 0
    shutil.rmtree(tmp_path / "one")
    assert main(again) == 0  # finished: the parent is not needed
    assert main([*again[:-1], str(tmp_path / "three")]) == 1
    assert "no such file or folder" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::sparseshot.errors.SparseshotWarning")
def test_bad_marks_and_parents_are_named_and_nothing_is_lost(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text("width = 4\nsteps = 2\nbatch = 2\ncrop_px = 64\nvalidations = 1\n")
    cells = read_cells(place / "a.geojson")
    denied = Cells(cells.xy[:1], classes=("Rejected",), mpp=0.5, regions=[shapely.box(-90, -90, 1, 1)])
    marks = Cells.concatenate([Cells(cells.xy, mpp=0.5), denied])
    marks.write(tmp_path / "a.geojson")
    written = (tmp_path / "a.geojson").read_bytes()
    common = ["--slide", str(place / "a.png"), "--marks", str(tmp_path / "a.geojson"), "--mpp", "0.5"]
    common += ["--config", str(tmp_path / "tiny.toml"), "--device", "cpu"]

    def train(out: str, *more: str) -> tuple[int, str]:
        code = main(["train", *common, *more, "--out", str(tmp_path / out)])
        return code, " ".join(capsys.readouterr().err.split())

    code, said = train("one", "--task", "detect", "--from", "scratch")
    assert code == 0
    assert "1 cell is marked as positive and as negative" in said
    assert "1 region is declared exhaustive and without any mark" in said
    (kept,) = kept_marks(tmp_path / "one").values()
    assert kept.counts() == marks.counts(), "the run keeps both marks"

    code, said = train("two", "--task", "segment", "--from", str(tmp_path / "one"))
    assert code == 1
    assert "is a model for the task detect, this run has the task segment" in said
    code, said = train("two", "--task", "detect", "--from", str(tmp_path / "gone"))
    assert code == 1
    assert "no such file or folder" in said
    assert not (tmp_path / "two").exists()

    halves = np.arange(len(cells)) % 2
    Cells(cells.xy, classes=("a", "b"), label=halves, mpp=0.5).write(tmp_path / "a.geojson")
    code, said = train("two", "--task", "detect", "--classes", "a,b", "--from", str(tmp_path / "one"))
    assert code == 0
    assert "with a new last layer for the classes a, b" in said
    assert f"{len(cells)} of another class" in said
    (tmp_path / "a.geojson").write_bytes(written)
    assert train("one", "--task", "detect", "--from", "scratch")[0] == 0, "the parent is as it was"
