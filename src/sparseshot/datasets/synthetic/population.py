"""The cells and the debris: every object belongs to one site of a lattice and is drawn from its number.

A region therefore needs only the sites it touches and a ring around them. Cells are drawn first as
candidates; of two that overlap too much, the one of lower rank is removed. Debris is drawn independently
of the cells, so that ``debris=0`` removes it and changes nothing else.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic import landscape
from sparseshot.datasets.synthetic.landscape import Landscape
from sparseshot.datasets.synthetic.noise import between, channels, ramp, uniform

CLASSES = ("tumour", "lymphocyte", "stromal")
TUMOUR, LYMPHOCYTE, STROMAL, SMUDGE, FRAGMENT, PIGMENT, ERYTHROCYTE, DUST, CYTOPLASM = range(9)
"""Kinds of object; the first three are cells, by their index in :data:`CLASSES`."""

SITE_UM = 8.0
"""Side of a site, which holds at most one cell and one piece of debris."""
REACH_UM = 14.0
"""No object extends farther from its centre."""
_RING = 2
"""Number of neighbouring sites in each direction whose cells may overlap a cell."""
_OVERLAP = 0.72

(
    _X, _Y, _HERE, _CLASS, _SIZE, _RATIO, _ANGLE, _RANK, _CLUTTER_X, _CLUTTER_Y, _CLUTTER, _CLUTTER_SIZE,
    _CLUTTER_RATIO, _CLUTTER_ANGLE,
) = channels(after=landscape.LAST_CHANNEL, count=14)  # fmt: skip
LAST_CHANNEL = _CLUTTER_ANGLE

OBJECT = np.dtype(
    [("x", "f8"), ("y", "f8"), ("a", "f8"), ("b", "f8"), ("angle", "f8"), ("kind", "i8"), ("id", "i8")]
)
"""Centre and semi-axes in µm, angle in radians; the id is that of the site."""


class Sites(NamedTuple):
    """A half-open box of sites."""

    i0: int
    j0: int
    i1: int
    j1: int


def sites_of(land: Landscape, x0: float, y0: float, x1: float, y1: float) -> Sites:
    """Return the sites that touch a box in µm, within the slide."""
    columns, rows = sites_across(land)
    return Sites(
        max(0, int(np.floor(x0 / SITE_UM))),
        max(0, int(np.floor(y0 / SITE_UM))),
        min(columns, int(np.floor(x1 / SITE_UM)) + 1),
        min(rows, int(np.floor(y1 / SITE_UM)) + 1),
    )


@compiled
def sites_across(land: Landscape) -> tuple[int, int]:
    """Return the number of columns and rows of sites."""
    return int(np.ceil(land.width_um / SITE_UM)), int(np.ceil(land.height_um / SITE_UM))


@compiled
def _class_of(land: Landscape, nest: float, crowd: float, u: float) -> int:
    """Draw a class from the mix, weighted by the kind of tissue."""
    tumour = land.tumour * (1.0 * nest + 0.02 * (1.0 - nest)) * (1.0 - 0.8 * crowd)
    lymphocyte = land.lymphocyte * (0.15 * nest + 0.55 * (1.0 - nest) + 3.2 * crowd)
    stromal = land.stromal * (0.05 * nest + 1.8 * (1.0 - nest)) * (1.0 - 0.7 * crowd)
    u *= tumour + lymphocyte + stromal
    if u < tumour:
        return TUMOUR
    return LYMPHOCYTE if u < tumour + lymphocyte else STROMAL


@compiled
def _draw_candidate(land: Landscape, i: int, j: int, cell: Any) -> bool:
    """Draw the candidate cell of site (i, j); False where there is none."""
    key = land.key
    x, y = (i + uniform(key, _X, i, j)) * SITE_UM, (j + uniform(key, _Y, i, j)) * SITE_UM
    here = uniform(key, _HERE, i, j)
    room = 1.1 * land.density_per_um2 * SITE_UM * SITE_UM  # a tenth is removed for overlap
    if here >= 4.0 * room or x >= land.width_um or y >= land.height_um:
        return False
    cell.id = j * sites_across(land)[0] + i
    if land.smear:
        cell.x, cell.y, cell.angle = x, y, np.pi * uniform(key, _ANGLE, i, j)
        cell.kind = TUMOUR if uniform(key, _CLASS, i, j) < 0.6 else LYMPHOCYTE
        cell.a = between(3.2, 6.0, uniform(key, _SIZE, i, j)) * land.nucleus_scale
        cell.b = cell.a * between(0.6, 1.0, uniform(key, _RATIO, i, j))
        return here < 0.25 * room
    if landscape.shore(land, x, y, 0.0) < 4.0:
        return False
    depth = landscape.nest(land, x, y, 0.0)
    nest = ramp(depth, -0.01, 0.04)
    crowd = landscape.crowd(land, x, y, 0.0)
    hollow = max(
        ramp(depth, landscape.LUMEN - 0.05, landscape.LUMEN),
        landscape.blood(land, x, y, 0.0),
        landscape.fat(land, x, y, 0.0) * (1.0 - nest),
    )
    local = landscape.dense(land, x, y) * (1.5 * nest + 0.62 * (1.0 - nest) + 1.5 * crowd) * (1.0 - hollow)
    if here >= local * room:
        return False
    kind = _class_of(land, nest, crowd, uniform(key, _CLASS, i, j))
    size, ratio = uniform(key, _SIZE, i, j), uniform(key, _RATIO, i, j)
    angle = np.pi * uniform(key, _ANGLE, i, j)
    if kind == TUMOUR:
        a = between(4.2, 6.6, size * (0.4 + 0.6 * size)) * land.nucleus_scale
        b = a * between(0.62, 0.95, ratio)
    elif kind == LYMPHOCYTE:
        a = between(2.6, 3.5, size) * land.other_scale
        b = a * between(0.82, 1.0, ratio)
    else:
        a = between(4.4, 8.6, size) * land.other_scale
        b = between(1.5, 2.5, ratio) * land.other_scale
        step = 3.0
        across = landscape.flow(land, x + step, y, 0.0) - landscape.flow(land, x - step, y, 0.0)
        along = landscape.flow(land, x, y + step, 0.0) - landscape.flow(land, x, y - step, 0.0)
        angle = np.arctan2(across, -along) + 0.5 * (angle / np.pi - 0.5)  # on the contour line of the flow
    cell.x, cell.y, cell.a, cell.b, cell.angle, cell.kind = x, y, a, b, angle, kind
    return True


@compiled
def cells_at(land: Landscape, sites: Sites) -> NDArray[np.void]:
    """Return the cells of the sites: the candidates that no candidate of higher rank overlaps."""
    columns, rows = sites_across(land)
    i0, j0 = max(0, sites.i0 - _RING), max(0, sites.j0 - _RING)
    i1, j1 = min(columns, sites.i1 + _RING), min(rows, sites.j1 + _RING)
    candidates = np.empty(max(0, (i1 - i0) * (j1 - j0)), OBJECT)
    number = np.full((max(0, j1 - j0), max(0, i1 - i0)), -1, np.int64)
    count = 0
    for j in range(j0, j1):
        for i in range(i0, i1):
            if _draw_candidate(land, i, j, candidates[count]):
                number[j - j0, i - i0] = count
                count += 1
    chosen = np.empty(count, OBJECT)
    kept = 0
    for j in range(sites.j0, sites.j1):
        for i in range(sites.i0, sites.i1):
            n = number[j - j0, i - i0]
            if n >= 0 and not _is_overlapped(land, candidates, number, i, j, i0, j0):
                chosen[kept] = candidates[n]
                kept += 1
    return chosen[:kept].copy()


@compiled
def _is_overlapped(  # noqa: PLR0917  numba knows no keyword-only arguments
    land: Landscape, candidates: NDArray[np.void], number: NDArray[np.int64], i: int, j: int, i0: int, j0: int
) -> bool:
    me = candidates[number[j - j0, i - i0]]
    rank, radius = uniform(land.key, _RANK, i, j), np.sqrt(me.a * me.b)
    for row in range(max(0, j - j0 - _RING), min(number.shape[0], j - j0 + _RING + 1)):
        for column in range(max(0, i - i0 - _RING), min(number.shape[1], i - i0 + _RING + 1)):
            n = number[row, column]
            if n < 0 or (row == j - j0 and column == i - i0):
                continue
            other = candidates[n]
            near = _OVERLAP * (radius + np.sqrt(other.a * other.b))
            if (me.x - other.x) ** 2 + (me.y - other.y) ** 2 < near * near and (
                uniform(land.key, _RANK, i0 + column, j0 + row) > rank
            ):
                return True
    return False


def cytoplasm_of(cells: NDArray[np.void]) -> NDArray[np.void]:
    """Return the cytoplasm around the nuclei of a smear."""
    around = cells.copy()
    wider = 1.25 + 0.35 * (cells["id"] * 0.618 % 1)
    longer = np.minimum(wider * cells["a"], REACH_UM / 1.4)
    around["a"], around["b"] = longer, np.maximum(wider * cells["b"], 0.85 * longer)
    around["kind"] = CYTOPLASM
    return around


@compiled
def clutter_at(land: Landscape, sites: Sites) -> NDArray[np.void]:  # noqa: PLR0912  one branch a kind
    """Return the objects of the sites that are not cells: smudges, fragments, pigment, erythrocytes, dust."""
    out = np.empty(max(0, (sites.i1 - sites.i0) * (sites.j1 - sites.j0)), OBJECT)
    key, count = land.key, 0
    for j in range(sites.j0, sites.j1):
        for i in range(sites.i0, sites.i1):
            x = (i + uniform(key, _CLUTTER_X, i, j)) * SITE_UM
            y = (j + uniform(key, _CLUTTER_Y, i, j)) * SITE_UM
            u = uniform(key, _CLUTTER, i, j)
            inside = landscape.shore(land, x, y, 0.0)
            size = uniform(key, _CLUTTER_SIZE, i, j)
            ratio = between(0.6, 1.0, uniform(key, _CLUTTER_RATIO, i, j))
            if land.smear:
                if u > 0.45:
                    continue
                kind, a = (
                    (FRAGMENT, between(0.7, 1.4, size)) if u < 0.01 else (ERYTHROCYTE, between(3, 3.9, size))
                )
            elif inside < 0.0:
                if u > 0.0004 * land.debris:
                    continue
                kind, a = DUST, between(0.8, 5.0, size * size)
            else:
                nest = landscape.nest(land, x, y, 0.0)
                vessel = landscape.blood(land, x, y, 0.0) * (1.0 - ramp(nest, -0.05, 0.0))
                smudges, fragments, pigment = 0.02 * land.debris, 0.055 * land.debris, 0.07 * land.debris
                if u < smudges:
                    kind, a = SMUDGE, between(3.0, 6.5, size)
                elif u < fragments:
                    kind, a = FRAGMENT, between(0.7, 1.7, size)
                elif u < pigment:
                    kind, a = PIGMENT, between(1.2, 3.4, size)
                elif u < pigment + 0.01 + 0.8 * vessel:
                    kind, a = ERYTHROCYTE, between(3.0, 3.9, size)
                else:
                    continue
                if nest < 0.0 and landscape.fat(land, x, y, 0.0) > 0.5:
                    continue  # fat cells are empty
            thing = out[count]
            thing.x, thing.y, thing.a, thing.b, thing.kind = x, y, a, a * ratio, kind
            thing.angle = np.pi * uniform(key, _CLUTTER_ANGLE, i, j)
            thing.id = j * sites_across(land)[0] + i
            count += 1
    return out[:count].copy()
