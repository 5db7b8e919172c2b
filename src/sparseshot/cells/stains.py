"""Optical density of stains in cells, by colour deconvolution (Ruifrok & Johnston 2001)."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.raster import draw_cell
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import Cells
from sparseshot.compiled import compiled
from sparseshot.errors import InputError

CIRCLE_UM = 3.0
"""Radius of the circle in which a cell without an outline is measured: inside most nuclei."""

_DECIMALS = 4
_VECTOR_DECIMALS = 4
_LEAST_OD = 0.15
"""Pixels that absorb less in all three colours together are taken for glass when stains are estimated."""
_LEAST_PIXELS = 1000
_LEAST_ANGLE = np.radians(10)
_EXTREMES = (1.0, 99.0)  # percentiles of the angle, as Macenko et al. (2009)

DENSITY = -np.log10(np.maximum(np.arange(256), 1) / 255)
"""Optical density of each 8-bit value; 255 is glass."""
DENSITY.flags.writeable = False


@dataclass(frozen=True)
class Stains:
    """Two stains: their names, and how strongly each absorbs red, green and blue.

    Vectors are of length one. The third stain of the deconvolution is what is perpendicular to both.
    """

    names: tuple[str, str]
    vectors: tuple[tuple[float, float, float], tuple[float, float, float]]

    @property
    def unmixing(self) -> NDArray[np.float64]:
        """``(2, 3)``: its product with the optical densities of a pixel are the amounts of the stains."""
        first, second = np.array(self.vectors)
        rest = np.cross(first, second)
        return np.linalg.inv(np.array([first, second, rest / np.linalg.norm(rest)]).T)[:2]

    def estimated(self, pixels: NDArray[np.uint8]) -> Self:
        """Return the same stains with vectors estimated from pixels (Macenko et al. 2009), or unchanged.

        They stay unchanged where the pixels do not show two stains: if fewer than a thousand are stained, or
        the two vectors are less than 10° apart.

        Args:
            pixels: ``(…, 3)`` RGB, glass included.
        """
        density = DENSITY[pixels.reshape(-1, 3)]
        density = density[(density.sum(axis=1) > _LEAST_OD) & (pixels.reshape(-1, 3) > 0).all(axis=1)]
        if len(density) < _LEAST_PIXELS:
            return self
        plane = np.linalg.eigh(np.cov(density.T))[1][:, :0:-1]
        plane *= np.where(plane.sum(axis=0) < 0, -1, 1)
        first, second = (density @ plane).T
        angles = np.percentile(np.arctan2(second, first), _EXTREMES)
        ends = np.maximum(plane @ np.array([np.cos(angles), np.sin(angles)]), 0).T
        ends /= np.linalg.norm(ends, axis=1, keepdims=True)
        if np.arccos(np.clip(ends[0] @ ends[1], -1, 1)) < _LEAST_ANGLE:
            return self
        # Haematoxylin absorbs red; eosin and DAB hardly do, beside green and blue.
        ends = np.round(ends[np.argsort(-ends[:, 0])], _VECTOR_DECIMALS)
        return type(self)(self.names, (tuple(ends[0].tolist()), tuple(ends[1].tolist())))


# The defaults of QuPath.
_HEMATOXYLIN = (0.65111, 0.70119, 0.29049)
STAINS = {
    "he": Stains(("Hematoxylin", "Eosin"), (_HEMATOXYLIN, (0.2159, 0.8012, 0.5581))),
    "hdab": Stains(("Hematoxylin", "DAB"), (_HEMATOXYLIN, (0.26917, 0.56824, 0.77759))),
}


def stain_measurements(
    cells: Cells,
    pixels: NDArray[np.uint8],
    stains: Stains,
    *,
    mpp: float,
    scale: float = 1.0,
    origin: tuple[int, int] = (0, 0),
) -> dict[str, NDArray[np.float32]]:
    """Measure mean and standard deviation of the optical density of two stains in each cell.

    A pixel belongs to a cell if its centre lies inside the outline; a cell without an outline is measured in
    a circle of radius :data:`CIRCLE_UM`. A cell outside the pixels has NaN.

    Args:
        cells: in level-0 pixels.
        pixels: ``(H, W, 3)`` RGB.
        stains: the two stains.
        mpp: µm per pixel of ``pixels``.
        scale: pixels for each level-0 pixel.
        origin: column and row of ``pixels[0, 0]``, in pixels.
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise InputError(f"pixels are {pixels.dtype} of shape {pixels.shape}; give (H, W, 3) uint8")
    shapes = rings_of(cells.outline, len(cells))
    measured = _measured(
        pixels,
        DENSITY,
        stains.unmixing,
        cells.xy * scale,
        CIRCLE_UM / mpp,
        shapes.xy * scale,
        shapes.rings,
        shapes.polygons[shapes.outlines],
        np.array(origin, np.int64),
    )
    where = f"Circle: Diameter {2 * CIRCLE_UM:.1f} µm" if cells.outline is None else "Nucleus"
    names = [f"{where}: {stain} OD {what}" for stain in stains.names for what in ("mean", "std dev")]
    columns = (np.round(measured, _DECIMALS) + 0.0).astype(np.float32).T
    return dict(zip(names, columns, strict=True))


@compiled
def _measured(  # noqa: PLR0917  compiled functions know no keyword-only arguments
    pixels: Any,
    density: Any,
    unmixing: Any,
    place: Any,
    radius: Any,
    xy: Any,
    rings: Any,
    cells: Any,
    origin: Any,
) -> Any:
    """Return mean and standard deviation of the first stain, then of the second, for each cell."""
    height, width = pixels.shape[:2]
    out = np.full((len(place), 4), np.nan)
    for i in range(len(place)):
        patch, left, top = draw_cell(place[i], radius, xy, rings[cells[i] : cells[i + 1] + 1])
        count, sums = 0, np.zeros(4)
        for row in range(patch.shape[0]):
            y = row + top - origin[1]
            if not 0 <= y < height:
                continue
            for column in range(patch.shape[1]):
                x = column + left - origin[0]
                if patch[row, column] and 0 <= x < width:
                    count += 1
                    own = pixels[y, x]
                    red, green, blue = density[own[0]], density[own[1]], density[own[2]]
                    for k in range(2):
                        amount = unmixing[k, 0] * red + unmixing[k, 1] * green + unmixing[k, 2] * blue
                        sums[2 * k] += amount
                        sums[2 * k + 1] += amount * amount
        if count:
            for k in range(2):
                mean = sums[2 * k] / count
                out[i, 2 * k] = mean
                out[i, 2 * k + 1] = np.sqrt(max(0.0, sums[2 * k + 1] / count - mean * mean))
    return out
