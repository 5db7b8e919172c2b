"""``sparseshot experiment`` and ``sparseshot report``: run an experiment and show its results."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import echo, print_json, print_table
from sparseshot.errors import InputError
from sparseshot.terminal import shown_events

if TYPE_CHECKING:
    from sparseshot.experiments import Result
    from sparseshot.work.runner import Runner


@app.command(rich_help_panel=options.RESEARCH)
def experiment(
    name: Annotated[str | None, Argument(help="TOML file, or a name shown by --list.")] = None,
    root: options.OptionalRoot = None,
    out: Annotated[
        Path | None, Option(help="Folder of the runs; finished runs in it are not repeated.")
    ] = None,
    jobs: Annotated[
        int | None, Option(help="Runs in parallel; default: one for each GPU or core.", min=1)
    ] = None,
    only: Annotated[
        list[str] | None, Option(help="Only runs whose names match, as 'tnbc-segment-*'; repeatable.")
    ] = None,
    profile: Annotated[
        Literal["standard", "quick", "paper"] | None,
        Option(help="Settings of the runs, instead of the file's."),
    ] = None,
    list_them: Annotated[bool, Option("--list", help="Show the built-in experiments.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the runs without running them.")] = False,
    cluster: options.Cluster = None,
) -> None:
    """Run what is missing of an experiment: data sets, losses and fractions listed in a TOML file.

    A failed run is recorded and does not stop the others; the exit code is then 1. Run the same command
    again to resume. With `--cluster`, the runs are spread over the nodes of a Ray cluster, which need the
    same folders.

    Example: `sparseshot experiment tnbc-headline --root data --out runs`

    `sparseshot experiment paper` runs all of the paper's figures and tables on the data sets that are in
    `--root`, and says where to get the others. `--dry-run` only lists them.
    """
    from sparseshot.experiments import PAPER, missing_data, open_experiments, run_experiment
    from sparseshot.experiments.running import choose

    if list_them:
        _list_experiments()
        return
    if name is None:
        raise InputError("choose an experiment: a TOML file, or a name of `sparseshot experiment --list`")
    experiments = open_experiments(name, profile=profile)
    runs = {run.name: run for each in experiments for run in each.runs}
    wanted = {run.name: run for run in choose(list(runs.values()), only or ())}
    notes = []
    if name == PAPER and root is not None:  # the sets that are there are run, the others named
        missing = missing_data(list(wanted.values()), root)
        wanted = {name: run for name, run in wanted.items() if run.subject not in missing}
        for subject, cure in missing.items():
            count = sum(run.subject == subject for run in runs.values())
            notes += [
                f"missing: {subject.title}, {count} runs",
                *(f"  {part}" for part in cure.split(", and ")),
            ]
        notes.append("missing: TIL, private; BRCA-M2C is used instead")
    if dry_run:
        print_json(list(wanted))
        print_table((), [[run] for run in wanted])
        notes.append(f"{len(wanted)} of {len(runs)} runs")
    for note in notes:
        echo(note, err=True)
    if dry_run:
        return
    if out is None:
        raise InputError("choose a folder for the runs: --out DIR")
    with resumable(), _runner(cluster, jobs, out, root) as runner, shown_events() as report:
        by_name: dict[str, Result] = {}
        for each in experiments:
            if names := [run.name for run in each.runs if run.name in wanted]:
                results = run_experiment(
                    each,
                    root=root,
                    out=out if cluster is None else out.absolute(),
                    jobs=jobs,
                    runner=runner,
                    only=names,
                    say=partial(echo, err=True),
                    report=report,
                )
                by_name |= {result.run.name: result for result in results if result.ran} | {
                    result.run.name: by_name.get(result.run.name, result) for result in results
                }
    results = list(by_name.values())
    _show(results, out)
    if any(result.state == "failed" for result in results):
        raise typer.Exit(1)


@contextmanager
def _runner(cluster: str | None, jobs: int | None, out: Path, root: Path | None) -> "Iterator[Runner | None]":
    """Join a cluster for the block; None without one."""
    if cluster is None:
        yield None
        return
    from sparseshot.files import make_folder
    from sparseshot.work.ray_cluster import joined
    from sparseshot.work.ray_runner import RayRunner

    with joined(cluster) as nodes:
        make_folder(out)
        nodes.check(out.absolute(), [] if root is None else [root.absolute()])
        yield RayRunner(nodes, jobs)


@app.command(rich_help_panel=options.RESEARCH)
def report(
    folder: Annotated[Path, Argument(help="The --out of `sparseshot experiment`.")],
    out: Annotated[
        Path | None,
        Option(help="HTML page, with a Markdown file beside it; default: FOLDER/report.html."),
    ] = None,
    figures: Annotated[
        Path | None, Option(help="Folder for the figures, which the Markdown then shows.")
    ] = None,
    metrics_json: Annotated[
        Path | None, Option(help="Write the metrics of all runs to one JSON file.")
    ] = None,
    with_restricted_images: Annotated[
        bool,
        Option(
            "--with-restricted-images",
            help="Show images whose licence forbids redistribution. Do not publish such a report.",
        ),
    ] = False,
) -> None:
    """Show the results of runs beside the paper's: one self-contained HTML page, and Markdown.

    Example: `sparseshot report runs --out report.html`
    """
    page = out or folder / "report.html"
    if page.suffix.lower() != ".html":
        raise InputError(f"--out is {page}; its suffix must be .html")
    options.check_paths(folder)
    from sparseshot.experiments import Results
    from sparseshot.experiments.report import make_report, write_raw_metrics, write_report

    results = Results.read(folder)
    parts = make_report(results, restricted_images=with_restricted_images)
    written = write_report(parts, page, figures=figures)
    if metrics_json is not None:
        write_raw_metrics(results, metrics_json)
        written.append(metrics_json)
    print_json({"written": written})
    for path in written:
        echo(path)


def _list_experiments() -> None:
    from sparseshot.experiments import PAPER, open_experiment, open_experiments, shipped_experiments

    files = [open_experiment(name) for name in shipped_experiments()]
    entries = [
        {"name": e.name, "title": e.title, "about": e.about, "runs": len(e.runs), "datasets": e.datasets}
        for e in files
    ]
    print_json(entries)
    rows = [(e.name, f"{len(e.runs):>3} runs", e.runs[0].profile, e.title) for e in files]
    whole = {run.name for each in open_experiments(PAPER) for run in each.runs}
    print_table((), [*rows, (PAPER, f"{len(whole)} runs", "paper", "All figures and tables of the paper")])


def _show(results: "list[Result]", out: Path) -> None:
    done, failed = ([result for result in results if result.state == state] for state in ("done", "failed"))
    ran = sum(result.ran for result in results)
    summary = {
        "runs": len(results),
        "ran": ran,
        "done": len(done),
        "failed": {result.run.name: str(result.failure) for result in failed},
        "scores": {
            result.run.name: {point: result.score(point) for point in ("half", "calibrated")}
            for result in done
        },
    }
    print_json(summary)
    if not ran:
        echo(f"nothing to do: all {len(done)} runs are done")
    for result in failed:
        echo(f"failed: {result.run.name}: {result.failure} ({result.folder / 'output.txt'})")
    echo(f"{len(done)} of {len(results)} runs are done; `sparseshot report {out}` shows them")
