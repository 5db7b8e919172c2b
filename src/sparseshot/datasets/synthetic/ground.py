"""The ground of the tissue: cytoplasm, fibres, fat, clefts and vessels, as the amount of stain per pixel.

Slowly varying fields are interpolated from the landscape; texture is noise of several lengths. Detail that
a pixel is too coarse to show fades out, so that coarse pixels agree with the mean of fine ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic import landscape, population
from sparseshot.datasets.synthetic.landscape import Landscape
from sparseshot.datasets.synthetic.noise import (
    between,
    channels,
    kept,
    lattice,
    noise_line,
    noise_row,
    ramp,
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
    shown = (
        kept(_SPECK_UM, mpp),
        kept(_MOTTLE_UM, mpp),
        kept(_STRAND_UM, mpp),
        kept(_FIBRE_UM, mpp),
        kept(_THREAD_UM, mpp),
    )
    cells = 100.0 * land.density_per_um2 if cells_on_average else 0.0
    along = lattice(x_um, pitch_um, False)
    j0, j1 = int(np.floor(y_um[0] / pitch_um)), int(np.floor(y_um[-1] / pitch_um)) + 2
    knots = landscape.fields(land, (along.first, j0, along.first + len(along.starts), j1), pitch_um)
    along_speck, along_mottle = lattice(x_um, _SPECK_UM, True), lattice(x_um, _MOTTLE_UM, True)
    along_strand = lattice(x_um, _STRAND_UM, True)
    slow = np.empty((landscape.FIELDS, len(x_um)))
    speck, mottle, strand, wall = np.zeros((4, len(x_um)))
    stains = np.zeros((3, len(y_um), len(x_um)), np.float32)
    for row in range(len(y_um)):
        y = y_um[row]
        j = int(np.floor(y / pitch_um)) - j0
        share = y / pitch_um - (j + j0)
        line = knots[:, j] + (knots[:, j + 1] - knots[:, j]) * share
        if line[landscape.SHORE].max() < -12.0:  # glass
            continue
        for f in range(landscape.FIELDS):
            spread(slow[f], line[f], along)
        if shown[0] > 0.0:
            noise_row(speck, land.key, _SPECK, along_speck, y / _SPECK_UM)
        noise_row(mottle, land.key, _MOTTLE, along_mottle, y / _MOTTLE_UM)
        noise_row(strand, land.key, _STRAND, along_strand, y / _STRAND_UM)
        _walls(wall, slow[landscape.FAT], land.key, pixels, y)
        noises = (speck, mottle, strand, wall)
        _tissue_row(stains[:, row], land.key, slow, noises, shown, cells, mpp, landscape.blurred(pitch_um))
    return stains


@compiled
def _tissue_row(  # noqa: PLR0917  numba knows no keyword-only arguments
    stains: NDArray[np.float32],
    key: int,
    slow: NDArray[np.float64],
    noises: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    shown: tuple[float, float, float, float, float],
    cells: float,
    mpp: float,
    blur: float,
) -> None:
    """Stain a row of pixels, without branches so that it is vectorised.

    Args:
        stains: ``(3, W)``, written.
        key: of the slide.
        slow: the fields of the landscape.
        noises: specks, mottles, strands, and the walls of fat cells.
        shown: how much the pixels show of specks, mottles, strands, fibres and threads.
        cells: density of the average stain of cells.
        mpp: size of the pixels.
        blur: extra width of borders.
    """
    fine, coarse, stranded, fibrous, threaded = shown
    lumen0, lumen1 = landscape.LUMEN - 0.02 - blur, landscape.LUMEN + 0.02 + blur
    for column in range(stains.shape[1]):
        speck, mottle = fine * noises[0][column], coarse * noises[1][column]
        strand, wall = stranded * noises[2][column], noises[3][column]
        depth, pool = slow[landscape.NEST, column], slow[landscape.POOL, column]
        # Nests of tumour cells, hollow in their middle.
        crease = coarse * (1.0 - ramp(abs(noises[2][column] + 0.25 * mottle), 0.03, 0.16))
        body = 1.0 - ramp(depth + 0.03 * mottle, lumen0, lumen1)
        inner_blue = 0.17 + 0.05 * mottle + 0.05 * speck - 0.08 * crease + 0.3 * pool
        inner_blue = body * (inner_blue + 0.33 * cells)
        inner_pink = body * (0.36 + 0.07 * mottle + 0.05 * speck - 0.16 * crease)
        # Fibres, and the fat and vessels between them.
        flow = slow[landscape.FLOW, column]
        thread = threaded * noise_line(key, 31.0 * flow + 0.4 * mottle)
        fibre = 0.5 + 0.5 * fibrous * noise_line(key + 2048, 9.0 * flow) + 0.22 * thread
        body = ramp(fibre + 0.3 * strand + 0.1 * mottle, 0.02, 0.4)
        body = between(0.18 + 0.3 * thread * thread, 1.0, body)
        body = between(0.8, body, fibrous)  # a coarse pixel averages fibres and gaps
        body *= (1.0 - 0.92 * slow[landscape.BLOOD, column]) * between(1.0, wall, slow[landscape.FAT, column])
        outer_blue = 0.04 + 0.03 * speck + 0.35 * pool + 0.1 * slow[landscape.CROWD, column]
        outer_blue = body * (outer_blue + 0.27 * cells)
        outer_pink = body * (0.24 + 0.34 * fibre + 0.05 * speck)
        # Both, up to the shore and the clefts between them.
        cover = ramp(slow[landscape.SHORE, column] + 3.0 * (mottle + strand), 0.0, 2.5 + mpp)
        border = 1.0 - ramp(abs(depth + 0.015 + 0.02 * (mottle + strand)), 0.004, 0.03)
        cover *= 1.0 - border * ramp(slow[landscape.CLEFT, column] + 0.2 * mottle, 0.3, 0.55)
        nest = ramp(depth + 0.01 * mottle, -0.01 - blur, 0.04 + blur)
        blue = max(0.01, between(outer_blue, inner_blue, nest)) * cover * slow[landscape.BLUE, column]
        pink = max(0.02, between(outer_pink, inner_pink, nest)) * cover * slow[landscape.PINK, column]
        stains[BLUE, column], stains[PINK, column] = blue, pink


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
