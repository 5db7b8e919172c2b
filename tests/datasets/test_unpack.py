import io
import stat
import struct
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from sparseshot.datasets.fetching import unpack
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
    assert unpack(archive, out) == [out / "set", out / "top"]
    assert {
        path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()
    } == files


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "a/b/../../../evil"])
def test_nothing_is_written_outside_the_folder(make: object, tmp_path: Path, out: Path, name: str) -> None:
    archive = make(tmp_path / "archive", {"good": b"", name: b"evil"})  # type: ignore[operator]
    with suppress(FormatError):  # a tar file is refused; of a zip file, the names lose what leads out
        unpack(archive, out)
    assert all(found.is_relative_to(out) for found in tmp_path.rglob("*evil"))
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("limit", ["_MAX_BYTES", "_MAX_FILES"])
def test_an_archive_that_unpacks_to_too_much_is_refused(
    make: object, limit: str, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sparseshot.datasets.fetching.{limit}", 2)
    archive = make(tmp_path / "archive", dict.fromkeys("abc", b"zeros"))  # type: ignore[operator]
    with pytest.raises(FormatError, match="unpacks to more than"):
        unpack(archive, out)
    assert not list(out.iterdir())


def test_a_symbolic_link_in_a_zip_is_a_plain_file(tmp_path: Path, out: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as file:
        file.writestr(info, "/etc/passwd")
    unpack(tmp_path / "archive", out)
    assert not (out / "link").is_symlink()
    assert (out / "link").read_text() == "/etc/passwd"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_in_a_tar_is_refused(tmp_path: Path, out: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("thing")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "archive", "w") as file:
        file.addfile(info)
    with pytest.raises(FormatError, match="cannot be unpacked"):
        unpack(tmp_path / "archive", out)
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
    archive = make_zip(tmp_path / "archive", {"__MACOSX/set/._a": b"", "set/a": b"a"})
    unpack(archive, out)
    assert [path.name for path in out.rglob("*")] == ["set", "a"]
