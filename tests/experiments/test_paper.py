"""The paper's numbers are complete."""

import pytest

from sparseshot.datasets import CATALOGUE
from sparseshot.errors import InputError
from sparseshot.experiments.paper import REPLACED, TABLES, paper_curve, paper_source, paper_table

TEN = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
WITH_CURVES = ("tnbc", "consep", "cpm15", "cpm17", "crchisto", "kumar", "monuseg", "wbc_nuclick", "wbc_zheng")


@pytest.mark.parametrize("task", ["segment", "detect"])
@pytest.mark.parametrize("dataset", WITH_CURVES)
def test_every_set_has_four_curves_of_ten_points(dataset: str, task: str) -> None:
    for method in ("ece", "ce", "focal", "huber"):
        curve = paper_curve(dataset, task, method)
        assert curve is not None
        assert list(curve) == TEN
        assert all(0 <= value <= 1 for value in curve.values())


def test_curves_are_the_papers() -> None:
    segment, detect = paper_curve("tnbc", "segment", "ece"), paper_curve("wbc_nuclick", "detect", "focal")
    assert segment is not None
    assert list(segment.values()) == [0.73, 0.77, 0.80, 0.82, 0.82, 0.83, 0.82, 0.83, 0.83, 0.82]
    assert detect is not None
    assert list(detect.values()) == [0.08, 0.58, 0.65, 0.84, 0.90, 0.90, 0.90, 1.0, 1.0, 1.0]


def test_a_replacement_has_the_curve_of_what_it_replaces() -> None:
    assert paper_curve("wbc_zheng", "segment", "ce") == paper_curve("wbc_nuclick", "segment", "ce")


@pytest.mark.parametrize(("dataset", "loss"), [("monusac", "ece"), ("tnbc", "nnpu"), ("til", "ce")])
def test_there_is_no_curve_where_the_paper_has_none(dataset: str, loss: str) -> None:
    assert paper_curve(dataset, "segment", loss) is None


def test_tables_are_the_papers() -> None:
    assert paper_table("weak_supervision")["cross_entropy+weak_supervision_tau_0.75"] == {
        0.3: 0.64,
        0.6: 0.68,
    }
    assert {row: values[0.6] for row, values in paper_table("annealing").items()} == {
        "fixed_rho_0.75": 0.70,
        "fixed_rho_0.50": 0.71,
        "linear": 0.73,
        "sigmoid": 0.80,
    }
    assert paper_table("exclusive_recall")["huber"] == {1.0: 0.69}
    assert len(paper_table("weak_supervision")) == 6


def test_an_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=", ".join(TABLES)):
        paper_table("anealing")


def test_the_source_is_named() -> None:
    assert "ICCV 2021" in paper_source()


def test_sets_are_in_the_catalogue() -> None:
    assert {*REPLACED, *REPLACED.values(), *WITH_CURVES} <= set(CATALOGUE)
