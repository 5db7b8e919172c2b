import re
from pathlib import Path

import pytest

from sparseshot.datasets.catalogue import CATALOGUE, SPLITS, DatasetInfo, dataset_info
from sparseshot.errors import FormatError, InputError

NINE_OF_THE_PAPER = {
    "consep",
    "cpm15",
    "cpm17",
    "crchisto",
    "kumar",
    "monuseg",
    "wbc_nuclick",
    "tnbc",
    "til",
}
each = pytest.mark.parametrize("info", CATALOGUE.values(), ids=list(CATALOGUE))


def test_the_nine_sets_of_the_paper_and_the_others_are_there() -> None:
    others = {"brca_m2c", "monusac", "cryonuseg", "wbc_zheng", "dsb2018", "sbu_miccai"}
    assert set(CATALOGUE) == NINE_OF_THE_PAPER | others


@each
def test_every_entry_says_what_one_must_know(info: DatasetInfo) -> None:
    assert info.licence
    assert info.citation
    assert info.splits.source
    assert info.published is not None
    assert info.published.images > 0
    assert info.page.startswith("https://") or info.licence == "private"
    assert info.mpp is None or 0.1 < info.mpp < 1


@each
def test_every_template_names_the_image_and_no_word_comes_from_nowhere(info: DatasetInfo) -> None:
    for part in info.parts:
        words = set(re.findall(r"\{(\w+)\}", part.images))
        assert "name" in words
        for labels in part.labels:
            assert "name" in re.findall(r"\{(\w+)\}", labels)
            assert set(re.findall(r"\{(\w+)\}", labels)) <= words


@each
def test_every_kind_of_labels_has_a_reader(info: DatasetInfo) -> None:
    from sparseshot.datasets.labels import READERS

    assert {part.reader for part in info.parts} <= set(READERS)


@each
def test_expected_parts_are_parts_and_add_up(info: DatasetInfo) -> None:
    parts = {part.name or part.split for part in info.parts} | set(info.splits.names) | set(info.splits.lists)
    assert set(info.expected) <= parts
    if info.expected and info.published is not None:
        assert sum(count.images for count in info.expected.values()) == info.published.images


@each
def test_splits_are_splits(info: DatasetInfo) -> None:
    rules = (info.splits.names, info.splits.lists, info.splits.without_test)
    assert {split for rule in rules for split in rule} <= set(SPLITS)


@each
def test_what_can_be_fetched_has_a_checksum_or_says_that_it_has_none(info: DatasetInfo) -> None:
    if info.archive is not None:
        assert info.archive.address.startswith("https://")
        assert info.archive.md5 is None or re.fullmatch("[0-9a-f]{32}", info.archive.md5)
        assert Path(info.archive.file).name == info.archive.file


@pytest.mark.parametrize("name", ["tnbc", "TNBC", " tnbc ", "Tnbc"])
def test_a_name_may_be_spelt_as_people_do(name: str) -> None:
    assert dataset_info(name).name == "tnbc"


def test_an_unknown_name_lists_the_known_with_the_nearest() -> None:
    with pytest.raises(InputError, match="no data set 'monusag'; did you mean 'monuseg'"):
        dataset_info("monusag")


def test_every_set_tells_where_to_get_it_and_where_to_put_it() -> None:
    assert dataset_info("kumar").how_to_get("data") == (
        "get it from https://drive.google.com/drive/folders/1l55cv3DuY-f7-JotDN7N5nbNnjbLWchK, "
        "and put it so that data/train/Images/{name}.tif and data/train/Labels/{name}.mat exist"
    )
    assert (
        dataset_info("tnbc").how_to_get("data").startswith("run sparseshot data fetch tnbc, or get it from")
    )


OWN = (
    '[ours]\n{0}\n[[ours.parts]]\nimages = "a/{{name}}.png"\n{1}\n[ours.splits]\nsource = "by patient"\n{2}\n'
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            OWN.format("mppp = 0.25", 'labels = ["b"]', ""),
            "[ours]: there is no key 'mppp'; did you mean 'mpp'?",
        ),
        (OWN.format("", "", ""), "[[ours.parts]] 1: there is no labels here; add labels ="),
        (OWN.format("", 'labels = ["b"]\nmask = 1', ""), "[[ours.parts]] 1: there is no key 'mask'"),
        (OWN.format("", 'labels = "b"', ""), "[[ours.parts]] 1: labels is 'b'; write it as a list"),
        (
            OWN.format("", 'labels = ["b"]', "names = { tarin = [] }"),
            "tarin is 'tarin'; input should be 'train'",
        ),
        (OWN.format("expected.train.image = 3", 'labels = ["b"]', ""), "Known are images, cells"),
        ('[ours]\nparts = []\nsplits = { source = "x" }\n', "[ours] has no parts; add [[ours.parts]]"),
        ("ours = 3\n", "ours is 3; write it as a table: [ours]"),
    ],
)
def test_a_wrong_catalogue_file_is_told_in_a_sentence(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "sets.toml").write_text(text)
    with pytest.raises(FormatError, match=re.escape(problem)) as caught:
        dataset_info(f"{tmp_path / 'sets.toml'}:ours")
    assert "keyword argument" not in str(caught.value)
