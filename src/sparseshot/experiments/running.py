"""Run the missing runs of an experiment, each in a process of its own."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sparseshot.datasets import dataset_info
from sparseshot.errors import InputError, OutputError, SparseshotError
from sparseshot.experiments.experiment import Experiment, Run, RunRecipe, Subject
from sparseshot.experiments.results import Result, plan_path, run_folder
from sparseshot.files import locked, make_folder, write_json
from sparseshot.terminal import duration
from sparseshot.work import Event, Report, WorkFolder, ignore
from sparseshot.work.folder import OUTPUT, as_json, difference, read_recipe
from sparseshot.work.runner import Job, Processes, Runner, Update, default_slots

Say = Callable[[str], None]
PERFORM = "sparseshot.experiments.run_worker:perform_job"
"""Function of the jobs."""


def run_experiment(
    experiment: Experiment,
    *,
    root: Path | None,
    out: Path,
    jobs: int | None = None,
    runner: Runner | None = None,
    only: Sequence[str] = (),
    say: Say = lambda _: None,
    report: Report = ignore,
) -> list[Result]:
    """Run the missing runs, and return the results of the chosen runs in the order of the experiment.

    A run that fails is recorded as failed, and the others continue. After an interruption of any kind the
    same call resumes.

    Args:
        experiment: the runs.
        root: folder of the data sets; None if all images are the user's own.
        out: folder of plans and runs; several experiments may share one, and then share their runs.
        jobs: runs at a time; None for one per GPU, else as many as cores and memory allow.
        runner: where they run; None for processes on this machine.
        only: patterns of run names, as ``tnbc-*``; empty for all.
        say: receives a line at the start and for each run that ended.
        report: receives progress events between those lines.
    """
    runs = choose(experiment.runs, only)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; give at least 1, or leave it out")
    missing = [run for run in runs if not is_finished(run, out)]
    for subject in dict.fromkeys(run.subject for run in missing):
        subject.check_data(root)
    plan = plan_path(out, experiment.name)
    make_folder(plan.parent)
    with locked(out):
        write_json(plan, experiment)
        say(f"{len(runs) - len(missing)} of {len(runs)} runs are done, {len(missing)} to do")
        work = _jobs(missing, out, root and root.resolve())
        updates = (runner or Processes(jobs or default_slots())).run(work)
        _run_all({run.name: run for run in missing}, out, updates, say, report)
    return [replace(Result.read(run, out), ran=run in missing) for run in runs]


def _jobs(runs: Sequence[Run], out: Path, root: Path | None) -> Iterator[Job]:
    """Yield the jobs; the folder of a run is prepared when its job starts."""
    for run in runs:
        folder = run_folder(out, run.name)
        with WorkFolder.claimed(folder, recipe_in(run, folder), may_replace=_is_of_earlier_version) as work:
            work.save(error=None)
        arguments = {"run": asdict(run), "root": root and str(root), "folder": str(folder)}
        yield Job(run.name, PERFORM, arguments, output=folder / OUTPUT)


def _is_of_earlier_version(recipe: Mapping[str, Any]) -> bool:
    """Return whether a recipe is of a training: version 0.2 trained in the folder of the run."""
    return bool(recipe.get("kind", "train") == "train")


def _run_all(
    runs: Mapping[str, Run], out: Path, updates: Generator[Update], say: Say, report: Report
) -> None:
    """Report progress, record failures, and say how each run ended."""
    steps: dict[str, str] = {}
    done = 0
    with closing(updates):
        for update in updates:
            name = update.job.name
            if update.is_end:
                steps.pop(name, None)
                done += 1
                folder = run_folder(out, name)
                work = WorkFolder.open(folder)
                if update.error is not None and not work.is_finished:
                    work.save(error=update.error)
                say(
                    f"[{done}/{len(runs)}] {name}: {Result.read(runs[name], out)}, {duration(update.seconds)}"
                )
            elif update.event is not None and update.event.total:
                steps[name] = f"{name} {update.event.done} of {update.event.total}"
            report(Event("runs", done, len(runs), message=", ".join(steps.values())))


def missing_data(runs: Sequence[Run], root: Path | None) -> dict[Subject, str]:
    """Return the data sets of runs that are not in a folder, each with where to get it."""
    missing = {}
    for subject in dict.fromkeys(run.subject for run in runs):
        try:
            subject.check_data(root)
        except SparseshotError as error:
            missing[subject] = str(error)
            if root is not None and subject.own is None:
                missing[subject] = dataset_info(subject.dataset).how_to_get(
                    root / subject.dataset.rpartition(":")[2]
                )
    return missing


def choose(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names match one of the patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(run.name, pattern) for run in runs):
            raise InputError(f"no run matches --only {pattern!r}; runs have names like {runs[0].name}")
    return [run for run in runs if not patterns or any(fnmatchcase(run.name, p) for p in patterns)]


def is_finished(run: Run, out: Path) -> bool:
    """Return whether a run is finished; one of the same name with other settings or data is an error."""
    folder, result = run_folder(out, run.name), Result.read(run, out)
    there, wanted = read_recipe(folder) or {}, as_json(recipe_in(run, folder))
    if _is_of_earlier_version(there):
        if result.metrics is None:
            return False
        before = TypeAdapter(Run).validate_python(result.metrics["run"])
        there = as_json(before.recipe({})) | {"files": wanted["files"]}
    if changes := difference(there, wanted):
        raise OutputError(folder, f"holds a run with {changes}; choose another --out, or delete the folder")
    return result.state == "done"


def recipe_in(run: Run, folder: Path) -> RunRecipe:
    """Return the recipe of a run; of the user's files that are gone it has the hashes found in the folder."""
    there = read_recipe(folder) or {}
    return run.recipe(there.get("files", {}))
