import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile

from sparseshot.images import open_slide
from sparseshot.images.fingerprint import slide_fingerprint


def fingerprint(path: Path) -> str:
    with open_slide(path, mpp=0.25) as slide:
        return slide_fingerprint(slide)


def written(path: Path, *, spot: int | None) -> Path:
    """Write an uncompressed slide that is white but for a spot of tissue."""
    image = np.full((2048, 2048, 3), 255, np.uint8)
    if spot is not None:
        image[900:1150, spot : spot + 250] = (180, 90, 160)
    tifffile.imwrite(path, image, tile=(256, 256), photometric="rgb")
    return path


def test_uncompressed_slides_with_white_margins_differ(tmp_path: Path) -> None:
    spots = (None, 700, 900, 1100)
    slides = [written(tmp_path / f"{number}.tif", spot=spot) for number, spot in enumerate(spots)]
    contents = [path.read_bytes() for path in slides]
    assert len({(content[: 2**20], content[-(2**20) :]) for content in contents}) == 1
    assert len({fingerprint(path) for path in slides}) == len(slides)


def test_a_copy_under_another_name_is_the_same_slide(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tif", spot=700)
    copied = Path(shutil.copy(path, tmp_path / "b.tif"))
    assert fingerprint(copied) == fingerprint(path)


@pytest.mark.parametrize("size", [1, 5000, 2**20, 3 * 2**20 + 17])
def test_every_byte_of_a_small_file_counts(tmp_path: Path, size: int) -> None:
    class Stub:
        name, size, mpp, path = "a", (10, 10), 0.5, tmp_path / "a.bin"

    content = bytearray(size)
    Stub.path.write_bytes(content)
    before = slide_fingerprint(Stub())  # type: ignore[arg-type]
    content[size // 2] = 1
    Stub.path.write_bytes(content)
    assert slide_fingerprint(Stub()) != before  # type: ignore[arg-type]


def test_files_beside_an_mrxs_count(tmp_path: Path) -> None:
    class Stub:
        name, size, mpp, path = "a", (10, 10), 0.5, tmp_path / "a.mrxs"

    Stub.path.write_bytes(b"small")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "Data0000.dat").write_bytes(b"1234")
    before = slide_fingerprint(Stub())  # type: ignore[arg-type]
    (tmp_path / "a" / "Data0000.dat").write_bytes(b"12345")
    assert slide_fingerprint(Stub()) != before  # type: ignore[arg-type]
