"""Marks and found cells as files, in and out."""

import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import InputError, SparseshotWarning
from sparseshot.images import Slide
from sparseshot.prediction.naming import safe_name
from sparseshot.studio.guard import MOST_BYTES

ENDINGS = {"geojson": "QuPath GeoJSON", "parquet": "GeoParquet", "csv": "CSV"}
MOST_MARKS = 200_000


def read_marks(content: bytes, name: str, slide: Slide) -> tuple[Cells, list[str]]:
    """Return the cells in an uploaded file that lie on the slide, and what was repaired or left out."""
    if len(content) > MOST_BYTES:
        raise InputError(f"{name}: is larger than {MOST_BYTES // 2**20} MB")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = Path(folder, safe_name(Path(name).name))
        path.write_bytes(content)
        cells = read_cells(path, slide_mpp=slide.mpp, size_px=slide.size)
    if len(cells) > MOST_MARKS:
        raise InputError(f"{name}: has {len(cells):,} cells; at most {MOST_MARKS:,} become marks")
    said = [str(each.message).replace(str(path), name) for each in caught]
    return cells, said


def file_of(cells: Cells, ending: str) -> tuple[Path, Callable[[], None]]:
    """Write cells to a temporary file in the format of an ending; return it and what removes it."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), f"cells.{ending}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparseshotWarning)  # a CSV holds no outlines
            write_cells(cells, path)
        return path, stack.pop_all().close
