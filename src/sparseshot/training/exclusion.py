"""Watching what a loss excludes: how much, and in simulations how rightly."""

from torch import Tensor

from sparseshot.losses import excluded_share, warn_of_runaway
from sparseshot.training.crops import Batch

RUNAWAY = 0.9
"""Share of the unannotated locations above which exclusion is taken to feed itself."""


class ExclusionWatch:
    """Tells the excluded share step by step; warns once if it runs away."""

    def __init__(self) -> None:
        self._warned = False

    def tell(self, excluded: Tensor | None, batch: Batch) -> dict[str, float | None]:
        """Tell the share of unannotated locations excluded and, where the truth is known, how rightly.

        Precision is the share of excluded locations that hold a hidden cell, recall the share of
        hidden cells' locations that were excluded. The true share of marks is that of the batch.
        """
        if excluded is None:
            return {}
        share = excluded_share(excluded, batch.target, annotated=batch.annotated)
        if share > RUNAWAY and not self._warned:
            self._warned = True
            warn_of_runaway(share, limit=RUNAWAY)
        if batch.truth is None:
            return {"excluded": share}
        hidden = ~batch.annotated & (batch.target >= 0) & (batch.truth > 0)
        return {
            "excluded": share,
            "exclusion_precision": _share(hidden, excluded),
            "exclusion_recall": _share(excluded, hidden),
            "true_marked_share": _share(batch.target > 0, batch.truth > 0),
        }


def _share(part: Tensor, whole: Tensor) -> float | None:
    total = int(whole.sum())
    return None if total == 0 else float((part & whole).sum()) / total
