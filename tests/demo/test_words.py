"""What is said follows the numbers, whichever way they fall."""

from dataclasses import replace

import pytest

from sparseshot.demo.judging import LossNumbers, Numbers, Score
from sparseshot.demo.words import comparison, lead


def score(f1: float) -> Score:
    return Score(0.5, f1, 0.9, f1, f1, 80, 20, 5)


def loss(title: str, half: float, calibrated: float) -> LossNumbers:
    return LossNumbers(title, score(half), replace(score(calibrated), threshold=0.07), None, 1.0, 1.0, None)


def numbers(plain: tuple[float, float], *others: tuple[float, float], quick: bool = False) -> Numbers:
    losses = {"ce": loss("Cross-entropy", *plain)}
    losses |= {f"other{i}": loss(f"Other {i}", *pair) for i, pair in enumerate(others)}
    return Numbers(quick, (100, 100), 0.25, 1000, 200, losses, 1.0, False, {}, {})


@pytest.mark.parametrize(
    ("plain", "other", "said"),
    [
        ((0.0, 0.9), (0.8, 0.93), "Other 0 is ahead: 0.93."),
        ((0.0, 0.93), (0.8, 0.935), "Other 0 is as good, no better: "),
        ((0.0, 0.93), (0.8, 0.925), "Other 0 is as good, no better: "),
        ((0.0, 0.95), (0.8, 0.9), "Other 0 is behind: 0.90."),
    ],
)
def test_the_calibrated_comparison_is_honest(
    plain: tuple[float, float], other: tuple[float, float], said: str
) -> None:
    _, calibrated = comparison(numbers(plain, other))
    assert f"cross-entropy comes to F1 {plain[1]:.2f}. {said}" in calibrated


def test_a_reason_is_given_only_for_what_happened() -> None:
    worse, _ = comparison(numbers((0.0, 0.9), (0.8, 0.9)))
    same, _ = comparison(numbers((0.8, 0.9), (0.8, 0.9)))
    assert "finds 0\N{NO-BREAK SPACE}% of the cells, other 0 80\N{NO-BREAK SPACE}%" in worse
    assert "taught" in worse
    assert "taught" not in same


def test_three_losses_and_the_quick_demo() -> None:
    told = numbers((0.0, 0.9), (0.8, 0.95), (0.85, 0.8), quick=True)
    first, _, calibrated = comparison(told)
    assert "not how well" in first
    assert "Other 0 is ahead: 0.95. Other 1 is behind: 0.80." in calibrated
    assert "three losses" in lead(told)
