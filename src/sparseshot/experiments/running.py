"""Run the missing runs of an experiment, each in a process of its own."""

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sparseshot.cluster.executor import CommandJob, Executor, JobStatus, exit_message
from sparseshot.cluster.local import LocalProcesses, default_slots
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
from sparseshot.training.logs import read_log
from sparseshot.training.recipe import read_run
from sparseshot.work.folder import difference
from sparseshot.work.run_files import LOG, ROUNDS

_REPORT_SECONDS = 1.0  # between two reads of the logs, which take a while in long runs

Command = Callable[[Path], Sequence[str]]
Say = Callable[[str], None]


def run_experiment(
    experiment: Experiment,
    *,
    root: Path | None,
    out: Path,
    jobs: int | None = None,
    executor: Executor | None = None,
    only: Sequence[str] = (),
    say: Say = lambda _: None,
    begin: Begin = no_progress,
    command: Command | None = None,
) -> list[Result]:
    """Run the missing runs, and return the results of the chosen runs in the order of the experiment.

    A run that fails is recorded as failed, and the others continue. After an interruption of any kind the
    same call resumes.

    Args:
        experiment: the runs.
        root: folder of the data sets; None if all images are the user's own.
        out: folder of plans and runs; several experiments may share one, and then share their runs.
        jobs: runs at a time; None for one per GPU, else as many as cores and memory allow.
        executor: where they run; None for processes on this machine.
        only: patterns of run names, as ``tnbc-*``; empty for all.
        say: receives a line at the start and for each run that ended.
        begin: shows progress between those lines.
        command: returns the command that does the run in a folder; None for a Python process.
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
        pool = executor or LocalProcesses(jobs or default_slots())
        work = _jobs(missing, out, root and root.resolve(), command or _command)
        _run_all({run.name: run for run in missing}, out, pool.run(work), say, begin("runs", len(missing)))
    return [replace(Result.read(run, out), ran=run in missing) for run in runs]


def _jobs(runs: Sequence[Run], out: Path, root: Path | None, command: Command) -> Iterator[CommandJob]:
    """Yield the jobs; the folder of a run is prepared when its job starts."""
    for run in runs:
        folder = run_folder(out, run.name)
        make_folder(folder)
        (folder / ERROR).unlink(missing_ok=True)
        write_json(folder / RUN, RunFile(run, None if root is None else str(root), run.subject.fingerprint()))
        yield CommandJob(run.name, command(folder), folder / OUTPUT)


def _run_all(
    runs: Mapping[str, Run], out: Path, statuses: Generator[JobStatus], say: Say, report: Report
) -> None:
    """Report progress about once a second, and say how each run ended."""
    working: set[str] = set()
    done, next_report = 0, 0.0
    with closing(statuses):
        for job, seconds, code in statuses:
            working.add(job.name)
            if code is not None:
                working.remove(job.name)
                done += 1
                result = _result(runs[job.name], out, code)
                say(f"[{done}/{len(runs)}] {job.name}: {result}, {duration(seconds)}")
                report(done)
            elif (now := time.monotonic()) >= next_report:
                next_report = now + _REPORT_SECONDS
                steps = {name: steps_done(run_folder(out, name)) for name in sorted(working)}
                report(done, note=", ".join(f"{name} {count} steps" for name, count in steps.items()))


def steps_done(folder: Path) -> int:
    """Return the steps a training has done, over its rounds."""
    logs = [folder / LOG, *folder.glob(f"{ROUNDS}/*/{LOG}")]
    return sum(int(lines[-1]["step"]) for lines in map(read_log, logs) if lines)


def _result(run: Run, out: Path, code: int) -> Result:
    """Return the result of a run that ended; record how it ended if it did not do so itself."""
    folder = run_folder(out, run.name)
    if not (folder / METRICS).is_file() and not (folder / ERROR).is_file():
        write_json(folder / ERROR, {"kind": "WorkerDied", "message": exit_message(code, folder / OUTPUT)})
    return Result.read(run, out)


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


def _command(folder: Path) -> Sequence[str]:
    return (sys.executable, "-m", "sparseshot.experiments.run_worker", str(folder))
