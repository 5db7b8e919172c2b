"""Run the missing runs of an experiment, each in a process of its own."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sparseshot.errors import InputError, OutputError
from sparseshot.experiments.experiment import Experiment, Run
from sparseshot.experiments.results import (
    ERROR,
    METRICS,
    OUTPUT,
    RUN,
    Result,
    RunFile,
    plan_path,
    run_folder,
)
from sparseshot.files import locked, make_folder, read_as, write_json
from sparseshot.terminal import Begin, Report, duration, no_progress
from sparseshot.training.recipe import read_run
from sparseshot.work.folder import difference
from sparseshot.work.run_files import ROUNDS
from sparseshot.work.runner import Job, Processes, Runner, Update, default_slots

Say = Callable[[str], None]
PERFORM = "sparseshot.experiments.run_worker:perform_folder"
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
    begin: Begin = no_progress,
    function: str | None = None,
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
        begin: shows progress between those lines.
        function: does the run in a folder; None for :data:`PERFORM`.
    """
    runs = choose(experiment.runs, only)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; give at least 1, or leave it out")
    files = {run.subject: run.subject.fingerprint() for run in runs}
    missing = [run for run in runs if not is_finished(run, out, files[run.subject], root and root.resolve())]
    for subject in dict.fromkeys(run.subject for run in missing):
        subject.check_data(root)
    plan = plan_path(out, experiment.name)
    make_folder(plan.parent)
    with locked(out):
        write_json(plan, experiment)
        say(f"{len(runs) - len(missing)} of {len(runs)} runs are done, {len(missing)} to do")
        work = _jobs(missing, out, root and root.resolve(), function or PERFORM)
        updates = (runner or Processes(jobs or default_slots())).run(work)
        _run_all({run.name: run for run in missing}, out, updates, say, begin("runs", len(missing)))
    return [replace(Result.read(run, out), ran=run in missing) for run in runs]


def _jobs(runs: Sequence[Run], out: Path, root: Path | None, function: str) -> Iterator[Job]:
    """Yield the jobs; the folder of a run is prepared when its job starts."""
    for run in runs:
        folder = run_folder(out, run.name)
        make_folder(folder)
        (folder / ERROR).unlink(missing_ok=True)
        write_json(folder / RUN, RunFile(run, None if root is None else str(root), run.subject.fingerprint()))
        yield Job(run.name, function, {"folder": str(folder)}, output=folder / OUTPUT)


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
                if update.error is not None and not (folder / METRICS).is_file():
                    write_json(folder / ERROR, {"message": update.error})
                say(
                    f"[{done}/{len(runs)}] {name}: {Result.read(runs[name], out)}, {duration(update.seconds)}"
                )
            elif update.event is not None and update.event.total:
                steps[name] = f"{name} {update.event.done} of {update.event.total}"
            report(done, note=", ".join(steps.values()))


def choose(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names match one of the patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(run.name, pattern) for run in runs):
            raise InputError(f"no run matches --only {pattern!r}; runs have names like {runs[0].name}")
    return [run for run in runs if not patterns or any(fnmatchcase(run.name, p) for p in patterns)]


def is_finished(run: Run, out: Path, files: Mapping[str, str], root: Path | None = None) -> bool:
    """Return whether a run is finished; one of the same name with other settings or data is an error.

    Args:
        run: the run.
        out: folder of plans and runs.
        files: hashes of the user's files, see :meth:`Subject.fingerprint`.
        root: folder of the data sets.
    """
    folder = run_folder(out, run.name)
    recipe = read_run(folder)
    changes = ""
    if recipe is not None:
        request, there = run.request(root), recipe.request.data
        data = replace(request.data, root=there.root, pairs=there.pairs)  # data may have moved
        changes = recipe.difference(replace(request, data=data), files)
    begun = any((folder / name).exists() for name in (METRICS, ROUNDS))
    if not changes and begun and (folder / RUN).is_file():
        before = read_as(folder / RUN, RunFile)
        changed = [file for file, digest in files.items() if before.files.get(file, digest) != digest]
        changes = difference(_essence(before.run), _essence(run))
        changes = changes or ", ".join(f"another content of {file}" for file in changed)
    if changes:
        raise OutputError(folder, f"holds a run with {changes}; choose another --out, or delete the folder")
    return Result.read(run, out).state == "done"


def _essence(run: Run) -> dict[str, Any]:
    """Return what decides a run, without titles."""
    own, method = run.subject.own, run.method
    tau = {"tau": method.tau} if method.rounds > 1 else {}
    data = {} if own is None else {"mpp": own.mpp, "exhaustive_class": own.exhaustive_class}
    return {
        **vars(run.config()),
        "policy": method.policy,
        "rounds": method.rounds,
        **tau,
        **data,
    }
