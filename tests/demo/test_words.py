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
        ((0.0, 0.9), (0.8, 0.93), "cross-entropy comes closer but stays behind"),
        ((0.0, 0.93), (0.8, 0.935), "cross-entropy is as good"),
        ((0.0, 0.93), (0.8, 0.925), "cross-entropy is as good"),
        ((0.0, 0.95), (0.8, 0.9), "cross-entropy is better"),
        ((0.8, 0.8), (0.8, 0.9), "other 0 is ahead"),
    ],
)
def test_the_comparison_is_honest(plain: tuple[float, float], other: tuple[float, float], said: str) -> None:
    (sentence,) = comparison(numbers(plain, other))
    assert said in sentence
    assert f"F1 {plain[1]:.2f} and {other[1]:.2f}" in sentence
    assert ("taught" in sentence) == (plain[0] < other[0])


def test_three_losses_and_the_quick_demo() -> None:
    sentences = comparison(numbers((0.0, 0.9), (0.8, 0.9), (0.85, 0.9), quick=True))
    assert len(sentences) == 3
    assert "not how well" in sentences[0]
    assert "three losses" in lead(numbers((0, 0), (0, 0), (0, 0)))
