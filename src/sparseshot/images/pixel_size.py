"""Pixel sizes stored in files, and whether they are plausible."""

import math
import re
from pathlib import Path

import defusedxml.ElementTree
import tifffile

from sparseshot.images.plain_image import opened_image
from sparseshot.images.tiff_check import is_tiff, opened_tiff

_PLAUSIBLE_MPP = (0.01, 10.0)
"""Finer is no light microscope; coarser is e.g. the 72 dpi (353 µm) that drawing programs write."""

SAME_MPP = 0.05
"""Programs write the size of the same pixel differently, by up to this share."""

UM_PER_UNIT = {"µm": 1.0, "um": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4, "m": 1e6, "pm": 1e-6, "Å": 1e-4}
UM_PER_UNIT |= {"micrometer": 1.0, "nanometer": 1e-3, "millimeter": 1e3, "centimeter": 1e4, "meter": 1e6}
UM_PER_UNIT |= {"picometer": 1e-6, "angstrom": 1e-4}
"""The symbols of OME-TIFF and the names of OME-Zarr."""


def plausible(mpp_x: float, mpp_y: float) -> float | None:
    """Return the mean of both if it is plausible for a microscope and the pixel is square, else None.

    >>> plausible(0.25, 0.2501), plausible(352.8, 352.8), plausible(0.25, 0.5)
    (0.25005, None, None)
    """
    mean = (mpp_x + mpp_y) / 2
    low, high = _PLAUSIBLE_MPP
    if math.isfinite(mean) and low <= mean <= high and abs(mpp_x - mpp_y) <= 0.05 * mean:
        return mean
    return None


def tiff_mpp(page: tifffile.TiffPage) -> float | None:
    """Return the µm per pixel of the first page of a TIFF: OME-XML, Aperio's description, resolution tags."""
    text = page.description
    if "<OME" in text:
        return ome_mpp(text)
    aperio = re.search(r"\|\s*MPP\s*=\s*([0-9.]+)", text)
    if aperio:
        mpp = _number(aperio.group(1))
        return plausible(mpp, mpp)
    is_imagej = "ImageJ=" in text and re.search(r"unit=(micron|um|µm|\\u00B5m)", text)
    try:
        # ImageJ writes pixels per µm without a unit.
        per_um_x, per_um_y = page.get_resolution() if is_imagej else page.get_resolution("MICROMETER")
        return plausible(1 / per_um_x, 1 / per_um_y)
    except (ValueError, ZeroDivisionError, TypeError, KeyError):
        return None


def image_mpp(path: Path) -> float | None:
    """Return the µm per pixel of a plain image, if it is not just a printer's resolution."""
    try:
        if is_tiff(path):
            with opened_tiff(path) as file:
                return tiff_mpp(file.pages.first)
        with opened_image(path) as image:
            across, down = image.info["dpi"]
            return plausible(25400 / across, 25400 / down)
    except Exception:  # not a pixel size, whatever it is
        return None


def ome_mpp(xml: str) -> float | None:
    """Return the mean of PhysicalSizeX and Y of the first image in OME-XML."""
    try:
        root = defusedxml.ElementTree.fromstring(xml)
    except (defusedxml.DefusedXmlException, defusedxml.ElementTree.ParseError):
        return None
    for pixels in root.iter():
        if pixels.tag.rpartition("}")[2] == "Pixels":
            sizes = []
            for axis in "XY":
                unit = UM_PER_UNIT.get(pixels.get(f"PhysicalSize{axis}Unit", "µm"), math.nan)
                sizes.append(_number(pixels.get(f"PhysicalSize{axis}", "nan")) * unit)
            return plausible(*sizes)
    return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
