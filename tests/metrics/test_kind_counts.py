import numpy as np

from sparseshot.cells import Cells
from sparseshot.metrics import KindCounts, kind_scores


def cells(*names: str, shift: float = 0.0) -> Cells:
    """Cells in a row, a class each."""
    known = tuple(dict.fromkeys(names))
    xy = [[40.0 * i + shift, 0] for i in range(len(names))]
    return Cells(xy, classes=known, label=[known.index(name) for name in names], mpp=0.5)


def test_swapped_kinds_score_nothing_although_every_cell_is_found() -> None:
    scores = kind_scores([KindCounts.of(cells("a", "b", "b"), cells("b", "a", "a", shift=1), ("a", "b"))])
    assert scores.f1 == (0.0, 0.0)
    assert scores.confusion[0][1] == 1
    assert scores.confusion[1][0] == 2


def test_confusion_counts_every_true_and_found_cell_once() -> None:
    truth, found = cells("a", "a", "b", "x"), cells("a", "b", "Other", "a", "a", shift=1)
    scores = kind_scores([KindCounts.of(truth, found, ("a", "b"))])
    confusion = np.array(scores.confusion)
    assert confusion[:-1].sum() == len(truth)
    assert confusion[:, :-1].sum() == len(found)
    assert confusion[0].tolist() == [1, 1, 0, 0]
    assert confusion[2].tolist() == [1, 0, 0, 0]  # another kind, found as a
    assert confusion[3].tolist() == [1, 0, 0, 0]  # nothing there, found as a


def test_intervals_are_over_images() -> None:
    right = KindCounts.of(cells("a", "b"), cells("a", "b"), ("a", "b"))
    wrong = KindCounts.of(cells("a", "b"), cells("b", "b"), ("a", "b"))
    scores = kind_scores([right, wrong, right])
    assert scores.intervals[0][0] < scores.f1[0] < scores.intervals[0][1]
    assert scores.mean_interval[0] < scores.mean_f1 < scores.mean_interval[1]
    assert scores.mean_f1 == np.mean(scores.f1)
