"""Further files of a prediction: all its cells in one file of any format, and as DICOM annotations.

These are Microscopy Bulk Simple Annotations of a DICOM slide.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot import __version__
from sparseshot.cells import Cells, write_cells
from sparseshot.cells.formats.geoparquet import read_places
from sparseshot.cells.formats.options import optional
from sparseshot.cells.formats.registry import FORMATS
from sparseshot.cells.shape_measures import AREA, LENGTH
from sparseshot.errors import FormatError, InputError, SparseshotError, SparseshotWarning
from sparseshot.files import replacing
from sparseshot.images.fingerprint import series_files, series_uid
from sparseshot.prediction.export import PredictionSummary, read_prediction
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slides import Outcome

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
        if ending in _WITHOUT_OUTLINES:
            cells = Cells.concatenate(read_places(folder / shard.file.name) for shard in manifest.shards)
        else:
            cells = read_prediction(folder)
        if ending == "dcm":  # needs the header of the slide, which other formats do not
            write_annotations(cells, target, slide=slide)
        else:
            write_cells(cells, target, size_px=(int(width), int(height)))


_WHOLE_SLIDE = "1.2.840.10008.5.1.4.1.1.77.1.6"
_PATIENT = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex")
_STUDY = ("AccessionNumber", "StudyID", "StudyDate", "StudyTime", "FrameOfReferenceUID")


def write_annotations(cells: Cells, path: Path, *, slide: Path) -> None:
    """Write points, or polygons where there are outlines, in a group for each class.

    A polygon is the outer ring of the largest part. ``slide`` is any file of its series; patient and study
    are copied from it. Without cells there is a warning and no file, since DICOM requires an annotation.
    """
    if series_uid(slide) is None:
        raise InputError(f"{slide}: --also dcm needs a DICOM slide, whose patient and study it copies")
    if not len(cells):
        path.unlink(missing_ok=True)  # of an earlier prediction
        problem = "not written: there are no cells, and DICOM annotations need at least one"
        warnings.warn(f"{path}: {problem}", SparseshotWarning, stacklevel=2)
        return
    highdicom, config = optional("highdicom", extra="dicom"), optional("pydicom.config", extra="dicom")
    with warnings.catch_warnings(), config.disable_value_validation():
        warnings.simplefilter("ignore")  # invalid values of the slide are copied as they are
        header = _level_0(slide)
        annotations = highdicom.ann.MicroscopyBulkSimpleAnnotations(
            source_images=[header],
            annotation_coordinate_type="2D",
            annotation_groups=list(_groups(cells)),
            series_instance_uid=highdicom.UID(),
            series_number=1,
            sop_instance_uid=highdicom.UID(),
            instance_number=1,
            manufacturer="sparseshot",
            manufacturer_model_name="sparseshot",
            software_versions=__version__,
            device_serial_number=__version__,  # required, but software has none
            content_label="CELLS",
        )
        annotations.SpecificCharacterSet = "ISO_IR 192"  # UTF-8, for names of classes
        if header.FrameOfReferenceUID:  # not required in 2D, but some readers match slides by it
            annotations.FrameOfReferenceUID = header.FrameOfReferenceUID
            annotations.PositionReferenceIndicator = header.get("PositionReferenceIndicator")
        with replacing(path) as temporary:
            annotations.save_as(temporary)


def _level_0(slide: Path) -> Any:
    """Return the header of the largest image of a series."""
    pydicom, levels = optional("pydicom", extra="dicom"), []
    for file in series_files(slide):
        try:
            header = pydicom.dcmread(file, stop_before_pixels=True)
            header.decode()  # else text would be copied as bytes of another character set
        except Exception as error:  # a damaged value can raise anything
            raise FormatError(file, f"its DICOM header cannot be read ({error}); copy it again") from error
        if header.get("SOPClassUID") == _WHOLE_SLIDE and "VOLUME" in (header.get("ImageType") or ()):
            levels.append(header)
    if not levels:
        raise FormatError(slide, "no file of its series is a whole-slide image of type VOLUME")
    largest = max(levels, key=lambda header: header.get("TotalPixelMatrixColumns") or 0)
    for name in {*_PATIENT, *_STUDY} - set(largest.dir()):  # highdicom expects them; they may be empty
        setattr(largest, name, None)
    return largest


def _groups(cells: Cells) -> Iterator[Any]:
    """Yield a group for each class, or two if only some of its cells have outlines."""
    highdicom, codes = optional("highdicom", extra="dicom"), optional("pydicom.sr", extra="dicom").codes
    outlined = np.zeros(len(cells), bool) if cells.outline is None else ~shapely.is_missing(cells.outline)
    number = 0
    for label, name in [*enumerate(cells.classes), (-1, "unclassified")]:
        for kind, chosen in (("POINT", ~outlined), ("POLYGON", outlined)):
            group = cells[chosen & (cells.label == label)]
            if not len(group):
                continue
            number += 1
            columns = [(codes.DCM.Probability, group.score, codes.UCUM.NoUnits)]
            if kind == "POLYGON":
                columns += [
                    (codes.SCT.Area, group.measurements.get(AREA), codes.UCUM.SquareMicrometer),
                    (codes.SCT.Perimeter, group.measurements.get(LENGTH), codes.UCUM.Micrometer),
                ]
            yield highdicom.ann.AnnotationGroup(
                number=number,
                uid=highdicom.UID(),
                label=name.replace("\\", "/")[:64],  # a backslash would separate two values
                description=name,
                annotated_property_category=codes.SCT.AnatomicalStructure,
                annotated_property_type=codes.SCT.Cell if kind == "POINT" else codes.SCT.Nucleus,
                graphic_type=kind,
                # As in Cells, (0, 0) is the corner of the first pixel, and (0.5, 0.5) its centre.
                graphic_data=list(group.xy.astype(np.float32)[:, None])
                if kind == "POINT"
                else _polygons(group),
                algorithm_type="AUTOMATIC",
                algorithm_identification=highdicom.AlgorithmIdentificationSequence(
                    name="sparseshot", family=codes.DCM.ArtificialIntelligence, version=__version__
                ),
                measurements=[highdicom.ann.Measurements(*each) for each in columns if each[1] is not None],
            )


def _polygons(cells: Cells) -> list[NDArray[np.float32]]:
    parts, owner = shapely.get_parts(cells.outline, return_index=True)
    by_area = np.lexsort((shapely.area(parts), owner))
    largest = parts[by_area[np.diff(owner, append=-1) != 0]]
    xy, ring = shapely.get_coordinates(shapely.get_exterior_ring(largest), return_index=True)
    rings = np.split(xy.astype(np.float32), np.flatnonzero(np.diff(ring)) + 1)
    return [each[:-1] for each in rings]  # DICOM closes a polygon without repeating its first vertex
