"""Quality expected from held-out marks."""

import numpy as np
import pytest

from sparseshot.metrics import Evidence, ScoreHistogram, expected_quality
from sparseshot.metrics.intervals import Interval


def evidence(marks: int, *, share: float = 0.2, seed: int = 0) -> tuple[Evidence, float, float]:
    """Return evidence from a share of the cells, and the true recall and precision at one half."""
    random = np.random.default_rng(seed)
    cells, others = random.normal(1.5, 1.2, 20_000), random.normal(-3, 1.5, 80_000)
    near, far = cells[: int(marks / share)], others[: int(4 * marks / share)]
    everything = ScoreHistogram.of_logits(np.concatenate([near, far]))
    hits, wrong = (cells > 0).sum(), (others > 0).sum()
    known = Evidence(ScoreHistogram.of_logits(near[:marks]), everything, marks)
    return known, float(hits / len(cells)), float(hits / (hits + wrong))


@pytest.mark.parametrize("marks", [10, 100, 1000])
def test_more_marks_tell_more(marks: int) -> None:
    known, recall, precision = evidence(marks)
    quality = expected_quality(known, 0.5)
    assert quality is not None
    assert quality.marks == marks
    for expected, truth in ((quality.recall, recall), (quality.precision, precision)):
        assert 0 <= expected.low <= expected.value <= expected.high <= 1
        assert expected.low - 0.02 <= truth <= expected.high + 0.02
    width = quality.recall.high - quality.recall.low
    assert width == pytest.approx(2 * 1.645 * np.sqrt(recall * (1 - recall) / marks), rel=0.35)
    cells, low, high = quality.cells(1000)
    assert low < cells < high
    assert low - 20 <= 1000 * precision / recall <= high + 20


def test_in_exhaustive_regions_precision_is_counted() -> None:
    known, _, _ = evidence(100)
    scores = np.repeat([0.9, 0.1], [50, 50])
    right = Evidence(
        known.of_marks,
        known.of_all,
        100,
        certain_marks=ScoreHistogram.of(scores[:30]),
        certain_all=ScoreHistogram.of(scores),
    )
    quality = expected_quality(right, 0.5)
    assert quality is not None
    assert quality.certain == 50
    assert quality.precision.value == pytest.approx(30 / 50, abs=0.01)
    assert "and 50 predictions in exhaustive regions" in quality.sentence()


def test_a_sentence_says_what_it_rests_on() -> None:
    known, _, _ = evidence(212)
    quality = expected_quality(known, 0.5)
    assert quality is not None
    assert quality.sentence().startswith("about 88 % (84–91 %) of the cells are found")
    assert quality.sentence().endswith("from 212 held-out marks")
    seen = expected_quality(Evidence(known.of_marks, known.of_all, 212, held_out=False), 0.5)
    assert seen is not None
    assert seen.sentence().endswith("from 212 marks that were learned from, so it may be worse")


def test_nothing_is_known_without_marks() -> None:
    assert expected_quality(Evidence(), 0.5) is None
    missed = Evidence(ScoreHistogram.of([0.0, 0.1]), ScoreHistogram.of([0.1, 0.9]), 2)
    assert expected_quality(missed, 0.5) is None
    assert expected_quality(missed, 0.05) is not None


def test_pixels_of_a_mark_count_together() -> None:
    known, _, _ = evidence(100)
    fifty = ScoreHistogram(50 * known.of_marks.counts), ScoreHistogram(50 * known.of_all.counts)
    pixels, points = expected_quality(Evidence(*fifty, 100), 0.5), expected_quality(known, 0.5)
    assert pixels == points


def test_evidence_adds_up() -> None:
    one, _, _ = evidence(10)
    two = one + Evidence(one.of_marks, one.of_all, 10, held_out=False)
    assert (two.marks, two.of_marks.total, two.held_out) == (20, 20, False)
    assert Evidence(interval=Interval(0.1, 0.7)).is_uncertain
    assert not Evidence(interval=Interval(0.1, 0.5)).is_uncertain
