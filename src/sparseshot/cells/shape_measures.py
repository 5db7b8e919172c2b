"""Shape of outlines: area, length, circularity, solidity, and the ellipse of equal second moments."""

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.rings import rings_of
from sparseshot.compiled import compiled

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
    outlines = np.asarray(outlines, dtype=object)
    shapes = rings_of(outlines)
    area, length, xx, yy, xy = _moments(*shapes).T
    hull = shapely.area(shapely.convex_hull(outlines))
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


@compiled
def _moments(xy: Any, rings: Any, polygons: Any, outlines: Any) -> Any:
    """Return for each outline its area, length, and central second moments xx, yy, xy over the area."""
    count = len(outlines) - 1
    out = np.full((count, 5), np.nan)
    for i in range(count):
        if outlines[i] == outlines[i + 1]:
            continue
        start = rings[polygons[outlines[i]]]
        x0, y0 = xy[start, 0], xy[start, 1]  # near the outline, so that no digits are lost
        sums = np.zeros(7)
        for polygon in range(outlines[i], outlines[i + 1]):
            for ring in range(polygons[polygon], polygons[polygon + 1]):
                own = np.zeros(6)
                for k in range(rings[ring], rings[ring + 1] - 1):
                    ax, ay, bx, by = xy[k, 0] - x0, xy[k, 1] - y0, xy[k + 1, 0] - x0, xy[k + 1, 1] - y0
                    cross = ax * by - bx * ay
                    own[0] += cross / 2
                    own[1] += cross * (ax + bx) / 6
                    own[2] += cross * (ay + by) / 6
                    own[3] += cross * (ax * ax + ax * bx + bx * bx) / 12
                    own[4] += cross * (ay * ay + ay * by + by * by) / 12
                    own[5] += cross * (2 * ax * ay + ax * by + bx * ay + 2 * bx * by) / 24
                    sums[6] += np.hypot(bx - ax, by - ay)
                # The first ring is the shell, the others are holes, whichever way they run.
                sign = np.sign(own[0]) * (1.0 if ring == polygons[polygon] else -1.0)
                for k in range(6):
                    sums[k] += sign * own[k]
        area = sums[0]
        if not area > 0:
            continue
        x, y = sums[1] / area, sums[2] / area
        out[i, 0], out[i, 1] = area, sums[6]
        out[i, 2], out[i, 3] = sums[3] / area - x * x, sums[4] / area - y * y
        out[i, 4] = sums[5] / area - x * y
    return out
