"""A synthetic slide, generated region by region as it is read."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import ground, landscape, painting, population
from sparseshot.datasets.synthetic.ground import Pixels
from sparseshot.datasets.synthetic.landscape import Landscape
from sparseshot.datasets.synthetic.noise import between, uniform
from sparseshot.datasets.synthetic.painting import Lamp
from sparseshot.datasets.synthetic.population import CLASSES, REACH_UM, Sites
from sparseshot.errors import InputError
from sparseshot.images import Box, Grid
from sparseshot.images.slide import Slide, check_mpp

OBJECTS_UP_TO_UM = 4.0
"""In coarser pixels cells are not painted one by one; their average stain is added to the ground."""
_STRIP_PX = 2**19
_STRIP_SITES = 2**20
_OUTLINE_POINTS = 32
_COLORS = ((200, 0, 0), (0, 110, 220), (0, 150, 60))


class Mix(NamedTuple):
    """Relative frequencies of the classes; only their ratio matters."""

    tumour: float = 0.5
    lymphocyte: float = 0.25
    stromal: float = 0.25


DEFAULT_MIX = Mix()


@dataclass(frozen=True)
class SyntheticTissue(Slide):
    """An H&E-like slide of any size in which every cell is known; a :class:`~sparseshot.images.slide.Slide`.

    A region is a pure function of these values, computed when it is read. Nothing is stored, so a slide of
    250,000 × 250,000 pixels costs no more than the regions that are read.

    Attributes:
        seed: each seed is another slide, with its own stains, focus, fibres and tissue.
        size_px: width and height in level-0 pixels.
        mpp: µm per level-0 pixel.
        density_per_mm2: mean number of cells per mm² of tissue.
        mix: relative frequencies of the classes; approximate, because the kind of tissue matters too.
        tissue_fraction: share of the slide covered by tissue, in (0, 1]; the rest is glass.
        debris: amount of objects that look like nuclei; 1 is about one for every five cells.
        variety: how far stains, focus and nuclei differ from slide to slide: 1 is one laboratory, 3 is many
            laboratories and organs.
        smear: single cells with their cytoplasm among red blood cells, as in blood, instead of tissue.
        brown: share of nuclei stained by DAB, as in immunohistochemistry; above 0 there is no eosin.

    >>> from sparseshot.images import read_region
    >>> slide = SyntheticTissue(seed=7, size_px=(250_000, 250_000))
    >>> read_region(slide, 125_000, 125_000, 64, 48, mpp=0.5).shape
    (48, 64, 3)
    """

    seed: int = 0
    size_px: tuple[int, int] = (8192, 8192)
    mpp: float = 0.25
    density_per_mm2: float = 5000.0
    mix: Mix = DEFAULT_MIX
    tissue_fraction: float = 0.5
    debris: float = 1.0
    variety: float = 1.0
    brown: float = 0.0
    smear: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}; give a whole number from 0 to 2⁶³ − 1")
        if len(self.size_px) != 2 or min(self.size_px) < 1:
            raise InputError(f"size_px is {self.size_px}; give width and height, each at least 1")
        check_mpp(self.mpp)
        if len(self.mix) != len(CLASSES) or min(self.mix) < 0 or not 0 < sum(self.mix) < math.inf:
            raise InputError(
                f"mix is {self.mix}; give frequencies of {', '.join(CLASSES)}, not all of them 0"
            )
        if not 0 < self.tissue_fraction <= 1:
            raise InputError(f"tissue_fraction is {self.tissue_fraction}; give a share in (0, 1]")
        limits = {"density_per_mm2": (0, 10_000), "debris": (0, 10), "variety": (1, 5), "brown": (0, 1)}
        for name, (low, high) in limits.items():  # more nuclei do not fit
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is {getattr(self, name)}; give {low} to {high:,}")

    @property
    def name(self) -> str:
        """Name for messages and results."""
        return f"synthetic-{self.seed}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in level-0 pixels."""
        return self.size_px

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        """Generate a box of pixels strip by strip; see :meth:`sparseshot.images.slide.Slide.read`."""
        if box.width < 1 or box.height < 1:
            raise InputError(
                f"{self.name}: a region of {box.width} × {box.height} pixels; give at least 1 × 1"
            )
        image = np.empty((box.height, box.width, 3), np.uint8)
        rows = max(1, _STRIP_PX // box.width)
        for y0 in range(box.y0, box.y1, rows):
            strip = Box(box.x0, y0, box.x1, min(y0 + rows, box.y1))
            image[strip.within(box)] = self._strip(grid, strip)
        for axis, (first, length) in enumerate(((box.y0, self.size[1]), (box.x0, self.size[0]))):
            place = grid.to_level0(first + np.arange(image.shape[axis]))
            np.moveaxis(image, axis, 0)[(place < 0) | (place >= length)] = 255
        return image

    def cells(self, box: tuple[float, float, float, float] | None = None, *, outlines: bool = False) -> Cells:
        """Return every cell whose centre lies in a half-open box.

        A cell has the same place and id in every box, so the cells of tiles are those of the whole slide.

        Args:
            box: x0, y0, x1, y1 in level-0 pixels; None for the whole slide.
            outlines: include the outline of each nucleus as a polygon.
        """
        x0, y0, x1, y1 = (0.0, 0.0, *map(float, self.size)) if box is None else box
        if not np.isfinite((x0, y0, x1, y1)).all():
            raise InputError(f"{self.name}: box is {box}; give x0, y0, x1, y1 in level-0 pixels")
        land = self._land
        sites = population.sites_of(land, *(value * self.mpp for value in (x0, y0, x1, y1)))
        rows = max(1, _STRIP_SITES // max(1, sites.i1 - sites.i0))
        strips = [
            population.cells_at(land, Sites(sites.i0, j, sites.i1, min(j + rows, sites.j1)))
            for j in range(sites.j0, sites.j1, rows)
        ]
        found = np.concatenate([np.empty(0, population.OBJECT), *strips])
        xy = np.column_stack([found["x"], found["y"]]) / self.mpp
        inside = (xy >= (x0, y0)).all(axis=1) & (xy < (x1, y1)).all(axis=1)
        found, xy = found[inside], xy[inside]
        return Cells(
            xy,
            classes=CLASSES,
            label=found["kind"].astype(np.int16),
            outline=self._outlines(found) if outlines else None,
            id=found["id"],
            mpp=self.mpp,
            colors=_COLORS,
        )

    @cached_property
    def _land(self) -> Landscape:
        width_um, height_um = (float(length * self.mpp) for length in self.size)
        angle = self._drawn("flow", 0.0, math.pi)
        land = Landscape(
            key=int(self.seed),
            width_um=width_um,
            height_um=height_um,
            island_um=min(8000.0, max(300.0, 0.35 * min(width_um, height_um))),
            threshold=landscape.ALL_TISSUE,
            density_per_um2=self.density_per_mm2 * 1e-6,
            # Always floats: numba would compile everything again for integers.
            tumour=float(self.mix[0]),
            lymphocyte=float(self.mix[1]),
            stromal=float(self.mix[2]),
            debris=float(self.debris),
            nest_shift=self._drawn("nests", -0.1, 0.15),
            fat_shift=self._drawn("fat", -0.25, 0.1),
            flow_x=math.cos(angle),
            flow_y=math.sin(angle),
            nucleus_scale=self._drawn("nuclei", 0.9, 1.12) * self._factor("size", 0.1),
            blur_um=self._drawn("blur", 0.5, 0.9) * self._factor("focus", 0.3),
            other_scale=self._factor("others", 0.1),
            tone=self._factor("tone", 0.15),
            rim=self._factor("rim", 0.4),
            mottling=self._factor("mottle", 0.3),
            brown=float(self.brown),
            smear=bool(self.smear),
        )
        if self.tissue_fraction == 1:
            return land
        heights = landscape.sample_heights(land, 128)
        return land._replace(threshold=float(np.quantile(heights, 1 - self.tissue_fraction)))

    @cached_property
    def _lamp(self) -> Lamp:
        stains = np.array([painting.HAEMATOXYLIN, painting.EOSIN, painting.PIGMENT])
        hues = [[self._drawn(f"hue {i} {c}", 0.82, 1.22) for c in range(3)] for i in range(3)]
        hue = np.array(hues) ** self.variety
        eosin = 0.35 if self.brown else 1.0  # without eosin the ground is counterstained faintly
        strength = [
            self._drawn("blue", 0.75, 1.4) * self._factor("blues", 0.15),
            self._drawn("pink", 0.6, 1.55) * self._factor("pinks", 0.2) * eosin,
            1.0,
        ]
        if self.brown:
            stains[1] = stains[0]
        glass = [self._drawn(f"glass {c}", 240.0, 246.0) for c in range(3)]
        return Lamp((stains * hue * np.c_[strength]).astype(np.float32), np.array(glass, np.float32))

    def _drawn(self, trait: str, low: float, high: float) -> float:
        """Draw a property of the whole slide."""
        return between(low, high, uniform(self.seed, int.from_bytes(trait.encode()[:7].ljust(7)), -1, -1))

    def _factor(self, trait: str, spread: float) -> float:
        """Draw a factor of the whole slide: 1 at a variety of 1, and farther from it above."""
        return math.exp((self.variety - 1) * spread * self._drawn(trait, -1.0, 1.0))

    def _strip(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        land, mpp = self._land, float(grid.mpp)
        # From integers, so that a pixel has the same coordinates in every region that contains it.
        x_um, y_um = (
            (np.arange(first, last, dtype=np.float64) + 0.5) * mpp
            for first, last in ((box.x0, box.x1), (box.y0, box.y1))
        )
        pixels = Pixels(x_um, y_um, mpp)
        if self.smear:
            stains = np.full((3, box.height, box.width), 0.02, np.float32)
        else:
            stains = ground.ground(land, pixels, mpp > OBJECTS_UP_TO_UM)
        if mpp <= OBJECTS_UP_TO_UM:
            sites = population.sites_of(
                land, x_um[0] - REACH_UM, y_um[0] - REACH_UM, x_um[-1] + REACH_UM, y_um[-1] + REACH_UM
            )
            painting.paint(stains, land, population.clutter_at(land, sites), pixels)
            cells = population.cells_at(land, sites)
            if self.smear:
                painting.paint(stains, land, population.cytoplasm_of(cells), pixels)
            painting.paint(stains, land, cells, pixels)
        return painting.develop(stains, land, self._lamp, box.x0, box.y0)

    def _outlines(self, found: NDArray[np.void]) -> NDArray[np.object_]:
        """Return the nuclei as polygons, with the edges that ``painting.paint`` draws."""
        corners = painting.outlines(self._land, found, _OUTLINE_POINTS) / self.mpp
        return np.asarray(shapely.polygons(corners), dtype=object)


def synthetic_samples(
    count: int, size_px: int, *, mpp: float = 0.5, seed: int = 0, outlines: bool = False
) -> list[tuple[NDArray[np.uint8], Cells]]:
    """Return square images without glass, each from a slide with its own stains, and their cells.

    Args:
        count: number of images.
        size_px: side of the images.
        mpp: µm per pixel; the cells are in pixels of the image.
        seed: images of different seeds have nothing in common, so one set can train and another test.
        outlines: include the outlines of the nuclei.

    >>> [(image.shape, len(cells) > 40) for image, cells in synthetic_samples(2, 256)]
    [((256, 256, 3), True), ((256, 256, 3), True)]
    """
    if count < 0:
        raise InputError(f"count is {count}; give the number of images")
    samples = []
    for number in range(count):
        own_seed = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64) >> np.uint64(1)
        tissue = SyntheticTissue(int(own_seed[0]), (size_px, size_px), mpp, tissue_fraction=1.0)
        grid = Grid.over(tissue)
        samples.append((tissue.read(grid, grid.box), tissue.cells(outlines=outlines)))
    return samples
