import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.datasets.publisher import Publisher, publishing

from sparseshot.datasets.catalogue import CATALOGUE, Archive, DatasetInfo, dataset_info
from sparseshot.datasets.fetching import fetch
from sparseshot.errors import DataNotFoundError, FormatError

FILES = ("TNBC_NucleiSegmentation/Slide_01/01_1.png", "TNBC_NucleiSegmentation/GT_01/01_1.png")


def packed(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, bytes(1000))
    return buffer.getvalue()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing() as publisher:
        publisher.content = packed(*FILES)
        yield publisher


@pytest.fixture
def tnbc(publisher: Publisher) -> DatasetInfo:
    md5 = hashlib.md5(publisher.content).hexdigest()
    return replace(dataset_info("tnbc"), archive=Archive(publisher.address, "tnbc.zip", md5))


def test_a_set_is_fetched_verified_and_unpacked(tnbc: DatasetInfo, tmp_path: Path) -> None:
    fetched = fetch(tnbc, tmp_path / "new" / "tnbc")
    assert fetched.images == 1
    assert fetched.as_published
    assert fetched.folder == tmp_path / "new" / "tnbc"
    assert [path.name for path in fetched.folder.iterdir()] == ["TNBC_NucleiSegmentation"]


def test_the_archive_may_be_kept_and_is_then_not_downloaded_again(
    tnbc: DatasetInfo, publisher: Publisher, tmp_path: Path
) -> None:
    fetch(tnbc, tmp_path, keep_archive=True)
    (tmp_path / "TNBC_NucleiSegmentation").rename(tmp_path / "away")
    fetch(tnbc, tmp_path)
    assert len(publisher.requests) == 1
    assert not (tmp_path / "tnbc.zip").exists()


def test_a_mirror_is_held_to_the_same_checksum(
    tnbc: DatasetInfo, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.content = packed("TNBC_NucleiSegmentation/Slide_01/evil.png")
    with pytest.raises(FormatError, match="the publisher's is"):
        fetch(tnbc, tmp_path, address=publisher.address)
    assert list(tmp_path.iterdir()) == []


def test_without_a_known_checksum_the_hash_is_returned(publisher: Publisher, tmp_path: Path) -> None:
    info = replace(dataset_info("tnbc"), archive=Archive(publisher.address, "tnbc.zip"))
    fetched = fetch(info, tmp_path)
    assert not fetched.as_published
    assert fetched.sha256 == hashlib.sha256(publisher.content).hexdigest()


def test_a_login_page_instead_of_the_archive_is_named_and_removed(
    publisher: Publisher, tmp_path: Path
) -> None:
    publisher.content = b"<html>Sign in</html>"
    info = replace(dataset_info("consep"), archive=Archive(publisher.address, "consep.zip", login=True))
    with pytest.raises(
        FormatError, match=r"web page \(the publisher may ask for a login\); get the archive with"
    ):
        fetch(info, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_one_brought_oneself_is_never_removed_for_being_wrong(
    tnbc: DatasetInfo, tmp_path: Path
) -> None:
    (tmp_path / "tnbc.zip").write_text("mine")
    with pytest.raises(FormatError, match="has the MD5"):
        fetch(tnbc, tmp_path)
    with pytest.raises(FormatError, match="not a zip or tar"):
        fetch(replace(tnbc, archive=Archive("https://x", "tnbc.zip")), tmp_path)
    assert (tmp_path / "tnbc.zip").read_text() == "mine"


def test_an_archive_of_something_else_is_an_error(publisher: Publisher, tmp_path: Path) -> None:
    publisher.content = packed("holiday/beach.jpg")
    info = replace(dataset_info("tnbc"), archive=Archive(publisher.address, "tnbc.zip"))
    with pytest.raises(DataNotFoundError, match="no image of TNBC"):
        fetch(info, tmp_path)


@pytest.mark.parametrize("name", [name for name, info in CATALOGUE.items() if info.archive is None])
def test_a_set_without_an_address_tells_where_to_get_it_and_where_to_put_it(
    name: str, tmp_path: Path
) -> None:
    info = dataset_info(name)
    with pytest.raises(DataNotFoundError) as raised:
        fetch(info, tmp_path / "there")
    message = str(raised.value)
    assert "no address to download from" in message
    assert (info.page or "it is private") in message
    assert f"{tmp_path / 'there'}/{info.parts[0].images}" in message
    assert not (tmp_path / "there").exists()
