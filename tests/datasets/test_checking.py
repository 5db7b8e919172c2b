import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.datasets import small_datasets

from sparseshot.datasets import check, dataset_info
from sparseshot.datasets.catalogue import Count


def problems(root: Path) -> tuple[str, ...]:
    report = check(dataset_info("cpm15"), root)
    assert not report.ok
    return report.problems


def test_a_whole_set_is_ok(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 15)
    seen: list[tuple[int, int | None]] = []
    info = replace(dataset_info("cpm15"), published=Count(15, 45))
    report = check(info, tmp_path, report=lambda event: seen.append((event.done, event.total)))
    assert report.ok
    assert [(part.part, part.images, part.cells, part.state) for part in report.parts] == [
        ("train", 10, 30, "ok"),
        ("test", 5, 15, "ok"),
        ("published in all", 15, 45, "ok"),
    ]
    assert report.used == {"train": 10, "test": 5}
    assert seen[-1] == (14, 15)


def test_missing_images_are_counted_by_part(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 12)
    report = check(dataset_info("cpm15"), tmp_path)
    assert [part.state for part in report.parts][:2] == ["ok", "3 images missing"]
    assert not report.ok


def test_another_number_of_cells_than_published_is_a_failure(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 15)
    report = check(dataset_info("cpm15"), tmp_path)
    assert [(part.cells_expected, part.state) for part in report.parts] == [
        (None, "ok"),
        (None, "ok"),
        (2905, "-2,860 cells"),
    ]
    assert not report.ok


def test_a_part_without_cells_is_not_ok(tmp_path: Path) -> None:
    name = "TCGA-A7-A0DA-01Z-00-DX1_1_1_1000_1000_0.93"
    small_datasets.image(tmp_path / "images" / f"{name}.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / f"{name}_gt_class_coords.txt").write_text("")
    report = check(dataset_info("brca_m2c"), tmp_path)
    assert (report.parts[-1].part, report.parts[-1].state) == ("other", "no cells")


def test_more_images_than_published_are_reported(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 15)
    small_datasets.image(tmp_path / "Images" / "mine.png")
    small_datasets.hovernet(tmp_path / "Labels" / "mine.mat")
    report = check(dataset_info("cpm15"), tmp_path)
    assert report.used["left out"] == 1
    assert report.parts[-2].part == "other"


def test_every_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 15)
    (tmp_path / "Labels" / "image_01.mat").unlink()
    (tmp_path / "Images" / "image_02.png").write_text("no image")
    small_datasets.image(tmp_path / "Images" / "image_03.png", (41, 30))
    broken = tmp_path / "Images" / "image_04.png"
    broken.write_bytes(broken.read_bytes()[:60])
    (tmp_path / "Images" / "image_05.png").unlink()
    found = problems(tmp_path)
    assert len(found) == 5
    for number, words in enumerate(
        ("no such file", "image_02.png: ", "is 40 × 30", "image_04.png: ", "labels without their image"),
        start=1,
    ):
        assert any(f"image_{number:02}" in problem and words in problem for problem in found)


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 1)
    (tmp_path / "Labels" / "image_00.mat").unlink()
    report = json.loads(orjson.dumps(check(dataset_info("cpm15"), tmp_path), default=str))
    assert report["ok"] is False
    assert report["parts"][0] == {
        "part": "train",
        "images": 1,
        "images_expected": 10,
        "cells": 0,
        "cells_expected": None,
        "state": "9 images missing",
    }
    assert "image_00.mat" in report["problems"][0]


def test_repairs_on_reading_are_reported_and_are_no_failure(tmp_path: Path) -> None:
    name = "TCGA-A7-A0DA-01Z-00-DX1_1_1_1000_1000_0.93"
    small_datasets.image(tmp_path / "images" / f"{name}.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / f"{name}_gt_class_coords.txt").write_text("3 35 1\n300 2 1\nnan 1 2\n")
    report = check(dataset_info("brca_m2c"), tmp_path)
    assert report.problems == ()
    (line,) = report.mended
    assert "1 cell with coordinates that are not finite left out, 1 cell outside" in line
    assert report.parts[-1].cells == 1


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("tnbc", ["ok", "ok", "ok"]),
        ("monuseg", ["ok", "14 images missing"]),
        ("brca_m2c", ["ok", "ok", "ok"]),
        ("dsb2018", ["ok"]),
        ("sbu_miccai", ["ok", "ok", "ok"]),
        ("wbc_zheng", ["ok", "ok", "ok"]),
        ("monusac", ["203 images missing", "101 images missing"]),
    ],
)
def test_real_sets_have_the_counts_of_the_catalogue(name: str, states: list[str], real_data: Path) -> None:
    report = check(dataset_info(name), real_data)
    assert [part.state for part in report.parts] == states
    assert report.problems == ()
