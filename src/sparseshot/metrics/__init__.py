"""Scores of a model against complete or sparse ground truth."""

from sparseshot.metrics.counts import (
    Counts,
    Interval,
    bootstrap_interval,
    exclusive_recall,
    f1_score,
    mask_counts,
    wilson_interval,
)
from sparseshot.metrics.curves import ScoredHits, mark_scores, scored_hits
from sparseshot.metrics.kind_counts import KindCounts, KindScores, kind_scores
from sparseshot.metrics.matching import Matching, counts_by_class, exclusive_counts, match_cells, match_points
from sparseshot.metrics.overlaps import (
    AreaCounts,
    Overlaps,
    area_counts,
    overlaps_of_labels,
    overlaps_of_outlines,
)
from sparseshot.metrics.quality import Evidence, ExpectedQuality, expected_quality
from sparseshot.metrics.threshold import Calibration, ScoreHistogram, calibrate_threshold

__all__ = [
    "AreaCounts",
    "Calibration",
    "Counts",
    "Evidence",
    "ExpectedQuality",
    "Interval",
    "KindCounts",
    "KindScores",
    "Matching",
    "Overlaps",
    "ScoreHistogram",
    "ScoredHits",
    "area_counts",
    "bootstrap_interval",
    "calibrate_threshold",
    "counts_by_class",
    "exclusive_counts",
    "exclusive_recall",
    "expected_quality",
    "f1_score",
    "kind_scores",
    "mark_scores",
    "mask_counts",
    "match_cells",
    "match_points",
    "overlaps_of_labels",
    "overlaps_of_outlines",
    "scored_hits",
    "wilson_interval",
]
