"""What the page says about slides that cannot be shown."""

from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from tests.studio.chromium import running_studio
from tests.studio.small_project import copies, small_slide

from sparseshot.studio.project import Project


def page(address: str, path: str) -> str:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        connection.close()


def test_a_bad_slide_has_a_card_that_says_so_and_others_are_shown(tmp_path: Path) -> None:
    first, _ = small_slide(tmp_path)
    damaged, missing, new = copies(first, "damaged.png", "missing.png", "new.png")
    project = Project.open([first, damaged, missing, new], folder=tmp_path / "study")
    for slide in "12":
        project.set_mpp(slide, 0.5)
    damaged.write_bytes(first.read_bytes()[:20])
    missing.unlink()
    with running_studio(project.folder) as (address, _):
        gallery = page(address, "/")
        assert "Choose a slide" in gallery
        for said in ("1,000 × 700 px", "cannot be opened", "file is missing", "pixels is not known yet"):
            assert gallery.count(said) == 1, said
        healthy = page(address, "/?slide=1")
        assert "Next region to review" in healthy
        assert "The slide cannot be opened." in page(address, "/?slide=2")
