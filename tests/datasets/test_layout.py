from collections import Counter
from pathlib import Path

import pytest

from sparseshot.datasets.catalogue import CATALOGUE, DatasetInfo, dataset_info
from sparseshot.datasets.layout import find_layout, template_glob, template_pattern
from sparseshot.errors import DataNotFoundError


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_word_that_comes_twice_must_be_the_same() -> None:
    pattern = template_pattern("Detection/{name}/{name}.bmp")
    assert pattern.fullmatch("Detection/img1/img1.bmp")
    assert not pattern.fullmatch("Detection/img1/img2.bmp")
    assert template_glob("Detection/{name}/{name}.bmp") == "Detection/*/*.bmp"


@pytest.mark.parametrize("inside", ["", "tnbc", "TNBC"])
def test_the_folder_or_the_one_around_it_will_do(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / inside
    touch(folder, "TNBC_NucleiSegmentation/Slide_01/01_1.png", "TNBC_NucleiSegmentation/GT_01/01_1.png")
    touch(tmp_path, "another/TNBC_NucleiSegmentation/Slide_02/02_1.png")
    layout = find_layout(dataset_info("tnbc"), tmp_path)
    assert layout.folder == folder
    (entry,) = layout.entries
    assert (entry.name, entry.group, entry.part, entry.split) == ("01_1", "01", "train", "train")
    assert entry.labels == folder / "TNBC_NucleiSegmentation/GT_01/01_1.png"


def test_the_first_place_that_has_labels_counts(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "TNBC_NucleiSegmentation/Slide_01/01_1.png",
        "TNBC_NucleiSegmentation/GT_01/01_1.png",
        "labels_instance/01_1_label.png",
    )
    (entry,) = find_layout(dataset_info("tnbc"), tmp_path).entries
    assert entry.labels.name == "01_1_label.png"


def test_slides_of_any_kind_and_what_lies_beside_them(tmp_path: Path) -> None:
    touch(tmp_path, "slides/a.svs", "slides/a.xml", "slides/b.zarr/zarr.json", "slides/c.old/b.svs")
    entries = find_layout(dataset_info("til"), tmp_path).entries
    assert [entry.image.name for entry in entries] == ["a.svs", "b.zarr"]


def test_images_numbered_alike_in_two_parts_stay_apart(tmp_path: Path) -> None:
    touch(tmp_path, "train/Images/image_00.png", "test/Images/image_00.png")
    entries = find_layout(dataset_info("cpm17"), tmp_path).entries
    assert [(entry.name, entry.split) for entry in entries] == [
        ("test_image_00", "test"),
        ("train_image_00", "train"),
    ]


def test_kumar_keeps_its_two_test_parts_apart_and_uses_both(tmp_path: Path) -> None:
    names = [
        f"{part}/Images/TCGA-{n:02}-ABCD-x.tif" for n, part in enumerate(("train", "test_same", "test_diff"))
    ]
    touch(tmp_path, *names)
    entries = find_layout(dataset_info("kumar"), tmp_path).entries
    assert [(entry.part, entry.split) for entry in entries] == [
        ("train", "train"),
        ("test_same", "test"),
        ("test_diff", "test"),
    ]
    assert entries[0].group == "TCGA-00-ABCD"


def test_monuseg_is_split_as_the_challenge_did_where_its_test_is_there(tmp_path: Path) -> None:
    train = "MoNuSeg 2018 Training Data/Tissue Images/TCGA-E2-A14V-01Z-00-DX1.tif"
    touch(tmp_path, train, "MoNuSegTestData/TCGA-2Z-A9J9-01A-01-TS1.tif")
    splits = [entry.split for entry in find_layout(dataset_info("monuseg"), tmp_path).entries]
    assert splits == ["test", "train"]
    (tmp_path / "MoNuSegTestData/TCGA-2Z-A9J9-01A-01-TS1.tif").unlink()
    assert [entry.split for entry in find_layout(dataset_info("monuseg"), tmp_path).entries] == ["test"]


def test_the_lists_of_brca_m2c_count_and_tell_what_is_missing(tmp_path: Path) -> None:
    names = [f"TCGA-A7-{patient}-01Z-00-DX1_1_2_1000_1000_0.93" for patient in ("AAAA", "BBBB", "CCCC")]
    touch(tmp_path, *(f"images/{name}.png" for name in names))
    for part, name in zip(("train", "val", "test"), names, strict=True):
        (tmp_path / f"brca_ds_{part}.txt").write_text(f"{name}.png\n")
    (tmp_path / "brca_ds_test.txt").write_text(f"{names[2]}.png\nTCGA-A7-DDDD-x.png\n")
    layout = find_layout(dataset_info("brca_m2c"), tmp_path)
    assert [entry.split for entry in layout.entries] == ["train", "validation", "test"]
    ((line, split),) = layout.missing.items()
    assert ("TCGA-A7-DDDD-x.png is listed for test" in line, split) == (True, "test")
    (tmp_path / "brca_ds_test.txt").unlink()
    (tmp_path / "brca_ds_val.txt").write_text(f"{names[1]}.png\nTCGA-A7-DDDD-x.png\n")
    layout = find_layout(dataset_info("brca_m2c"), tmp_path)
    assert [entry.split for entry in layout.entries] == ["train", "test", None]
    ((line, split),) = layout.missing.items()
    assert ("TCGA-A7-DDDD-x.png is listed for test" in line, split) == (True, "test")


def test_leavings_of_macos_are_no_images(tmp_path: Path) -> None:
    touch(tmp_path, "Images/image_00.png", "Images/._image_00.png")
    assert [entry.name for entry in find_layout(dataset_info("cpm15"), tmp_path).entries] == ["image_00"]


@pytest.mark.parametrize("info", CATALOGUE.values(), ids=list(CATALOGUE))
def test_an_empty_or_wrong_root_is_an_error_that_tells_what_belongs_there(
    info: DatasetInfo, tmp_path: Path
) -> None:
    touch(tmp_path, "holiday/beach.jpg")
    with pytest.raises(DataNotFoundError) as raised:
        find_layout(info, tmp_path)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}: contains no image of {info.title}")
    assert info.parts[0].images in message
    assert (info.page or "private") in message


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DataNotFoundError, match="no such folder; for TNBC, run sparseshot data fetch tnbc, or"
    ):
        find_layout(dataset_info("tnbc"), tmp_path / "nowhere")


# How the real sets are split: images of each split.
REAL = {
    "tnbc": {"train": 30, "validation": 7, "test": 13},
    "monuseg": {"train": 20, "test": 10},
    "brca_m2c": {"train": 78, "validation": 10, "test": 30, None: 2},
    "monusac": {"train": 4, "test": 2},
    "wbc_zheng": {"train": 180, "validation": 60, "test": 60},
}
ORGANS = {
    "breast": ("A7", "AR", "E2"),
    "kidney": ("B0", "HE"),
    "liver": ("18", "21", "38", "49", "50"),
    "prostate": ("CH", "G9"),
    "bladder": ("DK", "G2"),
    "colon": ("AY", "NH"),
    "stomach": ("KB", "RD"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_sets_are_split_by_patient(name: str, real_data: Path) -> None:
    entries = find_layout(dataset_info(name), real_data).entries
    assert Counter(entry.split for entry in entries) == REAL[name]
    splits_of: dict[str, set[str]] = {}
    for entry in entries:
        if entry.split is not None:
            splits_of.setdefault(entry.group, set()).add(entry.split)
    assert all(len(splits) == 1 for splits in splits_of.values())


def test_tnbc_is_split_as_its_file_says(real_data: Path) -> None:
    import json

    published = json.loads((real_data / "tnbc" / "train_val_test.json").read_text())
    layout = find_layout(dataset_info("tnbc"), real_data)
    for split, key in (("train", "train"), ("validation", "val"), ("test", "test")):
        names = [f"{entry.name}.png" for entry in layout.entries if entry.split == split]
        assert names == sorted(published[key])


def test_both_sides_of_monuseg_have_every_organ(real_data: Path) -> None:
    entries = find_layout(dataset_info("monuseg"), real_data).entries
    for sites in ORGANS.values():
        splits = {entry.split for entry in entries if entry.group.split("-")[1] in sites}
        assert splits == {"train", "test"}
