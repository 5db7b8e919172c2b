"""The ground of the tissue: cytoplasm, fibres, fat, clefts and vessels, as the amount of stain per pixel.

Slowly varying fields are interpolated from the landscape; texture is noise of several lengths. Detail that
a pixel is too coarse to show fades out, so that coarse pixels agree with the mean of fine ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic import landscape, population
from sparseshot.datasets.synthetic.landscape import Fields, Landscape
from sparseshot.datasets.synthetic.noise import (
    between,
    channels,
    kept,
    lattice,
    noise_line,
    noise_row,
    ramp,
    smooth,
    spread,
    uniform,
)

BLUE, PINK, BROWN = range(3)
"""The stains: haematoxylin, eosin, and brown pigment."""

_SPECK, _MOTTLE, _STRAND, _CELL_X, _CELL_Y = channels(after=population.LAST_CHANNEL, count=5)
LAST_CHANNEL = _CELL_Y
_SPECK_UM, _MOTTLE_UM, _STRAND_UM, _FIBRE_UM, _THREAD_UM = 1.7, 5.0, 17.0, 9.0, 3.5
_ADIPOCYTE_UM, _WALL_UM = 62.0, 16.0
_KNOT_UM = 8.0


class Pixels(NamedTuple):
    """The pixels of a region: centres of its columns and rows, and their size."""

    x_um: NDArray[np.float64]
    y_um: NDArray[np.float64]
    mpp: float


class _Texture(NamedTuple):
    """The noise of one pixel at several lengths, without those too short for the pixel to show."""

    fine: float
    mottle: float
    strand: float
    crease: float


class _Detail(NamedTuple):
    """How much of each detail the pixels show, the extra width of borders, the average stain of cells."""

    fine: float
    mottle: float
    strand: float
    fibre: float
    thread: float
    blur: float
    cells: float
    mpp: float


@compiled
def ground(land: Landscape, pixels: Pixels, cells_on_average: bool) -> NDArray[np.float32]:
    """Return the stains ``(3, H, W)`` of tissue without objects.

    The fields of the landscape are computed on a lattice and interpolated between its knots.

    Args:
        land: landscape of the slide.
        pixels: the region.
        cells_on_average: add the average stain of cells, for pixels too coarse to paint them.
    """
    x_um, y_um, mpp = pixels
    pitch_um = max(_KNOT_UM, 4.0 * mpp)
    detail = _Detail(
        kept(_SPECK_UM, mpp),
        kept(_MOTTLE_UM, mpp),
        kept(_STRAND_UM, mpp),
        kept(_FIBRE_UM, mpp),
        kept(_THREAD_UM, mpp),
        landscape.blurred(pitch_um),
        100.0 * land.density_per_um2 if cells_on_average else 0.0,
        mpp,
    )
    along = lattice(x_um, pitch_um)
    j0, j1 = int(np.floor(y_um[0] / pitch_um)), int(np.floor(y_um[-1] / pitch_um)) + 2
    knots = landscape.fields(land, (along.first, j0, along.first + len(along.starts), j1), pitch_um)
    along_speck, along_mottle = smooth(lattice(x_um, _SPECK_UM)), smooth(lattice(x_um, _MOTTLE_UM))
    along_strand = smooth(lattice(x_um, _STRAND_UM))
    line = np.empty((landscape.FIELDS, len(along.starts)))
    slow = np.empty((landscape.FIELDS, len(x_um)))
    speck, mottle, strand, wall = np.zeros((4, len(x_um)))
    stains = np.zeros((3, len(y_um), len(x_um)), np.float32)
    for row in range(len(y_um)):
        y = y_um[row]
        j = int(np.floor(y / pitch_um)) - j0
        if _between_rows(line, knots, j, y / pitch_um - (j + j0)) < -12.0:
            continue
        for f in range(landscape.FIELDS):
            spread(slow[f], line[f], along)
        if detail.fine > 0.0:
            noise_row(speck, land.key, _SPECK, along_speck, y / _SPECK_UM)
        noise_row(mottle, land.key, _MOTTLE, along_mottle, y / _MOTTLE_UM)
        noise_row(strand, land.key, _STRAND, along_strand, y / _STRAND_UM)
        _walls(wall, slow[landscape.FAT], land.key, pixels, y)
        _tissue_row(
            stains[BLUE, row], stains[PINK, row], land.key, slow, (speck, mottle, strand, wall), detail
        )
    return stains


@compiled
def _between_rows(line: NDArray[np.float64], knots: NDArray[np.float32], j: int, share: float) -> float:
    """Interpolate the fields between two rows of knots into ``line``; return their largest ``shore``."""
    shore = -np.inf
    for f in range(landscape.FIELDS):
        for n in range(line.shape[1]):
            line[f, n] = between(knots[f, j, n], knots[f, j + 1, n], share)
            if f == landscape.SHORE:
                shore = max(shore, line[f, n])
    return shore


@compiled
def _tissue_row(  # noqa: PLR0917  numba knows no keyword-only arguments
    blue_row: NDArray[np.float32],
    pink_row: NDArray[np.float32],
    key: int,
    slow: NDArray[np.float64],
    rows: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    detail: _Detail,
) -> None:
    """Stain a row of pixels, without branches so that it is vectorised."""
    speck, mottle, strand, wall = rows
    for column in range(len(blue_row)):
        here = Fields(  # by value: passing arrays for each pixel would dominate the cost
            slow[0, column],
            slow[1, column],
            slow[2, column],
            slow[3, column],
            slow[4, column],
            slow[5, column],
            slow[6, column],
            slow[7, column],
            slow[8, column],
            slow[9, column],
        )
        spots = detail.mottle * mottle[column]
        texture = _Texture(
            detail.fine * speck[column],
            spots,
            detail.strand * strand[column],
            detail.mottle * (1.0 - ramp(abs(strand[column] + 0.25 * spots), 0.03, 0.16)),
        )
        cover = ramp(here.shore + 3.0 * (spots + texture.strand), 0.0, 2.5 + detail.mpp)
        nest = ramp(here.nest + 0.01 * spots, -0.01 - detail.blur, 0.04 + detail.blur)
        inner_blue, inner_pink = _cytoplasm(here, texture, detail)
        outer_blue, outer_pink = _stroma(key, here, texture, detail, wall[column])
        border = 1.0 - ramp(abs(here.nest + 0.015 + 0.02 * (spots + texture.strand)), 0.004, 0.03)
        cover *= 1.0 - border * ramp(here.cleft + 0.2 * spots, 0.3, 0.55)
        blue_row[column] = max(0.01, between(outer_blue, inner_blue, nest)) * cover * here.blue
        pink_row[column] = max(0.02, between(outer_pink, inner_pink, nest)) * cover * here.pink


@compiled
def _cytoplasm(here: Fields, texture: _Texture, detail: _Detail) -> tuple[float, float]:
    """Return the blue and pink of a nest of tumour cells, hollow in its middle."""
    start, end = landscape.LUMEN - 0.02 - detail.blur, landscape.LUMEN + 0.02 + detail.blur
    body = 1.0 - ramp(here.nest + 0.03 * texture.mottle, start, end)
    blue = 0.17 + 0.05 * texture.mottle + 0.05 * texture.fine - 0.08 * texture.crease + 0.3 * here.pool
    pink = 0.36 + 0.07 * texture.mottle + 0.05 * texture.fine - 0.16 * texture.crease
    return body * (blue + 0.33 * detail.cells), body * pink


@compiled
def _stroma(key: int, here: Fields, texture: _Texture, detail: _Detail, wall: float) -> tuple[float, float]:
    """Return the blue and pink of fibres, and of the fat and vessels between them."""
    thread = detail.thread * noise_line(key, 31.0 * here.flow + 0.4 * texture.mottle)
    fibre = 0.5 + 0.5 * detail.fibre * noise_line(key + 2048, 9.0 * here.flow) + 0.22 * thread
    body = ramp(fibre + 0.3 * texture.strand + 0.1 * texture.mottle, 0.02, 0.4)
    body = between(0.18 + 0.3 * thread * thread, 1.0, body)
    body = between(0.8, body, detail.fibre)  # a coarse pixel averages fibres and gaps
    body *= (1.0 - 0.92 * here.blood) * between(1.0, wall, here.fat)
    blue = 0.04 + 0.03 * texture.fine + 0.35 * here.pool + 0.1 * here.crowd
    pink = 0.24 + 0.34 * fibre + 0.05 * texture.fine
    return body * (blue + 0.27 * detail.cells), body * pink


@compiled
def _walls(out: NDArray[np.float64], fat: NDArray[np.float64], key: int, pixels: Pixels, y_um: float) -> None:
    """Write the share of each pixel that is the wall of a fat cell into ``out``, where there is fat."""
    share = kept(_WALL_UM, pixels.mpp)
    for column in range(len(out)):
        if fat[column] > 0.0:
            out[column] = 0.1
            if share > 0.0:
                wall = _wall(key, pixels.x_um[column], y_um, 1.0 + 0.5 * pixels.mpp)
                out[column] = between(0.1, wall, share)


@compiled
def _wall(key: int, x: float, y: float, width_um: float) -> float:
    """Return the degree to which a place is on the wall between two fat cells (a border of Voronoi cells)."""
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
