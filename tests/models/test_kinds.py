import warnings

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.errors import InputError, TrainingWarning
from sparseshot.models.kind_head import SURROUNDINGS_UM, mean_around, near_rows, with_surroundings
from sparseshot.models.kinds import (
    CERTAIN_OTHER,
    OTHER,
    UNKNOWN_KIND,
    UNMARKED,
    KindHead,
    fit,
    kind_targets,
    learn_kinds,
    named_kinds,
    with_one_spelling,
)


def population(
    *sizes: int, seed: int = 0, apart: float = 4.0, features: int = 8
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Features of kinds that are apart in one direction each, and their kinds from 0."""
    random = np.random.default_rng(seed)
    kind = np.repeat(np.arange(len(sizes)), sizes)
    x = random.normal(size=(len(kind), features))
    x[np.arange(len(kind)), kind] += apart
    return x, kind


def marked(kind: NDArray[np.intp], marks: dict[int, int], seed: int = 0) -> NDArray[np.intp]:
    """Targets: some marks of the kinds from 1 on."""
    random, target = np.random.default_rng(seed), np.full(len(kind), UNMARKED)
    for k, number in marks.items():
        target[random.choice(np.flatnonzero(kind == k), number, replace=False)] = k
    return target


def test_one_marked_kind_is_told_from_unmarked_others() -> None:
    x, kind = population(3000, 400)
    found = learn_kinds(x, marked(kind, {1: 20}), ["a"]).logits(x).argmax(axis=1)
    assert (found == kind).mean() > 0.95


def test_kinds_are_each_others_negatives_and_other_stays_possible() -> None:
    x, kind = population(1000, 400, 600)
    head = learn_kinds(x, marked(kind, {1: 30, 2: 30}), ["a", "b"])
    assert head.names == (OTHER, "a", "b")
    assert (head.logits(x).argmax(axis=1) == kind).mean() > 0.9


def test_without_others_few_cells_are_other() -> None:
    x, kind = population(0, 500, 500)
    found = learn_kinds(x, marked(kind, {1: 50, 2: 50}), ["a", "b"]).logits(x).argmax(axis=1)
    assert (found == kind).mean() > 0.9


def test_marked_look_alikes_are_kept_apart() -> None:
    x, kind = population(2000, 300, 100)
    x[kind == 2, 1] += 4  # as the marked kind, but for one more feature
    target = marked(kind, {1: 30})
    certain = np.where(marked(kind, {2: 30}) == 2, CERTAIN_OTHER, target)
    wrong = [
        learn_kinds(x, each, ["a"]).logits(x[kind == 2]).argmax(axis=1).sum() for each in (target, certain)
    ]
    assert wrong[1] < wrong[0] / 2


def test_fit_minimises_the_ridge_loss_of_certain_cells() -> None:
    x, kind = population(60, 50, 40, apart=1.0, features=4)
    weight, bias = fit(x, kind, kinds=2, decay=0.1)
    p = np.exp(np.c_[np.zeros(len(x)), x @ weight + bias])
    p /= p.sum(axis=1, keepdims=True)
    share = 1 / np.bincount(kind)[kind] / 3
    error = (p - np.eye(3)[kind])[:, 1:] * share[:, None]
    np.testing.assert_allclose(x.T @ error + 0.1 * weight, 0, atol=1e-4)
    np.testing.assert_allclose(error.sum(axis=0), 0, atol=1e-4)


def test_one_mark_is_learned_with_a_warning() -> None:
    x, kind = population(500, 100)
    with pytest.warns(TrainingWarning, match=r"few marks to tell a kind by: a \(1\)"):
        found = learn_kinds(x, marked(kind, {1: 1}), ["a"]).logits(x).argmax(axis=1)
    assert 0 < found.sum() < len(x)


def test_a_kind_without_a_found_cell_is_left_out_and_named() -> None:
    x, kind = population(500, 100)
    with pytest.warns(TrainingWarning, match="near the marks of b: this class is not learned"):
        assert learn_kinds(x, marked(kind, {1: 20}), ["a", "b"]).names == (OTHER, "a")
    with pytest.raises(InputError, match="no cell was found near the marks of a"):
        learn_kinds(x, np.full(len(x), UNMARKED), ["a"])


def test_kinds_that_marks_do_not_separate_are_named() -> None:
    x, kind = population(400, 400, 400, apart=0.0)
    with pytest.warns(TrainingWarning, match="marks of a and b look alike"):
        learn_kinds(x, marked(kind, {1: 40, 2: 40}), ["a", "b"])


def test_nearly_everything_is_told() -> None:
    x, kind = population(0, 1000)
    with pytest.warns(TrainingWarning, match="nearly every cell looks like a"):
        learn_kinds(np.zeros_like(x), marked(kind, {1: 200}), ["a"])


def test_marks_say_what_they_are_made_for() -> None:
    found = Cells([[10 * i, 0] for i in range(7)], mpp=1.0)
    marks = Cells(
        [[0, 1], [10, 1], [20, 1], [30, 1], [300, 300]],
        classes=("a", "Nucleus", "dust"),
        label=[0, 1, 2, -1, 0],
        mpp=1.0,
        regions=[shapely.box(45, -5, 55, 5)],
    )
    expected = [1, UNKNOWN_KIND, CERTAIN_OTHER, UNKNOWN_KIND, UNMARKED, CERTAIN_OTHER, UNMARKED]
    assert kind_targets(found, marks, ["a"]).tolist() == expected


def test_two_classes_on_one_cell_are_told_and_the_nearer_counts() -> None:
    found = Cells([[0, 0], [50, 0]], mpp=0.5)
    marks = Cells([[3, 0], [1, 0], [50, 0], [51, 0]], classes=("a", "b"), label=[0, 1, 0, 0], mpp=0.5)
    with pytest.warns(TrainingWarning, match=r"1 mark on cells that are marked as another class.*\(3, 0\)"):
        assert kind_targets(found, marks, ["a", "b"]).tolist() == [2, 1]


def test_kinds_of_places_are_learned_from_the_cells_around() -> None:
    random = np.random.default_rng(0)
    um = random.random((2000, 2)) * (1000, 200)
    kind = (um[:, 0] > 500).astype(int)  # left and right
    x = random.normal(size=(2000, 4)) + 0.5 * kind[:, None]
    target = np.full(2000, UNMARKED)
    for k in (0, 1):
        target[random.choice(np.flatnonzero(kind == k), 40, replace=False)] = k + 1
    right = []
    for places in (None, um):
        head = learn_kinds(x, target, ["a", "b"], um=places)
        right.append((head.logits(x, places)[:, 1:].argmax(axis=1) == kind).mean())
    assert right[1] > 0.95 > right[0] + 0.1
    with pytest.raises(ValueError, match="give their places"):
        head.logits(x)


def test_held_out_marks_tell_what_is_recognised() -> None:
    held, error = [], []
    for seed in range(12):  # one draw of marks is outside of its interval now and then
        x, kind = population(1000, 600, 600, apart=2.0, seed=seed)
        target = marked(kind, {1: 100, 2: 100}, seed)
        head = learn_kinds(x, target, ["a", "b"])
        assert head.evidence is not None
        recall, given = head.evidence.recall(), head.logits(x).argmax(axis=1)
        assert recall.keys() == {"a", "b"}
        for k, share in enumerate(recall.values(), 1):
            true = (given[(kind == k) & (target == UNMARKED)] == k).mean()
            held.append(share.low <= true <= share.high)
            error.append(share.value - true)
    assert np.mean(held) > 0.75
    assert abs(np.mean(error)) < 0.04
    few = marked(kind, {1: 3})
    with warnings.catch_warnings(action="ignore"):
        assert learn_kinds(x, few, ["a"]).evidence is None


def test_a_mark_inside_an_outline_is_of_that_cell() -> None:
    found = Cells([[10, 10]], outline=[shapely.box(0, 0, 20, 20)], mpp=1.0)
    assert kind_targets(found, Cells([[18, 18]], classes=("a",), mpp=1.0), ["a"]).tolist() == [1]
    assert kind_targets(found, Cells([[22, 18]], classes=("a",), mpp=1.0), ["a"]).tolist() == [UNMARKED]


def test_names_that_differ_only_in_case_are_one() -> None:
    tables = [Cells([[0, 0], [1, 1], [2, 2]], classes=("Tumour", "tumour", "cell"), label=[0, 0, 1])]
    with pytest.warns(TrainingWarning, match="'tumour' as 'Tumour'"):
        assert named_kinds(with_one_spelling(tables)) == ("Tumour",)
    with warnings.catch_warnings():
        assert with_one_spelling(tables[:0]) == []


def test_assigned_cells_keep_everything_and_have_probabilities() -> None:
    head = KindHead((OTHER, "a"), np.array([[0.0], [1.0]], "f4"), np.zeros(2, "f4"))
    cells = Cells([[0, 0], [1, 1]], score=[0.9, 0.8], outline=[shapely.box(0, 0, 1, 1), None], mpp=0.5)
    kinds = head.assign(cells, np.array([[-1.0], [2.0]]))
    assert kinds.counts() == {OTHER: 1, "a": 1}
    np.testing.assert_array_equal(kinds.score, cells.score)
    assert kinds.outline is not None
    assert kinds.outline[0].equals(shapely.box(0, 0, 1, 1))
    p = kinds.measurements
    np.testing.assert_allclose(p["Probability Other"] + p["Probability a"], 1, atol=1e-3)
    assert p["Probability"].min() >= 0.5


def test_some_cells_and_those_near_them_are_enough_for_their_surroundings() -> None:
    random = np.random.default_rng(0)
    um, features = random.uniform(0, 900, (3000, 2)), random.normal(size=(3000, 4))
    rows = random.choice(3000, 50, replace=False)
    near = near_rows(um, rows)
    assert len(near) < 2000
    place = np.searchsorted(near, rows)
    some = with_surroundings(features[near], um[near], place)
    assert np.allclose(some, with_surroundings(features, um, rows))


def test_only_counted_cells_are_around_others() -> None:
    random = np.random.default_rng(0)
    um, values = random.uniform(0, 200, (300, 2)), random.normal(size=(300, 2))
    counted = random.random(300) < 0.5
    near = np.hypot(*(um[:, None] - um[None]).transpose(2, 0, 1)) <= SURROUNDINGS_UM
    wanted = [
        values[(row & counted) | own].mean(axis=0) for row, own in zip(near, np.eye(300) > 0, strict=True)
    ]
    assert np.allclose(mean_around(values, um, counted=counted), wanted, atol=1e-5)


def test_a_sample_of_the_unmarked_cells_gives_the_thresholds_of_all() -> None:
    x, kind = population(9000, 1000)
    target = np.full(len(kind), UNMARKED)
    target[np.flatnonzero(kind == 1)[:400]] = 1
    everything = learn_kinds(x, target, ["a"])
    kept = np.flatnonzero((target != UNMARKED) | (np.arange(len(kind)) % 10 == 0))
    share = (target[kept] == UNMARKED).sum() / (target == UNMARKED).sum()
    told = (everything.logits(x).argmax(axis=1) == 1).mean()
    errors = [
        abs(
            (learn_kinds(x[kept], target[kept], ["a"], sampled=each).logits(x).argmax(axis=1) == 1).mean()
            - told
        )
        for each in (share, 1.0)
    ]
    assert errors[0] < errors[1]
