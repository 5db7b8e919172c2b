"""The numbers of all runs as one small JSON file."""

import json
import math
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
    """Return the numbers of a run; missing ones are left out."""
    run, metrics = result.run, result.metrics
    entry: dict[str, Any] = {
        "name": run.name,
        "dataset": run.subject.dataset,
        "task": run.task,
        "method": run.method.name,
        "fraction": run.fraction,
        "seed": run.seed,
        "profile": run.profile,
        "state": result.state,
        "marking": None if run.subject.marking == "random" else run.subject.marking,
        "classes": list(run.subject.classes),
        "error": result.failure,
    }
    if metrics is not None:
        entry |= {point: metrics["evaluation"][point] for point in ("half", "calibrated", "best")}
        entry |= {
            "exclusive_recall": metrics["exclusive_recall"],
            "marked_share": result.marked_share(),
            "marks": metrics["training"]["marks"],
            "rounds": [_round(each) for each in metrics.get("rounds", [])],
            "seconds": round(result.seconds, 1),
            "memory_mb": None if result.memory_bytes is None else round(result.memory_bytes / 1e6),
        }
    return {name: _rounded(value) for name, value in entry.items() if value not in (None, [], {})}


def _round(record: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a round of clicks."""
    scores = {point: record[point]["pooled"] for point in ("half", "calibrated", "best") if record[point]}
    return {name: record[name] for name in ("clicks", "marks", "regions", "steps")} | scores


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float):  # JSON has no NaN, the precision where nothing was found
        return None if math.isnan(value) else round(value, 4)
    return value


def _distinct(values: Any) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())
