"""What a loss took the share of marked cells for, beside what it was."""

from typing import NamedTuple

from sparseshot.experiments.folders import LOG
from sparseshot.experiments.results import Result
from sparseshot.training.logs import numbers_of, read_log


class Estimate(NamedTuple):
    """How much was marked, and what a loss took it for.

    Attributes:
        true: share of the cells in the crops of the last half of training.
        found: the last estimate of it.
        alpha: the weight of the unannotated part that followed.
    """

    true: float
    found: float
    alpha: float


def read_estimate(result: Result) -> Estimate | None:
    """Read the estimate of a run from its log; None where the loss makes none."""
    log = read_log(result.folder / LOG)
    columns = ("true_marked_share", "marked_share", "alpha")
    true, found, alpha = (numbers_of(log, column) for column in columns)
    if not (true and found and alpha):
        return None
    late = true[len(true) // 2 :]
    return Estimate(sum(late) / len(late), found[-1], alpha[-1])
