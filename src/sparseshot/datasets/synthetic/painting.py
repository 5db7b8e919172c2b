"""Nuclei, and objects that look like them, painted on the ground one after the other; and the image.

The image is light through stained tissue (Beer–Lambert). The sensor of the camera adds uniform noise of ±1
grey level, which belongs to the pixel like all other noise.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic import ground, landscape, population
from sparseshot.datasets.synthetic.ground import BLUE, BROWN, PINK, Pixels
from sparseshot.datasets.synthetic.landscape import Landscape
from sparseshot.datasets.synthetic.noise import (
    between,
    channels,
    kept,
    noise_grain,
    ramp,
    random_bits,
    uniform,
)

(
    _WAVE_COSINE, _WAVE_SINE, _DARK, _BLACK, _SOFT, _SPOT_U, _SPOT_V, _SPOT_SIZE, _SENSOR, _DAB,
) = channels(after=ground.LAST_CHANNEL, count=10)  # fmt: skip

LOOKS = np.array(
    [
        # blue, pink, brown, stays, rim, mottled, dents, softness
        [0.85, 0.20, 0.00, 0.25, 0.40, 0.60, 0.07, 1.0],  # tumour: pale and coarse, with a dark rim
        [1.50, 0.12, 0.00, 0.20, 0.05, 0.35, 0.05, 1.0],  # lymphocyte: small, dark, clumped
        [1.10, 0.20, 0.00, 0.25, 0.10, 0.35, 0.10, 1.0],  # stromal: a spindle along the fibres
        [0.95, 0.20, 0.02, 0.60, 0.00, 0.50, 0.11, 5.0],  # smudge: the colour and size of a nucleus, no edge
        [1.40, 0.15, 0.05, 0.30, 0.00, 0.10, 0.15, 1.0],  # fragment: sharp and dark, too small
        [0.25, 0.30, 1.20, 0.40, 0.00, 0.80, 0.20, 1.0],  # pigment: brown and granular
        [0.00, 0.75, 0.35, 0.30, 0.30, 0.06, 0.04, 1.0],  # erythrocyte: red, pale in the middle
        [0.50, 0.20, 0.50, 0.60, 0.00, 0.30, 0.30, 3.0],  # dust
        [0.28, 0.22, 0.00, 0.30, 0.20, 0.40, 0.05, 1.0],  # cytoplasm of a smear: pale and granular
    ]
)
"""Appearance of each kind: its stains, the share of the ground that stays, the contrast of its rim, its
mottling, the depth of its dents, the softness of its edge."""
_STAYS, _RIM, _MOTTLED, _DENTS, _SOFTNESS = range(3, 8)
_COARSE_UM, _FINE_UM = 1.5, 0.75
WAVES = 3
"""Waves of the outline, of 3, 4 and 5 dents; two dents would be an ellipse, which it already is."""


class _Nature(NamedTuple):
    """Properties of one object: its edge, its tone, its nucleolus (in units of its semi-axes)."""

    soft_um: float
    dark: float
    rim: float
    mottled: float
    is_brown: bool
    spot_u: float
    spot_v: float
    spot_um: float


@compiled
def paint(stains: NDArray[np.float32], land: Landscape, objects: NDArray[np.void], pixels: Pixels) -> None:
    """Paint objects, each over the ones before, into the stains ``(3, H, W)`` of a region."""
    x_um, y_um, mpp = pixels
    for n in range(len(objects)):
        thing = objects[n]
        nature = _nature(land, thing, mpp)
        reach = min(population.REACH_UM, 1.3 * max(thing.a, thing.b) + nature.soft_um)
        left = max(0, int(np.ceil((thing.x - reach - x_um[0]) / mpp)))
        right = min(len(x_um), int(np.floor((thing.x + reach - x_um[0]) / mpp)) + 1)
        top = max(0, int(np.ceil((thing.y - reach - y_um[0]) / mpp)))
        bottom = min(len(y_um), int(np.floor((thing.y + reach - y_um[0]) / mpp)) + 1)
        if left < right and top < bottom:
            part = Pixels(x_um[left:right], y_um[top:bottom], mpp)
            _paint_one(stains[:, top:bottom, left:right], land, thing, nature, part)


@compiled
def _nature(land: Landscape, thing: Any, mpp: float) -> _Nature:
    look, key = LOOKS[thing.kind], land.key
    out_of_focus = ramp(uniform(key, _SOFT, thing.id, thing.kind), 0.8, 1.0)
    soft = landscape.focus(land, thing.x, thing.y) * look[_SOFTNESS] * (1.0 + 1.6 * out_of_focus)
    soft = np.sqrt(soft * soft + 0.3 * mpp * mpp)
    dark = between(0.78, 1.15, uniform(key, _DARK, thing.id, thing.kind)) * land.tone
    spot = -1.0
    if thing.kind == population.TUMOUR:
        dark *= 1.0 + 0.7 * ramp(uniform(key, _BLACK, thing.id, thing.kind), 0.84, 1.0)
        spot = between(-0.6, 1.3, uniform(key, _SPOT_SIZE, thing.id, thing.kind))
    return _Nature(
        soft,
        dark,
        min(0.9, look[_RIM] * land.rim),
        look[_MOTTLED] * land.mottling * 0.5 / max(0.5, soft),
        thing.kind <= population.STROMAL and uniform(key, _DAB, thing.id, thing.kind) < land.brown,
        between(-0.45, 0.45, uniform(key, _SPOT_U, thing.id, thing.kind)),
        between(-0.45, 0.45, uniform(key, _SPOT_V, thing.id, thing.kind)),
        spot if spot > 0.4 else 0.0,
    )


@compiled
def _paint_one(
    stains: NDArray[np.float32], land: Landscape, thing: Any, nature: _Nature, pixels: Pixels
) -> None:
    look, dents = LOOKS[thing.kind], waves(land, thing.kind, thing.id)
    cosine, sine = np.cos(thing.angle), np.sin(thing.angle)
    soft = nature.soft_um
    for row in range(len(pixels.y_um)):
        dy = pixels.y_um[row] - thing.y
        for column in range(len(pixels.x_um)):
            dx = pixels.x_um[column] - thing.x
            u, v = (dx * cosine + dy * sine) / thing.a, (dy * cosine - dx * sine) / thing.b
            length = np.sqrt(u * u + v * v) + 1e-9
            if length > 1.3 + soft / thing.b:
                continue
            c1, s1 = u / length, v / length
            c, s = c1 * c1 - s1 * s1, 2.0 * c1 * s1
            border = 1.0
            for k in range(WAVES):  # cosine and sine of the next multiple of the angle
                c, s = c * c1 - s * s1, s * c1 + c * s1
                border += dents[k, 0] * c + dents[k, 1] * s
            # To first order: the distance inside the border over its slope in 1/µm.
            slope = np.sqrt((c1 / thing.a) ** 2 + (s1 / thing.b) ** 2)
            cover = ramp((border - length) / slope, -0.5 * soft, 0.5 * soft)
            if cover == 0.0:
                continue
            texture = _chromatin(land.key, pixels.x_um[column], pixels.y_um[row], pixels.mpp)
            if thing.kind == population.PIGMENT:
                cover *= ramp(texture, -0.35, 0.15)  # grains
            tone = nature.dark * (1.0 - nature.rim * (1.0 - ramp(length / border, 0.55, 0.92)))
            tone *= max(0.2, 1.0 + nature.mottled * texture)
            if nature.spot_um > 0.0:
                du, dv = (u - nature.spot_u) * thing.a, (v - nature.spot_v) * thing.b
                distance = np.sqrt(du * du + dv * dv)
                tone += 0.8 * (1.0 - ramp(distance, nature.spot_um - 0.5 * soft, nature.spot_um + 0.5 * soft))
            stays = 1.0 - cover * (1.0 - look[_STAYS])
            for stain in (BLUE, PINK, BROWN):
                amount = look[stain]
                if nature.is_brown:  # DAB covers the haematoxylin
                    amount = look[BLUE] if stain == BROWN else 0.3 * look[stain]
                stains[stain, row, column] = stains[stain, row, column] * stays + cover * tone * amount


@compiled
def _chromatin(key: int, x_um: float, y_um: float, mpp: float) -> float:
    """Return the mottling of nuclei at a place, about −1 to 1."""
    keep_coarse, keep_fine = kept(_COARSE_UM, mpp), kept(_FINE_UM, mpp)
    texture = 0.0
    if keep_coarse > 0.0:
        texture += keep_coarse * noise_grain(key, x_um / _COARSE_UM, y_um / _COARSE_UM)
    if keep_fine > 0.0:
        texture += 0.6 * keep_fine * noise_grain(key + 911, x_um / _FINE_UM, y_um / _FINE_UM)
    return texture


@compiled
def waves(land: Landscape, kind: int, identity: int) -> NDArray[np.float64]:
    """Return the cosine and sine amplitudes ``(WAVES, 2)`` of an object's outline.

    With u, v the place along and across the object in units of its semi-axes, the outline is where
    |(u, v)| = 1 + Σₖ cosineₖ cos((k + 3) t) + sineₖ sin((k + 3) t), and t the direction of (u, v).
    """
    out = np.empty((WAVES, 2))
    for k in range(WAVES):
        size = LOOKS[kind, _DENTS] / (1.0 + 0.5 * k)
        place = WAVES * kind + k
        out[k, 0] = size * between(-1.0, 1.0, uniform(land.key, _WAVE_COSINE, identity, place))
        out[k, 1] = size * between(-1.0, 1.0, uniform(land.key, _WAVE_SINE, identity, place))
    return out


@compiled
def outlines(land: Landscape, cells: NDArray[np.void], points: int) -> NDArray[np.float64]:
    """Return ``(N, points, 2)`` corners in µm of the outlines at which :func:`paint` ends the cells."""
    out = np.empty((len(cells), points, 2))
    for n in range(len(cells)):
        cell = cells[n]
        dents = waves(land, cell.kind, cell.id)
        for corner in range(points):
            t = 2.0 * np.pi * corner / points
            length = 1.0
            for k in range(WAVES):
                length += dents[k, 0] * np.cos((k + 3) * t) + dents[k, 1] * np.sin((k + 3) * t)
            u, v = cell.a * length * np.cos(t), cell.b * length * np.sin(t)
            out[n, corner, 0] = cell.x + u * np.cos(cell.angle) - v * np.sin(cell.angle)
            out[n, corner, 1] = cell.y + u * np.sin(cell.angle) + v * np.cos(cell.angle)
    return out


_STEPS_PER_DENSITY = 1024
_DENSEST = 5
_BYTE, _BITS_A_BYTE = np.uint64(255), np.uint64(8)

HAEMATOXYLIN, EOSIN, PIGMENT = (0.65, 0.70, 0.29), (0.09, 0.95, 0.28), (0.36, 0.56, 0.75)
"""Optical density of each stain in red, green and blue; about those of Ruifrok and Johnston."""


class Lamp(NamedTuple):
    """Stains and light of one slide."""

    stains: NDArray[np.float32]
    """``(3, 3)`` optical density in red, green, blue of one unit of each stain."""
    glass: NDArray[np.float32]
    """``(3,)`` grey levels of bare glass."""


TRANSMITTED = np.exp(-np.arange(_STEPS_PER_DENSITY * _DENSEST + 1) / _STEPS_PER_DENSITY).astype(np.float32)


@compiled
def develop(
    stains: NDArray[np.float32], land: Landscape, lamp: Lamp, column0: int, row0: int
) -> NDArray[np.uint8]:
    """Return the image of stains ``(3, H, W)`` whose corner is pixel (column0, row0) of the grid."""
    _, height, width = stains.shape
    image = np.empty((height, width, 3), np.uint8)
    last = len(TRANSMITTED) - 1
    for row in range(height):
        for column in range(width):
            bits = random_bits(land.key, _SENSOR, column0 + column, row0 + row)
            blue, pink, brown = stains[0, row, column], stains[1, row, column], stains[2, row, column]
            for c in range(3):
                density = blue * lamp.stains[0, c] + pink * lamp.stains[1, c] + brown * lamp.stains[2, c]
                light = lamp.glass[c] * TRANSMITTED[min(last, int(density * _STEPS_PER_DENSITY))]
                noise = np.float32(bits & _BYTE) * np.float32(3 / 256) - np.float32(1)
                bits >>= _BITS_A_BYTE
                image[row, column, c] = int(min(np.float32(255), max(np.float32(0), light + noise)))
    return image
