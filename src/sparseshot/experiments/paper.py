"""The paper's own numbers, as its figures and tables print them."""

import json
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from sparseshot.errors import InputError, unknown_name

_NUMBERS = json.loads(files(__package__).joinpath("paper_results.json").read_text(encoding="utf-8"))

TABLES: tuple[str, ...] = tuple(_NUMBERS["tables"])
"""Names of its three tables."""

REPLACED: Mapping[str, str] = MappingProxyType({"wbc_zheng": "wbc_nuclick", "brca_m2c": "til"})
"""Public data sets of the catalogue, and the paper's own, which they replace because it is not public."""


def paper_source() -> str:
    """Return the citation, and how the numbers were taken from the paper."""
    return str(_NUMBERS["source"])


def paper_curve(dataset: str, task: str, loss: str) -> Mapping[float, float] | None:
    """Return the paper's Dice or F1 by the fraction of the marks; None if it has no such curve.

    >>> paper_curve("tnbc", "segment", "ce")[0.3]
    0.43
    """
    curves = _NUMBERS["curves"][task].get(REPLACED.get(dataset, dataset), {})
    if loss not in curves:
        return None
    return MappingProxyType(dict(zip(_NUMBERS["fractions"], curves[loss], strict=True)))


def paper_table(name: str) -> Mapping[str, Mapping[float, float]]:
    """Return a table of the paper: the numbers of each row by the fraction of the marks.

    The table of exclusive recall has only one fraction, 1.0: all marks of a set that is itself sparse.

    >>> paper_table("annealing")["sigmoid"]
    {0.3: 0.74, 0.6: 0.8}
    """
    if name not in TABLES:
        raise InputError(unknown_name("table of the paper", name, TABLES))
    rows = _NUMBERS["tables"][name].items()
    return {row: {float(fraction): value for fraction, value in values.items()} for row, values in rows}
