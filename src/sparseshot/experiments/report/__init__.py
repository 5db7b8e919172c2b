"""The report on an output folder: one HTML page, one Markdown file, the figures, the raw metrics."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparseshot.experiments.report.comparisons import compare
from sparseshot.experiments.report.sections import (
    comparison_section,
    exclusion_section,
    kinds_section,
    panel_section,
    paper_table_section,
    provenance_section,
    summary_section,
)
from sparseshot.experiments.results import Result, Results
from sparseshot.files import make_folder, replacing
from sparseshot.pages import Part, Parts, pictures_of, to_markdown, write_page

__all__ = ["make_report", "raw_metrics", "write_raw_metrics", "write_report"]


def make_report(results: Results, *, restricted_images: bool = False) -> Parts:
    """Return the report as Markdown and pictures; the same runs make the same report.

    Args:
        results: the runs.
        restricted_images: also show images whose licence restricts redistribution.
    """
    comparisons = compare(results)
    parts = summary_section(results, comparisons)
    for comparison in comparisons:
        parts += comparison_section(comparison)
    for experiment in results.experiments:
        if experiment.paper_table is not None:
            parts += paper_table_section(experiment, results)
    parts += kinds_section(results)
    parts += exclusion_section(comparisons)
    parts += panel_section(comparisons, restricted=restricted_images)
    return parts + provenance_section(results)


def write_report(parts: Sequence[Part], page: Path, *, figures: Path | None = None) -> list[Path]:
    """Write the page, a Markdown file of the same name beside it and, if asked, the figures as files.

    Without ``figures`` the Markdown has text and tables only.
    """
    make_folder(page.parent)
    write_page(parts, page)
    folder = None if figures is None else Path(os.path.relpath(figures, page.parent)).as_posix()
    contents = {page.with_suffix(".md"): to_markdown(parts, pictures=folder).encode()}
    if figures is not None:
        make_folder(figures)
        contents |= {figures / file: picture.content for file, picture in pictures_of(parts).items()}
    for path, content in contents.items():
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return [page, *contents]


def raw_metrics(results: Results) -> dict[str, Any]:
    """Return the numbers of every planned run, rounded to four digits, with its machine and versions."""
    done = [result.metrics for result in results.results.values() if result.metrics is not None]
    machines, versions = (_distinct(metrics[key] for metrics in done) for key in ("machine", "versions"))
    runs = [_run(result) for result in results.results.values()]
    for run, result in zip(runs, results.results.values(), strict=True):
        if result.metrics is not None:
            run["machine"] = machines.index(result.metrics["machine"])
            run["version"] = versions.index(result.metrics["versions"])
    return {
        "experiments": {experiment.name: experiment.title for experiment in results.experiments},
        "machines": machines,
        "versions": versions,
        "runs": runs,
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
        "dataset": run.subject.dataset.rpartition(":")[2],
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
        memory = metrics["memory_bytes"].get("process")
        entry |= {point: metrics["evaluation"][point] for point in ("half", "calibrated", "best")}
        entry |= {
            "exclusive_recall": metrics["exclusive_recall"],
            "kinds": metrics["evaluation"].get("kinds"),
            "marked_share": result.marked_share(),
            "marks": metrics["training"]["marks"],
            "rounds": [_round(each) for each in metrics.get("rounds", [])],
            "seconds": round(result.seconds, 1),
            "memory_mb": None if memory is None else round(memory / 1e6),
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
