import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.datasets.publisher import Publisher, publishing

from sparseshot.datasets.fetching import checksums, download
from sparseshot.errors import DataNotFoundError, InputError

CONTENT = bytes(range(256)) * 4000  # about a megabyte, several chunks


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing() as publisher:
        yield publisher


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_with_progress_and_checksums(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content = CONTENT
    seen: list[tuple[int, int | None]] = []
    download(
        publisher.address,
        tmp_path / "a.zip",
        report=lambda event: seen.append((event.done, event.total)),
    )
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    md5, sha256 = checksums(tmp_path / "a.zip")
    assert md5 == hashlib.md5(CONTENT).hexdigest()
    assert sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 3
    assert files(tmp_path) == ["a.zip"]


def test_a_transfer_that_breaks_off_leaves_nothing(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content, publisher.cut = CONTENT, 400_000
    with pytest.raises(DataNotFoundError, match=r"400,000 of 1,024,000 bytes received\); try again later"):
        download(publisher.address, tmp_path / "a.zip")
    assert files(tmp_path) == []
    publisher.cut = None
    download(publisher.address, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_says_to_use_a_browser(publisher: Publisher, tmp_path: Path, status: int) -> None:
    publisher.status = status
    with pytest.raises(DataNotFoundError, match="asks for a login; get it with a browser"):
        download(publisher.address, tmp_path / "a.zip")
    assert files(tmp_path) == []


def test_a_broken_server(publisher: Publisher, tmp_path: Path) -> None:
    publisher.status = 503
    with pytest.raises(DataNotFoundError, match="try again later"):
        download(publisher.address, tmp_path / "a.zip")


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"a\.zip: cannot get http://127\.0\.0\.1:9/x .*refused"):
        download("http://127.0.0.1:9/x", tmp_path / "a.zip")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "x.zip"])
def test_only_web_addresses_are_opened(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match="begins with https://"):
        download(address, tmp_path / "a.zip")
