"""Where on a slide there is tissue, so that glass costs nothing."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from sparseshot.compiled import compiled
from sparseshot.errors import InputError, SlideError
from sparseshot.files import replacing
from sparseshot.images.resample import resample
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import TileGrid

_MAX_PIXELS = 2**24
"""Of the mask: a slide of 250,000 × 250,000 at 0.25 µm gets pixels of 16 µm instead of 8."""

_STRIP_ROWS = 64
_UNREADABLE_PX = 16
_STAIN = (0.03, 0.08)
"""Between these the threshold is looked for: noise and tint of glass are below, the palest eosin above."""

_CROP_MM2 = 1.0
_GAP_UM = 40.0
_HOLE_MM2 = 0.1
_SPECK_MM2 = 0.005
_RIM_UM = 16.0
_PICTURE_PX = 2048


@dataclass(frozen=True, eq=False)
class TissueMask:
    """Which pixels of a coarse grid over a slide show tissue.

    Attributes:
        mask: ``(height, width)`` bool.
        grid: the coarse grid; its ``downsample`` is level-0 pixels for one pixel of the mask.
        size: width and height of the slide in level-0 pixels.
        overview: ``(h, w, 3)`` the slide in small, for the picture; None where nothing was read.
    """

    mask: NDArray[np.bool_]
    grid: Grid
    size: tuple[int, int]
    overview: NDArray[np.uint8] | None = None

    @classmethod
    def everywhere(cls, slide: Slide) -> Self:
        """Return a mask of one pixel that takes the whole slide for tissue, without reading it."""
        side = float(max(slide.size))
        return cls(np.ones((1, 1), np.bool_), Grid(1, 1, side, slide.mpp * side), slide.size)

    def __repr__(self) -> str:
        return f"TissueMask({self.share:.1%} of the slide, {self.area_mm2:.2f} mm², {self.grid.mpp:g} µm/px)"

    @property
    def share(self) -> float:
        """The part of the slide that is tissue, 0 to 1."""
        across, down = self._lengths()
        return float(down @ self.mask @ across / (down.sum() * across.sum()))

    @property
    def area_mm2(self) -> float:
        """The area of the tissue."""
        width, height = self.size
        level0_mm = self.grid.mpp / self.grid.downsample / 1000
        return self.share * width * height * level0_mm**2

    def _lengths(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how much of the slide each column and each row of the mask covers, the last being cut."""
        step = self.grid.downsample
        rows, columns = self.mask.shape
        width, height = self.size
        return (
            np.clip(width - step * np.arange(columns), 0, step),
            np.clip(height - step * np.arange(rows), 0, step),
        )

    def covers(self, box: Box, grid: Grid) -> bool:
        """Tell whether there is any tissue in a box of pixels of another grid over the same slide."""
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
        return self.mask[row[:, None], column]

    def touching(self, tiles: TileGrid, grid: Grid) -> NDArray[np.intp]:
        """Return the numbers of the tiles, over another grid over the same slide, whose core holds tissue."""
        return tiles.touching(self.mask, mask_px=self.grid.downsample / grid.downsample)

    def picture(self) -> NDArray[np.uint8]:
        """Return the slide in small, greyed where there is no tissue, the rim of the tissue in green."""
        if self.overview is None:
            raise InputError("this tissue mask was made without reading the slide; there is no picture of it")
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


def tissue_mask(slide: Slide, *, mpp: float = 8.0, drop_ink: bool = True) -> TissueMask:
    """Find the tissue of a slide by its colour.

    Glass, shadows and dust are grey: they absorb red, green and blue alike; stained tissue does not. The
    threshold of that difference is Otsu's, but only within bounds in which it can be one between tissue and
    glass, so that a slide without glass is all tissue and one without tissue all glass. Gaps under 40 µm and
    holes under 0.1 mm² are closed, specks under 0.005 mm² dropped, a rim of 16 µm is added. An image under
    1 mm² with any stain in it is all tissue: somebody cut it out because of what it shows. What cannot be
    read counts as tissue, so that it is not passed over in silence.

    Args:
        slide: anything that reads like a slide.
        mpp: µm of a pixel of the mask; coarser where it would have more than 16 million of them.
        drop_ink: leave out what is blue or green as no usual stain is: pen marks. Turn it off for such stains
            (Alcian blue, for one).
    """
    if not (math.isfinite(mpp) and mpp > 0):
        raise InputError(f"mpp is {mpp}; give µm for a pixel of the mask, e.g. 8")
    width, height = slide.size
    mpp = max(mpp, slide.mpp)
    while width * height * (slide.mpp / mpp) ** 2 > _MAX_PIXELS:
        mpp *= 2  # by halves, as levels go
    grid = Grid.over(slide, mpp)
    overview, unread = _overview(slide, grid)
    stained = _stained(overview, drop_ink=drop_ink)
    mm2 = width * height * (slide.mpp / 1000) ** 2
    is_crop = mm2 < _CROP_MM2
    mask = np.full_like(stained, stained.mean() > 0.01) if is_crop else _cleaned(stained, grid.mpp)
    return TissueMask(mask | unread, grid, slide.size, _small(overview))


def _overview(slide: Slide, grid: Grid) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Read all of it in strips, and tell which pixels could not be read."""
    pixels = np.full((grid.height, grid.width, 3), 255, np.uint8)
    unread = np.zeros((grid.height, grid.width), bool)
    waiting = [
        Box(0, y, grid.width, y + _STRIP_ROWS).meet(grid.box) for y in range(0, grid.height, _STRIP_ROWS)
    ]
    while waiting:
        box = waiting.pop()
        place = box.within(grid.box)
        try:
            pixels[place] = slide.read(grid, box)
        except SlideError:
            if max(box.width, box.height) <= _UNREADABLE_PX:
                unread[place] = True
            else:
                waiting += _halves(box)
    return pixels, unread


def _halves(box: Box) -> list[Box]:
    if box.width >= box.height:
        middle = (box.x0 + box.x1) // 2
        return [box._replace(x1=middle), box._replace(x0=middle)]
    middle = (box.y0 + box.y1) // 2
    return [box._replace(y1=middle), box._replace(y0=middle)]


def _stained(overview: NDArray[np.uint8], *, drop_ink: bool) -> NDArray[np.bool_]:
    """Tell which pixels absorb some colours more than others."""
    white = _white(overview)
    table = -np.log(np.clip(np.arange(256)[:, None], 1, white) / white).astype(np.float32)
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
    """Return how unequally each pixel absorbs red, green and blue, and whether no stain does so."""
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
            # Every usual stain absorbs green about as much as red, or more; and none takes all colours alike.
            is_blue_or_green = red > 1.1 * green + 0.1
            is_black = least > 1.2 and least > 2 * difference[i, j]
            ink[i, j] = is_blue_or_green or is_black
    return difference, ink


def _white(overview: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Find the colour of glass: the lightest that the scanner saw, never so dark that it could be tissue."""
    sample = overview[:: max(1, overview.shape[0] // 1000), :: max(1, overview.shape[1] // 1000)]
    seen = sample[(sample < 255).any(axis=2)]  # pure white is also what stands for places not scanned
    if len(seen) < 0.02 * sample.shape[0] * sample.shape[1]:
        return np.full(3, 255.0)
    white: NDArray[np.float64] = np.clip(np.percentile(seen, 99, axis=0), 225, 255)
    return white


def _otsu(values: NDArray[np.float32]) -> float:
    """Return the threshold whose two sides have means as far apart as can be (Otsu 1979).

    Values above 0.3 count as 0.3: how strongly the darkest is stained says nothing about glass.
    """
    counts, edges = np.histogram(np.minimum(values, 0.3), bins=256, range=(0, 0.3))
    below = np.cumsum(counts)
    total = np.cumsum(counts * edges[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (total[-1] * below - total * below[-1]) ** 2 / (below * (below[-1] - below))
    return float(edges[1 + int(np.argmax(np.nan_to_num(spread, posinf=0.0)))])


def _cleaned(stained: NDArray[np.bool_], mpp: float) -> NDArray[np.bool_]:
    """Close gaps and holes, drop specks, add a rim."""
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
    """Keep the connected parts of at least so many mm²."""
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
