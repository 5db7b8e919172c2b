from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseshot.datasets.catalogue import SPLITS, Split, Splits, dataset_info
from sparseshot.datasets.layout import by_patient, read_lists, split_by_name, with_a_test
from sparseshot.errors import FormatError

LISTS = Splits("lists", names={}, lists={"train": "train.txt", "test": "test.txt"}, without_test={})


def test_lists_are_read_with_or_without_suffix_blank_lines_and_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\ufeffa_0.93.png\n\n  b \r\n", encoding="utf-8")
    (tmp_path / "test.txt").write_text("c.svs")
    found, missing = read_lists(LISTS, tmp_path, ["a_0.93", "b"])
    assert found == {"a_0.93": "train", "b": "train"}
    assert missing == {"c.svs": "test"}


def test_an_image_on_two_lists_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\nb\n")
    (tmp_path / "test.txt").write_text("c\nb\n")
    with pytest.raises(FormatError, match=r"test\.txt: line 2: b is in train\.txt too"):
        read_lists(LISTS, tmp_path, [])


def test_a_list_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        read_lists(LISTS, tmp_path, [])


def test_without_lists_nothing_is_listed(tmp_path: Path) -> None:
    assert read_lists(LISTS, tmp_path, ["a"]) == ({}, {})


def test_without_a_published_test_named_images_become_one() -> None:
    published: dict[str, Split | None] = {"TCGA-E2-A14V-x": "train", "TCGA-A7-A13E-x": "train"}
    used = with_a_test(published, dataset_info("monuseg").splits)
    assert used == {"TCGA-E2-A14V-x": "test", "TCGA-A7-A13E-x": "train"}


def test_without_a_published_test_the_validation_takes_its_place_and_gets_another() -> None:
    published: dict[str, Split | None] = {
        "TCGA-A7-A13E-x": "train",
        "TCGA-A7-A26E-x": "train",
        "TCGA-A8-A06Q-x": "validation",
    }
    used = with_a_test(published, dataset_info("brca_m2c").splits)
    assert list(used.values()) == ["validation", "train", "test"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from((*SPLITS, None)))))
def test_no_patient_is_in_two_splits_and_the_test_loses_nothing(rows: list[tuple[str, Split | None]]) -> None:
    patient_of = {str(number): patient for number, (patient, _) in enumerate(rows)}
    split_of = {str(number): split for number, (_, split) in enumerate(rows)}
    used = by_patient(split_of, patient_of)
    for patient in set(patient_of.values()):
        assert len({used[name] for name in used if patient_of[name] == patient} - {None}) <= 1
    assert {name for name in used if used[name] == "test"} == {
        name for name in split_of if split_of[name] == "test"
    }
    assert all(used[name] in {None, split_of[name]} for name in used)
    lost = {patient_of[name] for name in used if used[name] is None and split_of[name] is not None}
    assert all(
        any(used[name] is not None for name in used if patient_of[name] == patient) for patient in lost
    )


def test_a_name_without_a_pattern_has_no_split() -> None:
    assert split_by_name("x", {"train": ("a*",)}) is None
