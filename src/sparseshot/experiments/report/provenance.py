"""The part of the report that tells what was run, how long it took, on what, and what went wrong."""

from collections.abc import Sequence

import numpy as np

from sparseshot.experiments.paper import paper_source
from sparseshot.experiments.progress import duration
from sparseshot.experiments.report.comparisons import TASK_WORDS
from sparseshot.experiments.report.document import Block, Bullets, Fold, Heading, Paragraph, Table
from sparseshot.experiments.results import Result, Results


def runs(results: Results) -> list[Block]:
    """Tell what was run, how long it took, on what, and what went wrong."""
    done = [result for result in results.results.values() if result.state == "done"]
    blocks: list[Block] = [Heading(2, "What was run")]
    for experiment in results.experiments:
        profiles = " and ".join(sorted({run.profile for run in experiment.runs}))
        states = [result.state for result in results.of(experiment)]
        blocks.append(
            Paragraph(
                f"`sparseshot experiment {experiment.name} --profile {profiles} --root DATA --out DIR`: "
                f"{states.count('done')} of {len(states)} runs."
            )
        )
    if done:
        blocks.append(Paragraph(_total(done)))
        blocks.append(_times(done))
    failed = [result for result in results.results.values() if result.failure is not None]
    if failed:
        blocks.append(Heading(3, f"Failed runs ({len(failed)})"))
        blocks.append(Table(["run", "error"], [[r.run.name, str(r.failure)] for r in failed], words=2))
    missing = [result.run.name for result in results.results.values() if result.state == "missing"]
    if missing:
        blocks.append(
            Fold(f"Missing runs ({len(missing)})", [Paragraph(", ".join(f"`{n}`" for n in missing))])
        )
    warned = [
        f"`{result.run.name}`: {text}"
        for result in done
        if result.metrics
        for text in result.metrics["warnings"]
    ]
    if warned:
        blocks.append(Fold(f"Warnings ({len(warned)})", [Bullets(warned)]))
    if done:
        blocks.append(Fold(f"Every run ({len(done)})", [_every_run(done)]))
    blocks.append(Paragraph(f"The paper's numbers: {paper_source()}", quiet=True))
    return blocks


def _total(done: Sequence[Result]) -> str:
    machines = {
        f"{m['gpu'] or m['processor']} ({m['cores']} cores), threads a run: {m['threads']}"
        for result in done
        if result.metrics and (m := result.metrics["machine"])
    }
    versions = {
        ", ".join(f"{name} {number}" for name, number in result.metrics["versions"].items())
        for result in done
        if result.metrics
    }
    return (
        f"{duration(sum(result.seconds for result in done))} of computing in all, "
        f"on {'; '.join(sorted(machines))}. "
        f"Versions: {'; '.join(sorted(versions))}."
    )


def _times(done: Sequence[Result]) -> Table:
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in done:
        grouped.setdefault((result.run.subject.name, result.run.task), []).append(result)
    rows = []
    for (subject, task), group in grouped.items():
        seconds = [result.seconds for result in group]
        memory = [result.memory_bytes for result in group if result.memory_bytes is not None]
        rows.append(
            [
                subject,
                TASK_WORDS[task],
                str(len(group)),
                duration(float(np.median(seconds))),
                duration(max(seconds)),
                f"{max(memory) / 1e6:.0f} MB" if memory else "unknown",
            ]
        )
    return Table(["data set", "task", "runs", "median time", "longest", "most memory"], rows, words=2)


def _every_run(done: Sequence[Result]) -> Table:
    rows = []
    for result in done:
        assert result.metrics is not None
        scores = [result.score(point) for point in ("half", "calibrated", "best")]
        threshold = (result.metrics["evaluation"]["calibrated"] or {}).get("threshold")
        rows.append(
            [
                result.run.name,
                str(result.metrics["training"]["marks"]),
                *("" if score is None else f"{score:.3f}" for score in scores),
                "" if threshold is None else f"{threshold:.2f}",
                duration(result.seconds) + (" (resumed)" if result.metrics["resumed"] else ""),
                "" if result.memory_bytes is None else f"{result.memory_bytes / 1e6:.0f} MB",
            ]
        )
    header = ["run", "marks", "at 0.5", "calibrated", "best possible", "threshold", "time", "memory"]
    return Table(header, rows)
