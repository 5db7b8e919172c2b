"""Files of an experiment, and its results: every planned run, done, failed or missing.

::

    OUT/plans/NAME.json        an experiment with all its runs
    OUT/runs/RUN/              work folder of a run
    OUT/runs/RUN/training/     work folder of its training; before version 0.3, OUT/runs/RUN itself
    OUT/runs/RUN/rounds/       trainings of a simulated annotator instead
    OUT/runs/RUN/metrics.json  its result
    OUT/runs/RUN/panels/       small pictures of marks, ground truth and errors
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.experiments.experiment import Experiment, Run
from sparseshot.files import read_as
from sparseshot.models.config import TASKS
from sparseshot.training.logs import numbers_of, read_log
from sparseshot.work import WorkFolder
from sparseshot.work.folder import LOG, STATE

METRICS, TRAINING, PANELS = "metrics.json", "training", "panels"
IMAGES = ("training", "test")
COLUMNS = ("image", "marks", "truth", "half", "calibrated")
"""Panels: the image, the marks, the ground truth, and the errors at threshold 0.5 and the calibrated one."""

Point = Literal["half", "calibrated"]
POINTS: Mapping[Point, str] = {"half": "threshold 0.5", "calibrated": "calibrated threshold"}
"""Operating points: the paper's, and the one chosen from held-out marks."""


@dataclass(frozen=True)
class Result:
    """A run and its result.

    Attributes:
        run: the run.
        folder: its folder.
        metrics: content of its metrics.json; None if it is not finished.
        failure: why it failed; None if it did not fail or was not run.
        ran: whether it ran in the call of :func:`run_experiment` that returned it.
    """

    run: Run
    folder: Path
    metrics: Mapping[str, Any] | None = None
    failure: str | None = None
    ran: bool = False

    @classmethod
    def read(cls, run: Run, out: Path) -> Self:
        """Read the folder of a run."""
        folder = run_folder(out, run.name)
        try:
            work = WorkFolder.open(folder)
            if (folder / METRICS).is_file() and (work.is_finished or not (folder / STATE).is_file()):
                metrics = read_as(folder / METRICS, dict[str, Any])
                return cls(run, folder, metrics=_checked(metrics, folder / METRICS))
        except FormatError as error:  # a damaged file is the failure of its run alone
            return cls(run, folder, failure=f"FormatError: {error}")
        return cls(run, folder, failure=work.state.error)

    @property
    def state(self) -> Literal["done", "failed", "missing"]:
        """Whether the run is done, failed, or neither."""
        return "done" if self.metrics is not None else "failed" if self.failure is not None else "missing"

    def score(self, point: Point | Literal["best"]) -> float | None:
        """Return Dice or F1, pooled over the test images; None if unknown."""
        if self.metrics is None:
            return None
        score = self.metrics["evaluation"].get(point)
        return None if score is None else float(score["pooled"])

    def exclusive_recall(self, point: Point) -> float | None:
        """Return the exclusive recall, the mean over classes; None if unknown."""
        if self.metrics is None:
            return None
        of_classes = [kinds.get(point) for kinds in self.metrics["exclusive_recall"].values()]
        values = [value for value in of_classes if value is not None]  # None: a class without test cells
        return sum(values) / len(values) if values else None

    def __str__(self) -> str:
        if self.failure is not None:
            return f"failed, {self.failure}"
        half, calibrated = self.score("half"), self.score("calibrated")
        if half is None:
            return "not run"
        text = f"{TASKS[self.run.task].score_name} {half:.3f} at 0.5"
        return text if calibrated is None else f"{text}, {calibrated:.3f} calibrated"

    @property
    def seconds(self) -> float:
        """Duration."""
        return float(self.metrics["seconds"]["all"]) if self.metrics is not None else 0.0

    @property
    def kinds(self) -> Mapping[str, Any] | None:
        """Scores of its kinds; None if it tells none apart."""
        return None if self.metrics is None else self.metrics["evaluation"].get("kinds")

    @property
    def log(self) -> list[dict[str, str]]:
        """Lines of the log of its training."""
        return read_log(training_folder(self.folder) / LOG)

    def panel(self, image: str, column: str) -> NDArray[np.uint8] | None:
        """Return one of its pictures, see :data:`IMAGES` and :data:`COLUMNS`; None if there is none."""
        path = panel_path(self.folder, image, column)
        if not path.is_file():
            return None
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))

    def marked_share(self) -> dict[str, float] | None:
        """Return the estimated share of marked cells at the end of the run; None if its loss makes none.

        ``true`` is the share in the crops of the last half of training, ``found`` the last estimate, and
        ``alpha`` the weight of the unannotated part that follows from it.
        """
        columns = ("true_marked_share", "marked_share", "alpha")
        true, found, alpha = (numbers_of(self.log, column) for column in columns)
        if not (true and found and alpha):
            return None
        late = true[len(true) // 2 :]
        return {"true": sum(late) / len(late), "found": found[-1], "alpha": alpha[-1]}


def _checked(metrics: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return metrics that have everything a report reads, or raise FormatError."""
    try:
        scores = [metrics["evaluation"][point] for point in ("half", "calibrated", "best")]
        numbers = [score["pooled"] for score in scores if score is not None]
        numbers += [metrics["seconds"]["all"], metrics["training"]["marks"]]
        numbers += [value for recalls in metrics["exclusive_recall"].values() for value in recalls.values()]
        numbers += metrics["memory_bytes"].values()
        if not all(value is None or isinstance(value, int | float) for value in numbers):
            raise TypeError("not a number")
        _ = [metrics["machine"][key] for key in ("gpu", "processor", "cores", "threads")]
        _, _ = metrics["versions"].items(), list(metrics["warnings"])
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(path, f"is incomplete ({error}); run the same command again") from None
    return metrics


@dataclass(frozen=True)
class Results:
    """All runs of one output folder.

    Attributes:
        experiments: in the order of their names, those that reproduce a table of the paper last.
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
            experiment = read_as(path, Experiment)
            try:
                _ = [run.subject.title for run in experiment.runs]  # fail here, not in a report
            except InputError as error:
                raise FormatError(path, f"is not a plan ({error}); run the experiment again") from error
            experiments.append(experiment)
        experiments.sort(key=lambda experiment: experiment.paper_table is not None)
        runs = {run.name: run for experiment in experiments for run in experiment.runs}
        return cls(tuple(experiments), {name: Result.read(run, out) for name, run in runs.items()})

    def of(self, experiment: Experiment) -> list[Result]:
        """Return the results of one experiment, in its order and under its titles."""
        return [replace(self.results[run.name], run=run) for run in experiment.runs]

    def in_state(self, state: str) -> list[Result]:
        """Return the results in one state."""
        return [result for result in self.results.values() if result.state == state]


def run_folder(out: Path, name: str) -> Path:
    """Return the folder of a run."""
    return out / "runs" / name


def training_folder(folder: Path) -> Path:
    """Return the folder of the training in that of a run."""
    return folder if (folder / LOG).is_file() else folder / TRAINING


def panel_path(folder: Path, image: str, column: str) -> Path:
    """Return the file of a panel in the folder of a run."""
    return folder / PANELS / f"{image}-{column}.png"


def plan_path(out: Path, name: str) -> Path:
    """Return the file of an experiment."""
    return out / "plans" / f"{name}.json"
