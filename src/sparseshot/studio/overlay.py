"""Transparent tiles of found cells, drawn on the server."""

import io
import math
from functools import cache
from typing import Literal

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter, zoom

from sparseshot.active.scout import decision_doubts
from sparseshot.compiled import compiled
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.slide_tiles import TILE_PX

Paint = Literal["class", "score", "density", "doubt"]

RADIUS_UM = 4.0
_LEAST_RADIUS_PX = 0.8
_CROWD = 30_000
"""Of more cells than this in a tile, each is one pixel: the picture is their density."""
_DENSITY_BINS = 32
_BLUR_BINS = 1.5
_DOUBT_GAIN = 5.0
"""Where a fifth of the decisions in crowded tissue is wrong, doubt has its strongest colour."""


def overlay_png(
    cells: FoundCells, z: int, x: int, y: int, *, threshold: float, paint: Paint = "class"
) -> bytes:
    """Draw a tile of found cells.

    Args:
        cells: the index.
        z: level; its pixels are 2ᶻ level-0 pixels.
        x: column of the tile.
        y: row of the tile.
        threshold: lowest score of a cell that is drawn.
        paint: colour by class or by score, the density of cells, or that of probably wrong decisions.
    """
    if paint in {"density", "doubt"}:
        return _png(_density(cells, z, x, y, threshold, of_doubt=paint == "doubt"))
    scale, corner = 2.0**-z, np.array([x, y]) * TILE_PX * 2.0**z
    radius = max(_LEAST_RADIUS_PX, RADIUS_UM / cells.mpp * scale)
    (x0, y0), (x1, y1) = corner - (radius + 2) / scale, corner + (TILE_PX + radius + 2) / scale
    rows = cells.rows_in((x0, y0, x1, y1), threshold=threshold)
    if paint == "score":
        colors = ramp()[(cells.score[rows] * 255).astype(np.intp)]
    else:
        colors = np.array(cells.cells.colors, np.uint8)[cells.cells.label[rows]]
    out = np.zeros((TILE_PX, TILE_PX, 4), np.float32)
    xy = (cells.cells.xy[rows] - corner) * scale - 0.5
    _draw(out, xy, colors, 0.0 if len(rows) > _CROWD else radius)
    return _png(_bytes(out))


@cache
def ramp() -> NDArray[np.uint8]:
    """Return 256 colours from the lowest to the highest score: even in lightness, for every colour vision."""
    return (np.array(colormaps["viridis"].colors) * 255).astype(np.uint8)  # type: ignore[attr-defined]


@compiled
def _draw(
    out: NDArray[np.float32], xy: NDArray[np.float64], colors: NDArray[np.uint8], radius: float
) -> None:
    """Blend a disc, or a ring where it is large, over ``out`` for each cell, in pixels of it."""
    height, width = out.shape[:2]
    for i in range(len(xy)):
        cx, cy = xy[i]
        beyond = 1 if radius > 0 else 0
        left, right = max(0, int(cx - radius)), min(width - 1, int(cx + radius + beyond))
        top, bottom = max(0, int(cy - radius)), min(height - 1, int(cy + radius + beyond))
        if cx < -radius - beyond or cy < -radius - beyond or left > right or top > bottom:
            continue
        for row in range(top, bottom + 1):
            for col in range(left, right + 1):
                distance = np.sqrt((col - cx) ** 2 + (row - cy) ** 2)
                cover = 0.5 if radius == 0 else min(1.0, max(0.0, radius + 0.5 - distance))
                if radius > 3:
                    ring = min(1.0, max(0.0, 1.5 - abs(distance - radius + 1)))
                    cover = 0.95 * ring  # what is inside is seen as it is
                if cover > 0:
                    for c in range(3):
                        out[row, col, c] += cover * (colors[i, c] - out[row, col, c])
                    out[row, col, 3] += cover * (1 - out[row, col, 3])


def _bytes(blended: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Turn colours that were blended over black into those of a transparent picture."""
    alpha = blended[..., 3:]
    rgb = np.divide(blended[..., :3], alpha, out=np.zeros_like(blended[..., :3]), where=alpha > 0)
    return np.concatenate([np.minimum(rgb, 255), alpha * 255], axis=2).astype(np.uint8)


def _density(
    cells: FoundCells, z: int, x: int, y: int, threshold: float, *, of_doubt: bool = False
) -> NDArray[np.uint8]:
    """Return the smoothed number of cells, from none (clear) to as many as fit side by side.

    With ``of_doubt``, each counts as much as the decision about it is doubtful, weaker cells included.
    """
    step = TILE_PX * 2**z / _DENSITY_BINS
    # Fine bins hold few cells: smooth over at least 25 µm, but never over more than a sixth of a tile.
    blur = min(max(_BLUR_BINS, 25 / (step * cells.mpp)), _DENSITY_BINS / 6)
    margin = math.ceil(3 * blur)  # so that neighbouring tiles agree where they meet
    count = _DENSITY_BINS + 2 * margin
    x0, y0 = x * TILE_PX * 2**z - margin * step, y * TILE_PX * 2**z - margin * step
    rows = cells.rows_in(
        (x0, y0, x0 + count * step, y0 + count * step), threshold=0 if of_doubt else threshold
    )
    weights = decision_doubts(cells.score[rows], threshold) if of_doubt else None
    place = ((cells.cells.xy[rows] - (x0, y0)) / step).astype(np.intp).clip(0, count - 1)
    counts = np.bincount(place[:, 1] * count + place[:, 0], weights, minlength=count**2)
    counts = counts.reshape(count, count)
    smooth = gaussian_filter(counts.astype(np.float32), blur, mode="nearest", truncate=3)
    crowded = (step * cells.mpp / (2 * RADIUS_UM)) ** 2
    share = zoom(smooth, TILE_PX / _DENSITY_BINS, order=1, grid_mode=True, mode="nearest")
    start = margin * TILE_PX // _DENSITY_BINS
    share = share[start : start + TILE_PX, start : start + TILE_PX] * (_DOUBT_GAIN if of_doubt else 1)
    level = np.clip(share / crowded * 255, 0, 255).astype(np.uint8)
    alpha = np.clip(level.astype(np.float32) * 4, 0, 200).astype(np.uint8)
    return np.concatenate([ramp()[level], alpha[..., None]], axis=2)


def _png(rgba: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rgba, "RGBA").save(file, "png", compress_level=1)
    return file.getvalue()
