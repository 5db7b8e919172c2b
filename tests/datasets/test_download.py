import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.datasets.publisher import Publisher, publishing

from sparseshot.datasets.fetching import download
from sparseshot.errors import DataNotFoundError, FormatError, InputError

CONTENT = bytes(range(256)) * 4000  # about a megabyte, several chunks
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing() as publisher:
        yield publisher


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def half_a_download(publisher: Publisher, target: Path, here: int = 300_000) -> None:
    """Leave what a transfer leaves that broke off three times at once."""
    publisher.content = CONTENT
    publisher.cuts = [here, 0, 0]
    with pytest.raises(DataNotFoundError, match=f"{here:,} bytes are kept; run the same command again"):
        download(publisher.address, target, md5=MD5)
    publisher.requests.clear()


def test_a_file_arrives_whole_with_progress_and_checksums(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content = CONTENT
    seen: list[tuple[int, int | None]] = []
    sums = download(
        publisher.address,
        tmp_path / "a.zip",
        md5=MD5,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert sums.md5 == MD5
    assert sums.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 3
    assert files(tmp_path) == ["a.zip"]


def test_a_transfer_that_breaks_off_is_taken_up_at_once(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content = CONTENT
    publisher.cuts = [400_000]
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert publisher.requests[1]["Range"] == "bytes=400000-"


def test_the_next_call_resumes_where_the_last_stopped(publisher: Publisher, tmp_path: Path) -> None:
    half_a_download(publisher, tmp_path / "a.zip")
    assert files(tmp_path) == ["a.zip.part", "a.zip.part.json"]
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert publisher.requests[0]["Range"] == "bytes=300000-"
    assert publisher.requests[0]["If-Range"] == '"first"'
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert files(tmp_path) == ["a.zip"]


def test_a_changed_file_is_not_glued_to_the_old_half(publisher: Publisher, tmp_path: Path) -> None:
    half_a_download(publisher, tmp_path / "a.zip")
    publisher.content, publisher.etag = CONTENT[::-1], '"second"'
    download(publisher.address, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == CONTENT[::-1]


def test_a_server_that_cannot_send_parts_sends_all_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ranges = False
    publisher.content = CONTENT
    publisher.cuts = [500_000, 100]
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert publisher.requests[1]["Range"] == "bytes=500000-"
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_sure_sign_of_the_same_file_it_begins_again(
    publisher: Publisher, tmp_path: Path, etag: str | None
) -> None:
    publisher.etag = etag
    publisher.content = CONTENT
    publisher.cuts = [300_000]
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert "Range" not in publisher.requests[1]


def test_the_date_of_the_file_serves_where_there_is_no_etag(publisher: Publisher, tmp_path: Path) -> None:
    publisher.etag, publisher.modified = None, "Wed, 21 Oct 2015 07:28:00 GMT"
    half_a_download(publisher, tmp_path / "a.zip")
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert publisher.requests[0]["If-Range"] == publisher.modified


def test_a_part_that_is_already_whole_is_taken(publisher: Publisher, tmp_path: Path) -> None:
    half_a_download(publisher, tmp_path / "a.zip")
    (tmp_path / "a.zip.part").write_bytes(CONTENT)
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(publisher: Publisher, tmp_path: Path) -> None:
    half_a_download(publisher, tmp_path / "a.zip")
    (tmp_path / "a.zip.part").write_bytes(CONTENT + b"more")
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"address": "http://other", "validator": "x"}', "\x00"])
def test_a_part_of_unknown_origin_is_not_used(publisher: Publisher, tmp_path: Path, note: str) -> None:
    publisher.content = CONTENT
    (tmp_path / "a.zip.part").write_bytes(b"something else")
    (tmp_path / "a.zip.part.json").write_text(note)
    download(publisher.address, tmp_path / "a.zip", md5=MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content = CONTENT
    with pytest.raises(FormatError, match=f"has the MD5 {MD5}, the publisher's is {'0' * 32}"):
        download(publisher.address, tmp_path / "a.zip", md5="0" * 32)
    assert files(tmp_path) == []


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_says_to_use_a_browser_and_is_not_repeated(
    publisher: Publisher, tmp_path: Path, status: int
) -> None:
    publisher.status = status
    with pytest.raises(DataNotFoundError, match="asks for a login; get it with a browser"):
        download(publisher.address, tmp_path / "a.zip")
    assert len(publisher.requests) == 1
    assert files(tmp_path) == []


def test_a_broken_server_is_asked_three_times(publisher: Publisher, tmp_path: Path) -> None:
    publisher.status = 503
    with pytest.raises(DataNotFoundError, match="try again later"):
        download(publisher.address, tmp_path / "a.zip")
    assert len(publisher.requests) == 3


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"a\.zip: cannot get http://127\.0\.0\.1:9/x .*refused"):
        download("http://127.0.0.1:9/x", tmp_path / "a.zip")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "x.zip"])
def test_only_web_addresses_are_opened(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match="begins with https://"):
        download(address, tmp_path / "a.zip")


def test_the_note_tells_where_the_bytes_come_from(publisher: Publisher, tmp_path: Path) -> None:
    half_a_download(publisher, tmp_path / "a.zip")
    note = json.loads((tmp_path / "a.zip.part.json").read_text())
    assert note == {"address": publisher.address, "validator": '"first"'}
