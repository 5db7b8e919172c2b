"""The paper's own numbers, as its figures and tables print them."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sparseshot.errors import InputError

METHODS: Mapping[str, str] = MappingProxyType(
    {"ece": "exclusive_cross_entropy", "ce": "cross_entropy", "focal": "focal", "huber": "huber"}
)
"""The paper's four methods, by the short names of our losses."""

FIGURES: Mapping[str, str] = MappingProxyType({"segment": "segmentation", "detect": "detection"})
"""Its two figures, by task: Dice and F1 over ten fractions of the marks on eight data sets."""

TABLES: Mapping[str, str] = MappingProxyType(
    {
        "weak_supervision": "table_weak_supervision_tnbc_detection_f1",
        "annealing": "table_annealing_tnbc_detection_f1",
        "exclusive_recall": "table_til_exclusive_recall",
    }
)
"""Its three tables."""


SETS: Mapping[str, str] = MappingProxyType(
    {
        "tnbc": "TNBC",
        "consep": "CoNSeP",
        "cpm15": "CPM15",
        "cpm17": "CPM17",
        "crchisto": "CRCHisto",
        "kumar": "Kumar",
        "monuseg": "MoNuSeg",
        "wbc_nuclick": "WBC-NuClick",
        "wbc_zheng": "WBC-NuClick",
        "til": "TIL",
        "brca_m2c": "TIL",
    }
)
"""The paper's names of its data sets, by the names of our catalogue."""

REPLACEMENTS = ("wbc_zheng", "brca_m2c")
"""Our data sets that replace one of the paper's, which is not public."""


def paper_source() -> str:
    """Return the citation, and how the numbers were taken from the paper."""
    source: str = _numbers()["source"]
    return source


def paper_curve(dataset: str, task: str, loss: str) -> Mapping[float, float] | None:
    """Return the paper's Dice or F1 by the fraction of the marks; None if it has no such curve.

    >>> paper_curve("tnbc", "segment", "ce")[0.3]
    0.43
    """
    if dataset not in SETS or loss not in METHODS:
        return None
    figure = _numbers()[FIGURES[task]]
    values = figure["datasets"].get(SETS[dataset], {}).get(METHODS[loss])
    return None if values is None else MappingProxyType(dict(zip(figure["fractions"], values, strict=True)))


def paper_table(name: str) -> Mapping[str, Mapping[float, float]]:
    """Return a table of the paper: the numbers of each row by the fraction of the marks.

    The table of exclusive recall has only one fraction, 1.0: all marks of a set that is itself sparse.

    >>> paper_table("annealing")["sigmoid"]
    mappingproxy({0.3: 0.74, 0.6: 0.8})
    """
    if name not in TABLES:
        raise InputError(f"the paper has no table {name!r}; there are {', '.join(TABLES)}")
    table = _numbers()[TABLES[name]]
    fractions = [float(column) for column in table.get("columns", ["1.0"])]
    return MappingProxyType(
        {
            row: MappingProxyType(
                dict(zip(fractions, values if isinstance(values, list) else [values], strict=True))
            )
            for row, values in table.items()
            if row != "columns"
        }
    )


@cache
def _numbers() -> dict[str, Any]:
    text = files(__package__).joinpath("paper_results.json").read_text(encoding="utf-8")
    numbers: dict[str, Any] = json.loads(text)
    return numbers
