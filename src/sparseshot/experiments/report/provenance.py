"""The section on the runs: commands, time, memory, machines, errors and warnings."""

import shlex
from collections.abc import Sequence

import numpy as np

from sparseshot.experiments.experiment import Experiment
from sparseshot.experiments.paper import paper_source
from sparseshot.experiments.report.comparisons import TASK_WORDS
from sparseshot.experiments.results import Result, Results
from sparseshot.pages import Parts, code, escape, table
from sparseshot.terminal import duration


def provenance_section(results: Results) -> Parts:
    """Return the commands, their cost, errors and warnings."""
    parts: Parts = ["## Runs"]
    for experiment in results.experiments:
        states = [result.state for result in results.of(experiment)]
        parts.append(f"{code(_command(experiment))}: {states.count('done')} of {len(states)} runs.")
    if done := results.in_state("done"):
        parts += [_machines(done), _costs(done)]
    if failed := results.in_state("failed"):
        rows = [[code(result.run.name), escape(result.failure)] for result in failed]
        parts += ["### Failed runs", table(["run", "error"], rows, text_columns=2)]
    if missing := results.in_state("missing"):
        parts += ["### Missing runs", ", ".join(code(result.run.name) for result in missing)]
    rows = [
        [code(result.run.name), escape(text)]
        for result in done
        if result.metrics
        for text in result.metrics["warnings"]
    ]
    if rows:
        parts += ["### Warnings", table(["run", "warning"], rows, text_columns=2)]
    return [*parts, f"*The paper's numbers: {escape(paper_source())}*"]


def _command(experiment: Experiment) -> str:
    """Return a command that runs the experiment."""
    words = ["sparseshot", "experiment", experiment.file or experiment.name]
    words += ["--profile", experiment.runs[0].profile]
    if any(run.subject.own is None for run in experiment.runs):
        words += ["--root", "DATA"]
    return shlex.join([*words, "--out", "DIR"])


def _machines(done: Sequence[Result]) -> str:
    metrics = [result.metrics for result in done if result.metrics]
    machines = {
        f"{m['gpu'] or m['processor']} ({m['cores']} cores, {m['threads']} threads per run)"
        for m in (each["machine"] for each in metrics)
    }
    versions = {", ".join(f"{name} {v}" for name, v in each["versions"].items()) for each in metrics}
    return (
        f"{duration(sum(result.seconds for result in done))} of computing on "
        f"{escape('; '.join(sorted(machines)))}. Versions: {escape('; '.join(sorted(versions)))}."
    )


def _costs(done: Sequence[Result]) -> str:
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in done:
        grouped.setdefault((result.run.subject.name, result.run.task), []).append(result)
    rows = []
    for (subject, task), group in grouped.items():
        seconds = [result.seconds for result in group]
        memory = [result.memory_bytes for result in group if result.memory_bytes is not None]
        rows.append(
            [
                code(subject),
                TASK_WORDS[task],
                str(len(group)),
                duration(float(np.median(seconds))),
                duration(max(seconds)),
                f"{max(memory) / 1e6:.0f} MB" if memory else "unknown",
            ]
        )
    header = ["data set", "task", "runs", "median time", "longest", "peak memory"]
    return table(header, rows, text_columns=2)
