"""What a run records of its parents and marks."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.training.blobs import blobs, saying, tiny_request

from sparseshot.cells import Cells
from sparseshot.errors import CheckpointError, FormatError
from sparseshot.images import open_slide
from sparseshot.models.checkpoint import Checkpoint, fingerprint
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.lineage import (
    MarkChanges,
    changes_since,
    changes_since_parent,
    keep_marks,
    kept_marks,
    recorded_parents,
)
from sparseshot.training.runs import train_run


def image_with_marks(folder: Path, *, keep: int) -> TrainingData:
    """Write a picture and some of its marks."""
    slide, cells = blobs(1)
    Image.fromarray(slide.pixels).save(folder / "a.png")
    cells[:keep].write(folder / "a.geojson")
    return TrainingData(pairs=((folder / "a.png", folder / "a.geojson"),), mpp=0.5)


def test_a_run_records_its_parents_and_its_marks(tmp_path: Path) -> None:
    said: list[str] = []
    config = tiny_request("detect", steps=2, validations=1)
    grandparent, parent, child = (tmp_path / name for name in ("one", "two", "three"))
    train_run(config, image_with_marks(tmp_path, keep=12), grandparent)
    assert recorded_parents(grandparent) == []
    for folder, start, keep in ((parent, grandparent, 15), (child, parent, 14)):
        again = tiny_request("detect", steps=2, validations=1, start=str(start))
        train_run(
            again,
            image_with_marks(tmp_path, keep=keep),
            folder,
            report=saying(said),
        )
    assert [line for line in said if "since" in line] == [
        "marks since then: 3 new",
        "marks since then: 1 gone",
    ]
    assert len(kept_marks(child)["a.png"]) == 14
    first, second = recorded_parents(child)
    assert (first.path, second.path) == (str(parent / "model.pt"), str(grandparent / "model.pt"))
    assert second.fingerprint == fingerprint(Checkpoint.load(grandparent / "model.pt"))

    shutil.rmtree(parent)
    train_run(again, image_with_marks(tmp_path, keep=14), child)  # finished: needs no parent
    (tmp_path / "a.png").unlink()  # nothing is loaded before the parent is looked for
    with pytest.raises(CheckpointError, match="no such run or model to start from"):
        train_run(again, TrainingData(pairs=((tmp_path / "a.png", tmp_path / "b"),)), tmp_path / "four")
    assert not (tmp_path / "four").exists()
    parent.mkdir()
    with pytest.raises(CheckpointError, match=r"no model\.pt to start from; finish"):
        train_run(again, TrainingData(pairs=((tmp_path / "a.png", tmp_path / "b"),)), tmp_path / "four")


def test_a_run_that_goes_on_is_short_and_resumes(tmp_path: Path) -> None:
    said: list[str] = []
    first = tiny_request("detect", steps=2, validations=1, loss="adaptive")
    train_run(first, image_with_marks(tmp_path, keep=12), tmp_path / "one")
    more = tiny_request("detect", steps=None, validations=None, loss="adaptive", start=str(tmp_path / "one"))
    data = image_with_marks(tmp_path, keep=15)
    checkpoint = train_run(more, data, tmp_path / "two", report=saying(said))
    assert said[-1] == f"from {tmp_path / 'one'}, 25 steps"
    config = checkpoint.config
    assert (config.steps, config.validations) == (25, 1)
    assert config.loss_options["warm_up"] == 0
    assert config.loss_options["first_alpha"] <= 0.05, "few marks do not unlearn what is unmarked"
    again = train_run(more, data, tmp_path / "two")  # the same command finds its choices
    assert fingerprint(again) == fingerprint(checkpoint)


def test_a_run_goes_on_at_the_resolution_of_its_parent(tmp_path: Path) -> None:
    data = image_with_marks(tmp_path, keep=12)
    parent = tiny_request("detect", steps=2, validations=1, mpp=1.0)
    train_run(parent, data, tmp_path / "one")
    child = tiny_request("detect", steps=2, validations=1, start=str(tmp_path / "one"))
    for _ in range(2):  # the same command finds its choices
        assert train_run(child, data, tmp_path / "two").mpp == 1


def test_the_starter_is_a_parent(tmp_path: Path) -> None:
    data = image_with_marks(tmp_path, keep=12)
    config = tiny_request("detect", steps=1, validations=1, start="starter", width=16, depth=3)
    train_run(config, data, tmp_path / "run")
    (parent,) = recorded_parents(tmp_path / "run")
    assert parent.path == "starter"
    assert len(parent.fingerprint) == 64


def test_a_run_from_a_relative_path_is_resumed_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = image_with_marks(tmp_path, keep=12)
    train_run(tiny_request("detect", steps=2, validations=1), data, tmp_path / "parent")
    child = tmp_path / "child"
    monkeypatch.chdir(tmp_path)
    train_run(tiny_request("detect", steps=2, validations=1, start="parent"), data, child)
    (child / "model.pt").unlink()  # as if it had been killed before its first checkpoint
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = tiny_request("detect", steps=2, validations=1, start="../parent")
    train_run(again, data, child)
    assert (child / "model.pt").exists()


def test_two_slides_may_have_one_name(tmp_path: Path) -> None:
    items = []
    for folder, mpp in (("A", 0.2521), ("B", 0.2527)):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (64, 64)).save(tmp_path / folder / "slide.png")
        slide = open_slide(tmp_path / folder / "slide.png", mpp=mpp)
        items.append(AnnotatedSlide(slide, Cells([[10, 10], [50, 60]], mpp=mpp)))
    keep_marks(tmp_path, items)
    assert changes_since_parent(tmp_path, items) == MarkChanges()
    fewer = [items[0], replace(items[1], marks=items[1].marks[:1])]
    assert changes_since_parent(tmp_path, fewer) == MarkChanges(gone=1)


def test_damaged_records_are_named(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text(json.dumps({"parents": [{"path": 1}]}))
    with pytest.raises(FormatError, match="its parents cannot be understood"):
        recorded_parents(tmp_path)
    assert kept_marks(tmp_path) == {}


def test_changes_of_marks() -> None:
    xy = np.random.default_rng(0).uniform(0, 1000, (40, 2))
    before = Cells(xy, classes=("a", "b"), label=np.arange(40) % 2, mpp=0.5)
    assert changes_since(before, before[::-1]) == MarkChanges()
    assert str(changes_since(before, before)) == "none changed"
    assert changes_since(before, before[5:]) == MarkChanges(gone=5)
    moved = xy.copy()
    moved[:3] += (1.0, -2.0)
    moved[3] += 500
    after = Cells(moved, classes=("b", "a"), label=1 - np.arange(40) % 2, mpp=0.5)
    assert changes_since(before, after) == MarkChanges(new=1, gone=1, moved=3)
    renamed = Cells(xy, classes=("a", "b"), label=np.zeros(40), mpp=0.5)
    assert changes_since(before, renamed) == MarkChanges(renamed=20)
    assert changes_since(before[:0], before) == MarkChanges(new=40)
