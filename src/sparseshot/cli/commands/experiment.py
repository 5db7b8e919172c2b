"""``sparseshot experiment`` and ``sparseshot report``: run what is missing, and show what is there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparseshot.cli.app import app, resumable
from sparseshot.cli.options import RESEARCH, Json, OptionalRoot
from sparseshot.cli.output import print_json
from sparseshot.errors import InputError

if TYPE_CHECKING:
    from sparseshot.experiments import Outcome


@app.command(rich_help_panel=RESEARCH)
def experiment(
    name: Annotated[
        str | None, typer.Argument(help="A TOML file, or the name of an experiment of --list.")
    ] = None,
    root: OptionalRoot = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; what is in it is not run again.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs side by side; else one for each GPU or core.", min=1)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only runs with names like this, as 'tnbc-segment-*'.")
    ] = None,
    profile: Annotated[
        Literal["quick", "paper"] | None, typer.Option(help="Size of the runs, instead of the file's.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show the experiments that come along.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run what is missing of an experiment: data sets, losses and fractions named in a TOML file.

    Killed at any time, the same command goes on. A run that fails is recorded, the others go on, and the
    exit code is 1.

    Example: `sparseshot experiment tnbc-headline --root data --out runs`
    """
    from sparseshot.experiments import open_experiment, run_experiment
    from sparseshot.experiments.progress import shown_progress
    from sparseshot.experiments.running import choose

    if list_them:
        _list_experiments(as_json)
        return
    if name is None:
        raise InputError("say which experiment: a TOML file, or one of `sparseshot experiment --list`")
    file = open_experiment(name, profile=profile)
    if dry_run:
        _print_lines([run.name for run in choose(file.experiment.runs, only or ())], as_json)
        return
    if out is None:
        raise InputError("say where the runs go: --out DIR")
    with resumable(), shown_progress() as progress:
        outcome = run_experiment(file, root=root, out=out, jobs=jobs, only=only or (), progress=progress)
    _tell(outcome, out, as_json)
    if outcome.failed:
        raise typer.Exit(1)


@app.command(rich_help_panel=RESEARCH)
def report(
    folder: Annotated[Path, typer.Argument(help="The --out of `sparseshot experiment`.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; a Markdown file goes beside it. Else FOLDER/report.html.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures here, and show them in the Markdown.")
    ] = None,
    metrics_json: Annotated[
        Path | None, typer.Option(help="Also write the numbers of all runs as one JSON file.")
    ] = None,
    about: Annotated[
        str | None, typer.Option(help="The method the report is about, by its short name; else ece.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="A method it is held against first; may be given again. Else adaptive and ce."),
    ] = None,
    with_restricted_images: Annotated[
        bool,
        typer.Option(
            "--with-restricted-images",
            help="Also show images that not everybody may pass on: keep that report to yourself.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what runs gave, beside the paper's numbers: one HTML page with everything in it, and Markdown.

    Example: `sparseshot report runs --out report.html`
    """
    from sparseshot.experiments import Results
    from sparseshot.experiments.report import make_report, write_raw_metrics, write_report

    page = out or folder / "report.html"
    if page.suffix.lower() != ".html":
        raise InputError(f"--out is {page}; give it the suffix .html")
    results = Results.read(folder)
    blocks = make_report(
        results, about=about, against=against or (), restricted_images=with_restricted_images
    )
    written = write_report(blocks, page, figures=figures)
    if metrics_json is not None:
        write_raw_metrics(results, metrics_json)
        written.append(metrics_json)
    if as_json:
        print_json({"written": written})
        return
    for path in written:
        typer.echo(path)


def _list_experiments(as_json: bool) -> None:
    from sparseshot.experiments import open_experiment, shipped_experiments

    files = [open_experiment(name).experiment for name in shipped_experiments()]
    if as_json:
        entries = [
            {"name": e.name, "title": e.title, "about": e.about, "runs": len(e.runs), "datasets": e.datasets}
            for e in files
        ]
        print_json(entries)
        return
    width = max(len(each.name) for each in files)
    for each in files:
        profile = each.runs[0].profile
        typer.echo(f"{each.name:<{width}}  {len(each.runs):>3} runs  {profile:<5}  {each.title}")


def _print_lines(lines: list[str], as_json: bool) -> None:
    if as_json:
        print_json(lines)
        return
    typer.echo("\n".join(lines))


def _tell(outcome: "Outcome", out: Path, as_json: bool) -> None:
    """Sum up."""
    done = [result for result in outcome.results if result.state == "done"]
    if as_json:
        summary = {
            "runs": len(outcome.results),
            "ran": outcome.ran,
            "done": len(done),
            "failed": {result.run.name: str(result.failure) for result in outcome.failed},
            "scores": {
                result.run.name: {point: result.score(point) for point in ("half", "calibrated")}
                for result in done
            },
        }
        print_json(summary)
        return
    if not outcome.ran:
        typer.echo(f"nothing to do: all {len(done)} runs are done")
    for result in outcome.failed:
        typer.echo(f"failed: {result.run.name}: {result.failure} ({result.folder / 'output.txt'})")
    typer.echo(f"{len(done)} of {len(outcome.results)} runs are done; `sparseshot report {out}` shows them")
