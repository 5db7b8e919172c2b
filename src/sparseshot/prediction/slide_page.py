"""Pictures and page of one predicted slide: an overview with its cells, close-ups, counts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sparseshot import __version__
from sparseshot.cells import Cells
from sparseshot.errors import SlideError, counted
from sparseshot.files import replacing
from sparseshot.images import Box, Grid, Slide
from sparseshot.images.tissue import read_overview
from sparseshot.pages import Parts, Picture, code, escape, table
from sparseshot.prediction.density import Density
from sparseshot.prediction.slide_pictures import PNG_LEVEL, class_colors, draw_cells, jpeg
from sparseshot.prediction.summary import PredictionSummary

DENSITY_PICTURE = "density.png"
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


def make_slide_page(
    slide: Slide,
    overview: Overview,
    cells_in: Iterable[tuple[Box, Cells]],
    summary: PredictionSummary,
    *,
    model: Mapping[str, Any],
    files: Mapping[str, str],
) -> Parts:
    """Return the page.

    Args:
        slide: the slide.
        overview: with all cells drawn.
        cells_in: the squares of the close-ups, with their cells.
        summary: the counts.
        model: its task, resolution and fingerprint, as the manifest holds them.
        files: names of the files beside the page, and what they are.
    """
    width, height = slide.size
    facts = {
        "slide": f"{width:,} × {height:,} pixels of {slide.mpp:g} µm",
        "tissue": f"{summary.tissue_mm2:,.{2 if summary.tissue_mm2 >= 1 else 4}f} mm²",
        "expected": summary.quality.get("sentence"),
        "threshold": f"{summary.threshold:.3f}",
        "unreadable places": str(len(summary.broken)),
        "model": f"{model['task']} at {model['mpp']:g} µm, fingerprint {model['fingerprint'][:12]}",
        "predicted": f"{date.today()}, sparseshot {__version__}",
    }
    counts = [[escape(name), f"{n:,}", f"{summary.per_mm2(n):,.0f}"] for name, n in summary.counts.items()]
    close_ups: Parts = [
        row for number, each in enumerate(cells_in) if (row := _close_up(slide, number, *each))
    ]
    if close_ups:
        close_ups = [
            "## Close-ups",
            *close_ups,
            f"*{CLOSE_UM:.0f} µm across, chosen by the number of cells alone: of the squares with cells, the "
            "median, the 90th percentile and the fullest.*",
        ]
    density = (summary.folder / DENSITY_PICTURE).read_bytes  # it may not be drawn yet
    return [
        f"# {escape(slide.name)}",
        table(["class", "cells", "per mm²"], counts),
        table(["", ""], [[name, escape(value)] for name, value in facts.items() if value], text_columns=2),
        "## Overview",
        Picture(
            "overview.jpg",
            "The slide in grey; each dot is a cell in the colour of its class.",
            jpeg(overview.image.convert("RGB")),
        ),
        *close_ups,
        "## Density",
        Picture("density.png", "Cells per mm².", density),
        "## Files",
        "\n".join(f"- [{code(name)}]({name}): {text}" for name, text in files.items()),
    ]


def _close_up(slide: Slide, number: int, box: Box, cells: Cells) -> tuple[Picture, Picture] | None:
    """Return a square without and with its cells; None if it cannot be read."""
    try:
        plain, drawn = (draw_cells(slide, box, each, side_px=CLOSE_PX) for each in (cells[:0], cells))
    except SlideError:
        return None
    return (
        Picture(f"close-{number}-plain.jpg", f"The slide at x {box.x0}, y {box.y0}", plain),
        Picture(f"close-{number}-cells.jpg", f"With its {counted(len(cells), 'cell')}", drawn),
    )
