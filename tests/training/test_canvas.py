"""Canvases: pixels and marks land where they belong, whatever the blocks."""

from collections.abc import Sequence

import numpy as np
import pytest
import shapely
import torch
from numpy.typing import NDArray
from tests.training.blobs import ArraySlide, tiny_config

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.images import Box, Grid
from sparseshot.models.labelling import Labelling
from sparseshot.models.segment import Segment
from sparseshot.models.task import CERTAIN_BACKGROUND, IGNORED
from sparseshot.training.canvas import BlockCache, Canvas
from sparseshot.training.crops import CropSource


def noise(width: int, height: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def squares(corners: list[tuple[float, float]], *, side: float = 8) -> Cells:
    outline = np.array([shapely.box(x, y, x + side, y + side) for x, y in corners], object)
    return Cells(np.array(corners) + side / 2, outline=outline, mpp=0.5)


def test_a_cut_over_block_borders_is_the_image_there() -> None:
    slide = ArraySlide(noise(1200, 700))
    marks = squares([(508, 508), (100, 100), (1190, 690)])
    canvas = Canvas(slide, marks, Labelling(), mpp=0.5)
    patch = canvas.cut(Box(400, 400, 700, 700), BlockCache())
    np.testing.assert_array_equal(patch.image, slide.pixels[400:700, 400:700])
    painted = np.argwhere(patch.label > 0)
    assert painted.min(axis=0).tolist() == [108, 108]
    assert painted.max(axis=0).tolist() == [115, 115]
    assert len(painted) == 64


def test_outside_is_white_and_ignored() -> None:
    canvas = Canvas(ArraySlide(noise(50, 40)), squares([(10, 10)]), Labelling(), mpp=0.5)
    patch = canvas.cut(Box(-5, -5, 60, 60), BlockCache())
    inside = np.s_[5:45, 5:55]
    outside = np.ones(patch.label.shape, bool)
    outside[inside] = False
    assert (patch.label[outside] == IGNORED).all()
    assert (patch.label[inside] != IGNORED).all()
    assert (patch.image[outside] == 255).all()


def test_an_image_is_read_once() -> None:
    slide = ArraySlide(noise(300, 300))
    canvas, cache = Canvas(slide, squares([(10, 10)]), Labelling(), mpp=0.5), BlockCache()
    for x0 in range(0, 200, 20):
        canvas.cut(Box(x0, x0, x0 + 64, x0 + 64), cache)
    assert slide.reads == 1


def test_a_small_cache_forgets_the_oldest_and_still_gives_the_same() -> None:
    slide = ArraySlide(noise(2000, 600))
    canvas = Canvas(slide, squares([(10, 10)]), Labelling(), mpp=0.5)
    boxes = [Box(x0, 0, x0 + 64, 64) for x0 in (0, 600, 1200, 0)]
    small, large = BlockCache(1), BlockCache()
    for box in boxes:
        np.testing.assert_array_equal(canvas.cut(box, small).image, canvas.cut(box, large).image)
    assert slide.reads == 4 + 3


def test_regions_and_negatives_are_certain_background_and_marks_win() -> None:
    marks = Cells(
        [[20, 20], [50, 50], [80, 80]],
        classes=("cell", "dust", "other"),
        label=[0, 1, 2],
        mpp=0.5,
        regions=np.array([shapely.box(0, 0, 40, 40)], object),
    )
    canvas = Canvas(
        ArraySlide(noise(100, 100)), marks, Labelling(("cell",), ("dust",)), mpp=0.5, radius_um=2.0
    )
    label = canvas.cut(Box(0, 0, 100, 100), BlockCache()).label
    assert label[20, 20] == 1
    assert label[5, 5] == CERTAIN_BACKGROUND
    assert label[50, 50] == CERTAIN_BACKGROUND
    assert label[80, 80] == 0
    assert label[60, 10] == 0


def test_held_out_boxes_are_ignored() -> None:
    canvas = Canvas(
        ArraySlide(noise(100, 100)),
        squares([(10, 10), (60, 60)]),
        Labelling(),
        mpp=0.5,
        ignored=[Box(50, 50, 100, 100)],
    )
    label = canvas.cut(Box(0, 0, 100, 100), BlockCache()).label
    assert (label[50:, 50:] == IGNORED).all()
    assert (label[:50] != IGNORED).all()
    assert (label == 1).sum() == 64


def test_certain_negatives_are_learned_in_held_out_boxes_too() -> None:
    marks = Cells([[60, 60], [80, 80]], classes=("cell", "dust"), label=[0, 1], mpp=0.5)
    labelling, ignored = Labelling(("cell",), ("dust",)), [Box(50, 50, 100, 100)]
    for outlines in (True, False):
        canvas = Canvas(
            ArraySlide(noise(100, 100)), marks, labelling, mpp=0.5, outlines=outlines, ignored=ignored
        )
        label = canvas.cut(Box(0, 0, 100, 100), BlockCache()).label
        assert label[80, 80] == CERTAIN_BACKGROUND
        assert label[60, 60] == label[70, 90] == IGNORED


def crops(canvases: Sequence[Canvas], *, stride: int) -> CropSource:
    task = "segment" if stride == 1 else "detect"
    config = tiny_config(task, stride=stride, near_marks=1.0, stain_jitter=0.1, seed=3)
    return CropSource(canvases, config)


@pytest.mark.parametrize("stride", [1, 8])
def test_batches_depend_on_seed_step_and_item_only(stride: int) -> None:
    canvas = Canvas(ArraySlide(noise(300, 200)), squares([(10, 10), (150, 90)]), Labelling(), mpp=0.5)
    one, other = crops([canvas], stride=stride), crops([canvas], stride=stride)
    whole, part = one.batch(7, range(4)), other.batch(7, [2, 3])
    assert whole.image[2:].equal(part.image)
    assert whole.target[2:].equal(part.target)
    assert not whole.image.equal(one.batch(8, range(4)).image)
    ahead = list(one.ahead(range(6, 9), range(4)))
    assert ahead[1].image.equal(whole.image)
    assert len(ahead) == 3


def test_points_turn_with_the_picture() -> None:
    """A white dot is drawn at each mark; whatever the turn, the grid cell that says "cell" holds the dot."""
    pixels = np.zeros((200, 300, 3), np.uint8)
    xy = np.array([[40.5, 33.5], [120.5, 70.5], [201.5, 150.5], [40.5, 160.5]])
    for x, y in xy.astype(int):
        pixels[y, x] = 255
    canvas = Canvas(ArraySlide(pixels), Cells(xy, mpp=0.5), Labelling(), mpp=0.5, outlines=False)
    batch = crops([canvas], stride=8).batch(0, range(40))
    seen = 0
    assert batch.centres is not None
    for image, centres, offset in zip(batch.image, batch.centres, batch.offset, strict=True):  # type: ignore[arg-type]
        dots = np.argwhere(image[0].numpy() == 255)
        cells = np.argwhere(centres.numpy())
        assert sorted(map(tuple, dots // 8)) == sorted(map(tuple, cells))
        for row, col in cells:
            x, y = (np.array([col, row]) + offset[:, row, col].numpy()) * 8
            assert image[0, int(y), int(x)] == 255
            seen += 1
    assert seen >= 40


def test_labels_turn_with_the_picture() -> None:
    pixels = np.zeros((200, 300, 3), np.uint8)
    pixels[60:68, 100:108] = 255
    canvas = Canvas(ArraySlide(pixels), squares([(100, 60)]), Labelling(), mpp=0.5)
    batch = crops([canvas], stride=1).batch(0, range(16))
    assert ((batch.image[:, 0] == 255) == (batch.target > 0)).all()
    assert (batch.target > 0).flatten(1).any(dim=1).all()


def test_a_crop_larger_than_the_image_is_padded_and_the_padding_ignored() -> None:
    canvas = Canvas(ArraySlide(noise(30, 20)), squares([(10, 5)]), Labelling(), mpp=0.5)
    batch = crops([canvas], stride=1).batch(0, range(4))
    assert (batch.target == IGNORED).sum() == 4 * (64 * 64 - 30 * 20)
    assert (batch.target == 1).sum() == 4 * 64


def test_certain_negatives_have_an_area_and_are_drawn_often() -> None:
    """Far from every cell, so that only crops around the negative show it."""
    marks = Cells([[40, 40], [1960, 1960]], classes=("cell", "dust"), label=[0, 1], mpp=0.5)
    canvas = Canvas(
        ArraySlide(noise(2000, 2000)),
        marks,
        Labelling(negative=("dust",)),
        mpp=0.5,
        outlines=False,
        negative_margin_px=4,
    )
    batch = crops([canvas], stride=8).batch(0, range(60))
    negatives = (batch.annotated & (batch.target == 0)).sum(dim=(1, 2))
    assert 20 <= (negatives > 0).sum() <= 40  # as often as the other mark
    assert negatives.max() >= 4  # a disc of 10 pixels over cells of 8


def test_certain_negatives_and_ignored_boxes_reach_the_grid() -> None:
    marks = Cells([[20, 20], [44, 44]], classes=("cell", "dust"), label=[0, 1], mpp=0.5)
    canvas = Canvas(
        ArraySlide(noise(64, 64)),
        marks,
        Labelling(("cell",), ("dust",)),
        mpp=0.5,
        outlines=False,
        ignored=[Box(0, 0, 64, 8)],
    )
    batch = crops([canvas], stride=8).batch(0, range(8))
    assert (batch.target == IGNORED).sum(dim=(1, 2)).tolist() == [8] * 8
    assert (batch.target == 1).sum(dim=(1, 2)).tolist() == [4] * 8
    assert batch.annotated.sum(dim=(1, 2)).tolist() == [8] * 8


def test_no_marks_is_an_error_that_says_so() -> None:
    canvas = Canvas(ArraySlide(noise(30, 20)), Cells(np.empty((0, 2)), mpp=0.5), Labelling(), mpp=0.5)
    with pytest.raises(InputError, match="mark at least a few"):
        crops([canvas], stride=1)
    with pytest.raises(InputError, match="no images"):
        crops([], stride=1)


def test_the_grid_is_that_of_the_slide() -> None:
    canvas = Canvas(ArraySlide(noise(101, 50), mpp=0.25), squares([]), Labelling(), mpp=0.5)
    assert (canvas.width, canvas.height) == (51, 25)
    assert canvas.grid == Grid.of((101, 50), 0.25, 0.5)


def test_heights_are_those_of_whole_cells_across_blocks_and_of_outlines_only() -> None:
    outlined = squares([(508, 508), (516, 508)])  # they touch, and the first lies in four blocks
    marks = Cells.concatenate([outlined, Cells([[600.0, 600.0]], mpp=0.5)])
    canvas = Canvas(ArraySlide(noise(1200, 700)), marks, Labelling(), mpp=0.5, heights=True)
    patch = canvas.cut(Box(400, 400, 700, 700), BlockCache())
    assert patch.height is not None
    expected = np.zeros((300, 300), np.uint8)
    side = np.minimum(np.arange(1, 9), np.arange(8, 0, -1))
    square = 255 * np.minimum.outer(side, side) // 4
    expected[108:116, 108:116] = expected[108:116, 116:124] = square
    np.testing.assert_array_equal(patch.height, expected)
    assert (patch.label[195:205, 195:205] > 0).any()  # the point is painted, and teaches no heights


def test_heights_are_learned_inside_marked_outlines_only() -> None:
    task = Segment(heights=True)
    output = torch.zeros(1, 2, 4, 4, requires_grad=True)
    target, height = torch.zeros(1, 4, 4, dtype=torch.int64), torch.zeros(1, 4, 4, dtype=torch.uint8)
    assert task.place_loss(output, target, None, None, height).item() == 0
    target[0, 1:3], height[0, 1] = 1, 255
    task.place_loss(output, target, None, None, height).backward()  # type: ignore[no-untyped-call]
    assert output.grad is not None
    assert (output.grad[0, 1, 1] < 0).all()
    assert output.grad.count_nonzero() == 4
