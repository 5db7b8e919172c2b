"""Tissue detection, so that glass costs nothing."""

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import shapely
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from sparseshot.compiled import compiled
from sparseshot.errors import InputError, SparseshotWarning
from sparseshot.files import replacing
from sparseshot.images.resample import resample
from sparseshot.images.slide import Box, Grid, Slide, check_mpp
from sparseshot.images.tiles import TileGrid, read_undamaged

_MAX_PIXELS = 2**24
"""Largest mask; a slide of 250,000 × 250,000 at 0.25 µm gets mask pixels of 16 µm instead of 8."""

_STRIP_ROWS = 64
_UNREADABLE_PX = 16
_STAIN = (0.03, 0.08)
"""Bounds of the threshold: noise and tint of glass are below, the palest eosin above."""

_DARKER = (0.06, 0.3)
"""The same without colour: uneven light on glass is below."""
_GREY_SPREAD = 3
"""Largest difference between the colours of a pixel in a slide without colour, of 255."""

_CROP_MM2 = 1.0
_GAP_UM = 40.0
_HOLE_MM2 = 0.1
_SPECK_MM2 = 0.005
_RIM_UM = 16.0
_MARKED_UM = 50.0
_PICTURE_PX = 2048
_REGION_MPP = 8.0


@dataclass(frozen=True, eq=False)
class TissueMask:
    """The pixels of a coarse grid over a slide that show tissue.

    Attributes:
        mask: ``(height, width)`` bool.
        grid: the coarse grid.
        size: width and height of the slide in level-0 pixels.
        overview: ``(h, w, 3)`` thumbnail of the slide; None if the slide was not read.
    """

    mask: NDArray[np.bool_]
    grid: Grid
    size: tuple[int, int]
    overview: NDArray[np.uint8] | None = None

    @classmethod
    def everywhere(cls, slide: Slide) -> Self:
        """Return a mask of one pixel that declares the whole slide tissue, without reading it."""
        side = float(max(slide.size))
        return cls(np.ones((1, 1), np.bool_), Grid(1, 1, side, slide.mpp * side), slide.size)

    def __repr__(self) -> str:
        return f"TissueMask({self.share:.1%} of the slide, {self.area_mm2:.2f} mm², {self.grid.mpp:g} µm/px)"

    @property
    def share(self) -> float:
        """Fraction of the slide that is tissue, 0 to 1."""
        across, down = self._lengths()
        return float(down @ self.mask @ across / (down.sum() * across.sum()))

    @property
    def area_mm2(self) -> float:
        """Area of the tissue."""
        width, height = self.size
        level0_mm = self.grid.mpp / self.grid.downsample / 1000
        return self.share * width * height * level0_mm**2

    def _lengths(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the level-0 width of each column and height of each row; the last are cut at the edge."""
        step = self.grid.downsample
        rows, columns = self.mask.shape
        width, height = self.size
        return (
            np.clip(width - step * np.arange(columns), 0, step),
            np.clip(height - step * np.arange(rows), 0, step),
        )

    def covers(self, box: Box, grid: Grid) -> bool:
        """Return whether there is any tissue in a box of another grid over the same slide."""
        scale = grid.downsample / self.grid.downsample
        rows = slice(max(0, math.floor(box.y0 * scale + 1e-9)), max(0, math.ceil(box.y1 * scale - 1e-9)))
        columns = slice(max(0, math.floor(box.x0 * scale + 1e-9)), max(0, math.ceil(box.x1 * scale - 1e-9)))
        return bool(self.mask[rows, columns].any())

    def at(self, x: NDArray[np.floating], y: NDArray[np.floating], grid: Grid) -> NDArray[np.bool_]:
        """Return ``(len(y), len(x))`` bool: tissue at columns ``x`` and rows ``y`` of a grid."""
        scale = grid.downsample / self.grid.downsample
        height, width = self.mask.shape
        column = np.clip((x * scale).astype(np.intp), 0, width - 1)
        row = np.clip((y * scale).astype(np.intp), 0, height - 1)
        return self.mask[row].take(column, axis=1)  # six times as fast as indexing both at once

    def contains(self, xy: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which of the points ``(n, 2)`` on the slide, in level-0 pixels, lie on tissue."""
        tissue: NDArray[np.bool_] = self.mask[self._pixels(xy)]
        return tissue

    def including(self, xy: NDArray[np.floating]) -> Self:
        """Return the mask with the points ``(n, 2)`` on the slide, and 50 µm around each, declared tissue."""
        marked = np.zeros_like(self.mask)
        marked[self._pixels(xy)] = True
        return replace(self, mask=self.mask | _grown(marked, _MARKED_UM / self.grid.mpp))

    def within(self, region: shapely.Geometry, slide: Slide, *, around_um: float = 0.0) -> Self:
        """Return the mask without what is farther from a region, in level-0 pixels, than a distance."""
        grid, mask = self.grid, self.mask
        if mask.size == 1:  # everywhere; pixels as fine as those of a mask that was found
            grid = Grid.over(slide, max(slide.mpp, _REGION_MPP))
            mask = np.ones((grid.height, grid.width), np.bool_)
        near = shapely.buffer(region, (around_um + grid.mpp) / slide.mpp)
        shapely.prepare(near)
        x, y = ((np.arange(count) + 0.5) * grid.downsample for count in mask.shape[::-1])
        rows = [shapely.contains_xy(near, x, np.full(len(x), each)) for each in y.tolist()]
        return replace(self, mask=mask & np.array(rows), grid=grid)

    def _pixels(self, xy: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows and columns of the mask pixels at, or nearest to, level-0 points."""
        column, row = (xy / self.grid.downsample).astype(np.intp).T
        height, width = self.mask.shape
        return np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)

    def touching(self, tiles: TileGrid, grid: Grid) -> NDArray[np.intp]:
        """Return the indices of the tiles over another grid of the same slide whose core contains tissue."""
        return np.flatnonzero(self.shares(tiles, grid))

    def shares(self, tiles: TileGrid, grid: Grid) -> NDArray[np.float64]:
        """Return the share of each tile over another grid of the same slide that is tissue."""
        mask_px = self.grid.downsample / grid.downsample
        rows = _spans(tiles.rows, tiles.tile_px, end=tiles.height, mask_px=mask_px)
        columns = _spans(tiles.columns, tiles.tile_px, end=tiles.width, mask_px=mask_px)
        lines = np.stack([self.mask[row].mean(axis=0) for row in rows])
        return np.stack([lines[:, column].mean(axis=1) for column in columns], axis=1).ravel()

    def picture(self) -> NDArray[np.uint8]:
        """Return the thumbnail, greyed where there is no tissue, with the edge of the tissue in green."""
        if self.overview is None:
            raise InputError("the slide of this tissue mask was not read; there is no picture of it")
        height, width = self.overview.shape[:2]
        rows = np.arange(height) * self.mask.shape[0] // height
        columns = np.arange(width) * self.mask.shape[1] // width
        tissue = self.mask[np.ix_(rows, columns)]
        shown = np.where(tissue[:, :, None], self.overview, self.overview // 2 + 64)
        inner = ndimage.binary_erosion(tissue, iterations=max(1, max(width, height) // 700), border_value=1)
        shown[tissue & ~inner] = (0, 160, 0)
        return shown

    def write_picture(self, path: Path | str) -> None:
        """Write :meth:`picture` as PNG."""
        with replacing(path) as temporary:
            Image.fromarray(self.picture()).save(temporary, "PNG")


def _spans(count: int, step_px: int, *, end: int, mask_px: float) -> list[slice]:
    """Return the mask pixels that overlap each span [k·step, (k + 1)·step) of grid pixels, cut at ``end``."""
    edges = np.minimum(np.arange(count + 1) * step_px, end) / mask_px
    # Ignore overlaps by a rounding error.
    first, last = np.floor(edges[:-1] + 1e-9), np.ceil(edges[1:] - 1e-9)
    return [slice(int(a), int(b)) for a, b in zip(first, last, strict=True)]


def tissue_mask(slide: Slide, *, mpp: float = 8.0, drop_ink: bool = True) -> TissueMask:
    """Find the tissue of a slide by its colour; warn if there is none.

    Glass, shadows and dust are grey: they absorb red, green and blue alike; stained tissue does not. The
    threshold on that difference is Otsu's, clipped to a plausible range, so that a slide without glass is
    all tissue and one without tissue all glass. On a slide without colour, tissue is what is darker than
    glass. Gaps under 40 µm and holes under 0.1 mm² are closed, specks
    under 0.005 mm² removed, and a rim of 16 µm is added. An image under 1 mm² with any stain is all tissue,
    because it was probably cropped for what it shows. Unreadable areas count as tissue, so that they are
    reported later.

    Args:
        slide: the slide.
        mpp: µm per mask pixel; coarser if the mask would have more than 16 million pixels.
        drop_ink: exclude pen marks, which are bluer or greener than usual stains. Turn it off for such
            stains, e.g. Alcian blue.
    """
    check_mpp(mpp)
    width, height = slide.size
    mpp = max(mpp, slide.mpp)
    while width * height * (slide.mpp / mpp) ** 2 > _MAX_PIXELS:
        mpp *= 2  # in steps of the usual levels
    grid = Grid.over(slide, mpp)
    overview, unread = read_overview(slide, grid)
    stained = _stained(overview, drop_ink=drop_ink)
    mm2 = width * height * (slide.mpp / 1000) ** 2
    is_crop = mm2 < _CROP_MM2
    mask = np.full_like(stained, stained.mean() > 0.01) if is_crop else _cleaned(stained, grid.mpp)
    mask |= unread
    if not mask.any():
        warnings.warn(
            f"{slide.name}: no tissue was found, so cells are searched nowhere; if there is some, look at it "
            "with `sparseshot slide --picture`, and add --everywhere",
            SparseshotWarning,
            stacklevel=2,
        )
    return TissueMask(mask, grid, slide.size, _small(overview))


def read_overview(slide: Slide, grid: Grid) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Read the whole slide in strips; return it and which pixels could not be read."""
    pixels = np.empty((grid.height, grid.width, 3), np.uint8)
    unread = np.zeros((grid.height, grid.width), bool)
    for block in grid.box.blocks(grid.width, _STRIP_ROWS):
        strip = block.meet(grid.box)
        pixels[strip.within(grid.box)], broken = read_undamaged(slide, grid, strip, piece_px=_UNREADABLE_PX)
        for piece in broken:
            unread[piece.within(grid.box)] = True
    return pixels, unread


def _stained(overview: NDArray[np.uint8], *, drop_ink: bool) -> NDArray[np.bool_]:
    """Return which pixels absorb some colours more than others; without colour, those that are dark."""
    is_grey = _is_grey(overview)
    # Without colour, the light may be of any strength.
    white = _white(overview, darkest=1 if is_grey else 225)
    table = -np.log(np.clip(np.arange(256)[:, None], 1, white) / white).astype(np.float32)
    if is_grey:
        darkness = ndimage.uniform_filter(table[overview[:, :, 1], 1], 3, mode="nearest")
        darker: NDArray[np.bool_] = darkness > np.clip(_otsu(darkness), *_DARKER)
        return darker
    difference, ink = _absorption(overview, table)
    difference = ndimage.uniform_filter(difference, 3, mode="nearest")
    if drop_ink:
        difference[_grown(ink, 2)] = 0
    stained: NDArray[np.bool_] = difference > np.clip(_otsu(difference), *_STAIN)
    return stained


@compiled
def _absorption(
    overview: NDArray[np.uint8], table: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the spread of each pixel's absorption of red, green and blue, and whether it looks like ink."""
    height, width, _ = overview.shape
    difference = np.empty((height, width), np.float32)
    ink = np.empty((height, width), np.bool_)
    for i in range(height):
        for j in range(width):
            red, green, blue = (
                table[overview[i, j, 0], 0],
                table[overview[i, j, 1], 1],
                table[overview[i, j, 2], 2],
            )
            least = min(red, green, blue)
            difference[i, j] = max(red, green, blue) - least
            # Usual stains absorb green at least about as much as red, and none absorbs all colours alike.
            is_blue_or_green = red > 1.1 * green + 0.1
            is_black = least > 1.2 and least > 2 * difference[i, j]
            ink[i, j] = is_blue_or_green or is_black
    return difference, ink


def _thinned(overview: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return overview[:: max(1, overview.shape[0] // 1000), :: max(1, overview.shape[1] // 1000)]


def _is_grey(overview: NDArray[np.uint8]) -> bool:
    sample = _thinned(overview)
    spread = sample.max(axis=2) - sample.min(axis=2)
    return bool((spread <= _GREY_SPREAD).mean() > 0.999)


def _white(overview: NDArray[np.uint8], *, darkest: int) -> NDArray[np.float64]:
    """Return the colour of glass: the lightest in the image, but never as dark as tissue."""
    sample = _thinned(overview)
    seen = sample[(sample < 255).any(axis=2)]  # pure white may also be an area that was not scanned
    if len(seen) < 0.02 * sample.shape[0] * sample.shape[1]:
        return np.full(3, 255.0)
    white: NDArray[np.float64] = np.clip(np.percentile(seen, 99, axis=0), darkest, 255)
    return white


def _otsu(values: NDArray[np.float32]) -> float:
    """Return Otsu's threshold (1979) of values clipped to 0.3, above which they say nothing about glass."""
    counts, edges = np.histogram(np.minimum(values, 0.3), bins=256, range=(0, 0.3))
    below = np.cumsum(counts)
    total = np.cumsum(counts * edges[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (total[-1] * below - total * below[-1]) ** 2 / (below * (below[-1] - below))
    return float(edges[1 + int(np.argmax(np.nan_to_num(spread, posinf=0.0)))])


def _cleaned(stained: NDArray[np.bool_], mpp: float) -> NDArray[np.bool_]:
    """Close gaps and holes, remove specks, add a rim."""
    gap_px = _GAP_UM / 2 / mpp
    mask = ~_grown(~_grown(stained, gap_px), gap_px)
    mask &= _large(mask, _SPECK_MM2, mpp)
    mask = ~_large(~mask, _HOLE_MM2, mpp)
    return _grown(mask, _RIM_UM / mpp)


def _grown(mask: NDArray[np.bool_], radius_px: float) -> NDArray[np.bool_]:
    size = 2 * round(radius_px) + 1
    grown: NDArray[np.bool_] = ndimage.maximum_filter(mask, size=size, mode="nearest")
    return grown


def _large(mask: NDArray[np.bool_], mm2: float, mpp: float) -> NDArray[np.bool_]:
    """Keep the connected components of at least ``mm2``."""
    labels, _ = ndimage.label(mask)
    sizes = np.bincount(labels.ravel())
    keep = sizes * (mpp / 1000) ** 2 >= mm2
    keep[0] = False
    kept: NDArray[np.bool_] = keep[labels]
    return kept


def _small(overview: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = overview.shape[:2]
    ratio = max(1.0, max(width, height) / _PICTURE_PX)
    return resample(overview, ratio, size=(math.ceil(width / ratio - 1e-6), math.ceil(height / ratio - 1e-6)))
