"""Pictures of a slide with cells drawn on it.

Kinds of cells differ in shape as well as colour, for readers who cannot tell the colours apart.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import shapely
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells
from sparseshot.images import Box, Grid, Slide

PNG_LEVEL = 3
"""Compression of pictures of whole slides: half the time of the default of 6, a tenth more bytes."""

_PALE = 0.55  # how far a slide fades under dots
_FINER = 2  # drawn larger by this factor, then shrunk, for smooth edges


@dataclass(frozen=True)
class Marker:
    """How a cell is drawn; ``dot`` is its colour in an overview, by default ``colour``."""

    shape: Literal["ring", "dot", "cross"]
    colour: str
    edge: str
    dot: str = ""


Layer = tuple[NDArray[np.float64], Marker]
"""Level-0 positions ``(N, 2)`` and how they are drawn."""


def draw_overview(
    slide: Slide, layers: Sequence[Layer], *, side_px: int, frames: Sequence[Box] = ()
) -> bytes:
    """Draw the whole slide, pale under a dot for each cell, with frames around some boxes; JPEG."""
    image = Image.fromarray(slide.thumbnail(side_px))
    if layers:
        image = Image.blend(image.convert("L").convert("RGB"), Image.new("RGB", image.size, "white"), _PALE)
    scale = _FINER * image.width / slide.size[0]
    large = image.resize((_FINER * image.width, _FINER * image.height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(large)
    for xy, marker in layers:
        for x, y in (xy * scale).tolist():
            draw.ellipse(_around(x, y, 4.5), fill=marker.dot or marker.colour)
    for box in frames:
        frame = tuple(scale * edge for edge in box)
        draw.rectangle(frame, outline="#ffffff", width=7)
        draw.rectangle(frame, outline="#111111", width=3)
    return jpeg(large.resize(image.size, Image.Resampling.LANCZOS))


def draw_closely(slide: Slide, box: Box, layers: Sequence[Layer], *, side_px: int) -> bytes:
    """Draw a square of the slide with its cells; JPEG."""
    large, corner, scale = _square(slide, box, side_px)
    draw = ImageDraw.Draw(large)
    for xy, marker in layers:
        for x, y in ((xy[inside(xy, box)] - corner) * scale).tolist():
            _draw_marker(draw, x, y, marker)
    return jpeg(large.resize((side_px, side_px), Image.Resampling.LANCZOS))


def draw_cells(slide: Slide, box: Box, cells: Cells, *, side_px: int) -> bytes:
    """Draw a square of the slide with the outlines of its cells, or rings around points; JPEG.

    Colours are those of the classes.
    """
    large, corner, scale = _square(slide, box, side_px)
    draw = ImageDraw.Draw(large)
    colours = class_colours(cells)
    for index in np.flatnonzero(cells.label >= 0).tolist():
        colour = "#" + colours[cells.label[index]].tobytes().hex()
        if cells.outline is None:
            x, y = ((cells.xy[index] - corner) * scale).tolist()
            _draw_marker(draw, x, y, Marker("ring", colour, "#fff"))
            continue
        for part in shapely.get_parts(cells.outline[index]):
            ring = (shapely.get_coordinates(shapely.get_exterior_ring(part)) - corner) * scale
            places = [tuple(place) for place in ring.tolist()]
            draw.line(places, fill="#fff", width=7, joint="curve")
            draw.line(places, fill=colour, width=4, joint="curve")
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


def _draw_marker(draw: ImageDraw.ImageDraw, x: float, y: float, marker: Marker) -> None:
    match marker.shape:
        case "ring":
            draw.ellipse(_around(x, y, 21), outline=marker.edge, width=9)
            draw.ellipse(_around(x, y, 19), outline=marker.colour, width=5)
        case "dot":
            draw.ellipse(_around(x, y, 14), fill=marker.edge)
            draw.ellipse(_around(x, y, 11), fill=marker.colour)
        case "cross":
            for colour, width in ((marker.edge, 12), (marker.colour, 7)):
                draw.line((x - 13, y - 13, x + 13, y + 13), fill=colour, width=width)
                draw.line((x - 13, y + 13, x + 13, y - 13), fill=colour, width=width)


def _around(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def inside(xy: NDArray[np.float64], box: Box) -> NDArray[np.bool_]:
    """Return which positions are in a box."""
    return np.asarray(((xy >= box[:2]) & (xy < box[2:])).all(axis=1))


def class_colours(cells: Cells) -> NDArray[np.uint8]:
    """Return ``(classes + 1, 3)``: the colour of each class, and grey for cells without one."""
    colours = cells.colors or ((213, 94, 0),) * len(cells.classes)
    return np.array([*colours, (90, 90, 90)], np.uint8)


def jpeg(image: Image.Image) -> bytes:
    """Return an image as a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=86, optimize=True)
    return file.getvalue()
