"""Intervals of the recall of kinds, and of their shares, hold the truth as often as they say."""

import numpy as np
import pytest

from sparseshot.metrics.kind_quality import KindEvidence

KINDS = ("Other", "a", "b")
TAKEN_FOR = np.array([[0.85, 0.1, 0.05], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])


def drawn(random: np.random.Generator, marks: int, kinds: tuple[int, ...] = (0, 1, 2)) -> KindEvidence:
    truth = np.repeat(kinds, marks)
    given = np.array([random.choice(3, p=TAKEN_FOR[k]) for k in truth])
    return KindEvidence.of(KINDS, truth, given, np.arange(len(truth)))


@pytest.mark.parametrize("marks", [10, 60])
def test_recall_of_independent_marks_is_covered(marks: int) -> None:
    random, held = np.random.default_rng(marks), []
    for _ in range(200):
        for k, share in enumerate(drawn(random, marks).recall().values()):
            held.append(share.low <= TAKEN_FOR[k, k] <= share.high)
    assert 0.86 < np.mean(held) < 0.97


def test_true_shares_are_covered() -> None:
    random, held = np.random.default_rng(0), []
    true = np.array([0.6, 0.1, 0.3])
    found = dict(zip(KINDS, (10_000 * true @ TAKEN_FOR).round().astype(int).tolist(), strict=True))
    for _ in range(40):
        shares = drawn(random, 60).shares(found)
        held += [share.low <= real <= share.high for share, real in zip(shares.values(), true, strict=True)]
    assert 0.8 < np.mean(held) < 0.99


def test_marks_of_one_place_count_for_less() -> None:
    truth, given = np.ones(40, int), np.repeat([1, 0], (30, 10))
    apart, together = (
        KindEvidence.of(KINDS, truth, given, place).recall()["a"]
        for place in (np.arange(40), np.zeros(40, int))
    )
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


def test_nothing_is_claimed_without_marks_of_other() -> None:
    evidence = drawn(np.random.default_rng(0), 30, kinds=(1, 2))
    assert evidence.recall().keys() == {"a", "b"}
    assert evidence.shares({"Other": 10, "a": 10, "b": 10}) == {}
    assert evidence.sentence().endswith("only marks of Other tell")
    few = drawn(np.random.default_rng(0), 4, kinds=(1,))
    assert (few.recall(), few.sentence()) == ({}, "")


def test_json_is_read_back_and_another_size_is_refused() -> None:
    evidence = drawn(np.random.default_rng(0), 10)
    again = KindEvidence.from_json(KINDS, evidence.as_json())
    np.testing.assert_array_equal(again.counts, evidence.counts)
    with pytest.raises(ValueError, match="another size"):
        KindEvidence.from_json(KINDS[:2], evidence.as_json())
