"""The numbers of all runs as one small JSON file."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparseshot.experiments.results import Result, Results
from sparseshot.files import make_folder, replacing


def raw_metrics(results: Results) -> dict[str, Any]:
    """Return the numbers of every planned run, rounded to four digits."""
    done = [result.metrics for result in results.results.values() if result.metrics is not None]
    return {
        "experiments": {experiment.name: experiment.title for experiment in results.experiments},
        "machines": _distinct(metrics["machine"] for metrics in done),
        "versions": _distinct(metrics["versions"] for metrics in done),
        "runs": [_run(result) for result in results.results.values()],
    }


def write_raw_metrics(results: Results, path: Path) -> None:
    """Write :func:`raw_metrics`, a run per line."""
    values = raw_metrics(results)
    lines = ",\n  ".join(json.dumps(run, ensure_ascii=False, allow_nan=False) for run in values.pop("runs"))
    head = json.dumps(values, indent=1, ensure_ascii=False)[:-2]
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_text(f'{head},\n "runs": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def _run(result: Result) -> dict[str, Any]:
    run = result.run
    entry: dict[str, Any] = {
        "name": run.name,
        "dataset": run.subject.dataset,
        "task": run.task,
        "method": run.method.name,
        "fraction": run.fraction,
        "seed": run.seed,
        "profile": run.profile,
        "state": result.state,
    }
    if run.subject.marking != "random":
        entry["marking"] = run.subject.marking
    if run.subject.classes:
        entry["classes"] = list(run.subject.classes)
    if result.failure is not None:
        entry["error"] = str(result.failure)
    if result.metrics is not None:
        for point in ("half", "calibrated", "best"):
            entry[point] = _rounded(result.metrics["evaluation"][point])
        if result.metrics["exclusive_recall"]:
            entry["exclusive_recall"] = {
                name: _rounded(values) for name, values in result.metrics["exclusive_recall"].items()
            }
        if (estimate := result.marked_share()) is not None:
            entry["marked_share"] = _rounded(estimate)
        entry["marks"] = result.metrics["training"]["marks"]
        entry["seconds"] = round(result.seconds, 1)
        entry["memory_mb"] = None if result.memory_bytes is None else round(result.memory_bytes / 1e6)
    return entry


def _rounded(values: Mapping[str, float | None] | None) -> dict[str, float | None] | None:
    if values is None:
        return None
    return {  # JSON has no NaN, the precision where nothing was found
        name: None if value is None or math.isnan(value) else round(value, 4)
        for name, value in values.items()
    }


def _distinct(values: Any) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())
