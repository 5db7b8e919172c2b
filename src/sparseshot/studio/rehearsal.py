"""Warm-up training and prediction, so that those a person waits for are fast.

Loading and compiling for the first time takes seconds, and a minute on a new installation.
"""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sparseshot.cells import Cells
from sparseshot.errors import SparseshotError
from sparseshot.models.config import TrainConfig
from sparseshot.prediction import Model
from sparseshot.prediction.predict import predict_area
from sparseshot.studio.project import Project
from sparseshot.training.annotated import TrainingData
from sparseshot.training.runs import train_run

_APART_UM = 100.0
_MARKS = 5
"""A square of this many marks a side: some can be held out, as in a real run."""


def rehearse(project: Project, *, is_wanted: Callable[[], bool]) -> None:
    """Train for one step on invented marks and predict around them.

    Args:
        project: its first slide is read.
        is_wanted: returns whether there is still time for it.
    """
    slide = next(iter(project.slides))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            opened = project.slide(slide)
            reach = min(_APART_UM / opened.mpp, min(opened.size) / (_MARKS + 1))
            steps = (np.arange(_MARKS) - _MARKS // 2) * reach
            x, y = np.meshgrid(*(length / 2 + steps for length in opened.size))
            marks = Cells(np.stack([x.ravel(), y.ravel()], axis=1), mpp=opened.mpp)
            marks.write(Path(folder, "marks.parquet"))
            pairs = ((project.path(slide), Path(folder, "marks.parquet")),)
            data = TrainingData(pairs=pairs, mpp=project.entry(slide).mpp)
            if is_wanted():
                config = TrainConfig(task="detect", steps=1, validations=1)
                checkpoint = train_run(config, data, Path(folder, "run"))
            if is_wanted():
                model = Model.load(checkpoint, threshold=0.5, device="cpu")
                predict_area(opened, model, (x.min(), y.min(), x.max(), y.max()))
        except (SparseshotError, OSError, ValueError):
            return  # the job itself will say what is wrong
