"""Marks and found cells as files, in and out."""

import tempfile
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.near import is_near
from sparseshot.errors import InputError
from sparseshot.files import safe_name
from sparseshot.images import Slide, TissueMask
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.guard import MOST_BYTES
from sparseshot.studio.marks import NEGATIVE, Item, items_of, place_of
from sparseshot.studio.payloads import check_class
from sparseshot.studio.telling import told
from sparseshot.training.mark_checks import marks_on

MOST_MARKS = 200_000
MOST_CLASSES = 50
"""More are hardly classes: each has a button, and a network an output for it."""

_SAME_MARK_UM = 1.0
_LARGEST_CELL_UM2 = 10_000.0
"""Area of what may be a cell: megakaryocytes reach a fifth of it."""


def read_marks(content: bytes, name: str, slide: Slide, tissue: TissueMask) -> tuple[Cells, list[str]]:
    """Return the cells in an uploaded file that lie on the slide, and what was repaired or left out.

    Raises:
        InputError: there are too many cells or classes, or most of them lie beside the tissue.
    """
    if len(content) > MOST_BYTES:
        raise InputError(f"{name}: is larger than {MOST_BYTES // 2**20} MB")
    with tempfile.TemporaryDirectory() as folder, told() as said:
        path = Path(folder, safe_name(Path(name).name))
        path.write_bytes(content)
        cells = read_cells(path, slide_mpp=slide.mpp)
        is_region = _is_region(cells, slide.mpp)
        if is_region.any():
            said.append(f"{is_region.sum():,} areas, by their class Region* or their size, are no cells")
            cells = cells[~is_region]
        _check_classes(cells, name)
        if len(cells) > MOST_MARKS:
            raise InputError(f"{name}: has {len(cells):,} cells; at most {MOST_MARKS:,} become marks")
        cells = marks_on(slide, cells, name, tissue)
    return cells, [each.replace(str(path), name) for each in said]


def _is_region(cells: Cells, mpp: float) -> NDArray[np.bool_]:
    """Return which rows are areas that somebody drew, and not cells."""
    names = np.array([*cells.classes, ""], object)[cells.label]
    is_region: NDArray[np.bool_] = np.array([str(name) == "Region*" for name in names], bool)
    if cells.outline is not None:
        is_region |= np.nan_to_num(shapely.area(cells.outline)) * mpp**2 > _LARGEST_CELL_UM2
    return is_region


def _check_classes(cells: Cells, name: str) -> None:
    classes = [each for each, count in cells.counts().items() if count and each not in {NEGATIVE, REJECTED}]
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"{name}: its cells have {len(classes):,} classes, such as {', '.join(classes[:3])}; at most "
            f"{MOST_CLASSES} are taken. If these are ids of cells, remove that column or rename it to id"
        )
    try:
        for each in classes:
            check_class(each)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error


def new_items(cells: Cells, known: list[Item], *, mpp: float) -> list[Item]:
    """Return cells and regions as marks, without those that are known: of one class within 1 µm."""
    items, wanted = items_of(cells), []
    marks = [item for item in items if "class" in item]
    for name in dict.fromkeys(item["class"] for item in marks):
        own = [item for item in marks if item["class"] == name]
        places = [place_of(item) for item in known if item.get("class") == name]
        is_known = is_near([place_of(item) for item in own], places, radius=_SAME_MARK_UM / mpp)
        wanted += [item for item, is_old in zip(own, is_known, strict=True) if not is_old]
    rings = [item["region"] for item in known if "region" in item]
    return wanted + [item for item in items if "region" in item and item["region"] not in rings]
