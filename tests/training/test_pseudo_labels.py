"""What a model was confident of, and nobody rejected, is learned as cells when others were rejected."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from scipy.spatial import cKDTree
from tests.training.blobs import blobs, saying, tiny_config, tiny_request
from tests.training.test_known_network import DarkestOfEight
from torch import nn

from sparseshot.cells import Cells
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.labelling import REJECTED
from sparseshot.training import pseudo_labels
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.canvas import BlockCache
from sparseshot.training.held_out import make_canvas
from sparseshot.training.pseudo_labels import find_pseudo_labels, kept_pseudo_labels, with_pseudo_labels
from sparseshot.training.runs import train_run


class FindsAll(Checkpoint):
    """A model that finds every disc."""

    def network(self, network: nn.Module | None = None) -> nn.Module:
        return DarkestOfEight()


CONFIG = tiny_config("detect", stride=8)
PARENT = FindsAll(CONFIG, DarkestOfEight().state_dict(), 1)


def corrected(*, marked: int, rejected: int) -> tuple[AnnotatedSlide, Cells]:
    """Return a slide with some discs marked and the next ones rejected, and the rest of the discs."""
    slide, truth = blobs(0)
    wrong = Cells(truth.xy[marked : marked + rejected], classes=(REJECTED,), mpp=0.5)
    marks = Cells.concatenate([Cells(truth.xy[:marked], mpp=0.5), wrong])
    return AnnotatedSlide(slide, marks), truth[marked + rejected :]


def test_two_predictions_are_learned_for_each_rejected_one() -> None:
    item, rest = corrected(marked=4, rejected=5)
    (found,) = find_pseudo_labels(PARENT, [item], CONFIG)
    assert len(found) == 10
    distance, nearest = cKDTree(rest.xy).query(found.xy)
    assert (distance < 2).all()
    assert len(set(nearest.tolist())) == 10
    (again,) = find_pseudo_labels(PARENT, [item], CONFIG)
    np.testing.assert_array_equal(again.xy, found.xy)


def test_there_are_none_without_rejections_and_in_segmentation() -> None:
    marked, _ = corrected(marked=4, rejected=0)
    rejected, _ = corrected(marked=4, rejected=5)
    region = np.array([shapely.box(0, 0, 192, 192)])
    reviewed = replace(rejected, marks=replace(rejected.marks, regions=region))
    for item, config in ((marked, CONFIG), (reviewed, CONFIG), (rejected, tiny_config("segment"))):
        (found,) = find_pseudo_labels(PARENT, [item], config)
        assert len(found) == 0


def test_they_are_cells_that_do_not_count_as_marked_by_somebody() -> None:
    item, _ = corrected(marked=4, rejected=5)
    found = find_pseudo_labels(PARENT, [item], CONFIG)
    (labelled,) = with_pseudo_labels([item], found, CONFIG)
    assert labelled.marks.counts() == {"cell": 14, REJECTED: 5}
    canvas = make_canvas(labelled, CONFIG)
    exhaustive = canvas.cut(canvas.grid.box, BlockCache()).exhaustive[4::8, 4::8]  # as the grid reads it
    own = np.zeros_like(exhaustive)
    own[tuple((found[0].xy // 8).astype(int).T[::-1])] = True
    np.testing.assert_array_equal(exhaustive, own)


def test_a_run_keeps_them_for_when_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudo_labels, "LEAST_SCORE", 0.05)  # of a model that has hardly learned
    item, _ = corrected(marked=12, rejected=5)
    Image.fromarray(item.slide.thumbnail(192)).save(tmp_path / "a.png")
    item.marks.write(tmp_path / "a.geojson")
    data = TrainingData(pairs=((tmp_path / "a.png", tmp_path / "a.geojson"),), mpp=0.5)
    parent = tiny_request("detect", steps=30, validations=1)
    trained = train_run(parent, data, tmp_path / "parent")
    child = tiny_request("detect", steps=2, validations=1, start=str(tmp_path / "parent"))
    said: list[str] = []
    train_run(child, data, tmp_path / "child", report=saying(said))
    slides, _ = data.load()
    (expected,) = find_pseudo_labels(trained, slides, trained.config)
    (kept,) = kept_pseudo_labels(tmp_path / "child", slides)
    assert 0 < len(kept) == len(expected)
    assert f"{len(kept)} confident predictions are learned as cells, because others were rejected" in said
    (none,) = kept_pseudo_labels(tmp_path / "parent", slides)
    assert len(none) == 0
