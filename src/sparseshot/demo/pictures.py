"""The slide and its cells, coloured by what became of them.

Found, missed and false differ in shape too, for readers who cannot tell the colours apart.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells
from sparseshot.demo.judging import Verdict
from sparseshot.images import Box, Slide, read_region

OVERVIEW_PX = 760
VIEW_PX = 560
_PALE = 0.55  # how far a slide under dots fades, so that they and not the stain are seen
_FINER = 2  # drawn so many times larger, then shrunk, so that edges are smooth


@dataclass(frozen=True)
class Look:
    """How a place is drawn."""

    shape: Literal["ring", "dot", "cross"]
    colour: str
    edge: str
    dot: str = ""  # the colour where it is one of thousands of dots; left out, the same


FOUND = Look("ring", "#0bdc84", "#063", dot="#00a866")
MISSED = Look("dot", "#ffd21f", "#3a2b00", dot="#f5a300")
FALSE = Look("cross", "#1238ff", "#fff")
MARK = Look("dot", "#0bdc84", "#032", dot="#00a866")

Layer = tuple[NDArray[np.float64], Look]


def layers_of(seen: Verdict, truth: Cells) -> list[Layer]:
    """Return what was found, missed and made up."""
    return [(truth.xy[seen.hit], FOUND), (truth.xy[~seen.hit], MISSED), (seen.xy[~seen.right], FALSE)]


def overview(slide: Slide, layers: Sequence[Layer], *, view: Box | None = None) -> bytes:
    """Draw the whole slide, pale under a dot for each place, and a frame about the close view; JPEG."""
    image = Image.fromarray(slide.thumbnail(OVERVIEW_PX))
    if layers:
        image = Image.blend(image.convert("L").convert("RGB"), Image.new("RGB", image.size, "white"), _PALE)
    scale = _FINER * image.width / slide.size[0]
    large = image.resize((_FINER * image.width, _FINER * image.height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(large)
    for xy, look in layers:
        for x, y in (xy * scale).tolist():
            draw.ellipse(_about(x, y, 4.5), fill=look.dot or look.colour)
    if view is not None:
        frame = tuple(scale * edge for edge in view)
        draw.rectangle(frame, outline="#ffffff", width=7)
        draw.rectangle(frame, outline="#111111", width=3)
    return _jpeg(large.resize(image.size, Image.Resampling.LANCZOS))


def close_view(slide: Slide, view: Box, layers: Sequence[Layer]) -> bytes:
    """Draw one place of the slide with its cells; JPEG."""
    mpp = slide.mpp * view.width / VIEW_PX
    pixels = read_region(slide, view.x0, view.y0, VIEW_PX, VIEW_PX, mpp=mpp)
    large = Image.fromarray(pixels).resize((_FINER * VIEW_PX, _FINER * VIEW_PX), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(large)
    scale = _FINER * VIEW_PX / view.width
    for xy, look in layers:
        inside = xy[((xy >= view[:2]) & (xy < view[2:])).all(axis=1)]
        for x, y in ((inside - view[:2]) * scale).tolist():
            _draw_place(draw, x, y, look)
    return _jpeg(large.resize((VIEW_PX, VIEW_PX), Image.Resampling.LANCZOS))


def _draw_place(draw: ImageDraw.ImageDraw, x: float, y: float, look: Look) -> None:
    match look.shape:
        case "ring":
            draw.ellipse(_about(x, y, 21), outline=look.edge, width=9)
            draw.ellipse(_about(x, y, 19), outline=look.colour, width=5)
        case "dot":
            draw.ellipse(_about(x, y, 14), fill=look.edge)
            draw.ellipse(_about(x, y, 11), fill=look.colour)
        case "cross":
            for colour, width in ((look.edge, 12), (look.colour, 7)):
                draw.line((x - 13, y - 13, x + 13, y + 13), fill=colour, width=width)
                draw.line((x - 13, y + 13, x + 13, y - 13), fill=colour, width=width)


def _about(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def choose_view(truth: Cells, slide: Slide, side_um: float) -> Box:
    """Choose a square by its number of cells alone: fuller than nine of ten of those with any.

    What was found there has no say, or the picture would show luck.
    """
    side = round(side_um / slide.mpp)
    columns, rows = max(1, slide.size[0] // side), max(1, slide.size[1] // side)
    column, row = (truth.xy // side).astype(int).T
    inside = (column < columns) & (row < rows)
    counts = np.bincount((row * columns + column)[inside], minlength=rows * columns)
    order = np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]
    chosen = int(order[9 * len(order) // 10]) if len(order) else 0
    y0, x0 = (side * each for each in divmod(chosen, columns))
    return Box(x0, y0, x0 + side, y0 + side)


def _jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=86, optimize=True)
    return file.getvalue()
