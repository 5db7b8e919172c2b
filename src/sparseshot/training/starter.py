"""How the starter is made: a network that learns on synthetic tissue, where every cell is known.

What carries over to real slides is variety, so each slide differs from the others in stain, organ, scanner
and resolution (:func:`~sparseshot.datasets.synthetic.varied_tissue`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparseshot.datasets import load_dataset
from sparseshot.datasets.synthetic import varied_tissue
from sparseshot.files import locked
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, TrainConfig
from sparseshot.models.model_files import save_starter
from sparseshot.training.annotated import AnnotatedSlide, open_samples
from sparseshot.training.evaluation import evaluate
from sparseshot.training.loop import train
from sparseshot.training.prepare import make_canvas, whole
from sparseshot.work import Report, ignore

_SIZE_PX = 512
_HELD_OUT = 16
TUNING_SETS = ("tnbc", "monuseg")


def make_starter(
    task: str,
    folder: Path,
    *,
    slides: int,
    steps: int,
    seed: int = 0,
    tune_on: Path | None = None,
    report: Report = ignore,
) -> Checkpoint:
    """Train a starter, or resume; write ``TASK.safetensors`` into the folder.

    Args:
        task: ``detect`` or ``segment``.
        folder: of the starters; the run is in a folder of its own inside.
        slides: number of synthetic slides to learn from.
        steps: optimiser steps.
        seed: of slides, weights and crops.
        tune_on: folder of the data sets :data:`TUNING_SETS`, whose training patients choose the threshold;
            None: the threshold that is best on synthetic tissue.
        report: receives the progress of the training.
    """
    config = TrainConfig(
        task=task,  # type: ignore[arg-type]  # checked there
        start=SCRATCH,
        loss="ce",
        steps=steps,
        seed=seed,
        validations=1,
        checkpoint_every=500,
        log_every=50,
    )
    with locked(folder):
        learned, held_out = _slides(seed, slides, config.mpp), _slides(seed + 1, _HELD_OUT, config.mpp)
        checkpoint = train(
            config,
            [make_canvas(item, config) for item in learned],
            [part for item in held_out for part in whole(item, config)],
            folder / task,
            report=report,
        )
        checkpoint = replace(checkpoint, threshold=_threshold(checkpoint, held_out, tune_on))
        save_starter(checkpoint, folder / f"{task}.safetensors")
    return checkpoint


def _slides(seed: int, count: int, mpp: float) -> list[AnnotatedSlide]:
    slides = [varied_tissue(seed, number, size_px=_SIZE_PX, mpp=mpp) for number in range(count)]
    return [AnnotatedSlide(slide, slide.cells(outlines=True)) for slide in slides]


def _threshold(checkpoint: Checkpoint, held_out: Sequence[AnnotatedSlide], root: Path | None) -> float:
    """Return the threshold that is best on the training patients of real sets, or on synthetic slides."""
    sets = [held_out]
    if root is not None:
        sets = [open_samples(load_dataset(name, root, split="train")) for name in TUNING_SETS]
    # In logits, because a mean of probabilities near 0 or 1 is no compromise.
    best = np.array([evaluate(checkpoint, images).best.threshold for images in sets])
    return round(float(np.clip(1 / (1 + np.exp(-np.mean(np.log(best / (1 - best))))), 0.01, 0.99)), 3)
