"""Estimates of the share of marked cells, beside the true share."""

from typing import NamedTuple

from sparseshot.experiments.folders import LOG
from sparseshot.experiments.results import Result
from sparseshot.training.logs import numbers_of, read_log


class Estimate(NamedTuple):
    """A true share of marked cells and its estimate.

    Attributes:
        true: share of the marked cells in the crops of the last half of training.
        found: last estimate of it.
        alpha: resulting weight of the unannotated part.
    """

    true: float
    found: float
    alpha: float


def read_estimate(result: Result) -> Estimate | None:
    """Read the estimate of a run from its log; None if the loss makes none."""
    log = read_log(result.folder / LOG)
    columns = ("true_marked_share", "marked_share", "alpha")
    true, found, alpha = (numbers_of(log, column) for column in columns)
    if not (true and found and alpha):
        return None
    late = true[len(true) // 2 :]
    return Estimate(sum(late) / len(late), found[-1], alpha[-1])
