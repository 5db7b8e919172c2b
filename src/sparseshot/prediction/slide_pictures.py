"""Pictures of a slide with its cells: close-ups, an overview, a density map."""

import hashlib
import io
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import shapely
import tifffile
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

from sparseshot.cells import Cells
from sparseshot.files import replacing
from sparseshot.images import Box, Grid, Slide
from sparseshot.images.tissue import read_overview

PNG_LEVEL = 3
"""Compression of pictures of whole slides: half the time of the default of 6, a tenth more bytes."""

_FINER = 2  # drawn larger by this factor, then shrunk, for smooth edges


Shape = Literal["ring", "dot", "cross"]


def draw_cells(slide: Slide, box: Box, cells: Cells, *, side_px: int, shapes: Sequence[Shape] = ()) -> bytes:
    """Draw a square of the slide with the outlines of its cells, or shapes at points; JPEG.

    Colours are those of the classes, ``shapes`` too; by default all are rings.
    """
    large, corner, scale = _square(slide, box, side_px)
    draw = ImageDraw.Draw(large)
    colors = class_colors(cells)
    for index in np.flatnonzero(cells.label >= 0).tolist():
        color = "#" + colors[cells.label[index]].tobytes().hex()
        if cells.outline is None:
            x, y = ((cells.xy[index] - corner) * scale).tolist()
            _draw_shape(draw, x, y, shapes[cells.label[index]] if shapes else "ring", color)
            continue
        for part in shapely.get_parts(cells.outline[index]):
            ring = (shapely.get_coordinates(shapely.get_exterior_ring(part)) - corner) * scale
            places = [tuple(place) for place in ring.tolist()]
            draw.line(places, fill="#fff", width=7, joint="curve")
            draw.line(places, fill=color, width=4, joint="curve")
    return jpeg(large.resize((side_px, side_px), Image.Resampling.LANCZOS))


def _square(slide: Slide, box: Box, side_px: int) -> tuple[Image.Image, NDArray[np.float64], float]:
    """Return a square, enlarged to be drawn on, its level-0 corner, and its pixels per level-0 pixel.

    Corner and scale are those of the pixels that were read, and differ slightly from those of the box.
    """
    grid = Grid.over(slide, slide.mpp * box.width / side_px)
    x0, y0 = np.rint(grid.from_level0(box[:2])).astype(int).tolist()
    pixels = slide.read(grid, Box(x0, y0, x0 + side_px, y0 + side_px))
    large = Image.fromarray(pixels).resize((_FINER * side_px, _FINER * side_px), Image.Resampling.BICUBIC)
    return large, grid.to_level0((x0, y0)), _FINER / grid.downsample


def _draw_shape(draw: ImageDraw.ImageDraw, x: float, y: float, shape: Shape, color: str) -> None:
    """Draw a shape with a white edge."""
    match shape:
        case "ring":
            draw.ellipse(_around(x, y, 21), outline="#fff", width=9)
            draw.ellipse(_around(x, y, 19), outline=color, width=5)
        case "dot":
            draw.ellipse(_around(x, y, 14), fill="#fff")
            draw.ellipse(_around(x, y, 11), fill=color)
        case "cross":
            for fill, width in (("#fff", 12), (color, 7)):
                draw.line((x - 13, y - 13, x + 13, y + 13), fill=fill, width=width)
                draw.line((x - 13, y + 13, x + 13, y - 13), fill=fill, width=width)


def _around(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def inside(xy: NDArray[np.float64], box: Box) -> NDArray[np.bool_]:
    """Return which positions are in a box."""
    return np.asarray(((xy >= box[:2]) & (xy < box[2:])).all(axis=1))


def class_colors(cells: Cells) -> NDArray[np.uint8]:
    """Return ``(classes + 1, 3)``: the colour of each class, and grey for cells without one."""
    colors = cells.colors or ((213, 94, 0),) * len(cells.classes)
    return np.array([*colors, (90, 90, 90)], np.uint8)


def jpeg(image: Image.Image) -> bytes:
    """Return an image as a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=86, optimize=True)
    return file.getvalue()


BIN_UM = 25.0
"""Side of a square of the map: some cells of dense tissue."""

BLUR_BINS = 1.2


@dataclass(frozen=True, eq=False)
class Density:
    """Counts of cells in squares.

    Attributes:
        counts: ``(classes, rows, cols)``.
        classes: their names.
        bin_um: side of a square.
        mpp: µm of a level-0 pixel.
        size_um: width and height of the slide; the last squares may extend past it.
    """

    counts: NDArray[np.int64]
    classes: tuple[str, ...]
    bin_um: float
    mpp: float
    size_um: tuple[float, float]

    @classmethod
    def over(cls, size: tuple[int, int], mpp: float, classes: tuple[str, ...]) -> Self:
        """Make an empty map of a slide of ``size`` level-0 pixels."""
        width, height = (length * mpp for length in size)
        columns, rows = (max(1, int(np.ceil(length / BIN_UM - 1e-6))) for length in (width, height))
        counts = np.zeros((len(classes), rows, columns), np.int64)
        return cls(counts, classes, BIN_UM, mpp, (width, height))

    def add(self, cells: Cells) -> None:
        """Count some more cells."""
        column, row = (cells.xy * (self.mpp / self.bin_um)).astype(np.intp).T
        _, rows, columns = self.counts.shape
        place = np.minimum(row, rows - 1), np.minimum(column, columns - 1)
        np.add.at(self.counts, (cells.label, *place), 1)

    @property
    def per_mm2(self) -> NDArray[np.float32]:
        """Cells in a mm², ``(classes, rows, cols)``."""
        return (self.counts / (self.bin_um / 1000) ** 2).astype(np.float32)

    def _smoothed(self) -> NDArray[np.float32]:
        """Return the cells of all classes in a mm² of the slide, smoothed: single squares hold few cells."""
        _, rows, columns = self.counts.shape
        width, height = (
            np.clip(length / self.bin_um - np.arange(count), 0, 1)
            for length, count in zip(self.size_um, (columns, rows), strict=True)
        )
        covered = gaussian_filter(np.outer(height, width), BLUR_BINS, mode="constant")
        per_mm2 = gaussian_filter(self.per_mm2.sum(axis=0), BLUR_BINS, mode="constant")
        return np.asarray(per_mm2 / np.maximum(covered, 1e-3), np.float32)

    def write_ome_tiff(self, path: Path) -> None:
        """Write :attr:`per_mm2` as an OME-TIFF of one channel a class; its pixels know their size."""
        content = hashlib.sha256(self.counts.tobytes() + "|".join(self.classes).encode()).hexdigest()
        metadata = {
            "UUID": str(uuid.uuid5(uuid.NAMESPACE_OID, content)),  # otherwise it would depend on the time
            "axes": "CYX",
            "Channel": {"Name": [f"{name} per mm²" for name in self.classes]},
            "PhysicalSizeX": self.bin_um,
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": self.bin_um,
            "PhysicalSizeYUnit": "µm",
        }
        with replacing(path) as temporary:
            tifffile.imwrite(
                temporary,
                self.per_mm2,
                ome=True,
                photometric="minisblack",
                compression="zlib",
                metadata=metadata,
            )

    def write_picture(self, path: Path, *, overview: NDArray[np.uint8] | None = None) -> None:
        """Write a PNG of all classes together, beside the slide in small."""
        total = self._smoothed()
        height, width = total.shape
        panels = 1 if overview is None else 2
        wide, tall = 6.5 * panels, float(np.clip(6 * height / width, 2, 12)) + 0.8
        figure = Figure(figsize=(wide, tall), dpi=120)
        # Margins in inches; a layout that measures every label would double the time.
        figure.subplots_adjust(0.6 / wide, 0.5 / tall, 1 - 0.6 / wide, 1 - 0.35 / tall, wspace=0.12)
        *axes, scale = figure.subplots(1, panels + 1, width_ratios=[*(1.0,) * panels, 0.04])
        extent = (0.0, width * self.bin_um / 1000, height * self.bin_um / 1000, 0.0)
        right, bottom = (length / 1000 for length in self.size_um)
        if overview is not None:
            axes[0].imshow(overview, extent=(0.0, right, bottom, 0.0))
            # Without its name, which may have letters that the font lacks.
            axes[0].set(title="the slide, its tissue in green", xlabel="mm", ylabel="mm")
        # A single crowded square does not set the scale, or the rest would be dark.
        top = float(np.quantile(total[total > 0], 0.995)) if (total > 0).any() else 1.0
        drawn = axes[-1].imshow(
            total, extent=extent, cmap="inferno", vmin=0, vmax=top, interpolation="bilinear"
        )
        axes[-1].set(title="cells in a mm²", xlabel="mm", xlim=(0.0, right), ylim=(bottom, 0.0))
        figure.colorbar(drawn, cax=scale, extend="max")
        with replacing(path) as temporary:
            figure.savefig(
                temporary,
                format="png",
                metadata={"Software": "sparseshot"},
                pil_kwargs={"compress_level": PNG_LEVEL},
            )


OVERVIEW_PX = 2000
CLOSE_UM, CLOSE_PX = 150.0, 620
QUANTILES = (0.5, 0.9, 1.0)
"""Close-ups show squares at these quantiles of the number of cells, over the squares that have any."""

_CELL_UM = 3.0  # radius of a cell in the overview
_GREYS = 127  # the slide is shown between this grey and white; lower numbers are classes


class Overview:
    """The whole slide in small, on which cells are drawn as they come.

    Attributes:
        grid: of its pixels.
        pixels: ``(H, W)`` numbers of a palette: pale greys in the upper half, classes in the lower.
    """

    def __init__(self, slide: Slide, *, side_px: int = OVERVIEW_PX) -> None:
        self.grid = Grid.over(slide, slide.mpp * max(1.0, max(slide.size) / side_px))
        pixels, _ = read_overview(slide, self.grid)
        red, green, blue = np.moveaxis(pixels.astype(np.uint16), 2, 0)
        self.pixels = (_GREYS + (red + green + blue) // 6).astype(np.uint8)
        self._palette = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
        radius = int(np.clip(round(_CELL_UM / self.grid.mpp), 1, 8))
        rows, columns = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        self._disc = np.argwhere(rows**2 + columns**2 <= radius**2) - radius

    def add(self, cells: Cells) -> None:
        """Draw cells in the colours of their classes."""
        colors = class_colors(cells)[:_GREYS]
        self._palette[: len(colors)] = colors
        number = (cells.label % len(colors)).astype(np.uint8)
        x, y = self.grid.from_level0(cells.xy).astype(np.intp).T
        height, width = self.pixels.shape
        for dy, dx in self._disc.tolist():
            self.pixels[np.clip(y + dy, 0, height - 1), np.clip(x + dx, 0, width - 1)] = number

    @property
    def image(self) -> Image.Image:
        """The picture."""
        image = Image.fromarray(self.pixels, "P")
        image.putpalette(self._palette.tobytes())
        return image

    def write(self, path: Path) -> None:
        """Write a PNG file."""
        with replacing(path) as temporary:
            self.image.save(temporary, "PNG", compress_level=PNG_LEVEL)


def close_boxes(
    density: Density, slide: Slide, *, side_um: float = CLOSE_UM, quantiles: Sequence[float] = QUANTILES
) -> list[Box]:
    """Return squares of the slide, chosen by their number of cells alone."""
    counts = density.counts.sum(axis=0)
    bins = max(1, round(side_um / density.bin_um))
    padding = [(0, -length % bins) for length in counts.shape]
    padded = np.pad(counts, padding)
    squares = padded.reshape(padded.shape[0] // bins, bins, padded.shape[1] // bins, bins).sum(axis=(1, 3))
    order = np.argsort(squares, axis=None, kind="stable")[np.count_nonzero(squares == 0) :]
    side = bins * density.bin_um / slide.mpp
    boxes: dict[Box, None] = {}
    for quantile in quantiles if len(order) else ():
        row, column = divmod(int(order[int(quantile * (len(order) - 1))]), squares.shape[1])
        x0, y0 = (
            min(k * side, max(0.0, size - side)) for k, size in zip((column, row), slide.size, strict=True)
        )
        boxes[Box(round(x0), round(y0), round(x0 + side), round(y0 + side))] = None
    return list(boxes)
