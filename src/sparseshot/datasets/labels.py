"""Readers of the labels of one image: common formats, and formats that only one set uses."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.cells import Cells, read_cells, trace
from sparseshot.cells.repairs import Repairs
from sparseshot.errors import DataNotFoundError, FormatError, SlideError
from sparseshot.images import read_image

_SAME_PLACE_PX = 3.0
"""A classified point within this distance of a detected one is the same nucleus."""
_NUCLEUS_UM = 7.0
"""Median diameter of nuclei, which gives a µm per pixel to images whose publisher states none."""
_SMALL_NUCLEUS_PX = 15.0
"""Nuclei of gliomas are 5 to 8 µm wide: narrower than this at 20x, wider at 40x."""

LabelReader = Callable[[Path, tuple[str, ...], tuple[int, int], float], Cells]
"""Reads the labels in a file into cells of the given classes; their image has this size and µm per pixel."""


def _in_a_known_format(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:
    return _as_classes(read_cells(path, slide_mpp=mpp, size_px=size_px), classes)


def _as_classes(cells: Cells, classes: tuple[str, ...]) -> Cells:
    """Return cells with the classes of the set: one class for all, else matched by name or number from 1.

    Cells of other classes become unclassified. A set whose files name the classes keeps those.
    """
    if not classes or cells.classes == classes:
        return cells
    if len(classes) == 1:
        return replace(cells, classes=classes, label=np.zeros(len(cells), np.int16), colors=None)
    known = {name.casefold(): name for name in classes}
    known |= {str(number): name for number, name in enumerate(classes, start=1)}
    return cells.with_classes(classes, {name: known.get(name.casefold(), name) for name in cells.classes})


def _wbc_zheng(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:  # noqa: ARG001
    """Read a mask of one cell, 255 nucleus and 128 cytoplasm; the nucleus becomes a second outline."""
    mask = _mask(path, size_px)
    unknown = np.setdiff1d(mask, (0, 128, 255))
    if len(unknown):
        raise FormatError(path, f"has the value {unknown[0]}; a mask of this set has 0, 128 and 255")
    ids, xy, outline = trace((mask > 0).astype(np.uint8))
    _, _, nucleus = trace((mask == 255).astype(np.uint8))
    if len(nucleus) != len(outline):
        raise FormatError(path, "has a cell without a nucleus; a mask of this set has both")
    return Cells(xy, classes=classes, id=ids, outline=outline, nucleus=nucleus)


def _brca_m2c(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:  # noqa: ARG001
    """Read rows ``Y X class``: 0-based pixels, classes from 1."""
    if not path.read_bytes().strip():
        return Cells(np.empty((0, 2)), classes=classes)  # no cells
    cells = read_cells(path, format="csv", columns=("y", "x", "class"), size_px=size_px)
    unknown = set(cells.classes) - {str(number + 1) for number in range(len(classes))}
    if unknown or (cells.label < 0).any():
        raise FormatError(path, f"has the class {min(unknown, default='')!r}; there are 1 to {len(classes)}")
    return _as_classes(replace(cells, xy=cells.xy + 0.5), classes)  # the middle of the pixel


def _crchisto(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:  # noqa: ARG001
    """Read the detected points, and their classes from the files of the classification part.

    The detection file has every nucleus. A classified point gives its class to the nearest detected one;
    nuclei without a classified point have no class, and classified points without a nucleus are left out.
    """
    name = path.parent.name
    folder = path.parents[2] / "Classification" / name
    points = _points(path, size_px)
    label = np.full(len(points), -1, np.int16)
    tree = KDTree(points)
    for number, kind in enumerate(classes) if folder.is_dir() else ():
        file = folder / f"{name}_{kind}.mat"
        if not file.is_file():
            raise DataNotFoundError(file, "no such file beside those of the other classes; copy it again")
        _, nearest = tree.query(_points(file, size_px), distance_upper_bound=_SAME_PLACE_PX)
        _warn(file, int((nearest == len(points)).sum()), "classified points without a detected nucleus")
        label[nearest[nearest < len(points)]] = number
    return Cells(points, classes=classes, label=label)


def _points(path: Path, size_px: tuple[int, int]) -> NDArray[np.float64]:
    """Read points; those less than a pixel outside the image are moved onto its edge."""
    xy = read_cells(path).xy
    inside = np.clip(xy, 0, np.nextafter(size_px, 0))
    outside = (np.abs(inside - xy) >= 1).any(axis=1)
    _warn(path, int(outside.sum()), f"points outside of the {size_px[0]} × {size_px[1]} image")
    return np.asarray(inside[~outside])


def _dsb2018(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:
    """Read a folder of masks, one nucleus each; the size of the nuclei gives the µm per pixel."""
    masks = sorted(path.glob("*.png"))
    if not masks:
        raise FormatError(path, "holds no masks; a folder of this set has a PNG for each nucleus")
    label = np.zeros(size_px[::-1], np.uint16)
    for number, file in enumerate(masks, start=1):
        label[_mask(file, size_px) > 0] = number
    ids, xy, outline = trace(label)
    wide_px = _diameter_px(outline)
    fitting = float(np.clip(_NUCLEUS_UM / wide_px, 0.125, 0.6)) if wide_px else mpp
    return Cells(xy, classes=classes, id=ids, outline=outline, mpp=round(fitting, 3))


def _sbu_miccai(path: Path, classes: tuple[str, ...], size_px: tuple[int, int], mpp: float) -> Cells:
    """Read instances of a tile of TCGA, scanned at 20x where its nuclei are small, else at 40x."""
    cells = _in_a_known_format(path, classes, size_px, mpp)
    wide_px = 0.0 if cells.outline is None else _diameter_px(cells.outline)
    return replace(cells, mpp=0.5 if 0 < wide_px < _SMALL_NUCLEUS_PX else 0.25)


def _diameter_px(outline: NDArray[np.object_]) -> float:
    """Return the median diameter of circles with the areas of outlines; 0 without any."""
    return float(np.median(2 * np.sqrt(shapely.area(outline) / np.pi))) if len(outline) else 0.0


def _mask(path: Path, size_px: tuple[int, int]) -> NDArray[np.uint8]:
    """Read an image of marks, of the size of its image."""
    try:
        mask = read_image(path)[:, :, 0]
    except SlideError as error:
        raise FormatError(path, error.problem) from error
    if mask.shape != size_px[::-1]:
        raise FormatError(
            path,
            f"is {mask.shape[1]} × {mask.shape[0]}, its image {size_px[0]} × {size_px[1]}; sizes must agree",
        )
    return mask


def _warn(path: Path, count: int, what: str) -> None:
    repairs = Repairs()
    repairs.count(f"{what} left out", count)
    repairs.warn(str(path))


READERS: Mapping[str, LabelReader] = MappingProxyType(
    {
        "any": _in_a_known_format,
        "crchisto": _crchisto,
        "brca_m2c": _brca_m2c,
        "dsb2018": _dsb2018,
        "sbu_miccai": _sbu_miccai,
        "wbc_zheng": _wbc_zheng,
    }
)
"""Readers by their names in the catalogue."""
