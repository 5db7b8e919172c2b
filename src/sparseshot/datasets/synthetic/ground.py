"""The ground of the tissue: cytoplasm, fibres, fat, clefts and vessels, as amounts of stain in each pixel."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.datasets.synthetic import plan as plans
from sparseshot.datasets.synthetic import population
from sparseshot.datasets.synthetic.noise import (
    between,
    channels,
    compiled,
    kept,
    noise_line,
    noise_row,
    ramp,
    uniform,
)
from sparseshot.datasets.synthetic.plan import Fields, Plan

BLUE, PINK, BROWN = range(3)
"""The stains: haematoxylin, eosin, and what is brown by itself."""

_GRAIN, _SPECK, _MOTTLE, _STRAND, _CELL_X, _CELL_Y = channels(after=population.LAST_CHANNEL, count=6)
LAST_CHANNEL = _CELL_Y
_GRAIN_UM, _SPECK_UM, _MOTTLE_UM, _STRAND_UM, _FIBRE_UM, _THREAD_UM = 1.0, 2.3, 5.0, 17.0, 9.0, 3.5
_ADIPOCYTE_UM, _WALL_UM = 62.0, 16.0
_KNOT_UM = 8.0


class Pixels(NamedTuple):
    """Where the pixels of a region lie: centres of its columns and rows, and their size."""

    x_um: NDArray[np.float64]
    y_um: NDArray[np.float64]
    mpp: float


class _Texture(NamedTuple):
    """The noise of one pixel, by its length; what a pixel is too wide to show has been left out."""

    fine: float
    mottle: float
    strand: float
    crease: float


class _Detail(NamedTuple):
    """How much of each detail the pixels show, how much wider borders become, what cells give on average."""

    fibre: float
    thread: float
    wall: float
    blur: float
    cells: float
    mpp: float


@compiled
def ground(plan: Plan, pixels: Pixels, cells_on_average: bool) -> NDArray[np.float32]:
    """Give the stains ``(H, W, 3)`` of tissue without objects.

    The slow fields of the plan are computed on a lattice and interpolated between its knots.

    Args:
        plan: of the slide.
        pixels: of the region.
        cells_on_average: with the blue that cells give on average, where they are too small to be painted.
    """
    x_um, y_um, mpp = pixels
    pitch_um = max(_KNOT_UM, 4.0 * mpp)
    per_um = 1.0 / pitch_um
    i0, j0 = int(np.floor(x_um[0] * per_um)), int(np.floor(y_um[0] * per_um))
    i1, j1 = int(np.floor(x_um[-1] * per_um)) + 2, int(np.floor(y_um[-1] * per_um)) + 2
    knots = plans.fields(plan, (i0, j0, i1, j1), pitch_um)
    line = np.empty((i1 - i0, plans.FIELDS), np.float32)
    grain, speck, mottle, strand = np.zeros((4, len(x_um)))
    keep_grain, keep_speck = 0.7 * kept(_GRAIN_UM, mpp), kept(_SPECK_UM, mpp)
    keep_mottle, keep_strand = kept(_MOTTLE_UM, mpp), kept(_STRAND_UM, mpp)
    detail = _Detail(
        kept(_FIBRE_UM, mpp),
        kept(_THREAD_UM, mpp),
        kept(_WALL_UM, mpp),
        plans.blurred(pitch_um),
        100.0 * plan.density_per_um2 if cells_on_average else 0.0,
        mpp,
    )
    stains = np.zeros((len(y_um), len(x_um), 3), np.float32)
    for row in range(len(y_um)):
        y = y_um[row]
        j = int(np.floor(y * per_um)) - j0
        t = np.float32(y * per_um - (j + j0))
        line[:] = knots[j] + (knots[j + 1] - knots[j]) * t
        if line[:, plans.SHORE].max() < -12.0:
            continue
        noise_row(mottle, plan.key, _MOTTLE, x_um, y, _MOTTLE_UM)
        noise_row(strand, plan.key, _STRAND, x_um, y, _STRAND_UM)
        if keep_speck > 0.0:
            noise_row(speck, plan.key, _SPECK, x_um, y, _SPECK_UM)
        if keep_grain > 0.0:
            noise_row(grain, plan.key, _GRAIN, x_um, y, _GRAIN_UM)
        for column in range(len(x_um)):
            x = x_um[column]
            i = int(np.floor(x * per_um)) - i0
            s = x * per_um - (i + i0)
            # One by one, because an array that is handed on for each pixel costs more than all of this.
            here = Fields(
                between(line[i, 0], line[i + 1, 0], s),
                between(line[i, 1], line[i + 1, 1], s),
                between(line[i, 2], line[i + 1, 2], s),
                between(line[i, 3], line[i + 1, 3], s),
                between(line[i, 4], line[i + 1, 4], s),
                between(line[i, 5], line[i + 1, 5], s),
                between(line[i, 6], line[i + 1, 6], s),
                between(line[i, 7], line[i + 1, 7], s),
                between(line[i, 8], line[i + 1, 8], s),
                between(line[i, 9], line[i + 1, 9], s),
            )
            spots = keep_mottle * mottle[column]
            texture = _Texture(
                keep_grain * grain[column] + keep_speck * speck[column],
                spots,
                keep_strand * strand[column],
                keep_mottle * (1.0 - ramp(abs(strand[column] + 0.25 * spots), 0.03, 0.16)),
            )
            cover = ramp(here.shore + 3.0 * (spots + texture.strand), 0.0, 2.5 + mpp)
            if cover > 0.0:
                blue, pink = _tissue(plan.key, here, texture, detail, x, y)
                stains[row, column, BLUE] = blue * cover
                stains[row, column, PINK] = pink * cover
    return stains


@compiled
def _tissue(  # noqa: PLR0917  numba knows no keyword-only arguments
    key: int, here: Fields, texture: _Texture, detail: _Detail, x: float, y: float
) -> tuple[float, float]:
    """Give the blue and pink of one place in the tissue."""
    depth = here.nest
    nest = ramp(depth + 0.01 * texture.mottle, -0.01 - detail.blur, 0.04 + detail.blur)
    blue, pink = 0.0, 0.0
    if nest > 0.0:
        inner_blue, inner_pink = _cytoplasm(here, texture, detail)
        blue += nest * inner_blue
        pink += nest * inner_pink
    if nest < 1.0:
        outer_blue, outer_pink = _stroma(key, here, texture, detail, x, y)
        blue += (1.0 - nest) * outer_blue
        pink += (1.0 - nest) * outer_pink
    blue += detail.cells * between(0.21, 0.33, nest)
    border = 1.0 - ramp(abs(depth + 0.015 + 0.02 * (texture.mottle + texture.strand)), 0.004, 0.03)
    body = 1.0 - border * ramp(here.cleft + 0.2 * texture.mottle, 0.3, 0.55)
    return max(0.01, blue) * body * here.blue, max(0.02, pink) * body * here.pink


@compiled
def _cytoplasm(here: Fields, texture: _Texture, detail: _Detail) -> tuple[float, float]:
    """Give the blue and pink of a nest of tumour cells, hollow in its middle."""
    start, end = plans.LUMEN - 0.02 - detail.blur, plans.LUMEN + 0.02 + detail.blur
    body = 1.0 - ramp(here.nest + 0.03 * texture.mottle, start, end)
    blue = 0.17 + 0.05 * texture.mottle + 0.05 * texture.fine - 0.08 * texture.crease + 0.3 * here.pool
    pink = 0.36 + 0.07 * texture.mottle + 0.05 * texture.fine - 0.16 * texture.crease
    return body * blue, body * pink


@compiled
def _stroma(  # noqa: PLR0917  numba knows no keyword-only arguments
    key: int, here: Fields, texture: _Texture, detail: _Detail, x: float, y: float
) -> tuple[float, float]:
    """Give the blue and pink of fibres, and of the fat and vessels between them."""
    flow = here.flow
    thread = detail.thread * noise_line(key, 31.0 * flow + 0.4 * texture.mottle)
    fibre = 0.5 + 0.5 * detail.fibre * noise_line(key + 2048, 9.0 * flow) + 0.22 * thread
    body = ramp(fibre + 0.3 * texture.strand + 0.1 * texture.mottle, 0.02, 0.4)
    body = between(0.18 + 0.3 * thread * thread, 1.0, body)
    body = between(0.8, body, detail.fibre)  # a wide pixel sees fibres and gaps together
    body *= 1.0 - 0.92 * here.blood
    fat = here.fat
    if fat > 0.0:
        wall = 0.1
        if detail.wall > 0.0:
            wall = between(wall, _wall(key, x, y, 1.0 + 0.5 * detail.mpp), detail.wall)
        body *= between(1.0, wall, fat)
    blue = 0.04 + 0.03 * texture.fine + 0.35 * here.pool + 0.1 * here.crowd
    pink = 0.24 + 0.34 * fibre + 0.05 * texture.fine
    return body * blue, body * pink


@compiled
def _wall(key: int, x: float, y: float, width_um: float) -> float:
    """Give how much a place lies on the thin wall between two fat cells (the border of Voronoi cells)."""
    i, j = int(np.floor(x / _ADIPOCYTE_UM)), int(np.floor(y / _ADIPOCYTE_UM))
    first, second = 1e18, 1e18
    for row in range(j - 1, j + 2):
        for column in range(i - 1, i + 2):
            dx = (column + between(0.15, 0.85, uniform(key, _CELL_X, column, row))) * _ADIPOCYTE_UM - x
            dy = (row + between(0.15, 0.85, uniform(key, _CELL_Y, column, row))) * _ADIPOCYTE_UM - y
            distance = dx * dx + dy * dy
            if distance < first:
                first, second = distance, first
            elif distance < second:
                second = distance
    return 1.0 - ramp(np.sqrt(second) - np.sqrt(first), 0.5 * width_um, 1.5 * width_um)
