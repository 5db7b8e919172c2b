"""Light through stained tissue (Beer–Lambert) and the camera sensor.

The sensor adds uniform noise of ±1 grey level, which belongs to the pixel like all other noise.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled
from sparseshot.datasets.synthetic import painting
from sparseshot.datasets.synthetic.landscape import Landscape
from sparseshot.datasets.synthetic.noise import channels, random_bits

(_SENSOR,) = channels(after=painting.LAST_CHANNEL, count=1)
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
