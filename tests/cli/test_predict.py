"""``sparseshot predict`` from the command line."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.images import slide_files
from tests.prediction.networks import random_detector, save

from sparseshot.cells import read_cells
from sparseshot.cli import main
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.files import locked
from sparseshot.images import read_region
from sparseshot.prediction import predict_slide, read_prediction


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_detector(threshold=0.8), tmp_path_factory.mktemp("run"))


def tissue(seed: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    tissue = SyntheticTissue(seed=seed, size_px=(400, 320), mpp=0.5, tissue_fraction=1)
    return read_region(tissue, 0, 0, 400, 320)


def write_svs(path: Path, seed: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return slide_files.write_aperio(path, tissue(seed), mpp=0.5)


def predict(run: Path, *arguments: object) -> int:
    return main(["predict", str(run), *map(str, arguments), "--device", "cpu"])


def test_from_slide_to_cells(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run, slide, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    cells = read_prediction(tmp_path / "out" / "a.svs")
    assert len(cells) > 20
    assert f"{len(cells):,}" in shown
    assert "done" in shown
    assert len(read_cells(tmp_path / "out" / "a.svs" / "qupath.zip")) == len(cells)
    assert predict(run, slide, "--out", tmp_path / "out") == 0
    assert "finished before" in capsys.readouterr().out


@pytest.mark.filterwarnings("default::sparseshot.errors.SparseshotWarning")
def test_mpp_is_for_the_slides_that_state_none(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_svs(tmp_path / "slides" / "a.svs")
    Image.fromarray(tissue()).save(tmp_path / "slides" / "b.png")
    assert predict(run, tmp_path / "slides", "--out", tmp_path / "out", "--mpp", 0.25) == 0
    assert "a.svs states 0.5 µm per pixel, which is used instead of the given 0.25" in capsys.readouterr().err
    sizes = [
        read_cells(tmp_path / "out" / name / "cells" / "00000.parquet").mpp for name in ("a.svs", "b.png")
    ]
    assert sizes == [0.5, 0.25]


def test_json_for_scripts(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run / "model.pt", slide, "--out", tmp_path / "out", "--json", "--threshold", 0.7) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["state"] == "done"
    assert entry["threshold"] == 0.7
    assert entry["cells"] == sum(entry["counts"].values()) == len(read_prediction(entry["folder"]))


def test_a_slide_that_fails_does_not_stop_the_others(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.svs").write_bytes(b"not a slide")
    Image.fromarray(tissue()).save(tmp_path / "in" / "b.png")  # tells no mpp
    write_svs(tmp_path / "in" / "c.svs")
    (tmp_path / "in" / "notes.txt").write_text("no slide")
    assert predict(run, tmp_path / "in", "--out", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert shown.out.count("failed") == 2
    assert "a.svs" in shown.err
    assert "--mpp 0.25" in shown.err
    assert len(read_prediction(tmp_path / "out" / "c.svs")) > 20
    assert predict(run, tmp_path / "in" / "b.png", "--mpp", 0.5, "--out", tmp_path / "out") == 0


def test_a_corrupt_tile_is_reported_with_its_position(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = write_svs(tmp_path / "whole.svs"), tmp_path / "broken.svs"
    shutil.copy(whole, broken)
    slide_files.corrupt_tile(broken, column=3, row=2)
    assert predict(run, whole, broken, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert "1 place unreadable" in shown.out
    assert "x 192–256, y 128–192" in shown.err
    good, rest = (read_prediction(tmp_path / "out" / path.name) for path in (whole, broken))
    far = [((cells.xy < (192 - 80, 999)) | (cells.xy > (256 + 80, 999)))[:, 0] for cells in (good, rest)]
    np.testing.assert_array_equal(good.xy[far[0]], rest.xy[far[1]])
    assert far[0].sum() > 10
    state = json.loads((tmp_path / "out" / "broken.svs" / "state.json").read_text())
    assert [place["x0"] for shard in state["own"]["shards"] for place in shard["broken"]] == [192]
    assert predict(run, broken, "--out", tmp_path / "out") == 1
    assert predict(run, broken, "--out", tmp_path / "out", "--skip-bad-tiles") == 0


def test_two_slides_of_one_name_keep_apart(run: Path, tmp_path: Path) -> None:
    slides = [write_svs(tmp_path / f"patient {k}" / "HE.svs", seed=k) for k in (1, 2)]
    assert predict(run, *slides, "--out", tmp_path / "out") == 0
    folders = sorted(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert len(folders) == 2
    one, other = (read_prediction(folder) for folder in folders)
    assert one.xy.tolist() != other.xy.tolist()
    assert predict(run, *reversed(slides), "--out", tmp_path / "out") == 0
    assert sorted(path for path in (tmp_path / "out").iterdir() if path.is_dir()) == folders


def test_nothing_is_written_outside(run: Path, tmp_path: Path) -> None:
    for name in ("Schnitt ä 病.svs", "a; rm -rf ~.svs", ".hidden.svs"):
        write_svs(tmp_path / "in" / "deep" / name)
    before = {path for path in tmp_path.rglob("*") if "out" not in path.parts}
    tricky = [
        tmp_path / "in" / "deep" / ".." / "deep" / path.name for path in (tmp_path / "in" / "deep").iterdir()
    ]
    assert predict(run, *tricky, "--out", tmp_path / "out") == 0
    assert {path for path in tmp_path.rglob("*") if "out" not in path.parts} == before
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["Schnitt ä 病.svs", "a_ rm -rf _.svs", "cohort.csv", "cohort.html", "hidden.svs"]


def test_another_models_result_stays(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run, slide, "--out", tmp_path / "out") == 0
    before = (tmp_path / "out" / "a.svs" / "qupath.zip").read_bytes()
    assert predict(run, slide, "--out", tmp_path / "out", "--threshold", 0.5) == 1
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "out" / "a.svs" / "qupath.zip").read_bytes() == before
    assert predict(run, slide, "--out", tmp_path / "out", "--threshold", 0.5, "--force") == 0
    assert (tmp_path / "out" / "a.svs" / "qupath.zip").read_bytes() != before


def test_a_dry_run_estimates_and_writes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run, slide, "--out", tmp_path / "out", "--dry-run", "--tile-px", 128, "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["tiles"] == 16
    assert entry["seconds"] > 0
    assert entry["bytes"] > 0
    assert not (tmp_path / "out").exists()
    assert predict(run, slide, "--out", tmp_path / "out", "--dry-run") == 0
    assert "in all about" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "message"), [("--threshold", "1.5", "probability"), ("--device", "abacus", "abacus")]
)
def test_an_invalid_option_writes_nothing(
    run: Path, option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), __file__, "--out", "nowhere", option, value]) == 2
    assert message in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_a_folder_without_a_model_or_slides_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(tmp_path, slide, "--out", tmp_path / "out") == 1
    assert "model.pt" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    run = save(random_detector(), tmp_path / "run")
    assert predict(run, tmp_path / "empty", "--out", tmp_path / "out") == 1
    assert "holds no slide" in capsys.readouterr().err


def test_a_slide_whose_error_nobody_foresaw_does_not_stop_the_others(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {
        "a.svs": MemoryError("3 TiB"),
        "b.svs": UnicodeEncodeError("utf-8", "x", 0, 1, "surrogate"),
        "c.svs": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 3 TiB"),
    }

    def fail(slide: Any, *arguments: Any, **options: Any) -> Any:
        if slide.name in errors:
            raise errors[slide.name]
        return predict_slide(slide, *arguments, **options)

    monkeypatch.setattr("sparseshot.prediction.slides.predict_slide", fail)
    paths = [write_svs(tmp_path / name) for name in ("a.svs", "b.svs", "c.svs", "d.svs")]
    assert predict(run, *paths, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert shown.out.count("failed") == 3
    assert "a.svs: not enough memory; lower --tile-px" in shown.err
    assert "c.svs: not enough memory; lower --tile-px" in shown.err
    assert "d.svs" not in shown.err
    assert len(read_prediction(tmp_path / "out" / "d.svs")) > 20


def test_a_name_that_is_not_utf8(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slide = write_svs(tmp_path / os.fsdecode(b"caf\xe9.svs"))
    assert predict(run, slide, "--out", tmp_path / "out") == 0
    assert "done" in capsys.readouterr().out
    assert predict(run, slide, "--out", tmp_path / "out", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["cells"] == len(read_prediction(next((tmp_path / "out").iterdir()))) > 20


def test_a_folder_that_predict_wrote_can_be_shown_and_converted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run, slide, "--out", tmp_path / "out") == 0
    capsys.readouterr()
    found = tmp_path / "out" / "a.svs"
    assert main(["cells", str(found), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == len(read_prediction(found))
    assert main(["convert", str(found), str(tmp_path / "a.geojson")]) == 0
    assert len(read_cells(tmp_path / "a.geojson")) == len(read_prediction(found))
    assert main(["cells", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}")


def test_a_long_path_is_not_cut_in_80_columns(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / ("long" * 20)
    assert predict(run, write_svs(tmp_path / "a.svs"), "--out", out) == 0
    assert str(out / "a.svs") in capsys.readouterr().out


def test_two_predictions_of_one_slide_do_not_meet(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slide = write_svs(tmp_path / "a.svs")
    with locked(tmp_path / "out" / "a.svs"):
        assert predict(run, slide, "--out", tmp_path / "out") == 1
    assert "another sparseshot is at work" in capsys.readouterr().err
    assert predict(run, slide, "--out", tmp_path / "out") == 0


def test_a_tile_that_needs_too_much_memory_is_refused(run: Path, tmp_path: Path) -> None:
    slide = write_svs(tmp_path / "a.svs")
    assert predict(run, slide, "--out", tmp_path / "out", "--tile-px", 8192) == 2
    assert not (tmp_path / "out").exists()
