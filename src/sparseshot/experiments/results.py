"""What an output folder holds: every run that was asked for, done, failed or missing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.experiments.folders import ERROR, METRICS, read_json, run_folder
from sparseshot.experiments.plan import Experiment, Run

Point = Literal["half", "calibrated"]
POINTS: Mapping[Point, str] = {"half": "threshold 0.5", "calibrated": "calibrated threshold"}
"""The operating points a user has: as the paper, and chosen from held-out marks."""


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class Result:
    """A run and what became of it.

    Attributes:
        run: what it is.
        folder: where it is.
        metrics: the content of its metrics.json; None if it is not finished.
        failure: why it failed; None if it did not, or was not tried.
    """

    run: Run
    folder: Path
    metrics: Mapping[str, Any] | None = None
    failure: Failure | None = None

    @classmethod
    def read(cls, run: Run, out: Path) -> Self:
        """Look into the folder of a run."""
        folder = run_folder(out, run.name)
        if (folder / METRICS).is_file():
            return cls(run, folder, metrics=read_json(folder / METRICS))
        if (folder / ERROR).is_file():
            error = read_json(folder / ERROR)
            return cls(run, folder, failure=Failure(str(error.get("kind")), str(error.get("message"))))
        return cls(run, folder)

    @property
    def state(self) -> Literal["done", "failed", "missing"]:
        """What became of it."""
        return "done" if self.metrics is not None else "failed" if self.failure is not None else "missing"

    def score(self, point: Point | Literal["best"]) -> float | None:
        """Return Dice or F1, pooled over the test images; None if it is not known."""
        if self.metrics is None:
            return None
        score = self.metrics["evaluation"].get(point)
        return None if score is None else float(score["pooled"])

    def exclusive_recall(self, point: Point) -> float | None:
        """Return the exclusive recall of the class looked for, the mean where there are several."""
        if self.metrics is None:
            return None
        values = [kinds[point] for kinds in self.metrics["exclusive_recall"].values() if point in kinds]
        return sum(values) / len(values) if values else None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self.metrics["seconds"]["all"]) if self.metrics is not None else 0.0

    @property
    def memory_bytes(self) -> int | None:
        """The most memory its process held."""
        return None if self.metrics is None else self.metrics["memory_bytes"].get("process")


@dataclass(frozen=True)
class Results:
    """All that was asked for in one output folder.

    Attributes:
        experiments: those that stand for a table of the paper last, else in the order of their names.
        results: by the name of the run.
    """

    experiments: tuple[Experiment, ...]
    results: Mapping[str, Result]

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read an output folder."""
        plans = sorted((out / "plans").glob("*.json"))
        if not plans:
            raise DataNotFoundError(out, "holds no experiment; give the --out of `sparseshot experiment`")
        experiments = []
        for path in plans:
            try:
                experiments.append(Experiment.from_json(read_json(path)))
            except (KeyError, TypeError) as error:
                raise FormatError(path, f"is not a plan ({error}); run the experiment again") from error
        experiments.sort(key=lambda experiment: experiment.paper_table is not None)
        runs = {run.name: run for experiment in experiments for run in experiment.runs}
        return cls(tuple(experiments), {name: Result.read(run, out) for name, run in runs.items()})

    def of(self, experiment: Experiment) -> list[Result]:
        """Return the results of one experiment, in its order and under its titles."""
        return [replace(self.results[run.name], run=run) for run in experiment.runs]
