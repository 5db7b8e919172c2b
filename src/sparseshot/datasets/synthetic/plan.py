"""The plan of a slide: where tissue lies on the glass, and what kind, as functions of the place in µm."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic.noise import channels, hills, ramp, uniform

ALL_TISSUE = -1e9
"""A threshold under everything: a slide without glass."""


class Plan(NamedTuple):
    """What the compiled functions need to know of a slide; lengths in µm."""

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
def _terrain(plan: Plan, kind: int, x: float, y: float, detail_um: float) -> float:
    length = _LENGTH[kind]
    return hills(plan.key, kind, x / length, y / length, _OCTAVES[kind], _GAIN[kind], detail_um / length)


@compiled
def blurred(detail_um: float) -> float:
    """Return how much wider a border is where detail is left out, in units of :func:`nest` and the like."""
    return 0.3 * min(1.0, detail_um / 200.0)


@compiled
def island(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return the height of a landscape whose part over the threshold is tissue; falls at the slide's rim."""
    rim = 0.12 * min(plan.width_um, plan.height_um)
    inside = min(x, plan.width_um - x, y, plan.height_um - y)
    size = plan.island_um
    return _terrain(plan, _ISLAND, x / size, y / size, detail_um / size) - 2.0 * (
        1.0 - ramp(inside, -0.3 * rim, rim)
    )


@compiled
def shore(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return about how many µm inside the tissue a place lies; negative on glass."""
    if plan.threshold == ALL_TISSUE:
        return 1e6
    inside = (island(plan, x, y, detail_um) - plan.threshold) * 0.4 * plan.island_um
    if abs(inside) > 200.0:  # the fringe is far
        return inside
    return inside + 26.0 * _terrain(plan, _SHORE, x, y, detail_um)


@compiled
def nest(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Tumour nests where positive; their hollow middles, the lumens, over :data:`LUMEN`."""
    return 0.8 * _terrain(plan, _NEST, x, y, detail_um) + plan.nest_shift


LUMEN = 0.76


@compiled
def crowd(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return how much a place belongs to an aggregate of lymphocytes, 0 to 1."""
    return ramp(_terrain(plan, _CROWD, x, y, detail_um), 0.5 - blurred(detail_um), 0.8 + blurred(detail_um))


@compiled
def fat(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return how much a place belongs to fat, 0 to 1."""
    return ramp(
        _terrain(plan, _FAT, x, y, detail_um) + plan.fat_shift,
        0.70 - blurred(detail_um),
        0.74 + blurred(detail_um),
    )


@compiled
def blood(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return how much a place lies within a vessel, 0 to 1."""
    return ramp(_terrain(plan, _BLOOD, x, y, detail_um), 0.84 - blurred(detail_um), 0.9 + blurred(detail_um))


@compiled
def flow(plan: Plan, x: float, y: float, detail_um: float) -> float:
    """Return the height whose contour lines are the fibres of the stroma."""
    return (x * plan.flow_x + y * plan.flow_y) / 90.0 + 1.3 * _terrain(plan, _FLOW, x, y, detail_um)


@compiled
def dense(plan: Plan, x: float, y: float) -> float:
    """Return by how much cells crowd or thin out, apart from the kind of tissue; 1 on average."""
    return 1.0 + 0.45 * _terrain(plan, _DENSE, x, y, 0.0)


@compiled
def focus(plan: Plan, x: float, y: float) -> float:
    """Return the blur of the lens at a place, as the width of an edge in µm."""
    drift = 0.5 + 0.5 * _terrain(plan, _FOCUS, x, y, 0.0)
    return plan.blur_um * (0.7 + 0.9 * drift * drift)


class Fields(NamedTuple):
    """What the plan says of one place; the names are also the first axis of :func:`fields`."""

    shore: float
    nest: float
    crowd: float
    fat: float
    blood: float
    flow: float
    blue: float
    pink: float
    pool: float
    cleft: float


FIELDS = len(Fields._fields)
SHORE, NEST, CROWD, FAT, BLOOD, FLOW, BLUE, PINK, POOL, CLEFT = range(FIELDS)


@compiled
def fields(plan: Plan, box: tuple[int, int, int, int], pitch_um: float) -> NDArray[np.float32]:
    """Return slow fields, ``(FIELDS, rows, columns)``, at a box of knots of a lattice all regions share."""
    i0, j0, i1, j1 = box
    rows, columns = j1 - j0, i1 - i0
    out = np.zeros((FIELDS, rows, columns), np.float32)
    for row in range(rows):
        for column in range(columns):
            x, y = (i0 + column) * pitch_um, (j0 + row) * pitch_um
            knot = out[:, row, column]
            knot[SHORE] = shore(plan, x, y, pitch_um)
            if knot[SHORE] < -80.0 - 2.0 * pitch_um:  # glass on all sides: nothing below is ever looked at
                continue
            thick = 1.0 + 0.12 * _terrain(plan, _THICK, x, y, pitch_um)
            knot[NEST] = nest(plan, x, y, pitch_um)
            knot[CROWD] = crowd(plan, x, y, pitch_um)
            knot[FAT] = fat(plan, x, y, pitch_um)
            knot[BLOOD] = blood(plan, x, y, pitch_um)
            knot[FLOW] = flow(plan, x, y, pitch_um)
            knot[BLUE] = thick + 0.14 * _terrain(plan, _BLUE, x, y, pitch_um)
            knot[PINK] = thick + 0.18 * _terrain(plan, _PINK, x, y, pitch_um)
            knot[POOL] = ramp(_terrain(plan, _POOL, x, y, pitch_um), 0.3, 1.1)
            knot[CLEFT] = _terrain(plan, _CLEFT, x, y, pitch_um)
    return out


@compiled
def sample_heights(plan: Plan, count: int) -> NDArray[np.float64]:
    """Return the landscape at ``count`` × ``count`` places spread over the slide."""
    out = np.empty(count * count)
    for i in range(count):
        for j in range(count):
            x = (i + uniform(plan.key, _X, i, j)) / count * plan.width_um
            y = (j + uniform(plan.key, _Y, i, j)) / count * plan.height_um
            out[i * count + j] = island(plan, x, y, 0.0)
    return out
