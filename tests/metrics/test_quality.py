"""Quality expected from held-out marks."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.metrics import Evidence, ScoreHistogram, expected_quality, match_points
from sparseshot.metrics.counts import Interval

NOWHERE = np.empty(0, object)


def tissue(seed: int, *, pairs: float) -> tuple[Cells, Cells]:
    """Return cells, a share of them in touching pairs of which one detection is found, and what is found."""
    random = np.random.default_rng(seed)
    middles = np.array([[x, y] for x in range(0, 600, 20) for y in range(0, 600, 20)], float)
    paired = random.random(len(middles)) < pairs
    turn = random.uniform(0, 2 * np.pi, len(middles))
    half = 2.2 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    cells = np.concatenate([middles[~paired], middles[paired] - half[paired], middles[paired] + half[paired]])
    seen = middles[random.random(len(middles)) < 0.85]
    false = random.uniform(0, 600, (150, 2)) // 20 * 20 + 10
    found = np.concatenate([seen + random.normal(0, 0.5, seen.shape), false])
    return Cells(cells, mpp=1.0), Cells(found, score=np.full(len(found), 0.9), mpp=1.0)


def truth_of(cells: Cells, found: Cells) -> tuple[float, float]:
    pairs = len(match_points(cells.xy, found.xy, radius=3.0).truth)
    return pairs / len(cells), pairs / len(found)


def drawn(cells: Cells, found: Cells, rows: NDArray[np.intp], squares: int = 10) -> Evidence:
    """Return the evidence of some marks, in places of 60 µm."""
    place = np.floor(cells.xy[rows] / (600 / squares)).astype(int) @ [1, 1000]
    return reduce(
        add, (Evidence.of_cells(found, cells[rows[place == each]], NOWHERE) for each in np.unique(place))
    )


def test_a_detection_that_two_cells_share_is_not_counted_for_both() -> None:
    """The more marks, the narrower an interval around the wrong value, if a neighbour's detection counts."""
    cells, found = tissue(0, pairs=0.15)
    recall, _ = truth_of(cells, found)
    held = []
    for seed in range(40):
        rows = np.sort(np.random.default_rng(seed).permutation(len(cells))[:400])
        quality = expected_quality(drawn(cells, found, rows), 0.5)
        assert quality is not None
        held.append(quality.recall.low <= recall <= quality.recall.high)
    assert np.mean(held) >= 0.85


def test_more_marks_tell_more_and_those_of_one_place_less() -> None:
    cells, found = tissue(0, pairs=0)
    widths = []
    for marks in (10, 100, 500):
        rows = np.sort(np.random.default_rng(1).permutation(len(cells))[:marks])
        quality = expected_quality(drawn(cells, found, rows), 0.5)
        assert quality is not None
        assert quality.marks == marks
        assert 0 <= quality.recall.low <= quality.recall.value <= quality.recall.high <= 1
        widths.append(quality.recall.high - quality.recall.low)
    assert widths[0] > widths[1] > widths[2]
    together = expected_quality(drawn(cells, found, rows, squares=1), 0.5)
    assert together is not None
    assert together.recall.high - together.recall.low > widths[2]


def test_precision_is_counted_in_exhaustive_regions_and_unknown_without() -> None:
    cells, found = tissue(3, pairs=0.1)
    recall, precision = truth_of(cells, found)
    regions = np.array([shapely.box(0, 0, 300, 600)], object)
    inside = cells[cells.xy[:, 0] < 300]
    quality = expected_quality(Evidence.of_cells(found, inside, regions), 0.5)
    assert quality is not None
    assert quality.precision is not None
    assert quality.f1 is not None
    assert quality.recall.low < recall < quality.recall.high
    assert quality.precision.low < precision < quality.precision.high
    expected = quality.cells(len(found))
    assert expected is not None
    assert expected[1] < len(cells) < expected[2]
    assert f"and {quality.certain} predictions in exhaustive regions" in quality.sentence()
    alone = expected_quality(Evidence.of_cells(found, inside, NOWHERE), 0.5)
    assert alone is not None
    assert (alone.precision, alone.f1, alone.cells(100), alone.certain) == (None, None, None, 0)
    assert alone.sentence().endswith("only an exhaustive region tells")


def test_an_outline_is_found_with_an_iou_of_one_half_at_its_threshold_alone() -> None:
    true = np.array([shapely.box(x, 0, x + 10, 10) for x in range(0, 1000, 20)], object)
    moved = shapely.transform(true[10:], lambda xy: xy + np.array([2, 0]))  # IoU 0.67
    far = shapely.transform(true[:10], lambda xy: xy + np.array([0, 6]))  # IoU 0.25, centres 6 px apart
    outline = np.concatenate([far, moved])
    centres = shapely.get_coordinates(shapely.centroid(outline))
    found = Cells(centres, outline=outline, score=np.full(50, 0.8), mpp=0.25)
    marks = Cells(shapely.get_coordinates(shapely.centroid(true)), outline=true, mpp=0.25)
    evidence = replace(Evidence.of_cells(found, marks, NOWHERE), only_at=0.37)
    quality = expected_quality(evidence, 0.37)
    assert quality is not None
    assert quality.recall.value == pytest.approx(0.8, abs=0.02)
    assert expected_quality(evidence, 0.45) is None


def test_nothing_is_known_without_marks() -> None:
    assert expected_quality(Evidence(), 0.5) is None
    scores = ScoreHistogram.of([0.0, 0.1])
    missed = Evidence(hits=scores, own_hits=scores)
    assert expected_quality(missed, 0.5) is None
    assert expected_quality(missed, 0.05) is not None
    assert expected_quality(replace(missed, held_out=False), 0.05) is None, "marks it has learned say little"


def test_evidence_adds_up() -> None:
    one = Evidence(ScoreHistogram.of([0.5] * 10), marks=10, alike=100)
    two = one + replace(one, held_out=False)
    assert (two.marks, two.of_marks.total, two.alike, two.held_out) == (20, 20, 200, False)
    assert Evidence(interval=Interval(0.1, 0.7)).is_uncertain
    assert not Evidence(interval=Interval(0.1, 0.5)).is_uncertain
