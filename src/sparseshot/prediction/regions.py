"""The part of a slide that is predicted: a box, or annotations drawn in QuPath."""

from pathlib import Path

import numpy as np
import shapely

from sparseshot.cells import read_cells
from sparseshot.errors import InputError
from sparseshot.images.slide import Slide


def parse_region(text: str, slide: Slide) -> shapely.Geometry:
    """Return the region that a text names, in level-0 pixels.

    Args:
        text: ``x,y,width,height`` in level-0 pixels; or a file of annotations that QuPath exported, of which
            all outlines count, or with ``#`` and a name those of that name or class.
        slide: the slide.
    """
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        region = _drawn(text)
    else:
        if len(numbers) != 4 or min(numbers[2:]) <= 0:
            raise InputError(f"--region {text}: give x,y,width,height in pixels of the slide, or a file")
        x, y, width, height = numbers
        region = shapely.box(x, y, x + width, y + height)
    if not region.intersects(shapely.box(0, 0, *slide.size)):
        raise InputError(
            f"--region {text} lies outside {slide.name}, which has {slide.size[0]} × {slide.size[1]} pixels"
        )
    return region


def _drawn(text: str) -> shapely.Geometry:
    """Return the union of the outlines in a file."""
    file, _, name = (text, "", "") if Path(text).is_file() else text.rpartition("#")
    cells = read_cells(Path(file or text))
    shapes = np.full(len(cells), None, object) if cells.outline is None else cells.outline
    names = [""] * len(cells) if cells.name is None else cells.name.tolist()
    classes = [*cells.classes, ""]  # the label -1 is none
    called = [{str(own), classes[label]} for own, label in zip(names, cells.label.tolist(), strict=True)]
    notes = [{}] * len(cells.regions) if cells.region_notes is None else list(cells.region_notes)
    called += [{"Exhaustive", *map(str, note.values())} for note in notes]
    drawn = [
        shape
        for shape, own in zip([*shapes, *cells.regions], called, strict=True)
        if shape is not None and (not name or name in own)
    ]
    if not drawn:
        known = sorted(set().union(*called) - {"", "None"})
        what = f"no outline {name!r}" if name else "no outline"
        raise InputError(f"--region {text}: {what} in {file}; it has {', '.join(known) or 'none'}")
    return shapely.make_valid(shapely.union_all(drawn))
