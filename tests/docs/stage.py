"""A small folder with the files that commands and examples of the docs name."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from tests.datasets import small_datasets
from tests.docs.blocks import blocks_of
from tests.experiments.made_results import write_results
from tests.experiments.tiny_data import TINY_SETTINGS, tiny_tnbc
from tests.images import slide_files
from tests.prediction.networks import random_detector, save

from sparseshot.cells.raster import rasterise
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.experiments import open_experiment
from sparseshot.images import read_region

SLIDES = (
    "a.svs",
    "b.svs",
    "biopsy.svs",
    "slides/a.svs",
    "slides/b.svs",
    "CMU-1-Small-Region.svs",
    "TCGA-G9-6342-01Z-00-DX1-2.svs",
    "TCGA-MH-A560-01Z-00-DX2_4.svs",
)
MARKS = (
    "a.geojson",
    "b.geojson",
    "b_all.geojson",
    "marks.geojson",
    "export.geojson",
    "found.geojson",
    "marks/a.geojson",
    "marks/b.geojson",
)
SIZE_PX = (480, 400)


def build(folder: Path) -> Path:
    """Write slides, marks, data sets, a run, results of an experiment, and settings for short training."""
    tissue = SyntheticTissue(seed=1, size_px=SIZE_PX, mpp=0.25, tissue_fraction=1)
    first = slide_files.write_aperio(folder / "first.svs", read_region(tissue, 0, 0, *SIZE_PX), mpp=0.25)
    tissue.cells(outlines=True).write(folder / "first.geojson")
    tissue.cells(outlines=True).write(folder / "marks.parquet")
    labels = rasterise(tissue.cells(outlines=True), SIZE_PX[::-1], by="instance")
    Image.fromarray(labels.astype(np.uint16)).save(folder / "mask.png")
    for name in (*SLIDES, *MARKS):
        (folder / name).parent.mkdir(exist_ok=True)
        os.link(first.with_suffix(Path(name).suffix), folder / name)
    (folder / "pairs.csv").write_text("slide,marks\na.svs,a.geojson\nb.svs,b.geojson\n")
    shutil.copy(folder / "pairs.csv", folder / "train.csv")
    shutil.copy(folder / "pairs.csv", folder / "test.csv")
    (folder / "tiny.toml").write_text(TINY_SETTINGS.replace("[settings]", ""))
    tiny_tnbc(folder / "data")
    for number in range(1, 4):
        consep = folder / "data" / "consep" / "Train"
        small_datasets.image(consep / "Images" / f"train_{number}.png")
        small_datasets.hovernet(consep / "Labels" / f"train_{number}.mat", types=(1, 2, 3))
    save(random_detector(threshold=0.8), folder / "run")
    headline = open_experiment("tnbc-headline")
    for name in ("runs", "record"):
        write_results(folder / name, headline)
    shutil.copytree(
        Path(__file__).parents[2] / "docs" / "results",
        folder / "docs" / "results",
        ignore=lambda _, names: [name for name in names if not name.endswith(".toml")],
    )
    for block in blocks_of(Path(__file__).parents[2] / "docs" / "how-to" / "own-model.md"):
        if file := re.match(r"# (\w+\.(py|toml))\n", block.text):  # a file that a reader writes
            (folder / file[1]).write_text(block.text)
    return folder
