import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from sparseshot.datasets.unpack import is_archive, unpack
from sparseshot.errors import FormatError, OutputError


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def make_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_what_was_packed_comes_out(make: object, tmp_path: Path, out: Path) -> None:
    files = {"set/a b.txt": b"a", "set/deep/er/b": b"", "top": b"t" * 3_000_000}
    archive = make(tmp_path / "archive", files)  # type: ignore[operator]
    assert is_archive(archive)
    assert unpack(archive, out) == [out / "set", out / "top"]
    assert {
        path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()
    } == files


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "C:\\evil", "C:/evil", "a/b/../../../evil"]
)
def test_a_name_that_leads_out_is_refused(make: object, tmp_path: Path, out: Path, name: str) -> None:
    archive = make(tmp_path / "archive", {"good": b"", name: b"evil"})  # type: ignore[operator]
    with pytest.raises(FormatError, match="leads out of the folder; do not trust it"):
        unpack(archive, out)
    assert list(out.iterdir()) == []
    assert not list(tmp_path.rglob("*evil"))


def test_a_symbolic_link_in_a_zip_is_refused(tmp_path: Path, out: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as file:
        file.writestr(info, "/etc/passwd")
    with pytest.raises(FormatError, match="link or device 'link'"):
        unpack(tmp_path / "archive", out)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_in_a_tar_is_refused(tmp_path: Path, out: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("thing")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "archive", "w") as file:
        file.addfile(info)
    with pytest.raises(FormatError, match="link or device 'thing'"):
        unpack(tmp_path / "archive", out)
    assert list(out.iterdir()) == []


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path, out: Path) -> None:
    archive = make_zip(tmp_path / "archive", {"small": b"x", "large": bytes(2**22)})
    with pytest.raises(FormatError, match="unpacks to more than"):
        unpack(archive, out, max_bytes=2**20)
    assert list(out.iterdir()) == []


def test_a_file_larger_than_declared_is_refused(tmp_path: Path, out: Path) -> None:
    archive = make_zip(tmp_path / "archive", {"liar": bytes(5000)})
    data = bytearray(archive.read_bytes())
    for marker, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(marker) + offset
        data[place : place + 4] = struct.pack("<I", 10)
    archive.write_bytes(data)
    with pytest.raises(FormatError, match=r"do not trust it|cannot be unpacked"):
        unpack(archive, out)
    assert list(out.iterdir()) == []


def test_a_name_that_comes_twice_is_refused(tmp_path: Path, out: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w") as file:
        file.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("a", "2")
    with pytest.raises(FormatError, match="'a' twice"):
        unpack(tmp_path / "archive", out)
    assert list(out.iterdir()) == []


def test_a_truncated_archive_leaves_nothing(tmp_path: Path, out: Path) -> None:
    archive = make_tar(tmp_path / "archive", {f"{number}": bytes(range(256)) * 100 for number in range(9)})
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"cannot be unpacked.*download it again"):
        unpack(archive, out)
    assert list(out.iterdir()) == []


def test_a_damaged_zip_leaves_nothing(tmp_path: Path, out: Path) -> None:
    archive = make_zip(tmp_path / "archive", {"a": bytes(range(256)) * 400})
    data = bytearray(archive.read_bytes())
    data[60] ^= 255
    archive.write_bytes(data)
    with pytest.raises(FormatError, match="cannot be unpacked"):
        unpack(archive, out)
    assert list(out.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path: Path, out: Path) -> None:
    (out / "set").mkdir()
    (out / "set" / "mine").write_text("mine")
    archive = make_zip(tmp_path / "archive", {"other": b"", "set/a": b""})
    with pytest.raises(OutputError, match="exists already"):
        unpack(archive, out)
    assert [path.name for path in out.iterdir()] == ["set"]
    assert (out / "set" / "mine").read_text() == "mine"


def test_the_leavings_of_macos_stay_out(tmp_path: Path, out: Path) -> None:
    archive = make_zip(tmp_path / "archive", {"__MACOSX/set/._a": b"", "set/.DS_Store": b"", "set/a": b"a"})
    unpack(archive, out)
    assert [path.name for path in out.rglob("*")] == ["set", "a"]


def test_a_web_page_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("<html>log in</html>")
    assert not is_archive(tmp_path / "page")
