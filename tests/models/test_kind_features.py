"""Features for the kind of a found cell."""

import numpy as np
import pytest
import torch
from tests.prediction.networks import ArraySlide
from torch import nn

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import Box
from sparseshot.models.detect import Detect
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import TILE_PX, features_at, look_at
from sparseshot.models.model_files import load_starter
from sparseshot.models.segment import Segment
from sparseshot.models.task import Points, kind_loss
from sparseshot.work import Event

SLIDE = SyntheticTissue(seed=5, size_px=(400, 360), mpp=0.5, tissue_fraction=1.0)
TASKS: dict[str, Detect | Segment] = {
    "detect": Detect(stride=4, context=True, kind_features=6, kinds=("a", "b")),
    "segment": Segment(heights=True, kind_features=6, kinds=("a", "b")),
}


def network_of(task: Detect | Segment) -> nn.Module:
    """Return the starter with new features."""
    torch.manual_seed(1)
    network = task.network().eval()
    found = {
        name: weight
        for name, weight in load_starter(task.name).weights.items()
        if not name.startswith(("features.", "kind_head."))
    }
    network.load_state_dict(network.state_dict() | found)
    return network


@pytest.mark.parametrize("name", TASKS)
def test_a_found_cell_has_the_features_of_its_place(name: str) -> None:
    task = TASKS[name]
    network, frame = network_of(task), SlideFrame.over(SLIDE, mpp=0.5, classes=("cell",))
    region = look_at(network, task, SLIDE, frame, threshold=0.5)
    cells, features = region.cells_and_features
    assert features.shape == (len(cells), 6)
    assert features.dtype == np.float32
    assert len(cells) > 3
    np.testing.assert_array_equal(region.cells.xy, cells.xy)
    assert not cells.measurements
    pixels = torch.from_numpy(SLIDE.read(frame.grid, frame.grid.box)).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = task.features(network(pixels.float() / 127.5 - 1))[0].numpy()
    inside = ((cells.xy > 96) & (cells.xy < (304, 264))).all(axis=1)  # away from the edge of the slide
    assert inside.sum() > 3
    for xy, own in zip(cells.xy[inside], features[inside], strict=True):
        column, row = (xy // 8).astype(int)
        # A detection may lie half a grid cell outside of the grid cell that found it.
        reach = 1 if name == "detect" else 0
        around = expected[:, row - reach : row + reach + 1, column - reach : column + reach + 1]
        assert np.abs(around - own[:, None, None]).max(axis=0).min() < 0.02


@pytest.mark.parametrize("name", TASKS)
def test_features_do_not_depend_on_the_region(name: str) -> None:
    task = TASKS[name]
    network, frame = network_of(task), SlideFrame.over(SLIDE, mpp=0.5, classes=("cell",))
    whole = look_at(network, task, SLIDE, frame, threshold=0.5).cells_and_features
    box = Box(120, 100, 260, 220)
    cells, features = look_at(network, task, SLIDE, frame, threshold=0.5, box=box).cells_and_features
    assert len(cells)
    for xy, own in zip(cells.xy, features, strict=True):
        same = np.flatnonzero(np.abs(whole[0].xy - xy).max(axis=1) < 0.02)
        assert len(same)
        assert np.abs(whole[1][same] - own).max(axis=1).min() < 0.02


@pytest.mark.parametrize("name", TASKS)
def test_kinds_are_learned_from_marks_of_known_kind_only(name: str) -> None:
    task = TASKS[name]
    label = np.zeros((64, 64), np.int16)
    points = Points(
        np.array([[12.0, 12.0], [44.0, 44.0]]),
        np.array([1, 1], np.int16),
        np.full((2, 2), np.nan),
        np.array([1, -1], np.int16),
    )
    kind = task.target(label, points).kind
    assert kind is not None
    assert kind[1, 1] == 1
    assert (kind[4:, 4:] == -1).all()
    network = network_of(task)
    output = network(torch.randn(1, 3, 64, 64))
    known = torch.from_numpy(kind)[None]
    assert 0.1 < kind_loss(task, network, output, known).item() < 3
    assert kind_loss(task, network, output, torch.full_like(known, -1)).item() == 0


@pytest.mark.parametrize("name", TASKS)
def test_features_at_given_places(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS[name]
    network, frame = network_of(task), SlideFrame.over(SLIDE, mpp=0.5, classes=("cell",))
    xy = np.random.default_rng(0).uniform((96, 96), (304, 264), (40, 2))
    pixels = torch.from_numpy(SLIDE.read(frame.grid, frame.grid.box)).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = task.features(network(pixels.float() / 127.5 - 1))[0].numpy()
    column, row = (xy // 8).astype(int).T
    for tile_px in (TILE_PX, 128):
        monkeypatch.setattr("sparseshot.models.inference.TILE_PX", tile_px)
        features = features_at(network, task, SLIDE, frame, xy)
        assert features.dtype == np.float32
        np.testing.assert_allclose(features, expected[:, row, column].T, atol=1e-4)


def test_only_tiles_with_places_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["detect"]
    unreadable = Box(256, 0, 512, 128)
    slide = ArraySlide(np.full((512, 512, 3), 200, np.uint8), broken=(unreadable,))
    frame = SlideFrame.over(slide, mpp=0.5, classes=("cell",))
    monkeypatch.setattr("sparseshot.models.inference.TILE_PX", 128)
    corners = np.array([[0.0, 0.0], [512.0, 512.0], [0.0, 512.0]])
    events: list[Event] = []
    features = features_at(network_of(task), task, slide, frame, corners, report=events.append)
    assert np.isfinite(features).all()
    assert [(event.done, event.total) for event in events] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert features_at(network_of(task), task, slide, frame, np.empty((0, 2))).shape == (0, 6)
