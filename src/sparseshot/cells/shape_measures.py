"""Shape of outlines: area, length, circularity, solidity, and the ellipse of equal second moments."""

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.rings import centroids, rings_of

AREA, LENGTH = "Nucleus: Area µm^2", "Nucleus: Length µm"
CIRCULARITY, SOLIDITY, ECCENTRICITY = "Nucleus: Circularity", "Nucleus: Solidity", "Nucleus: Eccentricity"
MAJOR, MINOR, ORIENTATION = "Nucleus: Major axis µm", "Nucleus: Minor axis µm", "Nucleus: Orientation °"

_DECIMALS = {
    AREA: 2,
    LENGTH: 2,
    CIRCULARITY: 4,
    SOLIDITY: 4,
    ECCENTRICITY: 4,
    MAJOR: 2,
    MINOR: 2,
    ORIENTATION: 1,
}
"""Beyond these there is no information; fewer digits make smaller files."""


def shape_measurements(outlines: NDArray[Any], mpp: float) -> dict[str, NDArray[np.float32]]:
    """Measure (multi)polygons; NaN where there is none.

    The ellipse of equal second moments has the axes; its eccentricity is the distance between its foci over
    the major axis, and its orientation the angle of the major axis above the x axis, from 0 to 180°.

    Args:
        outlines: ``(N,)`` shapes in level-0 pixels, or None.
        mpp: µm per level-0 pixel.

    >>> measured = shape_measurements(np.array([shapely.box(0, 0, 40, 20)]), mpp=0.5)
    >>> {name.removeprefix("Nucleus: "): round(float(column[0]), 3) for name, column in measured.items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'Area µm^2': 200.0, 'Length µm': 60.0, 'Circularity': 0.698, 'Solidity': 1.0, 'Eccentricity': 0.866,
     'Major axis µm': 23.09, 'Minor axis µm': 11.55, 'Orientation °': 0.0}
    """
    outlines = np.where(shapely.area(outlines) > 0, outlines, np.array(None))
    area, length = shapely.area(outlines), shapely.length(outlines)
    hull = shapely.area(shapely.convex_hull(outlines))
    xx, yy, xy = _second_moments(outlines)
    middle, spread = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    large, small = middle + spread, np.maximum(middle - spread, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = {
            AREA: area * mpp**2,
            LENGTH: length * mpp,
            CIRCULARITY: np.minimum(4 * np.pi * area / length**2, 1),
            SOLIDITY: np.minimum(area / hull, 1),
            ECCENTRICITY: np.sqrt(1 - small / large),
            MAJOR: 4 * np.sqrt(large) * mpp,
            MINOR: 4 * np.sqrt(small) * mpp,
            # y points down in an image, so an angle that grows upwards changes its sign.
            ORIENTATION: np.degrees(np.arctan2(-2 * xy, xx - yy) / 2) % 180,
        }
    rounded = {name: np.round(column, _DECIMALS[name]) for name, column in values.items()}
    rounded[ORIENTATION] %= 180
    return {name: (column + 0.0).astype(np.float32) for name, column in rounded.items()}


def _second_moments(outlines: NDArray[np.object_]) -> NDArray[np.float64]:
    """Return ``(3, N)`` central second moments xx, yy and xy over the area, from the edges."""
    shapes = rings_of(outlines)
    begin = shapes.rings[shapes.polygons[shapes.outlines]]
    owner = np.repeat(np.arange(len(outlines)), np.diff(begin))
    around = shapes.xy - centroids(outlines)[owner]  # near zero, so that no digits are lost
    ends = shapes.rings[1:] - 1
    (ax, ay), (bx, by) = (np.delete(around, each, axis=0).T for each in (ends, shapes.rings[:-1]))
    cross = ax * by - bx * ay
    # Shells count positively and holes negatively, whichever way they run.
    ring = np.delete(np.repeat(np.arange(len(ends)), np.diff(shapes.rings)), ends)
    sign = np.sign(np.bincount(ring, cross, len(ends)))
    is_shell = np.isin(np.arange(len(ends)), shapes.polygons[:-1])
    cross *= np.where(is_shell, sign, -sign)[ring]
    area, *moments = (
        np.bincount(np.delete(owner, ends), cross * weight, len(outlines))
        for weight in (
            1 / 2,
            (ax * ax + ax * bx + bx * bx) / 12,
            (ay * ay + ay * by + by * by) / 12,
            (2 * ax * ay + ax * by + bx * ay + 2 * bx * by) / 24,
        )
    )
    with np.errstate(invalid="ignore"):
        return np.array(moments) / area
