"""Small valid files of every kind that sparseshot reads, each with its reader."""

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import shapely
import torch
from PIL import Image
from tests.images import slide_files
from tests.images.hostile_files import read_slide

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.experiments.experiment_file import read_experiment
from sparseshot.experiments.results import Results
from sparseshot.files import write_json
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainConfig, TrainSettings, make_config
from sparseshot.models.windows import WindowLayout
from sparseshot.prediction.export import SUMMARY, read_summary
from sparseshot.prediction.manifest import Done, Manifest, Shard
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project import PROJECT, Project, needs_mpp
from sparseshot.training.annotated import TrainingData
from sparseshot.training.logs import COLUMNS, read_log
from sparseshot.training.pairs import pairs_in_csv
from sparseshot.training.recipe import TrainRecipe, TrainRequest, read_run
from sparseshot.work.folder import CONFIG, MODEL, RECIPE, SOURCE, STATE, File, as_json

Valid = list[tuple[Path, Callable[[Path], object]]]

CELL_FILES = (
    "qupath.geojson", "packed.geojson.gz", "archive.zip", "cells.parquet", "cells.coco.json",
    "imagescope.xml", "cells.asap.xml", "points.csv", "points.tsv", "mask.png", "mask.tif", "mask.npy",
)  # fmt: skip
JOURNAL = "marks.jsonl"
_CONFIG = TrainSettings(task="detect", width=1, depth=1)
_MANIFEST = Manifest(
    {"slide": {"name": "a.svs", "fingerprint": "0" * 32}, "threshold": 0.5, "kind": "predict"},
    Done(
        WindowLayout(512, 1024),
        bands=1,
        shards=(Shard(0, 12, File("cells/0.parquet", "0" * 64), File("undecided/0.parquet", "0" * 64)),),
    ),
)
_EXPERIMENT = """
title = "Two losses"
profile = "quick"
[settings]
mpp = 0.25
width = 4
steps = 8
[losses.mild]
loss = "ece"
title = "Mild"
options = { beta = 2.0 }
rounds = 2
tau = 0.75
[data.own]
train = "train.csv"
test = "test.csv"
mpp = 0.5
[[grid]]
datasets = ["tnbc", "own"]
tasks = ["segment"]
losses = ["mild", "ce"]
fractions = [0.1, 1.0]
seeds = [0, 1]
"""
_SETTINGS = """
task = "detect"
loss = "ece"
loss_options = { beta = 2.0 }
classes = ["tumour", "stroma"]
negative_classes = ["debris"]
colors = ["#ff0000", "#00ff00"]
mpp = 0.5
width = 16
seed = 3
sizes = false
precision = "32"
"""


def valid_files(folder: Path, only: str) -> Valid:
    """Write the files whose path contains ``only``, in a child, so that no library here starts threads."""
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore")
        _write_cells(folder / "cells")
        _write_images(folder / "images")
        _write_runs(folder / "runs")
        _write_studio(folder / "studio")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the valid files could not be written")
    files: Valid = [(folder / "cells" / name, convert) for name in CELL_FILES]
    files += [(path, read_slide) for path in sorted((folder / "images").iterdir())]
    files += [(folder / "runs" / name, read) for name, read in _RUN_READERS.items()]
    files += [(folder / "studio" / JOURNAL, _read_marks), (folder / "studio" / PROJECT, _open_project)]
    return [(path, read) for path, read in files if only in str(path.relative_to(folder))]


def convert(path: Path) -> None:
    """Read cells, and write them in a format that depends on their number."""
    cells = read_cells(path)
    folder = path.parent / "converted"
    folder.mkdir(exist_ok=True)
    name = CELL_FILES[(len(cells) + path.stat().st_size) % len(CELL_FILES)]
    write_cells(cells, folder / name, size_px=(256, 256))


def _write_cells(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    xy = random.uniform(10, 190, (12, 2))
    outline = shapely.buffer(shapely.points(xy), 4, quad_segs=2)
    cells = Cells(
        xy,
        classes=("tumour", "stroma"),
        label=random.integers(0, 2, 12),
        score=random.random(12),
        outline=outline,
        mpp=0.25,
        measurements={"Area": random.random(12)},
    )
    for name in CELL_FILES:
        write_cells(cells, folder / name)


def _write_images(folder: Path) -> None:
    folder.mkdir()
    image = slide_files.tissue(120, 90)
    for suffix in (".png", ".jpg", ".bmp", ".tif", ".jp2", ".webp", ".gif"):
        Image.fromarray(image).save(folder / f"image{suffix}")
    Image.fromarray(image).quantize().save(folder / "palette.png")
    for codec in ("none", "deflate", "deflate-predicted", "lzw", "jpeg-rgb", "jpeg-ycbcr", "jpeg2000"):
        slide_files.write_pyramid(folder / f"{codec}.tif", image, codec=codec, levels=(1, 2))
    slide_files.write_pyramid(folder / "big.tif", image, bigtiff=True, levels=(1, 2))
    slide_files.write_aperio(folder / "aperio.svs", image)
    for axes in ("YXS", "SYX", "CYX"):
        slide_files.write_ome(folder / f"{axes}.ome.tif", image, axes=axes, levels=(1, 2))
    slide_files.write_ome(folder / "strips.ome.tif", image, axes="CYX", levels=(1,), tiled=False)


def _write_runs(folder: Path) -> None:
    """Write what runs, predictions and experiments read."""
    (folder / "plans").mkdir(parents=True)
    (folder / "settings.toml").write_text(_SETTINGS)
    (folder / "experiment.toml").write_text(_EXPERIMENT)
    (folder / "plans" / "plan.json").write_text(
        json.dumps(asdict(read_experiment(folder / "experiment.toml")), default=dict)
    )
    request = TrainRequest(TrainConfig(), TrainingData(pairs=((Path("a.svs"), Path("a.geojson")),)))
    (folder / "run").mkdir()
    write_json(folder / "run" / RECIPE, as_json(TrainRecipe(request, _CONFIG)))
    (folder / "0.2").mkdir()
    (folder / "0.2" / CONFIG).write_text(_CONFIG.to_json())
    write_json(folder / "0.2" / SOURCE, as_json(request.data) | {"root": None, "given": ["steps"]})
    (folder / "pairs.csv").write_text('"slide","marks"\n"pairs.csv","pairs.csv"\n')
    (folder / "log.csv").write_text(",".join(COLUMNS) + "\n10" + ",0.5" * (len(COLUMNS) - 1) + "\n")
    _MANIFEST.save(folder)
    summary = {"slide": "a.svs", "classes": {"cell": {"cells": 12}}, "tissue_mm2": 1.0, "threshold": 0.5}
    (folder / SUMMARY).write_text(json.dumps(summary))
    torch.manual_seed(0)
    Checkpoint(_CONFIG, _CONFIG.make_task().network().state_dict(), step=3).save(folder / MODEL)


def _write_studio(folder: Path) -> None:
    """Write a project of the studio: its file, and the journal of its marks."""
    Image.fromarray(slide_files.tissue(120, 90)).save(folder.with_suffix(".png"))
    Project.open([folder.with_suffix(".png")], folder=folder, mpp=0.5)
    square = [[10, 10], [30, 10], [30, 30], [10, 30]]
    add = [{"class": "tumour", "at": [20, 30]}, {"class": "stroma", "outline": square}, {"region": square}]
    book = MarkBook(folder / JOURNAL)
    book.record([{"key": f"event {k}", "slide": "1", "add": add} for k in range(5)])
    book.record([{"key": "removed", "slide": "1", "remove": ["event 1:0"]}])
    book.record([{"key": "undone", "slide": "1", "undo": True}])


def _read_marks(path: Path) -> None:
    book = MarkBook(path)
    for slide in book.slides:
        book.cells(slide, mpp=0.5)


def _open_project(path: Path) -> None:
    project = Project.open([path.parent])
    for slide in project.slides:
        needs_mpp(project, slide)


def _read_model(path: Path) -> None:
    Checkpoint.load(path).network()


_RUN_READERS: dict[str, Callable[[Path], object]] = {
    "settings.toml": lambda path: make_config("quick", path, {}),
    "experiment.toml": read_experiment,
    "plans/plan.json": lambda path: Results.read(path.parents[1]),
    f"run/{RECIPE}": lambda path: read_run(path.parent),
    f"0.2/{CONFIG}": lambda path: read_run(path.parent),
    f"0.2/{SOURCE}": lambda path: read_run(path.parent),
    "pairs.csv": pairs_in_csv,
    "log.csv": read_log,
    RECIPE: lambda path: Manifest.load(path.parent),
    STATE: lambda path: Manifest.load(path.parent),
    SUMMARY: lambda path: read_summary(path.parent, _MANIFEST),
    MODEL: _read_model,
}
