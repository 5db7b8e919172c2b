"""A prediction for other processes to run, and to be killed in.

A fork server imports this module once, so that its children begin with everything loaded and compiled.
"""

import tempfile
from pathlib import Path

import torch
from tests.prediction.networks import random_detector, save

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.prediction import Model, Throughput, predict_slide

SLIDE = SyntheticTissue(seed=4, size_px=(800, 1660), tissue_fraction=0.6)
TILE_PX = 64


def make_run(folder: Path) -> Path:
    return save(random_detector(classes=("tumour", "other"), threshold=0.8), folder)


def predict_here(run: Path, folder: Path) -> None:
    torch.set_num_threads(1)  # threads of its parent are not there after a fork
    model = Model.load(run, device="cpu", precision="32")
    predict_slide(SLIDE, model, folder, throughput=Throughput(TILE_PX, threads=1))


def warm_up() -> None:
    """Predict a little, so that children of this process need not compile or import."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        model = Model.load(make_run(Path(name, "run")), device="cpu", precision="32")
        slide = SyntheticTissue(seed=1, size_px=(300, 300), tissue_fraction=1)
        predict_slide(slide, model, Path(name, "out"), throughput=Throughput(threads=1))


warm_up()
