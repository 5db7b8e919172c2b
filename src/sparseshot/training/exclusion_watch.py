"""How much a loss excludes, and in simulations how much of that is right."""

from torch import Tensor

from sparseshot.losses import excluded_share, warn_of_runaway
from sparseshot.training.crops import CropBatch

RUNAWAY = 0.9
"""Share of the unannotated locations above which exclusion reinforces itself."""


class ExclusionWatch:
    """Logs the excluded share; warns once if it runs away."""

    def __init__(self) -> None:
        self._warned = False

    def log_values(self, excluded: Tensor | None, batch: CropBatch) -> dict[str, float | None]:
        """Return the excluded share of the unannotated locations and, with a truth, its precision and recall.

        Precision is the share of excluded locations inside an unmarked cell, recall the share of the
        locations inside unmarked cells that were excluded. The true marked share is that of the batch.
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
