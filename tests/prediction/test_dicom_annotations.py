"""DICOM annotations, read by highdicom."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from tests.images import slide_files
from tests.images.dicom_files import WHOLE_SLIDE, write_dicom
from tests.prediction.networks import random_detector, save

from sparseshot import __version__
from sparseshot.cells import Cells
from sparseshot.cells.shape_measures import AREA
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import FormatError, InputError, SparseshotWarning
from sparseshot.images import read_region
from sparseshot.prediction import read_prediction
from sparseshot.prediction.extra_formats import check_extra_formats, write_annotations, write_extra_formats
from sparseshot.prediction.slides import PredictRequest, find_slides, predict_slides

highdicom = pytest.importorskip("highdicom")
pydicom = pytest.importorskip("pydicom")
IMAGE = slide_files.tissue(404, 300)


def written(cells: Cells, folder: Path, slide: Path) -> Any:
    write_annotations(cells, folder / "cells.dcm", slide=slide)
    return highdicom.ann.annread(folder / "cells.dcm")


def vertices(group: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = group.get_graphic_data("2D")
    return found


def check_same(group: Any, expected: Sequence[np.ndarray]) -> None:
    assert group.number_of_annotations == len(expected) == len(vertices(group))
    for have, want in zip(vertices(group), expected, strict=True):
        np.testing.assert_array_equal(have, want.astype(np.float32))


def values(group: Any, concept: Any) -> np.ndarray:
    _, columns, _ = group.get_measurements(concept)
    column: np.ndarray = columns[:, 0]
    return column


def test_points_are_in_a_group_for_each_class(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    cells = Cells(
        random.uniform(0, 300, (50, 2)),
        classes=("tumour", "淋巴细胞", "no such cell", "a\\b" * 30),
        label=random.choice([-1, 0, 1, 3], 50),
        score=random.random(50),
    )
    annotations = written(cells, tmp_path, write_dicom(tmp_path / "slide", IMAGE)[3])
    groups = annotations.get_annotation_groups()
    names = ["tumour", "淋巴细胞", ("a/b" * 30)[:64], "unclassified"]
    assert [group.label for group in groups] == names
    assert groups[2].AnnotationGroupDescription == "a\\b" * 30
    for group, label in zip(groups, (0, 1, 3, -1), strict=True):
        chosen = cells[cells.label == label]
        assert chosen.score is not None
        check_same(group, list(chosen.xy[:, None]))
        np.testing.assert_array_equal(values(group, pydicom.sr.codes.DCM.Probability), chosen.score)
        assert group.graphic_type.value == "POINT"
        assert group.annotated_property_type == pydicom.sr.codes.SCT.Cell
        (algorithm,) = group.algorithm_identification
        assert (algorithm.AlgorithmName, algorithm.AlgorithmVersion) == ("sparseshot", __version__)


def test_polygons_are_the_outer_rings_of_the_largest_parts(tmp_path: Path) -> None:
    square, large = shapely.box(10, 10, 20, 20), shapely.box(100.25, 50, 140, 90.5)
    hole = large.difference(shapely.box(110, 60, 120, 70))
    outlines = np.array([square, shapely.MultiPolygon([square, large]), None, hole], object)
    area = np.array([100, 1600, np.nan, 1500], np.float32)
    cells = Cells([[15, 15], [120, 70], [7, 8], [120, 70]], outline=outlines, measurements={AREA: area})
    points, polygons = written(
        cells, tmp_path, write_dicom(tmp_path / "slide", IMAGE)[0]
    ).get_annotation_groups()
    check_same(points, [np.array([[7, 8]])])
    check_same(polygons, [shapely.get_coordinates(each.exterior)[:-1] for each in (square, large, hole)])
    assert {points.label, polygons.label} == {"cell"}
    assert polygons.annotated_property_type == pydicom.sr.codes.SCT.Nucleus
    assert values(polygons, pydicom.sr.codes.SCT.Area).tolist() == [100, 1600, 1500]


@pytest.mark.parametrize("file", range(5), ids=["level 0", "level 1", "level 2", "label", "overview"])
def test_patient_study_and_level_0_come_from_the_slide(tmp_path: Path, file: int) -> None:
    paths = write_dicom(tmp_path / "slide", IMAGE)
    with pydicom.config.disable_value_validation():
        header = pydicom.dcmread(paths[0])
        header.SpecificCharacterSet = "ISO_IR 100"
        header.PatientName, header.PatientID = "Müller^Zoë", "7" * 80  # longer than allowed
        header.FrameOfReferenceUID = "1.2.3"
        header.ContainerIdentifier = "Gefäß 1"
        specimen = pydicom.Dataset()
        specimen.SpecimenShortDescription = "Präparat"
        header.SpecimenDescriptionSequence = [specimen]
        header.save_as(paths[0])
        annotations = written(Cells([[1.5, 2.5]]), tmp_path, paths[file])
        assert annotations.PatientName == "Müller^Zoë"
        assert annotations.PatientID == "7" * 80
        assert annotations.ContainerIdentifier == "Gefäß 1"
        assert annotations.SpecimenDescriptionSequence[0].SpecimenShortDescription == "Präparat"
    assert annotations.Modality == "ANN"
    assert annotations.StudyInstanceUID == header.StudyInstanceUID
    assert annotations.SeriesInstanceUID != header.SeriesInstanceUID
    assert annotations.FrameOfReferenceUID == "1.2.3"
    (image,) = annotations.ReferencedImageSequence
    assert (image.ReferencedSOPClassUID, image.ReferencedSOPInstanceUID) == (
        WHOLE_SLIDE,
        header.SOPInstanceUID,
    )
    assert (annotations.AnnotationCoordinateType, annotations.PixelOriginInterpretation) == ("2D", "VOLUME")


def test_without_cells_there_is_no_file(tmp_path: Path) -> None:
    (slide, *_) = write_dicom(tmp_path / "slide", IMAGE)
    written(Cells([[1, 2]]), tmp_path, slide)
    with pytest.warns(SparseshotWarning, match="cells.dcm: not written: there are no cells"):
        write_annotations(Cells([]), tmp_path / "cells.dcm", slide=slide)
    assert [path.name for path in tmp_path.iterdir()] == ["slide"]


def test_predictions_of_dicom_slides_have_annotations_and_others_an_error(tmp_path: Path) -> None:
    tissue = SyntheticTissue(seed=1, size_px=(400, 320), mpp=0.5, tissue_fraction=1)
    pixels = read_region(tissue, 0, 0, 400, 320)
    write_dicom(tmp_path / "in", pixels, mpp=0.5)
    slide_files.write_aperio(tmp_path / "in" / "other.svs", pixels, mpp=0.5)
    paths = find_slides([tmp_path / "in"])
    save(random_detector(), tmp_path / "run")
    for name, model in (("outlines", "starter-outlines"), ("points", str(tmp_path / "run"))):
        request = PredictRequest(model, device="cpu", precision="32")
        outcomes = predict_slides(paths, request, tmp_path / name)
        found, refused = write_extra_formats(outcomes, ["dcm"])
        assert found.summary is not None
        cells = read_prediction(found.summary.folder)
        groups = highdicom.ann.annread(found.summary.folder / "cells.dcm").get_annotation_groups()
        assert {group.label: group.number_of_annotations for group in groups} == {
            label: count for label, count in cells.counts().items() if count
        }
        if cells.outline is not None:
            chosen = cells.outline[cells.label == 0]
            check_same(groups[0], [shapely.get_coordinates(each.exterior)[:-1] for each in chosen])
        else:
            check_same(groups[0], list(cells.xy[:, None]))
        assert (
            refused.error == f"{paths[1]}: --also dcm needs a DICOM slide, whose patient and study it copies"
        )
        assert refused.summary is None
        assert not list((tmp_path / name).rglob("other.svs/*.dcm"))


def test_a_damaged_header_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    level, *_, overview = write_dicom(tmp_path / "slide", IMAGE)
    overview.write_bytes(overview.read_bytes().replace(b".1.2.1\0", b".1.2.2\0"))  # not big-endian
    with pytest.raises(FormatError, match=f"{overview.name}: its DICOM header cannot be read"):
        write_annotations(Cells([[1, 2]]), tmp_path / "cells.dcm", slide=level)
    for path in (level, *level.parent.glob("*-[78].dcm"), overview):
        path.unlink()
    with pytest.raises(FormatError, match="no file of its series is a whole-slide image"):
        write_annotations(Cells([[1, 2]]), tmp_path / "cells.dcm", slide=next(level.parent.iterdir()))
    assert [path.name for path in tmp_path.iterdir()] == ["slide"]


def test_what_cannot_be_written_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slide, *_ = write_dicom(tmp_path / "slide", IMAGE)
    other = tmp_path / "a.svs"
    other.write_bytes(b"no DICOM")
    check_extra_formats(["dcm"], [other, slide])
    with pytest.raises(InputError, match="DICOM slides"):
        check_extra_formats(["csv", "dcm"], [other])
    monkeypatch.setitem(sys.modules, "highdicom", None)
    with pytest.raises(InputError, match=r"sparseshot\[dicom\]"):
        check_extra_formats(["dcm"], [slide])


def test_100_000_cells(tmp_path: Path) -> None:
    (slide, *_) = write_dicom(tmp_path / "slide", IMAGE)
    xy = np.random.default_rng(0).uniform(0, 100_000, (100_000, 2))
    (points,) = written(Cells(xy), tmp_path, slide).get_annotation_groups()
    np.testing.assert_array_equal(np.concatenate(vertices(points)), xy.astype(np.float32))
