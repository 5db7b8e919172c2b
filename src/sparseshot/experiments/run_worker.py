"""One run: train, evaluate, draw panels, write metrics."""

import json
import resource
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import TypeAdapter

from sparseshot.errors import SparseshotWarning
from sparseshot.experiments.clicks import spend_clicks
from sparseshot.experiments.demo import find_on_slide
from sparseshot.experiments.experiment import SYNTHETIC, Run
from sparseshot.experiments.results import COLUMNS, IMAGES, METRICS, PANELS, TRAINING, panel_path
from sparseshot.experiments.running import recipe_in
from sparseshot.files import make_folder, replacing, write_json
from sparseshot.images import Grid
from sparseshot.metrics import Counts, exclusive_counts, exclusive_recall
from sparseshot.models.checkpoint import Checkpoint, versions
from sparseshot.models.device import circumstances
from sparseshot.models.kinds import OTHER
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.evaluation import evaluate
from sparseshot.training.pictures import picture_row
from sparseshot.training.runs import train_run
from sparseshot.work import Report, WorkFolder, ignore
from sparseshot.work.folder import LAST, ROUNDS


def perform_job(run: Mapping[str, Any], root: str | None, folder: str, *, report: Report = ignore) -> None:
    """Perform a run that is given as JSON values."""
    place = None if root is None else Path(root)
    perform(TypeAdapter(Run).validate_python(run), place, Path(folder), report)


def perform(run: Run, root: Path | None, folder: Path, report: Report = ignore) -> None:
    """Perform a run, or finish an interrupted one."""
    with WorkFolder.claimed(folder, recipe_in(run, folder)) as work:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SparseshotWarning)
            metrics = _metrics(run, root, folder, report)
        for warning in caught:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
        texts = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, SparseshotWarning))
        machine = circumstances(run.config().precision)
        facts = {"memory_bytes": peak_memory_bytes(), "machine": machine, "versions": versions()}
        write_json(folder / METRICS, {"run": run, **metrics, **facts, "warnings": list(texts)})
        work.finish(METRICS)


def _metrics(run: Run, root: Path | None, folder: Path, report: Report) -> dict[str, Any]:
    start = time.perf_counter()
    resumed = (folder / TRAINING / LAST).exists() or (folder / ROUNDS).exists()
    if run.method.policy:
        checkpoint, metrics = _with_clicks(run, root, folder, report)
    elif run.subject.dataset == SYNTHETIC and root is not None:
        checkpoint, metrics = find_on_slide(run, root, folder, report)
    else:
        checkpoint, metrics = _with_marks(run, root, folder, report)
    metrics["seconds"]["all"] = time.perf_counter() - start
    config = json.loads(checkpoint.config.to_json())
    return {"config": config, "exclusive_recall": {}, "resumed": resumed, **metrics}


def _with_marks(
    run: Run, root: Path | None, folder: Path, report: Report
) -> tuple[Checkpoint, dict[str, Any]]:
    start = time.perf_counter()
    request = run.request(root)
    checkpoint = train_run(request.config, request.data, folder / TRAINING, weak=request.weak, report=report)
    seconds = {"training": time.perf_counter() - start}
    test = run.subject.test_images(root)
    evaluation = evaluate(checkpoint, test)
    finds_points = not checkpoint.config.make_task().paints_marks
    recalls = exclusive_recalls(checkpoint, test) if finds_points and run.subject.classes else {}
    training, _ = request.data.load()
    labelling = checkpoint.config.labelling
    marks = [len(labelling.positives(item.marks)) for item in training]
    cells = [len(labelling.positives(known.cells)) for known in test]
    # The images with the most cells, which are the same for every method.
    given, unseen = training[marks.index(max(marks))], test[cells.index(max(cells))]
    write_panels(folder, checkpoint, given=given, unseen=unseen)
    counts = {"images": len(marks), "marks": sum(marks)}
    return checkpoint, {
        "evaluation": evaluation,
        "exclusive_recall": recalls,
        "training": counts,
        "seconds": seconds,
    }


def _with_clicks(
    run: Run, root: Path | None, folder: Path, report: Report
) -> tuple[Checkpoint, dict[str, Any]]:
    checkpoint, rounds = spend_clicks(run, root, folder, report)
    return checkpoint, {
        "evaluation": rounds[-1],
        "training": {"marks": rounds[-1]["marks"]},
        "rounds": rounds,
        "seconds": {"training": sum(each["seconds"] for each in rounds)},
    }


def write_panels(
    folder: Path, checkpoint: Checkpoint, *, given: AnnotatedSlide, unseen: AnnotatedSlide
) -> None:
    """Write the panels of a training image and of a test image, one small file each."""
    make_folder(folder / PANELS)
    shown = (replace(given, truth=given.cells), unseen)
    for name, image in zip(IMAGES, shown, strict=True):
        grid = Grid.over(image.slide, checkpoint.mpp)
        inside = np.s_[: grid.height, : grid.width]  # panels of smaller images are padded
        panels = picture_row(checkpoint, image, threshold=0.5)
        panels["half"] = panels.pop("errors")
        if checkpoint.threshold is not None:
            at = picture_row(checkpoint, image, threshold=checkpoint.threshold)
            panels["calibrated"] = at["errors"]
        for column in (column for column in COLUMNS if column in panels):
            with replacing(panel_path(folder, name, column)) as temporary:
                Image.fromarray(panels[column][inside]).save(temporary, "PNG")


def exclusive_recalls(
    checkpoint: Checkpoint, images: Sequence[AnnotatedSlide]
) -> dict[str, dict[str, float]]:
    """Return the exclusive recall of each class at threshold 0.5 and at the calibrated one."""
    network = checkpoint.network()
    thresholds = {"half": 0.5}
    if checkpoint.threshold is not None:
        thresholds["calibrated"] = checkpoint.threshold
    classes = [name for name in checkpoint.classes if checkpoint.kinds is None or name != OTHER]
    recalls: dict[str, dict[str, float]] = {name: {} for name in classes}
    for kind, threshold in thresholds.items():
        own, other = ({name: Counts() for name in classes} for _ in range(2))
        for known in images:
            region = known.look_at(network, checkpoint.config, threshold=threshold)
            found = region.cells
            if checkpoint.kinds is not None:
                found = checkpoint.kinds.assign(*region.cells_and_features)
            truth = replace(known.cells, mpp=known.slide.mpp)
            # A file of marks names only the classes that occur in it.
            truth = truth.with_classes(dict.fromkeys((*truth.classes, *classes)))
            for name in classes:
                one, two = exclusive_counts(truth, found.of_class(name), of_class=name)
                own[name] += one
                other[name] += two
        for name in classes:
            recalls[name][kind] = exclusive_recall(own[name], other[name])
    return recalls


def peak_memory_bytes() -> dict[str, int]:
    """Return the peak memory of this process and of a GPU, where known."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks = {"process": peak if sys.platform == "darwin" else peak * 1024}  # Linux counts in KiB
    if torch.cuda.is_available():
        peaks["gpu"] = torch.cuda.max_memory_allocated()
    return peaks
