"""The landscape of a slide: where each kind of tissue lies, as functions of x and y in µm."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic.noise import channels, hills, ramp, uniform

ALL_TISSUE = -1e9
"""A threshold below every height: a slide without glass."""


class Landscape(NamedTuple):
    """Parameters of a slide for the compiled functions; lengths in µm."""

    key: int
    width_um: float
    height_um: float
    island_um: float
    threshold: float
    density_per_um2: float
    tumour: float
    lymphocyte: float
    stromal: float
    debris: float
    nest_shift: float
    fat_shift: float
    flow_x: float
    flow_y: float
    nucleus_scale: float
    blur_um: float
    other_scale: float
    tone: float
    rim: float
    mottling: float
    brown: float
    smear: bool


_TERRAIN = {
    # µm of the first octave (of the islands: in units of their own size), octaves, gain from one to the next
    "island": (1.0, 5, 0.48),
    "shore": (90.0, 3, 0.5),
    "nest": (230.0, 4, 0.5),
    "crowd": (190.0, 3, 0.5),
    "fat": (480.0, 3, 0.45),
    "blood": (110.0, 3, 0.4),
    "flow": (170.0, 3, 0.4),
    "thick": (1900.0, 3, 0.6),
    "blue": (1700.0, 1, 0.5),
    "pink": (1300.0, 1, 0.5),
    "pool": (130.0, 3, 0.5),
    "cleft": (70.0, 2, 0.5),
    "focus": (2100.0, 1, 0.5),
    "dense": (70.0, 2, 0.5),
}
_LENGTH, _OCTAVES, _GAIN = np.array(list(_TERRAIN.values()), dtype=np.float64).T.copy()
(
    _ISLAND, _SHORE, _NEST, _CROWD, _FAT, _BLOOD, _FLOW, _THICK, _BLUE, _PINK, _POOL, _CLEFT, _FOCUS, _DENSE,
) = channels(after=-1, count=len(_TERRAIN))  # fmt: skip
_X, _Y = channels(after=_DENSE, count=2)
LAST_CHANNEL = _Y


@compiled
def _terrain(land: Landscape, kind: int, x: float, y: float, detail_um: float) -> float:
    length = _LENGTH[kind]
    return hills(land.key, kind, x / length, y / length, _OCTAVES[kind], _GAIN[kind], detail_um / length)


@compiled
def blurred(detail_um: float) -> float:
    """Return how much wider a border is where detail is left out, in units of :func:`nest` and similar."""
    return 0.3 * min(1.0, detail_um / 200.0)


@compiled
def island(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return a height that is above the threshold where there is tissue; it falls off at the slide's rim."""
    rim = 0.12 * min(land.width_um, land.height_um)
    inside = min(x, land.width_um - x, y, land.height_um - y)
    size = land.island_um
    return _terrain(land, _ISLAND, x / size, y / size, detail_um / size) - 2.0 * (
        1.0 - ramp(inside, -0.3 * rim, rim)
    )


@compiled
def shore(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return the approximate distance in µm to the edge of the tissue; negative on glass."""
    if land.threshold == ALL_TISSUE:
        return 1e6
    inside = (island(land, x, y, detail_um) - land.threshold) * 0.4 * land.island_um
    if abs(inside) > 200.0:  # the fringe is far
        return inside
    return inside + 26.0 * _terrain(land, _SHORE, x, y, detail_um)


@compiled
def nest(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return a height that is positive in tumour nests and above :data:`LUMEN` in their lumens."""
    return 0.8 * _terrain(land, _NEST, x, y, detail_um) + land.nest_shift


LUMEN = 0.76


@compiled
def crowd(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return the degree, 0 to 1, to which a place is in a lymphocyte aggregate."""
    return ramp(_terrain(land, _CROWD, x, y, detail_um), 0.5 - blurred(detail_um), 0.8 + blurred(detail_um))


@compiled
def fat(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return the degree, 0 to 1, to which a place is fat."""
    return ramp(
        _terrain(land, _FAT, x, y, detail_um) + land.fat_shift,
        0.70 - blurred(detail_um),
        0.74 + blurred(detail_um),
    )


@compiled
def blood(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return the degree, 0 to 1, to which a place is inside a vessel."""
    return ramp(_terrain(land, _BLOOD, x, y, detail_um), 0.84 - blurred(detail_um), 0.9 + blurred(detail_um))


@compiled
def flow(land: Landscape, x: float, y: float, detail_um: float) -> float:
    """Return a height whose contour lines are the fibres of the stroma."""
    return (x * land.flow_x + y * land.flow_y) / 90.0 + 1.3 * _terrain(land, _FLOW, x, y, detail_um)


@compiled
def dense(land: Landscape, x: float, y: float) -> float:
    """Return the local factor on the density of cells, besides the kind of tissue; 1 on average."""
    return 1.0 + 0.45 * _terrain(land, _DENSE, x, y, 0.0)


@compiled
def focus(land: Landscape, x: float, y: float) -> float:
    """Return the optical blur at a place, as the width of an edge in µm."""
    drift = 0.5 + 0.5 * _terrain(land, _FOCUS, x, y, 0.0)
    return land.blur_um * (0.7 + 0.9 * drift * drift)


FIELDS = 10
SHORE, NEST, CROWD, FAT, BLOOD, FLOW, BLUE, PINK, POOL, CLEFT = range(FIELDS)
"""The slowly varying fields, by their index on the first axis of :func:`fields`."""


@compiled
def fields(land: Landscape, box: tuple[int, int, int, int], pitch_um: float) -> NDArray[np.float32]:
    """Return ``(FIELDS, rows, columns)`` at a box of knots of a lattice that all regions share."""
    i0, j0, i1, j1 = box
    rows, columns = j1 - j0, i1 - i0
    out = np.zeros((FIELDS, rows, columns), np.float32)
    for row in range(rows):
        for column in range(columns):
            x, y = (i0 + column) * pitch_um, (j0 + row) * pitch_um
            knot = out[:, row, column]
            knot[SHORE] = shore(land, x, y, pitch_um)
            if knot[SHORE] < -80.0 - 2.0 * pitch_um:  # glass on all sides: the rest is never used
                continue
            thick = 1.0 + 0.12 * _terrain(land, _THICK, x, y, pitch_um)
            knot[NEST] = nest(land, x, y, pitch_um)
            knot[CROWD] = crowd(land, x, y, pitch_um)
            knot[FAT] = fat(land, x, y, pitch_um)
            knot[BLOOD] = blood(land, x, y, pitch_um)
            knot[FLOW] = flow(land, x, y, pitch_um)
            knot[BLUE] = thick + 0.14 * _terrain(land, _BLUE, x, y, pitch_um)
            knot[PINK] = thick + 0.18 * _terrain(land, _PINK, x, y, pitch_um)
            knot[POOL] = ramp(_terrain(land, _POOL, x, y, pitch_um), 0.3, 1.1)
            knot[CLEFT] = _terrain(land, _CLEFT, x, y, pitch_um)
    return out


@compiled
def sample_heights(land: Landscape, count: int) -> NDArray[np.float64]:
    """Return the heights of :func:`island` at ``count`` × ``count`` places spread over the slide."""
    out = np.empty(count * count)
    for i in range(count):
        for j in range(count):
            x = (i + uniform(land.key, _X, i, j)) / count * land.width_um
            y = (j + uniform(land.key, _Y, i, j)) / count * land.height_um
            out[i * count + j] = island(land, x, y, 0.0)
    return out
