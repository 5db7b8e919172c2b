"""Coverage of the 90 % intervals of `sparseshot quality` on images of which every cell is known.

    python -m benchmarks.quality --root DATA --folder results

For each data set and task, the starter and a model trained on 300 marks look once at the test images; what
they find is kept in the folder, and an interrupted benchmark goes on from there. Then marks are drawn many
times, as the held-out marks of a user: scattered over the images, in some squares of them, or all cells of
some regions. An interval holds if the truth over all test images lies in it.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add
from pathlib import Path

import numpy as np
import shapely
import torch
from numpy.typing import NDArray

from benchmarks.timing import print_table
from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.datasets import load_dataset
from sparseshot.files import write_json
from sparseshot.metrics import Evidence, expected_quality, overlaps_of_outlines, scored_hits
from sparseshot.metrics.quality import FOUND_UM
from sparseshot.models.config import STARTER_NAMES, TrainConfig
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.model_files import load_model
from sparseshot.training.annotated import TrainingData, open_samples
from sparseshot.training.runs import train_run

TASKS = (
    ("monuseg", "detect"),
    ("tnbc", "detect"),
    ("brca_m2c", "detect"),
    ("crchisto", "detect"),
    ("monuseg", "segment"),
    ("tnbc", "segment"),
)
MARKS = (10, 40, 150, 500)
DRAWS = 60
LEARNED = 300
SQUARE_UM, REGION_UM = 128.0, 64.0
SHARE = 0.2
"""Share of the cells that is marked in a square."""

FIGURES = ("recall", "precision", "F1", "cells")


@dataclass(frozen=True)
class Image:
    """What a model found in an image, and every cell of it; both in level-0 pixels."""

    found: Cells
    truth: Cells

    def paired(self, threshold: float) -> tuple[int, int, int]:
        """Return the numbers of cells that are found, of everything found, and of cells."""
        assert self.found.score is not None
        found, score = self.found[self.found.score >= threshold], self.found.score
        if found.outline is not None:
            pairs = len(overlaps_of_outlines(self.truth, found).match(iou=0.5).truth)
        else:
            radius = FOUND_UM / (self.truth.mpp or 1.0)
            pairs = int(
                scored_hits(self.truth.xy, found.xy, score[score >= threshold], radius=radius).hit.sum()
            )
        return pairs, len(found), len(self.truth)


def look(name: str, task: str, model: str, root: Path, folder: Path) -> tuple[list[Image], float]:
    """Return what a model finds in the test images of a set, from the folder if it is there already."""
    run: Path | str = next(key for key, value in STARTER_NAMES.items() if value == task)
    if model == "trained":
        run = folder / f"{name} {task}"
        config = TrainConfig(task=task)  # type: ignore[arg-type]  # checked there
        train_run(config, TrainingData(dataset=name, root=root, fraction=LEARNED), run)
    checkpoint = load_model(run)
    threshold, network = checkpoint.threshold or 0.5, checkpoint.network()
    images = []
    for number, item in enumerate(open_samples(load_dataset(name, root, split="test"))):
        file = folder / "found" / f"{name} {task} {model}" / f"{number}.parquet"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            lowest = threshold if task == "segment" else LOWEST_SCORE
            region = item.look_at(network, checkpoint.config, threshold=lowest)
            write_cells(region.cells, file)
        images.append(Image(read_cells(file), item.marks))
    return images, threshold


def draw(images: Sequence[Image], how: str, marks: int, random: np.random.Generator) -> list[Evidence]:
    """Draw held-out marks, and return the evidence of each place."""
    if how == "marks":
        sizes = [len(image.truth) for image in images]
        chosen = np.sort(random.permutation(sum(sizes))[:marks])
        rows = np.split(chosen, np.searchsorted(chosen, np.cumsum(sizes)[:-1]))
        starts = np.cumsum([0, *sizes[:-1]])
        return [
            _evidence(image, own - start, ())
            for image, own, start in zip(images, rows, starts, strict=True)
            if len(own)
        ]
    places, total = [], 0
    squares = list(_squares(images, SQUARE_UM if how == "squares" else REGION_UM))
    for k in random.permutation(len(squares)):
        if total >= marks:
            break
        image, rows_inside, square = squares[k]
        if how == "squares":
            rows_inside = rows_inside[random.random(len(rows_inside)) < SHARE]
        total += len(rows_inside)
        if len(rows_inside) or how == "regions":
            places.append(_evidence(image, rows_inside, (square,) if how == "regions" else ()))
    return places


def _squares(
    images: Sequence[Image], side_um: float
) -> Iterator[tuple[Image, NDArray[np.intp], shapely.Polygon]]:
    """Yield the squares of the images, each with its cells."""
    for image in images:
        side = side_um / (image.truth.mpp or 1.0)
        place = np.floor(image.truth.xy / side).astype(int)
        for corner in np.unique(place, axis=0):
            rows = np.flatnonzero((place == corner).all(axis=1))
            yield image, rows, shapely.box(*(corner * side), *((corner + 1) * side))


def _evidence(image: Image, rows: NDArray[np.intp], regions: Sequence[shapely.Polygon]) -> Evidence:
    return Evidence.of_cells(image.found, image.truth[rows], np.array(regions, object))


def covered(images: Sequence[Image], threshold: float, how: str, marks: int) -> dict[str, list[float]]:
    """Return for each figure the share of intervals that hold the truth, and their mean width."""
    pairs, found, cells = np.sum([image.paired(threshold) for image in images], axis=0).tolist()
    recall, precision = pairs / cells, pairs / found
    truth = (recall, precision, 2 * pairs / (found + cells), cells / found)
    held: dict[str, list[tuple[bool, float]]] = {name: [] for name in FIGURES}
    for seed in range(DRAWS):
        random = np.random.default_rng([seed, marks])
        evidence = reduce(add, draw(images, how, marks, random))
        quality = expected_quality(evidence, threshold)
        if quality is None:
            continue
        figures = (quality.recall, quality.precision, quality.f1, quality.cells_per_found)
        for name, figure, true in zip(FIGURES, figures, truth, strict=True):
            if figure is not None:
                held[name].append((figure.low <= true <= figure.high, figure.high - figure.low))
    return {name: np.mean(each, axis=0).tolist() for name, each in held.items() if each}


def main() -> None:
    """Print a table of coverage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("../shared/data"), help="Folder of the data sets.")
    parser.add_argument("--folder", type=Path, default=Path("quality"), help="Folder for results.")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for model, (name, task) in product(("starter", "trained"), TASKS):
        file = given.folder / f"{name} {task} {model}.json"
        if not file.exists():
            images, threshold = look(name, task, model, given.root, given.folder)
            most = sum(len(image.truth) for image in images)
            cases = product(("marks", "squares", "regions"), (each for each in MARKS if each <= most / 2))
            write_json(file, [[how, n, covered(images, threshold, how, n)] for how, n in cases])
        for how, marks, shares in json.loads(file.read_text()):
            cells = [
                f"{shares[each][0]:.0%} ±{shares[each][1] / 2:.2f}" if each in shares else "–"
                for each in FIGURES
            ]
            rows.append([name, task, model, how, marks, *cells])
    print_table(["set", "task", "model", "held out", "number", *FIGURES], rows)


if __name__ == "__main__":
    main()
