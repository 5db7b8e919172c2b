"""Area averaging and interpolation; a pixel depends on its position alone, not on the piece read."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled


def resample(
    pixels: NDArray[np.uint8],
    ratio: float,
    *,
    size: tuple[int, int],
    first: tuple[int, int] = (0, 0),
    origin: tuple[int, int] = (0, 0),
) -> NDArray[np.uint8]:
    """Resample a piece of a large image so that neighbouring pieces fit together exactly.

    Output pixel k is the mean of the image over [k·ratio, (k + 1)·ratio). For a ratio below 1 it is the
    linear interpolation at the middle of that interval. k counts from the corner of the whole image, so a
    pixel has the same value in every piece. Beyond ``pixels`` their edge is repeated.

    Args:
        pixels: ``(H, W, 3)``, a piece of the image.
        ratio: image pixels per output pixel.
        size: width and height of the output.
        first: column and row of the first output pixel.
        origin: x and y of ``pixels[0, 0]`` in the whole image.

    >>> ramp = np.repeat(np.arange(0, 80, 10, dtype=np.uint8), 3).reshape(1, 8, 3)
    >>> resample(ramp, 2.0, size=(4, 1))[0, :, 0]
    array([ 5, 25, 45, 65], dtype=uint8)
    >>> resample(ramp[:, 4:], 2.0, size=(2, 1), first=(2, 0), origin=(4, 0))[0, :, 0]
    array([45, 65], dtype=uint8)
    """
    (width, height), (column, row), (x0, y0) = size, first, origin
    if float(ratio).is_integer():
        n = int(ratio)
        left, top = column * n - x0, row * n - y0
        right, bottom = left + width * n - pixels.shape[1], top + height * n - pixels.shape[0]
        if min(left, top, -right, -bottom) < 0:
            before, after = (max(-top, 0), max(-left, 0)), (max(bottom, 0), max(right, 0))
            pixels = np.pad(pixels, (*zip(before, after, strict=True), (0, 0)), mode="edge")
        # 16 bits hold at most 257 rows of 255, and are twice as fast as 32.
        line = np.empty(3 * width * n, np.uint16 if n <= 257 else np.uint32)
        corner = max(left, 0), max(top, 0)
        return _block_means(np.ascontiguousarray(pixels), n, *corner, width, height, line)
    columns, across = _taps(column, width, ratio, offset=x0, length=pixels.shape[1])
    rows, down = _taps(row, height, ratio, offset=y0, length=pixels.shape[0])
    return _weighted(np.ascontiguousarray(pixels), rows, down, columns, across)


def _taps(
    first: int, count: int, ratio: float, *, offset: int, length: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the input pixels of each output pixel and their weights, both ``(count, taps)``."""
    k = np.arange(first, first + count, dtype=np.float64)
    if ratio >= 1:
        start = np.floor(k * ratio)
        index = start[:, None] + np.arange(math.ceil(ratio) + 1)
        low, high = (k * ratio)[:, None], ((k + 1) * ratio)[:, None]
        weight = np.clip(np.minimum(index + 1, high) - np.maximum(index, low), 0, None) / ratio
    else:
        middle = (k + 0.5) * ratio - 0.5
        start = np.floor(middle)
        index = start[:, None] + np.arange(2)
        weight = np.stack([1 - (middle - start), middle - start], axis=1)
    place = np.clip(index - offset, 0, length - 1).astype(np.intp)
    return place, weight.astype(np.float32)


# Both loops first add rows as flat lines of values, which the compiler vectorises: two to ten times faster
# than the plain nest.
@compiled
def _block_means(  # noqa: PLR0917
    pixels: NDArray[np.uint8], n: int, left: int, top: int, width: int, height: int, line: NDArray[Any]
) -> NDArray[np.uint8]:
    flat = pixels.reshape(pixels.shape[0], pixels.shape[1] * 3)
    out = np.empty((height, width, 3), np.uint8)
    area = np.float64(n) * n
    for i in range(height):
        line[:] = 0
        for a in range(n):
            row = flat[top + i * n + a, 3 * left : 3 * (left + width * n)]
            for x in range(line.size):
                line[x] += row[x]
        for j in range(width):
            red, green, blue = 0, 0, 0
            for x in range(3 * j * n, 3 * (j + 1) * n, 3):
                red += line[x]
                green += line[x + 1]
                blue += line[x + 2]
            out[i, j, 0] = np.uint8(red / area + 0.5)
            out[i, j, 1] = np.uint8(green / area + 0.5)
            out[i, j, 2] = np.uint8(blue / area + 0.5)
    return out


@compiled
def _weighted(
    pixels: NDArray[np.uint8],
    rows: NDArray[np.intp],
    down: NDArray[np.float32],
    columns: NDArray[np.intp],
    across: NDArray[np.float32],
) -> NDArray[np.uint8]:
    flat = pixels.reshape(pixels.shape[0], pixels.shape[1] * 3)
    out = np.empty((rows.shape[0], columns.shape[0], 3), np.uint8)
    line = np.empty(flat.shape[1], np.float32)
    for i in range(rows.shape[0]):
        line[:] = 0
        for a in range(rows.shape[1]):
            weight = down[i, a]
            if weight > 0:
                row = flat[rows[i, a]]
                for x in range(line.size):
                    line[x] += weight * np.float32(row[x])
        for j in range(columns.shape[0]):
            red, green, blue = np.float32(0.5), np.float32(0.5), np.float32(0.5)
            for b in range(columns.shape[1]):
                weight, x = across[j, b], 3 * columns[j, b]
                red += weight * line[x]
                green += weight * line[x + 1]
                blue += weight * line[x + 2]
            out[i, j, 0] = np.uint8(red)
            out[i, j, 1] = np.uint8(green)
            out[i, j, 2] = np.uint8(blue)
    return out
