"""How right a model is, and what can be known of it when the truth is sparse too."""

from sparseshot.metrics.counts import Counts, exclusive_recall, f1_score, mask_counts
from sparseshot.metrics.matching import Matching, counts_by_class, exclusive_counts, match_cells, match_points

__all__ = [
    "Counts",
    "Matching",
    "counts_by_class",
    "exclusive_counts",
    "exclusive_recall",
    "f1_score",
    "mask_counts",
    "match_cells",
    "match_points",
]
