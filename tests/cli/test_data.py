import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.datasets.publisher import publishing

from sparseshot.cli import main
from sparseshot.datasets import catalogue


def tnbc(root: Path) -> None:
    """Write one image of TNBC; two of its nuclei touch at a corner and count as one."""
    for folder in ("Slide_01", "GT_01"):
        (root / "TNBC_NucleiSegmentation" / folder).mkdir(parents=True)
    Image.new("RGB", (20, 10)).save(root / "TNBC_NucleiSegmentation" / "Slide_01" / "01_1.png")
    mask = np.zeros((10, 20), np.uint8)
    mask[1:3, 1:3] = mask[3:5, 3:5] = mask[7:9, 10:15] = 255
    Image.fromarray(mask).save(root / "TNBC_NucleiSegmentation" / "GT_01" / "01_1.png")


def test_list_shows_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in catalogue.CATALOGUE)
    assert "CC BY 4.0" in out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(catalogue.CATALOGUE)
    assert listed[0]["mpp"] == 0.25


def test_list_as_markdown_is_the_table_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--markdown"]) == 0
    page = Path(__file__).parents[2] / "docs" / "datasets.md"
    assert capsys.readouterr().out.strip() in page.read_text(encoding="utf-8")


def test_check_names_what_is_missing_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tnbc(tmp_path)
    assert main(["data", "check", "tnbc", "--root", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "29 images missing" in out
    assert "13 images missing" in out
    assert err == ""


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tnbc(tmp_path)
    assert main(["data", "check", "TNBC", "--root", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["parts"][0]["cells"] == 2
    assert report["problems"] == []


def test_check_of_a_real_set_succeeds(real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "wbc_zheng", "--root", str(real_data)]) == 0
    assert "used as: train 180, validation 60, test 60" in capsys.readouterr().out


def test_check_of_a_wrong_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "tnbc", "--root", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {tmp_path}: ")
    assert "https://zenodo.org/records/2579118" in err


def test_an_unknown_name_lists_the_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "tnbb", "--root", str(tmp_path)]) == 2
    assert "did you mean 'tnbc'?" in capsys.readouterr().err


def test_fetch_of_a_set_without_address_says_where_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "fetch", "cpm17", "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "get it from https://drive.google.com/" in err
    assert f"{tmp_path}/train/Images/" in err


def test_fetch_downloads_verifies_unpacks_and_then_has_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tnbc(tmp_path / "source")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for path in (tmp_path / "source").rglob("*.png"):
            file.write(path, path.relative_to(tmp_path / "source"))
    content = buffer.getvalue()
    info = catalogue.CATALOGUE["tnbc"]
    assert info.archive is not None
    known = replace(info, archive=replace(info.archive, md5=hashlib.md5(content).hexdigest()))
    monkeypatch.setattr(catalogue, "CATALOGUE", {**catalogue.CATALOGUE, "tnbc": known})
    command = ["data", "fetch", "tnbc", "--out", str(tmp_path / "out"), "--address"]
    with publishing() as publisher:
        publisher.content = content
        assert main([*command, publisher.address]) == 0
    out, err = capsys.readouterr()
    assert "CC BY 4.0" in out
    assert f"1 images in {tmp_path / 'out'}" in out
    assert "(as published)" in out
    assert hashlib.sha256(content).hexdigest() in out
    assert err == ""
    assert main([*command, "http://127.0.0.1:9/nobody-asks"]) == 0
    assert "already, 1 images; nothing to do" in capsys.readouterr().out


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "check", "fetch"):
        assert main(["data", command, "--help"]) == 0
        assert f"sparseshot data {command}" in capsys.readouterr().out
