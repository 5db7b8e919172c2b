from pathlib import Path

import numpy as np
import pytest
from tests.images import slide_files
from tests.images.dicom_files import write_dicom

from sparseshot.errors import SlideError
from sparseshot.images import Box, Grid, open_slide
from sparseshot.images.fingerprint import one_per_series, series_files, series_uid, slide_fingerprint
from sparseshot.prediction.slides import find_slides

IMAGE = slide_files.tissue(404, 300)
ANY_FILE = pytest.mark.parametrize(
    "file", range(5), ids=["level 0", "level 1", "level 2", "label", "overview"]
)


@ANY_FILE
def test_any_file_of_a_series_opens_the_slide(tmp_path: Path, file: int) -> None:
    path = write_dicom(tmp_path, IMAGE)[file]
    write_dicom(tmp_path, 255 - IMAGE, mpp=0.5, series=2)
    with open_slide(path) as slide:
        assert (slide.size, slide.mpp, slide.levels) == (
            (404, 300),
            0.25,
            ((404, 300), (202, 150), (101, 75)),
        )
        for step in (1, 2, 4):
            grid = Grid.over(slide, 0.25 * step)
            pixels = slide.read(grid, Box(30, 20, 90, 70))
            assert np.array_equal(pixels, IMAGE[::step, ::step][20:70, 30:90])


def test_without_its_finest_level_a_slide_is_that_much_coarser(tmp_path: Path) -> None:
    finest, second, *_ = write_dicom(tmp_path, IMAGE)
    finest.unlink()
    with open_slide(second) as slide:
        assert (slide.size, slide.mpp) == ((202, 150), 0.5)


def test_a_label_without_its_slide_is_an_error(tmp_path: Path) -> None:
    label = write_dicom(tmp_path, IMAGE, levels=0)[0]
    with pytest.raises(SlideError, match="every file that belongs to it"):
        open_slide(label)


def test_a_folder_is_not_opened_as_a_slide(tmp_path: Path) -> None:
    write_dicom(tmp_path, IMAGE)
    with pytest.raises(SlideError, match="any one file of a DICOM series"):
        open_slide(tmp_path)


def test_a_slide_has_one_fingerprint(tmp_path: Path) -> None:
    paths = write_dicom(tmp_path, IMAGE)
    others = write_dicom(tmp_path, 255 - IMAGE, series=2)

    def fingerprint(path: Path) -> str:
        with open_slide(path) as slide:
            return slide_fingerprint(slide)

    before = {fingerprint(path) for path in paths}
    assert len(before) == 1
    assert fingerprint(others[0]) not in before
    write_dicom(tmp_path, np.roll(IMAGE, 1, axis=0))
    assert fingerprint(paths[-1]) not in before


def test_a_series_is_one_slide(tmp_path: Path) -> None:
    first, second = write_dicom(tmp_path / "a", IMAGE), write_dicom(tmp_path / "a", IMAGE, series=2)
    copied = write_dicom(tmp_path / "b", IMAGE)
    picture = tmp_path / "a" / "picture.png"
    picture.touch()
    assert find_slides([tmp_path / "a"]) == [min(first), min(second), picture]
    assert find_slides([*first, *second, *copied]) == [first[0], second[0], copied[0]]
    assert one_per_series([picture, first[1], first[0]]) == [picture, first[1]]
    assert series_files(first[0]) == sorted(first)


def test_what_is_not_dicom_stands_alone(tmp_path: Path) -> None:
    for name, content in {
        "empty.dcm": b"",
        "text.dcm": b"\x20\0\x0d\0" * 99,
        "magic.dcm": bytes(128) + b"DICM",
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert series_uid(path) is None
        assert series_files(path) == [path]
    assert series_uid(tmp_path) is None
