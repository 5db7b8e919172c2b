"""A network that is right by construction: dark is cell. What is built on networks must say so."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
import torch
from tests.training.blobs import blobs, marked_blobs, tiny_config
from torch import Tensor, nn

from sparseshot.cells import Cells
from sparseshot.errors import TrainingWarning
from sparseshot.files import write_json
from sparseshot.images import Box
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache
from sparseshot.training.evaluation import evaluate
from sparseshot.training.held_out import gather_evidence, prepare
from sparseshot.training.pictures import COLORS, TITLES, picture_row, write_picture
from sparseshot.training.pseudo_labels import promoted


class DarkIsCell(nn.Module):
    """One logit a pixel: positive where the picture is dark, shifted by ``bias``."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(bias))

    def forward(self, image: Tensor) -> Tensor:
        return 20 * (0.3 - image[:, :1]) + self.bias


class DarkestOfEight(nn.Module):
    """A detector: a grid cell of eight pixels holds a cell if the centre of a dark disc is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(0.0))

    def forward(self, image: Tensor) -> Tensor:
        row, col = torch.meshgrid(torch.arange(-6, 7), torch.arange(-6, 7), indexing="ij")
        disc = ((row**2 + col**2) <= 25).float()[None, None] / 81
        dark = nn.functional.conv2d((image[:, :1] < 0.3).float(), disc, padding=6)
        darkest, place = nn.functional.max_pool2d(dark, 8, return_indices=True)
        width = image.shape[-1]
        x, y = (place % width) % 8 + 0.5, (place // width) % 8 + 0.5
        offset = torch.logit((torch.cat([x, y], dim=1) / 8 + 0.5) / 2)
        return torch.cat([60 * (darkest - 0.8) + self.bias, offset], dim=1)


def checkpoint_of(network: nn.Module, *, threshold: float | None = None) -> Checkpoint:
    return Checkpoint(tiny_config(), network.state_dict(), 1, threshold=threshold)


def test_a_right_network_scores_one() -> None:
    slide, truth = blobs(0)
    result = evaluate(checkpoint_of(DarkIsCell()), [AnnotatedSlide(slide, truth)], network=DarkIsCell())
    assert result.half.pooled > 0.97
    assert result.calibrated is None
    assert result.cells == 30
    assert math.isnan(result.half.low), "one image says nothing about others"


@pytest.mark.parametrize("task", ["segment", "detect"])
@pytest.mark.parametrize("box", [None, Box(70, 60, 134, 91), Box(90, 90, 95, 95)])
def test_a_network_that_names_no_margin_sees_one_tile(task: str, box: Box | None) -> None:
    network: nn.Module = DarkIsCell() if task == "segment" else DarkestOfEight()
    item = AnnotatedSlide(*blobs(0))
    assert len(item.look_at(network, tiny_config(task, stride=8), threshold=0.5, box=box).window.tiles) == 1


def test_outlines_are_scored_as_a_whole() -> None:
    slide, truth = blobs(0)
    checkpoint = checkpoint_of(DarkIsCell(), threshold=0.5)
    result = evaluate(checkpoint, [AnnotatedSlide(slide, truth)], network=DarkIsCell())
    for point in (result.half, result.calibrated):
        assert point is not None
        assert point.f1_at_iou_half == 1.0
        assert point.panoptic_quality is not None
        assert point.aggregated_jaccard_index is not None
        assert 0.8 < point.aggregated_jaccard_index <= point.panoptic_quality <= 1.0
    missed = evaluate(checkpoint, [AnnotatedSlide(slide, truth[:-1])], network=DarkIsCell()).half
    found = len(truth)
    assert missed.f1_at_iou_half == pytest.approx(2 * (found - 1) / (2 * found - 1))
    points = evaluate(checkpoint, [AnnotatedSlide(slide, replace(truth, outline=None))], network=DarkIsCell())
    assert points.half.panoptic_quality is None


def test_a_network_that_finds_nothing_is_told_in_json_that_every_program_reads(tmp_path: Path) -> None:
    network = DarkIsCell(-1000.0)
    slide, truth = blobs(0)
    result = evaluate(checkpoint_of(network), [AnnotatedSlide(slide, truth)], network=network)
    write_json(tmp_path / "scores.json", result)
    told = json.loads((tmp_path / "scores.json").read_text(), parse_constant=pytest.fail)
    assert told["half"]["precision"] is None
    assert told["half"]["recall"] == 0


def test_a_shifted_network_is_mended_by_its_calibrated_threshold() -> None:
    """As after training on few marks: everything is told apart, but no probability reaches one half."""
    network = DarkIsCell(-8.0)
    _, held_out = prepare([marked_blobs(0)], [marked_blobs(1)], tiny_config())
    gathered = gather_evidence(network, tiny_config(), held_out)
    assert gathered is not None
    _, seen = gathered
    slide, truth = blobs(2)
    result = evaluate(
        checkpoint_of(network, threshold=seen.threshold), [AnnotatedSlide(slide, truth)], network=network
    )
    assert result.half.pooled < 0.5
    assert result.calibrated is not None
    assert result.calibrated.pooled > 0.95
    assert result.best.pooled >= result.calibrated.pooled


def test_calibration_needs_marks() -> None:
    slide, truth = blobs(0)
    _, held_out = prepare([marked_blobs(0)], [AnnotatedSlide(slide, truth[:0])], tiny_config())
    assert gather_evidence(DarkIsCell(), tiny_config(), held_out) is None


def test_counts_pool_over_images() -> None:
    images = [AnnotatedSlide(*blobs(seed)) for seed in range(3)]
    whole = evaluate(checkpoint_of(DarkIsCell()), images, network=DarkIsCell())
    parts = [evaluate(checkpoint_of(DarkIsCell()), [image], network=DarkIsCell()) for image in images]
    assert whole.half.mean == pytest.approx(np.mean([part.half.pooled for part in parts]))
    assert whole.cells == sum(part.cells for part in parts)
    assert whole.half.low < whole.half.pooled < whole.half.high


def test_the_regions_of_a_single_slide_are_resampled() -> None:
    slide, truth = blobs(0)
    halves = np.array([shapely.box(0, 0, 192, 80), shapely.box(0, 112, 192, 192)], object)
    for regions, known in ((halves, True), (halves[:1], False)):
        marks = replace(truth, regions=regions)
        result = evaluate(checkpoint_of(DarkIsCell()), [AnnotatedSlide(slide, marks)], network=DarkIsCell())
        assert (result.half.low < result.half.high) is known
        assert math.isnan(result.half.low) is not known


def test_sure_predictions_become_marks() -> None:
    item = marked_blobs(0, keep=12)
    more = promoted(item, DarkIsCell(), tiny_config(), tau=0.75)
    assert more.truth is item.truth
    canvases, _ = prepare([more], [more], tiny_config())
    label = canvases[0].cut(canvases[0].grid.box, BlockCache()).label
    assert item.truth is not None
    full, _ = prepare([replace(item, marks=item.truth)], [item], tiny_config())
    truth = full[0].cut(full[0].grid.box, BlockCache()).label
    assert ((label > 0) == (truth > 0)).mean() > 0.99
    assert (label > 0).sum() > 2 * 12 * 70


class _Ready(Checkpoint):
    def network(self, network: nn.Module | None = None) -> nn.Module:
        return DarkIsCell()


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_the_picture_is_written(task: str, tmp_path: Path) -> None:
    config = tiny_config(task)
    torch.manual_seed(0)
    checkpoint = Checkpoint(config, config.make_task().network().state_dict(), 1)
    item = marked_blobs(0)
    assert item.truth is not None
    shown = [item, AnnotatedSlide(*blobs(1))]
    write_picture(tmp_path / "sheet.png", checkpoint, shown, threshold=0.5)
    from PIL import Image

    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (5 * 260 - 4, 2 * (18 + 260) - 4)


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_a_colour_has_one_meaning_and_no_panel_is_empty(task: str, tmp_path: Path) -> None:
    from PIL import Image

    assert len(set(COLORS.values())) == len(COLORS)
    network: nn.Module = DarkIsCell() if task == "segment" else DarkestOfEight()
    config = tiny_config(task)
    checkpoint = _Known(config, network.state_dict(), 1)
    trained, unseen = marked_blobs(0), AnnotatedSlide(*blobs(1))
    rows = [picture_row(checkpoint, item, threshold=0.5) for item in (trained, unseen)]
    assert set(rows[0]) == set(TITLES)
    assert set(rows[1]) == set(TITLES) - {"marks"}
    for row in rows:
        for name in set(row) - {"image"}:
            assert (row[name] != row["image"]).any(), name
    write_picture(tmp_path / "sheet.png", checkpoint, [unseen], threshold=0.5)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (4 * 260 - 4, 18 + 256)


class _Known(Checkpoint):
    def network(self, network: nn.Module | None = None) -> nn.Module:
        return DarkIsCell() if self.config.task == "segment" else DarkestOfEight()


def test_points_only_marks_serve_a_segmenter() -> None:
    slide, truth = blobs(0)
    config = tiny_config(mark_radius_um=2.5)
    canvases, _ = prepare([AnnotatedSlide(slide, Cells(truth.xy, mpp=0.5))], [], config)
    label = canvases[0].cut(canvases[0].grid.box, BlockCache()).label
    assert (label > 0).any()


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_only_exhaustive_regions_are_counted(task: str) -> None:
    """Inside the region the marks are what the model finds; outside nothing is marked."""
    slide, truth = blobs(0)
    inside = truth[(truth.xy < 96).all(axis=1)]
    regions = np.array([shapely.box(0, 0, 96, 96)], object)
    marks = replace(inside, regions=regions)
    network: nn.Module = DarkIsCell() if task == "segment" else DarkestOfEight()
    checkpoint = Checkpoint(tiny_config(task), network.state_dict(), 1)
    alone = evaluate(checkpoint, [AnnotatedSlide(slide, inside)], network=network)
    assert alone.half.precision < 0.5
    result = evaluate(checkpoint, [AnnotatedSlide(slide, marks)], network=network)
    assert (result.regions, result.cells) == (1, len(inside))
    assert result.half.precision > 0.9
    assert result.half.pooled > 0.85
    both = evaluate(checkpoint, [AnnotatedSlide(slide, marks), AnnotatedSlide(*blobs(1))], network=network)
    assert both.images == 1
    assert both.half.pooled == result.half.pooled


def test_sparse_marks_leave_recall_as_the_only_score(tmp_path: Path) -> None:
    slide, truth = blobs(0)
    sparse = [AnnotatedSlide(slide, truth[:4])]
    with pytest.warns(TrainingWarning, match=r"precision and F1 mean nothing.*Exhaustive"):
        result = evaluate(checkpoint_of(DarkIsCell()), sparse, exhaustive=False, network=DarkIsCell())
    assert result.sparse
    assert result.half.recall > 0.95
    write_json(tmp_path / "scores.json", result)
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["half"]["precision"] is scores["half"]["pooled"] is None
    whole = evaluate(
        checkpoint_of(DarkIsCell()), [AnnotatedSlide(slide, truth)], exhaustive=False, network=DarkIsCell()
    )
    assert not whole.sparse
