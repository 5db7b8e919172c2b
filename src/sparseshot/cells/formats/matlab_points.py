"""Points as the detection files of CRCHistoPhenotypes hold them."""

from typing import BinaryIO

import scipy.io

from sparseshot.cells.formats.matlab import HALF_PX
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.formats.points_csv import count_what_is_no_point
from sparseshot.cells.table import Cells


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write ``detection``, N × 2, x and y counted from 1."""
    count_what_is_no_point(cells, options.losses)
    options.losses.count("classes left out", len(cells.classes) if len(cells.classes) > 1 else 0)
    options.losses.count("scores left out", 0 if cells.score is None else len(cells))
    scipy.io.savemat(file, {"detection": cells.xy + HALF_PX})
