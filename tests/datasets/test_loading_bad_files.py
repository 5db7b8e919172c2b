import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.datasets import small_datasets

from sparseshot.datasets import Sample, load_dataset
from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    InputError,
    RepairWarning,
    SlideError,
    SparseshotError,
)


def one(name: str, root: Path) -> Sample:
    (sample,) = load_dataset(name, root).samples
    return sample


def of_another_size(root: Path) -> None:
    small_datasets.image(root / "Images" / "image_01.png", (39, 30))


def without_labels(root: Path) -> None:
    (root / "Labels" / "image_01.mat").unlink()


def with_an_unreadable_image(root: Path) -> None:
    (root / "Images" / "image_01.png").write_text("not an image")


def with_unreadable_labels(root: Path) -> None:
    (root / "Labels" / "image_01.mat").write_text("not a mat file")


def with_the_wrong_variable(root: Path) -> None:
    small_datasets.mat(root / "Labels" / "image_01.mat", something=np.zeros((30, 40)))


HARM: dict[Callable[[Path], None], tuple[type[SparseshotError], str]] = {
    of_another_size: (FormatError, r"image_01\.mat: is 40 × 30, its image 39 × 30"),
    without_labels: (
        DataNotFoundError,
        r"image_01\.mat: no such file; the labels of image_01",
    ),
    with_an_unreadable_image: (SlideError, r"image_01\.png: "),
    with_unreadable_labels: (FormatError, r"image_01\.mat: "),
    with_the_wrong_variable: (FormatError, r"image_01\.mat: "),
}


@pytest.mark.parametrize("harm", HARM)
def test_one_bad_file_does_not_stop_the_good_ones_and_is_not_hidden(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    small_datasets.cpm15(tmp_path, 3)
    harm(tmp_path)
    with pytest.warns(RepairWarning, match=r"CPM15: 1 image left out, 2 kept: .*" + HARM[harm][1]):
        dataset = load_dataset("cpm15", tmp_path)
    assert [sample.name for sample in dataset] == ["image_00", "image_02"]
    assert "image_01" in dataset.left_out[0]


@pytest.mark.parametrize("harm", HARM)
def test_if_nothing_is_good_it_is_an_error(harm: Callable[[Path], None], tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 2)
    (tmp_path / "Images" / "image_00.png").unlink()
    harm(tmp_path)
    with pytest.raises(HARM[harm][0], match=HARM[harm][1]):
        load_dataset("cpm15", tmp_path)


def test_a_label_mask_of_another_size_than_its_image(tmp_path: Path) -> None:
    small_datasets.image(tmp_path / "image" / "Human_Skin_01.tif", (80, 60))
    small_datasets.mask(tmp_path / "label" / "Human_Skin_01.png")
    with pytest.raises(FormatError, match="is 40 × 30, its image 80 × 60"):
        load_dataset("cryonuseg", tmp_path)


def test_an_image_that_breaks_in_the_middle_is_an_error_when_read(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 1)
    file = tmp_path / "Images" / "image_00.png"
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(SlideError, match=r"image_00\.png"):
        one("cpm15", tmp_path).read()


def brca(root: Path, rows: str) -> Path:
    name = "TCGA-A7-A0DA-01Z-00-DX1_1_1_1000_1000_0.93"
    small_datasets.image(root / "images" / f"{name}.png")
    labels = root / "labels" / f"{name}_gt_class_coords.txt"
    labels.parent.mkdir()
    labels.write_text(rows)
    return labels


def test_brca_rows_are_y_x_class_of_pixels(tmp_path: Path) -> None:
    brca(tmp_path, "3 35 1\n\n29 0 3\n")
    cells = one("brca_m2c", tmp_path).cells
    assert cells.xy.tolist() == [[35.5, 3.5], [0.5, 29.5]]
    assert cells.label.tolist() == [0, 2]


def test_brca_with_no_cell_at_all(tmp_path: Path) -> None:
    brca(tmp_path, "")
    assert len(one("brca_m2c", tmp_path).cells) == 0


@pytest.mark.parametrize("row", ["1 2", "1 2 3 4", "a b c", "1 2 4", "1 2 0", "1 2 1.5"])
def test_brca_rows_that_make_no_sense_are_named(tmp_path: Path, row: str) -> None:
    brca(tmp_path, f"3 35 1\n{row}\n")
    with pytest.raises(FormatError, match=r"coords\.txt: .*(Row #2|has the class)"):
        load_dataset("brca_m2c", tmp_path)


def test_cells_outside_their_image_are_counted_and_left_out(tmp_path: Path) -> None:
    brca(tmp_path, "3 35 1\n30 2 1\n-1 2 2\n")  # the image has 30 rows
    with pytest.warns(RepairWarning, match=r"BRCA-M2C: 1 of 1 label files repaired: .*2 cells outside"):
        assert len(one("brca_m2c", tmp_path).cells) == 1


def test_axes_mixed_up_so_that_nothing_fits(tmp_path: Path) -> None:
    brca(tmp_path, "35 3 1\n38 3 1\n")
    with pytest.raises(FormatError, match="none if x and y change places"):
        load_dataset("brca_m2c", tmp_path)


def test_a_listed_image_that_is_missing_is_reported(tmp_path: Path) -> None:
    brca(tmp_path, "3 35 1\n")
    (tmp_path / "brca_ds_train.txt").write_text(
        "TCGA-A7-A0DA-01Z-00-DX1_1_1_1000_1000_0.93.png\nTCGA-XX-gone.png\n"
    )
    with pytest.warns(RepairWarning, match=r"TCGA-XX-gone\.png is listed for train but missing"):
        load_dataset("brca_m2c", tmp_path, split="train")


@pytest.mark.parametrize("value", [7, 200])
def test_a_mask_of_zheng_with_strange_values_is_an_error(tmp_path: Path, value: int) -> None:
    small_datasets.image(tmp_path / "Dataset 1" / "001.bmp")
    pixels = np.where(small_datasets.instances() > 0, 255, 0).astype(np.uint8)
    pixels[0, 0] = value
    small_datasets.mask(tmp_path / "Dataset 1" / "001.png", pixels)
    with pytest.raises(FormatError, match=f"has the value {value}"):
        load_dataset("wbc_zheng", tmp_path)


def test_a_mask_of_zheng_without_a_nucleus_is_an_error(tmp_path: Path) -> None:
    small_datasets.image(tmp_path / "Dataset 1" / "001.bmp")
    small_datasets.mask(
        tmp_path / "Dataset 1" / "001.png", np.where(small_datasets.instances() > 0, 128, 0).astype(np.uint8)
    )
    with pytest.raises(FormatError, match="without a nucleus"):
        load_dataset("wbc_zheng", tmp_path)


def test_an_unknown_split_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="split is 'val'; give one of train, validation, test"):
        load_dataset("tnbc", tmp_path, split="val")  # type: ignore[arg-type]


def test_a_missing_split_is_an_error_that_lists_the_others(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 1)
    with pytest.raises(DataNotFoundError, match="no images for 'test', only train"):
        load_dataset("cpm15", tmp_path, split="test")


def test_a_good_set_gives_no_warning(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset("cpm15", tmp_path)
    assert repr(dataset) == "Dataset(cpm15: 2 images of 2 patients, 6 nucleus)"
