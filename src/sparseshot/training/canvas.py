"""Canvases: an image or slide at the working resolution, with a map of its marks.

Both are made in square blocks, when first needed, and then cached. So a small image is decoded once, and a
slide of a hundred gigapixels costs only the blocks that crops touch.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy import ndimage

from sparseshot.cells import Cells
from sparseshot.images import Box, Grid, Slide
from sparseshot.models.labelling import UNUSED, Labelling
from sparseshot.models.task import CERTAIN_BACKGROUND, IGNORED, UNANNOTATED, Points

BLOCK_PX = 512
_FARTHEST_PX = 64
"""How far a cell may extend beyond a block, to have right heights in it."""

WHITE = 255


class Patch(NamedTuple):
    """A box of a canvas.

    Attributes:
        image: ``(H, W, 3)`` uint8.
        label: ``(H, W)`` int16: 1…C, :data:`UNANNOTATED`, :data:`CERTAIN_BACKGROUND` or :data:`IGNORED`.
        exhaustive: ``(H, W)`` bool: inside a region in which every cell is marked.
        truth: the label map with every cell, in simulations; else None.
        height: ``(H, W)`` uint8: of marked outlines, see :func:`heights`; None if marks are not painted.
    """

    image: NDArray[np.uint8]
    label: NDArray[np.int16]
    exhaustive: NDArray[np.bool_]
    truth: NDArray[np.int16] | None
    height: NDArray[np.uint8] | None = None


class BlockCache:
    """Painted blocks of several canvases; the least recently used are dropped first."""

    def __init__(self, max_bytes: int = 4 << 30) -> None:
        block_bytes = 9 * BLOCK_PX**2  # three colours, two maps of 16 bits, and two of 8
        self.paint = lru_cache(max(1, max_bytes // block_bytes))(Canvas.paint)


class Canvas:
    """One image or slide with its marks.

    Args:
        slide: the slide.
        marks: in level-0 pixels.
        labelling: targets of the classes.
        mpp: working resolution.
        truth: every cell, in simulations.
        outlines: paint outlines (segmentation); otherwise only regions and certain negatives are painted.
        radius_um: radius of the disc that represents a mark without outline.
        negative_margin_px: added to the radius of certain negatives without outline.
        ignored: boxes in working pixels that training must not see.
        tissue: boxes ``(x0, y0, x1, y1)`` in working pixels to draw places from, of one size; None: anywhere.
        kinds: names of the classes that are learned as kinds; empty: none are.
        unsure_um: pixels this near to a mark without outline, but not in its disc, are ignored: the cell may
            extend as far.
        heights: paint heights too, see :func:`heights`.
        weight: how often places are drawn from this canvas, relative to its area.
    """

    def __init__(
        self,
        slide: Slide,
        marks: Cells,
        labelling: Labelling,
        *,
        mpp: float,
        truth: Cells | None = None,
        outlines: bool = True,
        radius_um: float = 3.0,
        negative_margin_px: float = 0.0,
        ignored: Sequence[Box] = (),
        tissue: NDArray[np.float64] | None = None,
        kinds: tuple[str, ...] = (),
        unsure_um: float = 0.0,
        heights: bool = False,
        weight: float = 1.0,
    ) -> None:
        self.slide = slide
        self.weight = weight
        self.grid = grid = Grid.over(slide, mpp)
        self.width, self.height = grid.width, grid.height
        self.points = _points(marks, labelling, grid, kinds)
        self.truth = None if truth is None else _points(truth, labelling, grid)
        self._tissue = np.array([[0.0, 0.0, self.width, self.height]]) if tissue is None else tissue
        self._ignored = ignored
        radius_px = radius_um / grid.mpp
        self._regions = _Layer(_as_cells(marks.regions), grid, 1.0)
        self._negative = _Layer(labelling.negatives(marks), grid, radius_px + negative_margin_px)
        self._positive = self._truth_layer = self._unsure = self._outlined = None
        if heights and marks.outline is not None:
            outlined = marks[~shapely.is_missing(marks.outline)]
            self._outlined = _Layer(labelling.positives(outlined), grid, _FARTHEST_PX)
        if outlines and unsure_um:
            bare = marks if marks.outline is None else marks[shapely.is_missing(marks.outline)]
            self._unsure = _Layer(labelling.positives(bare), grid, unsure_um / grid.mpp)
        if outlines:
            self._positive = _Layer(labelling.positives(marks), grid, radius_px)
            self._truth_layer = None if truth is None else _Layer(labelling.positives(truth), grid, radius_px)

    @property
    def area_px(self) -> float:
        """Pixels of tissue."""
        return float((self._tissue[:, 2:] - self._tissue[:, :2]).prod(axis=1).sum())

    def draw_place(self, random: np.random.Generator) -> NDArray[np.float64]:
        """Draw a place in tissue."""
        box = self._tissue[int(random.integers(len(self._tissue)))]
        return np.asarray(random.uniform(box[:2], box[2:]))

    def cut(self, box: Box, cache: BlockCache) -> Patch:
        """Return a box of working pixels; outside the canvas it is white and ignored."""
        shape = (box.height, box.width)
        patch = Patch(
            np.full((*shape, 3), WHITE, np.uint8),
            np.full(shape, IGNORED, np.int16),
            np.zeros(shape, np.bool_),
            None if self._truth_layer is None else np.full(shape, IGNORED, np.int16),
            None if self._outlined is None else np.zeros(shape, np.uint8),
        )
        inside = box.meet(self.grid.box)
        for whole in inside.blocks(BLOCK_PX, BLOCK_PX):
            block_box = whole.meet(self.grid.box)
            part = inside.meet(block_box)
            for own, painted in zip(patch, cache.paint(self, block_box), strict=True):
                if own is not None and painted is not None:
                    own[part.within(box)] = painted[part.within(block_box)]
        return patch

    def paint(self, box: Box) -> Patch:
        """Read and paint one block."""
        image = self.slide.read(self.grid, box)
        label = np.full((box.height, box.width), UNANNOTATED, np.int16)
        exhaustive = self._regions.paint(box) > 0
        label[exhaustive] = CERTAIN_BACKGROUND
        negative = self._negative.paint(box) > 0
        if self._unsure is not None:
            label[self._unsure.paint(box) > 0] = IGNORED
        if self._positive is not None:
            marked = self._positive.paint(box)
            np.copyto(label, marked, where=marked > 0)
            negative &= marked == 0
        for each in self._ignored:
            label[each.meet(box).within(box)] = IGNORED
        label[negative] = CERTAIN_BACKGROUND  # in ignored boxes too: the threshold comes from positives alone
        truth = None if self._truth_layer is None else self._truth_layer.paint(box)
        height = None if self._outlined is None else self._outlined.heights(box)
        return Patch(image, label, exhaustive, truth, height)


class _Layer:
    """Cells of a slide, painted block by block at the working resolution."""

    def __init__(self, cells: Cells, grid: Grid, radius_px: float) -> None:
        self._cells = cells
        self._grid = grid
        self._radius_px = radius_px
        shapes = shapely.points(cells.xy)
        if cells.outline is not None:
            shapes = np.where(shapely.is_missing(cells.outline), shapes, cells.outline)
        self._tree = shapely.STRtree(shapes)

    def paint(self, box: Box) -> NDArray[np.int16]:
        """Paint a block with 1 + the label of the cells in it."""
        cells = self._near(box)
        return self._grid.rasterise(cells, box, radius_px=self._radius_px).astype(np.int16)

    def heights(self, box: Box) -> NDArray[np.uint8]:
        """Paint a block with the heights of outlined cells."""
        far = _FARTHEST_PX
        wide = Box(box.x0 - far, box.y0 - far, box.x1 + far, box.y1 + far).meet(self._grid.box)
        return heights(self._grid.rasterise(self._near(box), wide, by="instance"))[box.within(wide)]

    def _near(self, box: Box) -> Cells:
        reach = self._radius_px
        around = self._grid.to_level0((box.x0 - reach, box.y0 - reach, box.x1 + reach, box.y1 + reach))
        return self._cells[np.sort(self._tree.query(shapely.box(*around)))]


def heights(instances: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the distance of each pixel to the border of its cell, relative to the largest in that cell.

    255 is the innermost place of a cell, 0 outside of cells.

    >>> heights(np.array([[1, 1, 1, 2], [1, 1, 1, 2], [1, 1, 1, 2]], np.int32))
    array([[127, 127, 127, 255],
           [127, 255, 127, 255],
           [127, 127, 127, 255]], dtype=uint8)
    """
    padded = np.pad(instances, 1)
    inner = instances > 0
    for step in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        inner &= step == instances
    distance = ndimage.distance_transform_edt(inner).astype(np.float32) + 1
    largest = np.ones(instances.max() + 1, np.float32)
    np.maximum.at(largest, instances, distance)
    return np.where(instances > 0, 255 * distance / largest[instances], 0).astype(np.uint8)


def _as_cells(regions: NDArray[np.object_]) -> Cells:
    inside = shapely.get_coordinates(shapely.point_on_surface(regions))
    return Cells(inside, outline=regions)


def _points(cells: Cells, labelling: Labelling, grid: Grid, kinds: tuple[str, ...] = ()) -> Points:
    target = labelling.targets(cells)
    used = target != UNUSED
    size = np.full((len(cells), 2), np.nan)
    if cells.outline is not None:
        bounds = shapely.bounds(cells.outline)
        size = bounds[:, 2:] - bounds[:, :2]
    kind = None
    if kinds:
        of_class = [kinds.index(name) if name in kinds else -1 for name in cells.classes]
        kind = np.array([*of_class, -1], np.int16)[cells.label][used]  # the last one is for no class
    return Points(grid.from_level0(cells.xy[used]), target[used], grid.from_level0(size[used]), kind)
