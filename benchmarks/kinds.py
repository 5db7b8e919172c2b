"""Kinds from few marks: F1 on BRCA-M2C and CRCHisto with a starter that has not seen them, and time.

``python -m benchmarks.kinds STARTER.safetensors DATA --json docs/results/kinds.json`` prints scores, the mean
of three draws of the marks; how often the intervals hold that marks give; scores on the cells that InstanSeg
finds, as ``sparseshot classify`` learns them; and seconds. ``--parts`` chooses among these.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import instanseg
from sparseshot.cells import Cells
from sparseshot.datasets import load_dataset
from sparseshot.datasets.catalogue import Split
from sparseshot.metrics import match_points
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import features_at
from sparseshot.models.kind_head import KindHead, side_by_side
from sparseshot.models.kinds import UNMARKED, learn_kinds
from sparseshot.models.model_files import load_starter
from sparseshot.training.annotated import AnnotatedSlide, open_samples

SEEDS = (0, 1, 2)
DRAWS = 10
PARTS = ("speed", "brca_m2c", "crchisto", "coverage", "classify")
NAMES = ["lymphocyte", "tumour", "stromal"]
FEW: tuple[tuple[Split, int], ...] = (("train", 3), ("test", 1))
"""Splits whose cells InstanSeg finds, and the step between the images: it takes its time."""
MATCH_UM = 3.0


@dataclass(frozen=True)
class Found:
    """Found cells of some images, and their true kinds.

    Attributes:
        features: ``(N, F)``.
        um: ``(N, 2)`` places in µm.
        kind: ``(N,)`` index of the true kind, -1 where there is no cell or its kind is unknown.
        truth: ``(M,)`` kind of every true cell.
        found: ``(M,)`` found cell of each, -1 for none.
    """

    features: NDArray[np.float32]
    um: NDArray[np.float64]
    kind: NDArray[np.int64]
    truth: NDArray[np.int64]
    found: NDArray[np.int64]


def found_in(
    dataset: str,
    root: Path,
    split: Split | None,
    starter: Checkpoint,
    *,
    find: Callable[[AnnotatedSlide], Cells] | None = None,
    every: int = 1,
) -> list[Found]:
    """Find the cells of each image of a split; with ``find`` by another program, with our features."""
    network, parts = starter.network(), []
    for item in open_samples(load_dataset(dataset, root, split=split))[::every]:
        if find is None:
            cells, features = item.look_at(
                network, starter.config, threshold=starter.threshold or 0.5
            ).cells_and_features
        else:
            cells = find(item)
            frame = SlideFrame.over(item.slide, mpp=starter.mpp, classes=("cell",))
            features = features_at(network, starter.config.make_task(), item.slide, frame, cells.xy)
        matching = match_points(item.marks.xy, cells.xy, radius=MATCH_UM / item.slide.mpp)
        kind, found = np.full(len(cells), -1), np.full(len(item.marks), -1)
        kind[matching.found] = item.marks.label[matching.truth]
        found[matching.truth] = matching.found
        um = cells.xy * item.slide.mpp
        parts.append(Found(features, um, kind, item.marks.label.astype(np.int64), found))
    return parts


def joined(parts: list[Found]) -> Found:
    """Put images together."""
    starts = np.cumsum([0, *(len(part.kind) for part in parts)])
    found = [
        np.where(part.found < 0, -1, part.found + start) for part, start in zip(parts, starts, strict=False)
    ]
    return Found(
        np.concatenate([part.features for part in parts]),
        side_by_side([part.um for part in parts]),
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


def learned(data: Found, kinds: list[int], number: int, names: list[str], seed: int) -> KindHead:
    """Learn kinds from a draw of marks."""
    chosen = [names[kind] for kind in kinds]
    return learn_kinds(data.features, some_marks(data, kinds, number, seed), chosen, um=data.um, seed=seed)


def scores(
    training: Found, test: Found, kinds: list[int], number: int, names: list[str]
) -> list[list[float]]:
    """Return F1 of each kind for each draw of marks; of all marks there is one."""
    heads = [learned(training, kinds, number, names, seed) for seed in (SEEDS if number else SEEDS[:1])]
    return [f1_of(test, head.logits(test.features, test.um).argmax(axis=1), kinds) for head in heads]


def brca_m2c(training: Found, test: Found, counts: tuple[int, ...] = (20, 100, 0)) -> dict[str, Any]:
    """One kind marked, and three."""
    table: dict[str, Any] = {}
    for number in counts[:2]:
        alone = [np.mean(scores(training, test, [kind], number, NAMES)) for kind in range(3)]
        table[f"{number} of one kind"] = [round(float(each), 3) for each in alone]
    for number in counts:
        drawn = np.array(scores(training, test, [0, 1, 2], number, NAMES))
        each = drawn.mean(axis=0)
        table[f"{number or 'all'} of each"] = [round(float(f1), 3) for f1 in (*each, each.mean())]
    return table


def crchisto(starter: Checkpoint, root: Path) -> dict[str, Any]:
    """Kinds of found cells whose kind is known; marks in one half of the images, scores in the other.

    Without marks it is the starter's own guess.
    """
    names = ["epithelial", "fibroblast", "inflammatory"]
    images, table = found_in("crchisto", root, None, starter), {}
    assert starter.own_kinds is not None
    own = starter.own_kinds
    like = [own.names.index(name) for name in ("tumour", "stromal", "lymphocyte")]
    for number in (0, 20, 100):
        drawn = []
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(len(images))
            training, test = (joined([images[i] for i in half]) for half in np.array_split(order, 2))
            if number:
                head = learned(training, [0, 1, 2], number, names, seed)
                logits = head.logits(test.features, test.um)[:, 1:]
            else:
                logits = own.logits(test.features)[:, like]
            known = (test.kind >= 0) & (test.kind < len(names))
            guess, true = logits[known].argmax(axis=1), test.kind[known]
            drawn.append(
                [
                    2 * ((guess == k) & (true == k)).sum() / ((guess == k).sum() + (true == k).sum())
                    for k in range(3)
                ]
            )
        each = np.mean(drawn, axis=0)
        table[f"{number} of each"] = [round(float(f1), 3) for f1 in (*each, each.mean())]
    return table


def coverage(data: Found) -> dict[str, Any]:
    """Return how often the 90 % interval of the recall of a kind holds the truth, and its mean width.

    The truth is the recall of a head over all found cells of the kind whose marks it has not learned from.
    """
    table = {}
    for number in (20, 100):
        held = []
        for seed in range(DRAWS):
            head = learned(data, [0, 1, 2], number, NAMES, seed)
            target = some_marks(data, [0, 1, 2], number, seed)
            guess = head.logits(data.features, data.um).argmax(axis=1)
            known = {} if head.evidence is None else head.evidence.recall()
            for k, name in enumerate(NAMES):
                own = (data.kind == k) & (target == UNMARKED)
                if name in known:
                    true, share = float((guess[own] == k + 1).mean()), known[name]
                    held.append((share.low <= true <= share.high, share.high - share.low))
        table[f"{number} of each"] = [round(float(each), 3) for each in np.mean(held, axis=0)]
    return table


def speed() -> list[list[str]]:
    """Seconds of processor to learn kinds from cached features, and to assign them to all cells."""
    rows = []
    for number in (100_000, 1_000_000):
        random = np.random.default_rng(0)
        kind = random.integers(4, size=number)
        x = random.normal(size=(number, 64)).astype(np.float16)
        x[np.arange(number), kind] += 2
        um = random.random((number, 2)) * np.sqrt(number) * 12  # 7,000 cells a mm²
        for kinds in (1, 3):
            target = np.full(number, UNMARKED)
            for k in range(1, kinds + 1):
                target[np.flatnonzero(kind == k)[:100]] = k
            begun = time.process_time()
            head = learn_kinds(x, target, [f"kind {k}" for k in range(kinds)], um=um)
            learned = time.process_time()
            head.logits(x, um).argmax(axis=1)
            done = time.process_time()
            rows.append([f"{number:,}", str(kinds), f"{learned - begun:.2f}", f"{done - learned:.2f}"])
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kinds", description=__doc__)
    parser.add_argument("starter", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", type=Path, help="file to write; tables of other parts in it stay")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    starter, root = load_starter("detect", path=options.starter), options.data
    results: dict[str, Any] = {"starter": sha256(options.starter.read_bytes()).hexdigest()[:12]}
    if options.json is not None and options.json.is_file():
        before = json.loads(options.json.read_text())
        results = before if before["starter"] == results["starter"] else results

    def show(name: str, table: object) -> None:
        results[name] = table
        print(name, json.dumps(table), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n")

    def found(split: Split, step: int = 1, find: Callable[[AnnotatedSlide], Cells] | None = None) -> Found:
        return joined(found_in("brca_m2c", root, split, starter, find=find, every=step))

    if "speed" in options.parts:
        show("speed", speed())
    if "brca_m2c" in options.parts:
        show("brca_m2c", brca_m2c(found("train"), found("test")))
    if "crchisto" in options.parts:
        show("crchisto", crchisto(starter, root))
    if "coverage" in options.parts:
        show("coverage", coverage(found("test")))
    if "classify" in options.parts:
        for name, find in (("ours", None), ("InstanSeg", instanseg())):
            learn, score = (found(split, step, find) for split, step in FEW)
            show(f"classify, {name}", brca_m2c(learn, score, (20, 100)))


if __name__ == "__main__":
    main()
