"""Data sets in the publishers' layouts, small enough for runs of seconds."""

from pathlib import Path

import numpy as np
from PIL import Image
from tests.training.blobs import blobs

from sparseshot.cells import rasterise, write_cells
from sparseshot.experiments import Experiment, read_experiment

TINY_SETTINGS = """
[settings]
mpp = 0.25
width = 4
depth = 2
steps = 8
batch = 4
crop_px = 32
validations = 2
checkpoint_every = 2
log_every = 2
mark_radius_um = 1.25
"""


def tiny_tnbc(root: Path) -> Path:
    """Write an image of 96 × 96 for two patients to train on, one to calibrate on, one to test on."""
    for seed, patient in enumerate(("01", "02", "07", "09")):
        slide, cells = blobs(seed, size=96, count=12, mpp=0.25)
        image = root / "tnbc" / "TNBC_NucleiSegmentation" / f"Slide_{patient}" / f"{patient}_1.png"
        labels = root / "tnbc" / "labels_instance" / f"{patient}_1_label.png"
        for path in (image, labels):
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(slide.pixels).save(image)
        Image.fromarray(rasterise(cells, (96, 96), by="instance").astype(np.uint16)).save(labels)
    return root


def tiny_brca(root: Path) -> Path:
    """Write three images with points of three classes: "Y X class" rows, and the publisher's lists."""
    folder = root / "brca_m2c"
    for split, seed in (("train", 0), ("val", 1), ("test", 2)):
        slide, cells = blobs(seed, size=96, count=12, mpp=0.5)
        name = f"TCGA-A7-AAA{seed}-01Z_{seed}"
        for part in ("images", "labels"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        Image.fromarray(slide.pixels).save(folder / "images" / f"{name}.png")
        rows = [f"{y:.0f} {x:.0f} {1 + number % 3}" for number, (x, y) in enumerate(cells.xy)]
        (folder / "labels" / f"{name}_gt_class_coords.txt").write_text("\n".join(rows))
        (folder / f"brca_ds_{split}.txt").write_text(f"{name}.png\n")
    return root


def own_images(folder: Path) -> None:
    """Write three images with GeoJSON marks, and two CSV files that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(3):
        slide, cells = blobs(seed, size=96, count=12, mpp=0.25)
        Image.fromarray(slide.pixels).save(folder / f"{seed}.png")
        write_cells(cells, folder / f"{seed}.geojson")
    (folder / "train.csv").write_text("slide,marks\n0.png,0.geojson\n1.png,1.geojson\n")
    (folder / "test.csv").write_text("slide,marks\n2.png,2.geojson\n")


OWN_DATA = """
[data.mine]
title = "My slides"
train = "images/train.csv"
test = "images/test.csv"
mpp = 0.25
"""


def own_experiment(folder: Path) -> Experiment:
    """Write an experiment on the user's own images, and read it."""
    own_images(folder / "images")
    path = folder / "mine.toml"
    path.write_text(experiment_text(datasets=["mine"]) + OWN_DATA)
    return read_experiment(path)


def experiment_text(**grid: object) -> str:
    """Write an experiment with one grid on the tiny data."""
    values = {"datasets": ["tnbc"], "tasks": ["segment"], "losses": ["ece", "ce"], "fractions": [0.5]} | grid
    lines = "\n".join(f"{key} = {value}" for key, value in values.items())
    return f'title = "Tiny"\nabout = "Seconds."\n{TINY_SETTINGS}\n[[grid]]\n{lines}\n'
