"""How the starter is made: a network that learns on synthetic tissue and on openly licensed real tissue.

On synthetic tissue every cell and its kind are known; what carries over from it to real slides is variety, so
each slide differs from the others in stain, organ, scanner and resolution
(:func:`~sparseshot.datasets.synthetic.varied_tissue`). Of the real sets only those are learned from whose
licence allows weights to be shipped. A set without kinds teaches only finding.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sparseshot.datasets import dataset_info, load_dataset
from sparseshot.datasets.synthetic import varied_tissue
from sparseshot.errors import InputError
from sparseshot.files import locked
from sparseshot.images import open_slide
from sparseshot.metrics import AreaCounts, f1_score
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, TrainSettings
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.inference import WindowOutputs
from sparseshot.models.model_files import save_starter
from sparseshot.models.segment import Segmenter
from sparseshot.training.annotated import AnnotatedSlide, open_samples
from sparseshot.training.canvas import Canvas
from sparseshot.training.evaluation import LADDER
from sparseshot.training.held_out import make_canvas, whole
from sparseshot.training.loop import train
from sparseshot.work import Report, ignore

KINDS = ("lymphocyte", "tumour", "stromal")
"""Kinds that a starter tells apart."""

REAL_SETS = ("tnbc", "brca_m2c", "dsb2018", "sbu_miccai")
"""Real sets to learn from."""

_SHARES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "detect": {"tnbc": 0.275, "brca_m2c": 0.4, "dsb2018": 0.225, "sbu_miccai": 0.1},
        "segment": {"tnbc": 0.4, "brca_m2c": 0.4, "dsb2018": 0.1, "sbu_miccai": 0.1},
    }
)
"""Share of the crops of real tissue that each set gets; that of a set that is left out is synthetic."""

_REAL: Mapping[str, float] = MappingProxyType({"detect": 0.5, "segment": 0.8})
"""Share of the crops that is real tissue."""

_RATES: Mapping[str, Sequence[float]] = MappingProxyType({"detect": (3e-3,), "segment": (3e-3, 1.5e-3)})
"""Highest learning rate of each stage."""

_VALIDATION_SETS = ("tnbc", "brca_m2c", "sbu_miccai")
_SIZE_PX = 512
_HELD_OUT = 16
_SCALES = (0.7, 0.85, 1.0, 1.2, 1.4)
"""A real image is learned at several sizes, because magnification differs from scanner to scanner."""

_OUTLINE_LADDER = np.linspace(0.3, 0.7, 9)
_UNSURE_UM = 7.0
"""How far a nucleus that is marked by a point may extend."""


def make_starter(
    task: str,
    folder: Path,
    *,
    slides: int,
    steps: int,
    seed: int = 0,
    width: int = 16,
    data: Path | None = None,
    without: Sequence[str] = (),
    report: Report = ignore,
) -> Checkpoint:
    """Train a starter, or resume; write ``TASK.safetensors`` into the folder.

    A segmenter has two stages: the first outlines the cells that a set has only points of, and the second
    goes on with other slides and crops and learns from these outlines too.

    Args:
        task: ``detect`` or ``segment``.
        folder: of the starters; each stage has a run folder of its own inside.
        slides: number of synthetic slides of each stage.
        steps: optimiser steps of each stage.
        seed: of slides, weights and crops.
        width: channels of the first level of the network.
        data: folder of the data sets :data:`REAL_SETS`, whose training images are learned from too, and whose
            validation images choose the threshold; None: synthetic tissue alone.
        without: names of real sets to leave out altogether, so that the starter can be tested on them.
        report: receives the progress of the training.
    """
    left_out = {dataset_info(name).name for name in without}
    if unknown := sorted(left_out - set(REAL_SETS)):
        raise InputError(f"{unknown[0]} is not learned from; --without takes {', '.join(REAL_SETS)}")
    sets = {} if data is None else {name: data for name in REAL_SETS if name not in left_out}
    settings = TrainSettings(
        task=task,  # type: ignore[arg-type]  # checked there
        start=SCRATCH,
        loss="ce",
        width=width,
        stride=4 if task == "detect" else TrainSettings.stride,
        context=task == "detect",
        crop_px=192,
        batch=4,
        heights=task == "segment",
        kind_features=64,
        kinds=KINDS,
        steps=steps,
        near_marks=0.0,
        mark_radius_um=2.0,
        stain_jitter=0.7,
        validations=1,
        checkpoint_every=500,
        log_every=50,
    )
    with locked(folder):
        held_out = _synthetic(seed + 2, _HELD_OUT, settings.mpp)
        parts = [part for item in held_out for part in whole(item, settings)]
        shares = {name: _REAL[task] * _SHARES[task][name] for name in sets}
        begin: Checkpoint | None = None
        for number, rate in enumerate(_RATES[task], 1):
            config = replace(settings, seed=seed + number - 1, learning_rate=rate)
            canvases = _canvases(
                _synthetic(config.seed, slides, config.mpp), config, 1 - sum(shares.values())
            )
            for name, share in shares.items():
                canvases += _canvases(_scaled(name, sets[name], begin), config, share)
            begin = train(config, canvases, parts, folder / f"{task}-{number}", start=begin, report=report)
        assert begin is not None
        chosen_on = [] if data is None else validation_images(task, data, without=left_out)
        checkpoint = replace(begin, threshold=best_threshold(begin, chosen_on or [held_out]))
        save_starter(checkpoint, folder / f"{task}.safetensors")
    return checkpoint


def _synthetic(seed: int, count: int, mpp: float) -> list[AnnotatedSlide]:
    slides = [varied_tissue(seed, number, size_px=_SIZE_PX, mpp=mpp) for number in range(count)]
    return [AnnotatedSlide(slide, slide.cells(outlines=True)) for slide in slides]


def _scaled(name: str, root: Path, start: Checkpoint | None) -> Iterable[AnnotatedSlide]:
    """Return the training images of a set, each at several sizes.

    Where the set has points, a segmenter to start from outlines the cells around them.
    """
    network = None if start is None or start.config.task == "detect" else start.network()
    for sample in load_dataset(name, root, split="train"):
        cells = sample.cells
        if cells.outline is None and start is not None and network is not None:
            (item,) = open_samples([sample])
            region = item.look_at(network, start.config, threshold=start.threshold or 0.5)
            assert isinstance(region.finder, Segmenter)
            outline = region.finder.outlines_around(region.window, region.parts, cells.xy)
            cells = replace(cells, outline=outline)
        for scale in _SCALES:
            slide = open_slide(sample.image, mpp=sample.mpp * scale, force_mpp=True)
            yield AnnotatedSlide(slide, replace(cells, mpp=slide.mpp))


def _canvases(items: Iterable[AnnotatedSlide], config: TrainSettings, share: float) -> list[Canvas]:
    """Return canvases that together get a share of the crops."""
    canvases = [make_canvas(item, config, kinds=config.kinds, unsure_um=_UNSURE_UM) for item in items]
    area = sum(canvas.area_px for canvas in canvases)
    for canvas in canvases:
        canvas.weight = share / area
    return canvases


def validation_images(
    task: str, data: Path, *, without: Collection[str] = ()
) -> list[Sequence[AnnotatedSlide]]:
    """Return the images that choose the threshold, by set; BRCA-M2C has points only."""
    return [
        open_samples(load_dataset(name, data, split="validation"))
        for name in _VALIDATION_SETS
        if name not in without and (task == "detect" or name != "brca_m2c")
    ]


def best_threshold(checkpoint: Checkpoint, sets: Sequence[Sequence[AnnotatedSlide]]) -> float:
    """Return the threshold at which the mean score of the sets is highest: F1, or PQ of outlines."""
    network, config = checkpoint.network(), checkpoint.config
    has_outlines = config.make_task().paints_marks
    ladder = _OUTLINE_LADDER if has_outlines else LADDER
    score = _panoptic_qualities if has_outlines else _f1_scores
    curves = [
        score(((item, item.look_at(network, config, threshold=LOWEST_SCORE)) for item in images), config)
        for images in sets
    ]
    return round(float(np.clip(ladder[np.argmax(np.mean(curves, axis=0))], 0.01, 0.99)), 3)


def _f1_scores(
    seen: Iterable[tuple[AnnotatedSlide, WindowOutputs]], config: TrainSettings
) -> NDArray[np.float64]:
    """Return F1 at each threshold."""
    counts = np.zeros((len(LADDER), 3), np.int64)
    for item, region in seen:
        every = np.ones((region.window.core.height, region.window.core.width), np.bool_)
        truth = config.labelling.positives(item.cells)
        counts += region.finder.hits(region.window, region.parts, truth, every).counts_at(LADDER)
    return np.asarray(f1_score(*counts.T))


def _panoptic_qualities(
    seen: Iterable[tuple[AnnotatedSlide, WindowOutputs]], config: TrainSettings
) -> NDArray[np.float64]:
    """Return PQ at each threshold."""
    areas = [AreaCounts()] * len(_OUTLINE_LADDER)
    for item, region in seen:
        every = np.ones((region.window.core.height, region.window.core.width), np.bool_)
        truth = config.labelling.positives(item.cells)
        for k, threshold in enumerate(_OUTLINE_LADDER.tolist()):
            areas[k] += (
                region.finder.area_counts(region.window, region.parts, truth, every, threshold=threshold)
                or AreaCounts()
            )
    return np.array([area.panoptic_quality for area in areas])
