"""Kinds from few marks: time, and F1 on BRCA-M2C and CRCHisto with a starter that has not seen them.

``python -m benchmarks.kinds STARTER.safetensors DATA`` prints the scores, three draws of the marks each.
"""

import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import print_table
from sparseshot.datasets import load_dataset
from sparseshot.datasets.catalogue import Split
from sparseshot.metrics import match_points
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.kinds import UNMARKED, learn_kinds
from sparseshot.models.model_files import load_starter
from sparseshot.training.annotated import open_samples

SEEDS = (0, 1, 2)
MATCH_UM = 3.0


@dataclass(frozen=True)
class Found:
    """Found cells of some images, and their true kinds.

    Attributes:
        features: ``(N, F)``.
        kind: ``(N,)`` index of the true kind, -1 where there is no cell or its kind is unknown.
        truth: ``(M,)`` kind of every true cell.
        found: ``(M,)`` found cell of each, -1 for none.
    """

    features: NDArray[np.float32]
    kind: NDArray[np.int64]
    truth: NDArray[np.int64]
    found: NDArray[np.int64]


def found_in(dataset: str, root: Path, split: Split | None, starter: Checkpoint) -> list[Found]:
    """Find the cells of each image of a split."""
    network, parts = starter.network(), []
    for item in open_samples(load_dataset(dataset, root, split=split)):
        cells, features = item.look_at(
            network, starter.config, threshold=starter.threshold or 0.5
        ).cells_and_features
        matching = match_points(item.marks.xy, cells.xy, radius=MATCH_UM / item.slide.mpp)
        kind, found = np.full(len(cells), -1), np.full(len(item.marks), -1)
        kind[matching.found] = item.marks.label[matching.truth]
        found[matching.truth] = matching.found
        parts.append(Found(features, kind, item.marks.label.astype(np.int64), found))
    return parts


def joined(parts: list[Found]) -> Found:
    """Put images together."""
    starts = np.cumsum([0, *(len(part.kind) for part in parts)])
    found = [
        np.where(part.found < 0, -1, part.found + start) for part, start in zip(parts, starts, strict=False)
    ]
    return Found(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.truth for part in parts]),
        np.concatenate(found),
    )


def some_marks(data: Found, kinds: list[int], number: int, seed: int) -> NDArray[np.int64]:
    """Return targets with a number of random true cells of each kind marked; 0: all."""
    random, target = np.random.default_rng(seed), np.full(len(data.kind), UNMARKED)
    for place, kind in enumerate(kinds):
        rows = np.flatnonzero(data.truth == kind)
        if number:
            rows = random.choice(rows, number, replace=False)
        own = data.found[rows]
        target[own[own >= 0]] = place + 1
    return target


def f1_of(data: Found, assigned: NDArray[np.int64], kinds: list[int]) -> list[float]:
    """Return F1 of each kind; a cell that was not found is a miss of its kind."""
    scores = []
    for place, kind in enumerate(kinds):
        right = int(((assigned == place + 1) & (data.kind == kind)).sum())
        scores.append(2 * right / max(1, int((assigned == place + 1).sum() + (data.truth == kind).sum())))
    return scores


def mean_scores(training: Found, test: Found, kinds: list[int], number: int, names: list[str]) -> list[float]:
    """Return F1 of each kind, the mean of three draws of marks."""
    scores = []
    for seed in SEEDS:
        head = learn_kinds(
            training.features,
            some_marks(training, kinds, number, seed),
            [names[kind] for kind in kinds],
            seed=seed,
        )
        scores.append(f1_of(test, head.logits(test.features).argmax(axis=1), kinds))
    return [float(each) for each in np.mean(scores, axis=0)]


def brca_m2c(starter: Checkpoint, root: Path) -> None:
    """One kind marked, and three."""
    names = ["lymphocyte", "tumour", "stromal"]
    training, test = (joined(found_in("brca_m2c", root, split, starter)) for split in ("train", "test"))
    rows = []
    for number in (20, 100):
        alone = [mean_scores(training, test, [kind], number, names)[0] for kind in range(3)]
        rows.append([f"{number} of one kind", *(f"{each:.3f}" for each in alone), ""])
    for number in (20, 100, 0):
        each = mean_scores(training, test, [0, 1, 2], number, names)
        rows.append([f"{number or 'all'} of each", *(f"{one:.3f}" for one in each), f"{np.mean(each):.3f}"])
    print_table(["BRCA-M2C, test images, F1", *names, "mean"], rows)


def crchisto(starter: Checkpoint, root: Path) -> None:
    """Kinds of found cells whose kind is known; marks in one half of the images, scores in the other."""
    names = ["epithelial", "fibroblast", "inflammatory"]
    images, rows = found_in("crchisto", root, None, starter), []
    for number in (20, 100):
        scores = []
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(len(images))
            training, test = (joined([images[i] for i in half]) for half in np.array_split(order, 2))
            head = learn_kinds(
                training.features, some_marks(training, [0, 1, 2], number, seed), names, seed=seed
            )
            known = (test.kind >= 0) & (test.kind < len(names))
            guess, true = head.logits(test.features[known])[:, 1:].argmax(axis=1), test.kind[known]
            scores.append(
                [
                    2 * ((guess == k) & (true == k)).sum() / ((guess == k).sum() + (true == k).sum())
                    for k in range(3)
                ]
            )
        each = np.mean(scores, axis=0)
        rows.append([f"{number} of each", *(f"{one:.3f}" for one in each), f"{each.mean():.3f}"])
    print_table(["CRCHisto, F1 of the kind given found", *names, "mean"], rows)


def speed() -> None:
    """Seconds to learn kinds from cached features, and to assign them to all cells."""
    rows = []
    for number in (100_000, 1_000_000):
        random = np.random.default_rng(0)
        kind = random.integers(4, size=number)
        x = random.normal(size=(number, 64)).astype(np.float16)
        x[np.arange(number), kind] += 2
        for kinds in (1, 3):
            target = np.full(number, UNMARKED)
            for k in range(1, kinds + 1):
                target[np.flatnonzero(kind == k)[:100]] = k
            begun = time.perf_counter()
            head = learn_kinds(x, target, [f"kind {k}" for k in range(kinds)])
            learned = time.perf_counter()
            head.logits(x).argmax(axis=1)
            done = time.perf_counter()
            rows.append([f"{number:,}", str(kinds), f"{learned - begun:.2f}", f"{done - learned:.2f}"])
    print_table(["cells of 64 features", "kinds, 100 marks each", "learn (s)", "assign to all (s)"], rows)


def main() -> None:
    """Print the tables."""
    speed()
    if len(sys.argv) > 2 and sys.argv[1].endswith(".safetensors"):
        starter, root = load_starter("detect", path=Path(sys.argv[1])), Path(sys.argv[2])
        with warnings.catch_warnings(action="ignore"):
            brca_m2c(starter, root)
            crchisto(starter, root)


if __name__ == "__main__":
    main()
