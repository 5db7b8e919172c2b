"""Synthetic tissue with the variety of many laboratories and scanners, for training."""

import io
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic.synthetic_tissue import Mix, SyntheticTissue
from sparseshot.images import Box, Grid
from sparseshot.images.slide import Slide


@dataclass(frozen=True)
class Scanner:
    """Changes that a scanner makes to an image.

    Attributes:
        magnification: objects appear larger by this factor than the resolution says.
        blur_px: standard deviation of the blur.
        sharpening: strength of the unsharp mask that follows it.
        gamma: exponent of the light.
        white: brightness of each channel.
        contrast: factor of the distance from the mean colour.
        noise: standard deviation in grey levels.
        texture: strength of the fine structure that real tissue has and synthetic tissue lacks.
        jpeg_quality: of the compression, 1 to 95.
    """

    magnification: float = 1.0
    blur_px: float = 0.0
    sharpening: float = 0.0
    gamma: float = 1.0
    white: tuple[float, float, float] = (1.0, 1.0, 1.0)
    contrast: float = 1.0
    noise: float = 0.0
    texture: float = 0.0
    jpeg_quality: int = 90

    def scan(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        """Return the image ``(H, W, 3)`` as scanned."""
        light = image.astype(np.float32) / 255
        if self.texture:
            light *= np.exp(self.texture * _structure(light.shape[:2], random))[..., None]
        if self.blur_px:
            light = ndimage.gaussian_filter(light, (self.blur_px, self.blur_px, 0))
        if self.sharpening:
            light += self.sharpening * (light - ndimage.gaussian_filter(light, (1.5, 1.5, 0)))
        light = np.clip(light, 0, 1) ** self.gamma * np.array(self.white, np.float32)
        mean = light.mean(axis=(0, 1))
        light = mean + self.contrast * (light - mean)
        if self.noise:
            light += random.normal(0, self.noise / 255, light.shape).astype(np.float32)
        file = io.BytesIO()
        pixels = np.clip(np.round(255 * light), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=self.jpeg_quality)
        return np.array(Image.open(file))


def _structure(shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.float32]:
    """Return noise of unit variance, in grains and in fibres of a random width."""
    sigma = random.uniform(0.6, 3.0)
    widths = (sigma, sigma * random.choice([1.0, 4.0]))
    noise = ndimage.gaussian_filter(random.standard_normal(shape, dtype=np.float32), widths)
    return np.asarray(noise / noise.std())


@dataclass(frozen=True)
class ScannedTissue(Slide):
    """A synthetic slide seen through a scanner; a :class:`~sparseshot.images.slide.Slide`.

    Blur and compression act on each region as it is read, so a pixel near the border of a region may differ
    from region to region.
    """

    tissue: SyntheticTissue
    scanner: Scanner = field(default_factory=Scanner)

    @property
    def name(self) -> str:
        """Name for messages and results."""
        return f"scanned-{self.tissue.seed}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in level-0 pixels."""
        return self.tissue.size

    @property
    def mpp(self) -> float:
        """µm per level-0 pixel, as the scanner states it."""
        return self.tissue.mpp * self.scanner.magnification

    def cells(self, *, outlines: bool = False) -> Cells:
        """Return every cell of the slide."""
        return replace(self.tissue.cells(outlines=outlines), mpp=self.mpp)

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        """Read a box of grid pixels."""
        seen = replace(grid, mpp=grid.mpp / self.scanner.magnification)
        random = np.random.default_rng([self.tissue.seed, box.x0 & 0xFFFFFFFF, box.y0 & 0xFFFFFFFF])
        return self.scanner.scan(self.tissue.read(seen, box), random)


def varied_tissue(seed: int, number: int, *, size_px: int, mpp: float) -> ScannedTissue:
    """Draw a square slide without glass: stain, organ, scanner and resolution all vary.

    Args:
        seed: of a set of slides.
        number: of the slide in the set.
        size_px: its side.
        mpp: µm per pixel that it claims to have.
    """
    random = np.random.default_rng([seed, number])
    magnification = math.exp(random.uniform(math.log(0.75), math.log(1.4)))
    tissue = SyntheticTissue(
        seed=int(random.integers(2**63)),
        size_px=(size_px, size_px),
        mpp=mpp / magnification,
        density_per_mm2=float(random.uniform(1500, 10_000)),
        mix=Mix(*random.dirichlet([1.0, 0.7, 0.7]).tolist()),
        tissue_fraction=1.0,
        debris=float(random.uniform(0, 2)),
        variety=3.0,
        brown=float(random.uniform(0.05, 0.9)) if random.random() < 0.1 else 0.0,
        smear=bool(random.random() < 0.06),
    )
    blurred = random.random() < 0.7
    scanner = Scanner(
        magnification=magnification,
        blur_px=float(random.uniform(0.3, 1.3)) if blurred else 0.0,
        sharpening=float(random.uniform(0, 1.5)) if random.random() < 0.4 else 0.0,
        gamma=float(math.exp(random.uniform(-0.4, 0.4))),
        white=tuple(random.uniform(0.85, 1.04, 3).tolist()),
        contrast=float(random.uniform(0.7, 1.2)),
        noise=float(random.uniform(0, 4)),
        texture=float(random.uniform(0, 0.07)),
        jpeg_quality=int(random.integers(30, 96)),
    )
    return ScannedTissue(tissue, scanner)
