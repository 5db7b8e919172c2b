"""Further files of a prediction: all its cells in one file of any format that can be written."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from sparseshot.cells import Cells, write_cells
from sparseshot.cells.formats.geoparquet import read_places
from sparseshot.cells.formats.options import optional
from sparseshot.cells.formats.registry import FORMATS
from sparseshot.errors import InputError, SparseshotError
from sparseshot.images.dicom_series import series_uid
from sparseshot.prediction.dicom_annotations import write_annotations
from sparseshot.prediction.export import read_prediction
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slides import Outcome
from sparseshot.prediction.summary import PredictionSummary

_WITHOUT_OUTLINES = ("csv", "tsv", "txt", "h5ad")
_NEEDED = {
    "h5ad": ("anndata", "anndata"),
    "zarr": ("spatialdata", "spatialdata"),
    "dcm": ("highdicom", "dicom"),
}
"""Packages that must be installed, and the extras that install them."""


def check_extra_formats(endings: Collection[str], slides: Collection[Path]) -> None:
    """Raise InputError for an ending that cannot be written, before hours of work."""
    known = sorted({"dcm", *(each.removeprefix(".") for form in FORMATS.values() for each in form.endings)})
    for ending in endings:
        if ending not in known:
            raise InputError(f"--also {ending} is no format; known are {', '.join(known)}")
        if ending in _NEEDED:
            module, extra = _NEEDED[ending]
            optional(module, extra=extra)
    if "dcm" in endings and not any(series_uid(slide) for slide in slides if slide.is_file()):
        raise InputError("--also dcm needs DICOM slides, and there is none")


def write_extra_formats(outcomes: Iterable[Outcome], endings: Sequence[str]) -> list[Outcome]:
    """Write all cells of each slide as ``cells.csv``, ``cells.h5ad`` and so on, beside its other files.

    Unlike the prediction itself, this holds all cells of a slide in memory. Files that are there already
    stay, unless the prediction is new. Returns the outcomes; a file that cannot be written is an error.
    """
    written = []
    for outcome in outcomes:
        try:
            if outcome.summary is not None:
                _write(outcome.summary, outcome.path, endings)
            written.append(outcome)
        except (SparseshotError, OSError) as error:
            written.append(Outcome(outcome.path, error=str(error)))
    return written


def _write(summary: PredictionSummary, slide: Path, endings: Sequence[str]) -> None:
    folder, manifest = summary.folder, Manifest.load(summary.folder)
    assert manifest is not None
    width, height = manifest.identity["slide"]["size_px"]
    for ending in sorted(endings, key="dcm".__eq__):  # which fails for slides that are not DICOM
        target = folder / f"cells.{ending}"
        if summary.skipped and target.exists():
            continue
        cells = _places(folder, manifest) if ending in _WITHOUT_OUTLINES else read_prediction(folder)
        if ending == "dcm":  # needs the header of the slide, which other formats do not
            write_annotations(cells, target, slide=slide)
        else:
            write_cells(cells, target, size_px=(int(width), int(height)))


def _places(folder: Path, manifest: Manifest) -> Cells:
    return Cells.concatenate(read_places(folder / shard.file.name) for shard in manifest.shards)
