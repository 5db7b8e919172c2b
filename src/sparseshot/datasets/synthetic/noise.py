"""Random numbers that belong to places: pure functions of a place and a key.

Nothing here uses fast-math, so a pixel has the same bits in a large region as in a small one.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.keys import mixed
from sparseshot.compiled import compiled

_ROW = np.uint64(0x9E3779B97F4A7C15)
_COLUMN = np.uint64(0xC2B2AE3D27D4EB4F)
_CHANNEL = np.uint64(0x165667B19E3779F9)
_SHIFT_TOP = np.uint64(11)


def channels(*, after: int, count: int) -> list[int]:
    """Return ``count`` channel numbers, one for each independent use of randomness.

    They are NumPy integers, because numba compiles a function again for each Python constant.
    """
    return [cast(int, np.int64(number)) for number in range(after + 1, after + 1 + count)]


@compiled
def random_bits(key: int, channel: int, i: int, j: int) -> np.uint64:
    """Return the 64 bits of lattice place (i, j) in a channel."""
    bits = np.uint64(i) * _ROW + np.uint64(j) * _COLUMN + np.uint64(channel) * _CHANNEL + np.uint64(key)
    return mixed(bits)  # type: ignore[no-any-return]


@compiled
def uniform(key: int, channel: int, i: int, j: int) -> float:
    """Return the number in [0, 1) of lattice place (i, j) in a channel."""
    return float(random_bits(key, channel, i, j) >> _SHIFT_TOP) * 2.0**-53


@compiled
def between(low: float, high: float, u: float) -> float:
    """Return the point a fraction ``u`` of the way from ``low`` to ``high``."""
    return low + (high - low) * u


@compiled
def ramp(value: float, start: float, end: float) -> float:
    """Rise smoothly from 0 at ``start`` to 1 at ``end``."""
    t = min(1.0, max(0.0, (value - start) * (1.0 / (end - start))))  # mostly constants, so no division
    return t * t * (3.0 - 2.0 * t)


@compiled
def noise(key: int, channel: int, x: float, y: float) -> float:
    """Return smooth noise in [-1, 1] with knots at the integers."""
    i, j = int(np.floor(x)), int(np.floor(y))
    s, t = x - i, y - j
    s, t = s * s * (3.0 - 2.0 * s), t * t * (3.0 - 2.0 * t)
    top = between(uniform(key, channel, i, j), uniform(key, channel, i + 1, j), s)
    bottom = between(uniform(key, channel, i, j + 1), uniform(key, channel, i + 1, j + 1), s)
    return 2.0 * between(top, bottom, t) - 1.0


@compiled
def kept(length: float, pixel: float) -> float:
    """Return the share of a detail of this length that a pixel shows: 1 at two pixels, 0 at one."""
    return min(1.0, max(0.0, length / (pixel + 1e-9) - 1.0))


@compiled
def hills(  # noqa: PLR0917  numba knows no keyword-only arguments
    key: int, channel: int, x: float, y: float, octaves: float, gain: float, detail: float
) -> float:
    """Return the sum of octaves of noise, each about half as long as the one before; none under ``detail``.

    Every octave is rotated against the one before, because lattice noise is aligned with its axes.
    """
    x, y = 0.92 * x - 0.39 * y, 0.39 * x + 0.92 * y
    height, size, length = 0.0, 1.0, 1.0
    for octave in range(int(octaves)):
        share = kept(length, detail)
        if share == 0.0:
            break
        height += size * share * noise(key, channel + 1000 * octave, x, y)
        x, y = 2.03 * (0.8 * x - 0.6 * y), 2.03 * (0.6 * x + 0.8 * y)
        length /= 2.03
        size *= gain
    return height


class Lattice(NamedTuple):
    """Positions of pixels along a line between the knots of a lattice."""

    first: int
    """The knot before the first pixel."""
    starts: NDArray[np.int64]
    """The first pixel after each knot; the last entry is the number of pixels."""
    share: NDArray[np.float64]
    """Fraction of the way from its knot to the next, for each pixel."""


@compiled
def lattice(x_um: NDArray[np.float64], length_um: float, smoothed: bool) -> Lattice:
    """Return the lattice of a length under pixels; with smoothed fractions, as :func:`noise` has them."""
    first = int(np.floor(x_um[0] / length_um))
    starts = np.full(int(np.floor(x_um[-1] / length_um)) - first + 2, len(x_um))
    share = np.empty(len(x_um))
    for n in range(len(x_um) - 1, -1, -1):
        x = x_um[n] / length_um
        knot = int(np.floor(x))
        starts[knot - first] = n
        s = x - knot
        share[n] = s * s * (3.0 - 2.0 * s) if smoothed else s
    for knot in range(len(starts) - 2, -1, -1):  # no pixel after this knot
        starts[knot] = min(starts[knot], starts[knot + 1])
    return Lattice(first, starts, share)


@compiled
def spread(out: NDArray[np.float64], knots: NDArray[np.float64], along: Lattice) -> None:
    """Interpolate from the knots of a lattice to the pixels.

    The indices are unsigned, because numba checks signed ones for counting from the end.
    """
    for knot in range(len(along.starts) - 1):
        left, step = knots[knot], knots[knot + 1] - knots[knot]
        for n in range(np.uint64(along.starts[knot]), np.uint64(along.starts[knot + 1])):
            out[n] = left + step * along.share[n]


@compiled
def noise_row(out: NDArray[np.float64], key: int, channel: int, along: Lattice, y: float) -> None:
    """Write the noise along one row of pixels into ``out``; like :func:`noise`, but hashes each knot once."""
    j = int(np.floor(y))
    t = y - j
    t = t * t * (3.0 - 2.0 * t)
    knots = np.empty(len(along.starts))
    for n in range(len(knots)):
        i = along.first + n
        knots[n] = 2.0 * between(uniform(key, channel, i, j), uniform(key, channel, i, j + 1), t) - 1.0
    spread(out, knots, along)


_TABLE = 2.0 * (np.random.Philox(key=0).random_raw(4096) >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 1.0


@compiled
def _drawn(place: int) -> float:
    return float(_TABLE[np.uint64(place & 4095)])


@compiled
def noise_line(shift: int, x: float) -> float:
    """Return smooth noise in [-1, 1] along a line, with integer knots, repeating after 4096 knots."""
    i = int(np.floor(x))
    s = x - i
    return between(_drawn(i + shift), _drawn(i + shift + 1), s * s * (3.0 - 2.0 * s))


@compiled
def noise_grain(shift: int, x: float, y: float) -> float:
    """Return noise like :func:`noise`, but faster, from a table that repeats after some sixty knots."""
    i, j = int(np.floor(x)), int(np.floor(y))
    s, t = x - i, y - j
    s, t = s * s * (3.0 - 2.0 * s), t * t * (3.0 - 2.0 * t)
    place = shift + i + 3425 * j
    top = between(_drawn(place), _drawn(place + 1), s)
    return between(top, between(_drawn(place + 3425), _drawn(place + 3426), s), t)
