from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.datasets import small_datasets

from sparseshot.datasets import Dataset, Sample, load_dataset
from sparseshot.datasets.catalogue import dataset_info
from sparseshot.datasets.layout import Entry
from sparseshot.datasets.loading import load_sample
from sparseshot.errors import FormatError, InputError, RepairWarning


def cells_in(dataset: Dataset) -> int:
    return sum(len(sample.cells) for sample in dataset)


def one(name: str, root: Path) -> Sample:
    (sample,) = load_dataset(name, root).samples
    return sample


def assert_has_the_three_cells(sample: Sample) -> None:
    np.testing.assert_allclose(np.sort(sample.cells.xy, axis=0), np.sort(small_datasets.CENTRES, axis=0))
    assert sample.size == small_datasets.SIZE
    assert sample.read().shape == (small_datasets.SIZE[1], small_datasets.SIZE[0], 3)
    assert sample.cells.mpp == sample.mpp
    if sample.cells.outline is not None:
        assert [outline.area for outline in sample.cells.outline] == [24.0] * 3


def median_diameter_um(sample: Sample) -> float:
    assert sample.cells.outline is not None
    return float(np.median(2 * np.sqrt(shapely.area(sample.cells.outline) / np.pi))) * sample.mpp


# The sets that are in the real data, with their exact numbers.


@pytest.mark.parametrize(
    ("split", "images", "cells"), [("train", 30, 2155), ("validation", 7, 1002), ("test", 13, 871)]
)
def test_tnbc(real_data: Path, split: str, images: int, cells: int) -> None:
    dataset = load_dataset("tnbc", real_data, split=split)  # type: ignore[arg-type]
    assert (len(dataset), cells_in(dataset), dataset.left_out) == (images, cells, ())
    assert dataset.classes == ("nucleus",)
    sample = dataset.samples[0]
    assert sample.read().shape == (512, 512, 3)
    assert sample.cells.outline is not None


def test_tnbc_has_4028_nuclei_with_and_without_the_instance_labels(real_data: Path, tmp_path: Path) -> None:
    assert cells_in(load_dataset("tnbc", real_data)) == 4028
    (tmp_path / "TNBC_NucleiSegmentation").symlink_to(real_data / "tnbc" / "TNBC_NucleiSegmentation")
    published = load_dataset("tnbc", tmp_path)
    assert (len(published), cells_in(published)) == (50, 4028)


def test_monuseg_has_16957_nuclei(real_data: Path) -> None:
    dataset = load_dataset("monuseg", real_data)
    assert (len(dataset), cells_in(dataset)) == (30, 16957)
    train, test = (load_dataset("monuseg", real_data, split=split) for split in ("train", "test"))
    assert (len(train), cells_in(train)) == (20, 12355)
    assert (len(test), cells_in(test)) == (10, 4602)


def test_monuseg_from_xml_and_from_label_masks_agree(real_data: Path, tmp_path: Path) -> None:
    from sparseshot.cells import rasterise

    folder = real_data / "monuseg"
    for xml in (folder / "MoNuSegTrainingData" / "Annotations").glob("*.xml"):
        place = tmp_path / "MoNuSegTrainingData"
        for kind, name in (("Annotations", xml.name), ("Tissue_Images", f"{xml.stem}.tif")):
            (place / kind).mkdir(parents=True, exist_ok=True)
            (place / kind / name).symlink_to(folder / "MoNuSegTrainingData" / kind / name)
    masks = {sample.name: sample for sample in load_dataset("monuseg", folder)}
    with pytest.warns(RepairWarning, match=r"MoNuSeg: 4 of 4 label files repaired: .*self-crossing outlines"):
        outlines = load_dataset("monuseg", tmp_path)
    assert len(outlines) == len(outlines.mended) == 4
    for sample in outlines:
        other = masks[sample.name]
        assert abs(len(sample.cells) - len(other.cells)) <= 1
        assert 0.245 < sample.mpp < 0.254
        drawn, labelled = (rasterise(each.cells, (1000, 1000)) > 0 for each in (sample, other))
        assert (drawn & labelled).sum() / (drawn | labelled).sum() >= 0.89


def test_brca_m2c_has_30638_cells(real_data: Path) -> None:
    dataset = load_dataset("brca_m2c", real_data)
    assert len(dataset) == 120
    assert dataset.counts() == {"lymphocyte": 5859, "tumour": 16798, "stromal": 7981}
    test = load_dataset("brca_m2c", real_data, split="test")
    assert (len(test), cells_in(test)) == (30, 8858)


def test_monusac_is_read_from_its_slides(real_data: Path) -> None:
    with pytest.warns(RepairWarning, match=r"MoNuSAC: 6 of 6 label files repaired: .*; and 1 more"):
        dataset = load_dataset("monusac", real_data)
    assert dataset.counts() == {"Epithelial": 354, "Lymphocyte": 222, "Neutrophil": 14, "Macrophage": 6}
    assert dataset.groups == ("TCGA-G9-6342", "TCGA-MH-A560")
    first = dataset.samples[0]
    assert first.mpp == pytest.approx(0.252)
    assert first.read().shape == (162, 187, 3)


def test_wbc_zheng_has_one_whole_cell_an_image(real_data: Path) -> None:
    dataset = load_dataset("wbc_zheng", real_data)
    assert [len(sample.cells) for sample in dataset] == [1] * 300
    cells = dataset.samples[0].cells
    assert cells.outline is not None
    assert cells.nucleus is not None
    assert cells.outline[0].buffer(1e-6).contains(cells.nucleus[0])
    assert cells.nucleus[0].area < cells.outline[0].area


def test_dsb2018_has_4550_nuclei_of_about_one_size(real_data: Path) -> None:
    dataset = load_dataset("dsb2018", real_data, split="train")
    assert (len(dataset), cells_in(dataset), dataset.left_out) == (107, 4550, ())
    assert np.median([median_diameter_um(sample) for sample in dataset]) == pytest.approx(7, abs=0.1)


def test_sbu_miccai_has_2235_nuclei_at_two_magnifications(real_data: Path) -> None:
    dataset = load_dataset("sbu_miccai", real_data)
    assert (len(dataset), cells_in(dataset), dataset.left_out) == (18, 2235, ())
    assert {sample.group for sample in dataset if sample.mpp == 0.5} == {"TCGA-08-0518"}
    assert {sample.mpp for sample in dataset} == {0.25, 0.5}
    train, validation = (
        load_dataset("sbu_miccai", real_data, split=part) for part in ("train", "validation")
    )
    assert not set(train.groups) & set(validation.groups)


@pytest.mark.filterwarnings("ignore::sparseshot.errors.RepairWarning")
def test_the_part_of_crchisto_has_points_with_and_without_a_class(real_data: Path) -> None:
    dataset = load_dataset("crchisto", real_data)
    assert (len(dataset), cells_in(dataset), dataset.left_out) == (60, 18891, ())
    assert dataset.counts()["unclassified"] == 3540
    assert len(load_dataset("crchisto", real_data, split="test")) == 20


# The others, in small copies of their publishers' layouts.


def dsb2018(root: Path, scale: int = 1) -> None:
    """Write one image of the set, its nuclei ``scale`` times as wide."""
    pixels = np.kron(small_datasets.instances(), np.ones((scale, scale), np.uint16))
    folder = root / "stage1_train" / "ab12"
    small_datasets.image(folder / "images" / "ab12.png", pixels.shape[::-1])
    for value in np.unique(pixels)[1:]:
        small_datasets.mask(
            folder / "masks" / f"{value}.png", np.where(pixels == value, 255, 0).astype(np.uint8)
        )


def test_dsb2018_is_a_folder_of_masks_for_each_image(tmp_path: Path) -> None:
    dsb2018(tmp_path / "open" / "dsb2018")
    sample = one("dsb2018", tmp_path)
    assert_has_the_three_cells(sample)
    assert sample.cells.counts() == {"nucleus": 3}


@pytest.mark.parametrize("scale", [3, 5])
def test_nuclei_give_dsb2018_a_pixel_size(tmp_path: Path, scale: int) -> None:
    dsb2018(tmp_path, scale)
    assert median_diameter_um(one("dsb2018", tmp_path)) == pytest.approx(7, rel=0.01)


def test_a_folder_of_dsb2018_without_masks(tmp_path: Path) -> None:
    dsb2018(tmp_path)
    for file in (tmp_path / "stage1_train" / "ab12" / "masks").iterdir():
        file.unlink()
    with pytest.raises(FormatError, match="holds no masks"):
        load_dataset("dsb2018", tmp_path)


def test_a_mask_of_dsb2018_of_another_size(tmp_path: Path) -> None:
    dsb2018(tmp_path)
    mask = tmp_path / "stage1_train" / "ab12" / "masks" / "301.png"
    small_datasets.mask(mask, np.zeros((5, 7), np.uint8))
    with pytest.raises(FormatError, match=r"301\.png: is 7 × 5, its image 40 × 30"):
        load_dataset("dsb2018", tmp_path)


@pytest.mark.parametrize(("scale", "mpp"), [(1, 0.5), (4, 0.25)])
def test_sbu_miccai_has_masks_beside_images(tmp_path: Path, scale: int, mpp: float) -> None:
    folder = tmp_path / "sbu_miccai" / "segmentation_test_images" / "miccai15"
    pixels = np.kron(small_datasets.instances(), np.ones((scale, scale), np.uint16))
    small_datasets.image(folder / "TCGA-08-0518-01_1_2.png", pixels.shape[::-1])
    small_datasets.mask(folder / "TCGA-08-0518-01_1_2_mask.png", pixels)
    sample = one("sbu_miccai", tmp_path)
    assert (len(sample.cells), sample.group, sample.mpp) == (3, "TCGA-08-0518", mpp)


def test_an_image_above_the_limit_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_datasets.cpm15(tmp_path, 1)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow alone would refuse 1200 pixels
    assert_has_the_three_cells(one("cpm15", tmp_path))


def test_consep(tmp_path: Path) -> None:
    for part, types in (("Train", (2, 2, 7)), ("Test", (1, 3, 5))):
        small_datasets.image(tmp_path / "CoNSeP" / part / "Images" / f"{part.lower()}_1.png")
        small_datasets.hovernet(tmp_path / "CoNSeP" / part / "Labels" / f"{part.lower()}_1.mat", types)
    train = load_dataset("consep", tmp_path, split="train")
    assert_has_the_three_cells(train.samples[0])
    assert {name: count for name, count in train.counts().items() if count} == {
        "inflammatory": 2,
        "endothelial": 1,
    }
    assert len(train.classes) == 7
    assert load_dataset("consep", tmp_path, split="test").samples[0].name == "test_1"


@pytest.mark.parametrize(
    ("name", "images", "labels"),
    [
        ("cpm15", "Images/image_03.png", "Labels/image_03.mat"),
        ("cpm17", "train/Images/image_03.png", "train/Labels/image_03.mat"),
        (
            "kumar",
            "test_diff/Images/TCGA-AY-A8YK-01A-01-TS1.tif",
            "test_diff/Labels/TCGA-AY-A8YK-01A-01-TS1.mat",
        ),
    ],
)
def test_hovernet_layouts_without_types(name: str, images: str, labels: str, tmp_path: Path) -> None:
    small_datasets.image(tmp_path / images)
    small_datasets.hovernet(tmp_path / labels)
    sample = one(name, tmp_path)
    assert_has_the_three_cells(sample)
    assert sample.cells.counts() == {"nucleus": 3}


def test_the_test_images_of_monuseg(tmp_path: Path) -> None:
    small_datasets.image(tmp_path / "MoNuSegTestData" / "TCGA-2Z-A9J9-01A-01-TS1.tif")
    small_datasets.aperio(tmp_path / "MoNuSegTestData" / "TCGA-2Z-A9J9-01A-01-TS1.xml")
    (sample,) = load_dataset("monuseg", tmp_path, split="test").samples
    assert_has_the_three_cells(sample)
    assert sample.mpp == 0.2468


def test_wbc_nuclick(tmp_path: Path) -> None:
    small_datasets.image(tmp_path / "Hemato_Data" / "Train" / "images" / "img (1).png")
    small_datasets.mask(
        tmp_path / "Hemato_Data" / "Train" / "masks" / "img (1)_mask.png",
        small_datasets.instances().astype(np.uint8),
    )
    sample = one("wbc_nuclick", tmp_path)
    assert_has_the_three_cells(sample)
    assert sample.cells.classes == ("white blood cell",)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("tissue images", "Annotator 1 (biologist)/label masks modify/Human_Larynx_03.tif"),
        ("image", "label/Human_Larynx_03.png"),
    ],
)
def test_cryonuseg(tmp_path: Path, images: str, labels: str) -> None:
    small_datasets.image(tmp_path / images / "Human_Larynx_03.tif")
    small_datasets.mask(tmp_path / labels)
    (sample,) = load_dataset("cryonuseg", tmp_path, split="test").samples
    assert_has_the_three_cells(sample)


def test_crchisto_takes_classes_from_the_second_part_and_keeps_the_others(tmp_path: Path) -> None:
    one_based = np.array(small_datasets.CENTRES) + 0.5
    small_datasets.image(tmp_path / "Detection" / "img7" / "img7.bmp")
    small_datasets.mat(tmp_path / "Detection" / "img7" / "img7_detection.mat", detection=one_based)
    for kind, rows in (("epithelial", [1]), ("fibroblast", []), ("inflammatory", [0]), ("others", [])):
        points = one_based[rows] + 0.25  # clicked again, a hair beside
        small_datasets.mat(tmp_path / "Classification" / "img7" / f"img7_{kind}.mat", detection=points)
    sample = one("crchisto", tmp_path)
    assert sample.cells.counts() == {
        "epithelial": 1,
        "fibroblast": 0,
        "inflammatory": 1,
        "others": 0,
        "unclassified": 1,
    }
    unclassified = sample.cells[sample.cells.label == -1]
    np.testing.assert_allclose(unclassified.xy, [small_datasets.CENTRES[2]])
    np.testing.assert_allclose(sample.cells.of_class("inflammatory").xy, [small_datasets.CENTRES[0]])


def test_crchisto_has_as_many_cells_as_its_detection_file(tmp_path: Path) -> None:
    at_the_edge = [(0.2, 7.0), (40.4, 30.4)]  # counted from 1, so that the image begins at 0.5
    one_based = np.array([*small_datasets.CENTRES, *at_the_edge])
    small_datasets.image(tmp_path / "Detection" / "img7" / "img7.bmp")
    small_datasets.mat(tmp_path / "Detection" / "img7" / "img7_detection.mat", detection=one_based)
    for kind in ("epithelial", "fibroblast", "inflammatory", "others"):
        points = np.array([(8.0, 24.0), one_based[0]]) if kind == "others" else np.empty((0, 2))
        small_datasets.mat(tmp_path / "Classification" / "img7" / f"img7_{kind}.mat", detection=points)
    with pytest.warns(RepairWarning, match="1 classified point without a detected nucleus left out"):
        sample = one("crchisto", tmp_path)
    assert sample.cells.counts()["others"] == 1
    np.testing.assert_allclose(sample.cells.xy[-2:], [(0, 6.5), (39.9, 29.9)])


def test_crchisto_without_its_second_part_has_points_without_a_class(tmp_path: Path) -> None:
    small_datasets.image(tmp_path / "Detection" / "img1" / "img1.bmp")
    small_datasets.mat(
        tmp_path / "Detection" / "img1" / "img1_detection.mat",
        detection=np.array(small_datasets.CENTRES) + 0.5,
    )
    sample = one("crchisto", tmp_path)
    assert_has_the_three_cells(sample)
    assert sample.cells.counts()["unclassified"] == 3


def test_labels_in_micrometres(tmp_path: Path) -> None:
    Image.new("RGB", (60, 40)).save(tmp_path / "a.png")
    (tmp_path / "a.csv").write_text("x_um,y_um\n5,10\n")
    entry = Entry("a", tmp_path / "a.png", tmp_path / "a.csv", "any", "a", part="", split=None)
    info = replace(dataset_info("tnbc"), mpp=0.5)
    assert load_sample(entry, info).cells.xy.tolist() == [[10, 20]]


def test_til_takes_slides_marks_and_lists(tmp_path: Path) -> None:
    marks = {"p1_a": ("lymphocyte", "tumour"), "p2_a": ("fibroblast", "lymphocyte", "lymphocyte")}
    for name, classes in marks.items():
        small_datasets.slide(tmp_path / "slides" / f"{name}.tif", mpp=0.5)
        small_datasets.qupath(tmp_path / "marks" / f"{name}.geojson", classes)
    (tmp_path / "train.txt").write_text("p1_a.tif\n")
    (tmp_path / "test.txt").write_text("p2_a\n")
    dataset = load_dataset("til", tmp_path)
    assert dataset.classes == ("lymphocyte", "tumour", "fibroblast")
    assert dataset.counts() == {"lymphocyte": 3, "tumour": 1, "fibroblast": 1}
    assert {sample.group: sample.mpp for sample in dataset} == {"p1": 0.5, "p2": 0.5}
    assert dataset.mpp == 0.5
    (train,) = load_dataset("til", tmp_path, split="train").samples
    assert train.name == "p1_a"


# Patients.


def test_held_out_patients_are_whole_nested_and_do_not_move_when_an_image_is_missing(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 10)
    dataset = load_dataset("cpm15", tmp_path, split="train")
    train, held = dataset.hold_out(0.3)
    assert (len(train), len(held)) == (7, 3)
    assert set(train.groups) | set(held.groups) == set(dataset.groups)
    assert set(held.groups) < set(dataset.hold_out(0.5)[1].groups)
    assert set(held.groups) != set(dataset.hold_out(0.3, seed=1)[1].groups)
    gone = train.samples[0]
    gone.image.unlink()
    fewer = load_dataset("cpm15", tmp_path, split="train")
    assert set(fewer.hold_out(0.3)[1].groups) == set(held.groups)


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_both_sides_of_holding_out_have_a_patient(tmp_path: Path, fraction: float) -> None:
    small_datasets.cpm15(tmp_path, 2)
    assert [len(side) for side in load_dataset("cpm15", tmp_path).hold_out(fraction)] == [1, 1]


@pytest.mark.parametrize("fraction", [0, 1, 1.2, float("nan")])
def test_holding_out_nothing_or_all_is_an_error(tmp_path: Path, fraction: float) -> None:
    small_datasets.cpm15(tmp_path, 2)
    with pytest.raises(InputError, match="share of patients"):
        load_dataset("cpm15", tmp_path).hold_out(fraction)


def test_one_patient_cannot_be_held_out(tmp_path: Path) -> None:
    small_datasets.cpm15(tmp_path, 1)
    with pytest.raises(InputError, match="takes at least two"):
        load_dataset("cpm15", tmp_path).hold_out(0.5)
