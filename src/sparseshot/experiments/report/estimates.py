"""Estimates of the share of marked cells, beside the true share."""

from sparseshot.experiments.folders import LOG
from sparseshot.experiments.results import Result
from sparseshot.training.logs import numbers_of, read_log


def read_estimate(result: Result) -> dict[str, float] | None:
    """Return the estimated share of marked cells at the end of a run; None if its loss makes none.

    ``true`` is the share in the crops of the last half of training, ``found`` the last estimate, and
    ``alpha`` the weight of the unannotated part that follows from it.
    """
    log = read_log(result.folder / LOG)
    columns = ("true_marked_share", "marked_share", "alpha")
    true, found, alpha = (numbers_of(log, column) for column in columns)
    if not (true and found and alpha):
        return None
    late = true[len(true) // 2 :]
    return {"true": sum(late) / len(late), "found": found[-1], "alpha": alpha[-1]}
