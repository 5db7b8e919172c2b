"""Pictures of a slide with cells drawn on it."""

import io
from collections.abc import Sequence
from typing import Literal

import numpy as np
import shapely
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells
from sparseshot.images import Box, Grid, Slide

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
