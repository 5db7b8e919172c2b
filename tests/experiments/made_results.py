"""Output folders as if experiments had been run, with scores from a formula."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sparseshot.experiments.experiment import Experiment, Method, Run, Subject
from sparseshot.experiments.results import PANELS, plan_path, run_folder
from sparseshot.files import make_folder, write_json
from sparseshot.training.logs import COLUMNS
from sparseshot.work import State

Scores = Callable[[Run], tuple[float, float]]


def plausible(run: Run) -> tuple[float, float]:
    """Return a score at 0.5 and a calibrated one that look like the real ones."""
    few = 1 - run.fraction
    noise = 0.01 * np.sin(7 * run.seed + 13 * run.fraction + len(run.method.name))
    calibrated = 0.78 - 0.08 * few**4 - 0.01 * len(run.method.name) / 5 + noise
    if run.method.loss.startswith("ece"):
        return float(calibrated - 0.2 * few**8), float(calibrated)
    return float(calibrated * min(1.0, 1.6 * run.fraction**1.5)), float(calibrated - 0.02 * few)


def metrics_of(run: Run, half: float, calibrated: float) -> dict[str, Any]:
    def score(value: float, threshold: float) -> dict[str, float]:
        return {
            "threshold": threshold,
            "pooled": value,
            "mean": value - 0.01,
            "low": value - 0.03,
            "high": value + 0.03,
            "precision": value,
            "recall": value,
        }

    recalls = {name: {"half": half, "calibrated": calibrated} for name in run.subject.classes}
    return {
        "run": asdict(run),
        "config": vars(run.config()),
        "evaluation": {
            "task": run.task,
            "images": 13,
            "cells": 871,
            "half": score(half, 0.5),
            "calibrated": score(calibrated, 0.3),
            "best": score(calibrated + 0.005, 0.33),
        },
        "exclusive_recall": recalls,
        "training": {"images": 30, "marks": round(2000 * run.fraction)},
        "seconds": {"training": 100.0, "all": 118.0 + run.seed},
        "resumed": False,
        "memory_bytes": {"process": 812_000_000},
        "machine": {"processor": "Made CPU", "cores": 2, "threads": 1, "gpu": None, "system": "Linux x86_64"},
        "versions": {"sparseshot": "0.1.0", "torch": "2.13.0"},
        "warnings": [],
    }


def runs_of(
    datasets: Iterable[str],
    methods: Sequence[Method],
    fractions: Sequence[float],
    seeds: Sequence[int] = (0,),
) -> tuple[Run, ...]:
    """Return every combination, all of them segmentation."""
    subjects = map(Subject, datasets)
    return tuple(
        Run(subject, "segment", method, fraction, seed, "quick")
        for seed, fraction, subject, method in product(seeds, fractions, subjects, methods)
    )


def write_results(
    out: Path,
    experiment: Experiment,
    *,
    scores: Scores = plausible,
    failed: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
) -> None:
    """Write an experiment as if all of it had been run, but for some runs."""
    make_folder(out / "plans")
    write_json(plan_path(out, experiment.name), experiment)
    for run in experiment.runs:
        folder = run_folder(out, run.name)
        if run.name in missing:
            continue
        make_folder(folder)
        if run.name in failed:
            write_json(folder / "state.json", State(error="not enough <memory>"))
            continue
        (folder / "metrics.json").write_text(json.dumps(metrics_of(run, *scores(run))))
        _write_log(folder / "log.csv", run)
        make_folder(folder / PANELS)
        for image in ("training", "test"):
            for column in ("image", "marks", "truth", "half", "calibrated"):
                Image.new("RGB", (32, 32), (200, 120, 180)).save(folder / PANELS / f"{image}-{column}.png")


def _write_log(path: Path, run: Run) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for step in range(10, 410, 10):
            row: dict[str, float] = {"step": step, "loss": 1 / step}
            if run.method.loss.startswith("ece"):
                done = step / 400
                row |= {
                    "excluded": (1 - run.fraction) * 0.15 * done,
                    "exclusion_precision": 0.5 + 0.4 * done * (1 - run.fraction),
                    "exclusion_recall": 0.9 * done,
                }
            if run.method.loss == "adaptive":
                row |= {"marked_share": 0.9 * run.fraction, "true_marked_share": run.fraction}
                row["alpha"] = 0.45 * run.fraction / (1 - 0.45 * run.fraction)
            writer.writerow(row)
