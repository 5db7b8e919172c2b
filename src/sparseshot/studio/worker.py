"""The process that trains and predicts for the studio: ``python -m sparseshot.studio.worker PROJECT``.

It loads what it needs and rehearses, then reads the folders of jobs from standard input, one a line, and does
each at low priority. Without a job it ends with the process that started it; with one it first finishes that.
"""

import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from select import select

import torch

from sparseshot.cells import read_cells
from sparseshot.errors import OutputError, SlideError, SparseshotError, counted
from sparseshot.files import locked, read_as, write_json
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import STARTER, TrainConfig
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.labelling import REJECTED, Labelling
from sparseshot.models.model_files import load_model
from sparseshot.prediction import Measuring, Model, Throughput, predict_slide
from sparseshot.prediction.predict import predict_area
from sparseshot.studio.jobs import (
    ENDED,
    FEW_MARKS_THRESHOLD,
    FOUND,
    JOB,
    MARKS,
    RUN,
    SAID,
    STATE,
    STOP,
    Job,
    Stage,
    State,
)
from sparseshot.studio.marks import NEGATIVE
from sparseshot.studio.project import Project
from sparseshot.studio.rehearsal import rehearse
from sparseshot.studio.slide_results import SlideResult
from sparseshot.studio.suggesting import Superseded, write_next
from sparseshot.training.annotated import TrainingData
from sparseshot.training.mark_checks import task_of_marks
from sparseshot.training.recipe import run_data
from sparseshot.training.runs import train_run
from sparseshot.work import Event

_NICE = 10
_WATCH_S = 0.3
_LOG_STEPS = 5
_LONGEST_MINUTES = 0.12
"""For the bare network in a training from the starter; with everything else it takes about twice as long."""


class Worker:
    """One job.

    Attributes:
        project: its slides.
        folder: of the job.
        job: what to do.
        state: its progress.
        left_out: why slides were not predicted, by id.
    """

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.folder = project, folder
        self.job = read_as(folder / JOB, Job)
        self.state = State(begun=time.time())
        self.left_out: dict[str, str] = {}
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def run(self) -> None:
        """Do the job unless it is done, and write the outcome to its folder."""
        with locked(self.folder):
            path = self.folder / STATE
            if path.is_file() and read_as(path, State).stage in ENDED:
                return
            threading.Thread(target=self._watch, daemon=True).start()
            try:
                checkpoint = self._train()
                self._predict(checkpoint)
                said = "; ".join([counted(self.job.marks, "mark"), *self.left_out.values()])
                self._publish("done", said, share=1.0)
            except Superseded:
                self._publish(
                    "done", f"{counted(self.job.marks, 'mark')}; a newer run began before all was predicted"
                )
            except (SparseshotError, OSError) as error:
                self._publish("failed", str(error))
            except Exception as error:
                traceback.print_exc()
                self._publish("failed", f"{type(error).__name__}: {error}")
            else:
                self._suggest(checkpoint)
            finally:
                self._ended.set()

    def _publish(self, stage: Stage, message: str = "", **values: float) -> None:
        with self._mutex:
            is_late = stage == "training" and self.state.stage not in {"waiting", "training"}
            if self.state.stage != "stopped" and not is_late:
                changes = {"share": 0.0, "changed": time.time()} | values
                self.state = replace(self.state, stage=stage, message=message, **changes)
                write_json(self.folder / STATE, self.state)

    def _report(self, event: Event) -> None:
        if event.total:
            self._publish("training", f"step {event.done} of {event.total}", share=event.share)

    def _watch(self) -> None:
        """End the process when asked to stop."""
        while not self._ended.is_set():
            if (self.folder / STOP).exists():
                self._publish("stopped", "stopped")
                os._exit(0)  # every file is written whole, and a run resumes from its last checkpoint
            self._ended.wait(_WATCH_S)

    def _train(self) -> Checkpoint:
        pairs = tuple(
            (self.project.path(path.stem), path) for path in sorted((self.folder / MARKS).glob("*.parquet"))
        )
        tables = [read_cells(path) for _, path in pairs]
        names = {name for cells in tables for name, count in cells.counts().items() if count}
        classes = tuple(name for name in tables[0].classes if name in names - {NEGATIVE, REJECTED})
        labelling = Labelling(negative=(NEGATIVE,) if NEGATIVE in names else ())
        task, _ = task_of_marks([labelling.positives(cells) for cells in tables])
        config = TrainConfig(
            task=task,
            start=self.job.start if _task_of(self.job.start) == task else STARTER,
            classes=classes if len(classes) > 1 else None,
            negative_classes=labelling.negative,
            steps=self.job.steps or None,
            log_every=_LOG_STEPS,
            validations=1,
        )
        self._publish("training", "reading the marks")
        mpps = tuple(self.project.entry(path.stem).mpp for _, path in pairs)
        data = TrainingData(pairs=pairs, mpp=mpps[0] if len(set(mpps)) == 1 else mpps)
        most_minutes = _LONGEST_MINUTES if config.start == STARTER else None
        return train_run(config, data, self.folder / RUN, most_minutes=most_minutes, report=self._report)

    def _predict(self, checkpoint: Checkpoint) -> None:
        """Predict the part in view, then its slide, then the others; leave out what cannot be read."""
        threshold = FEW_MARKS_THRESHOLD if checkpoint.threshold is None else checkpoint.threshold
        # Weaker cells are found too, so that the page can show what a lower threshold would find.
        # A lower threshold would change outlines, but not points.
        lowest = max(LOWEST_SCORE, threshold / 3) if checkpoint.config.task == "detect" else threshold
        model = Model.load(checkpoint, threshold=lowest, device="cpu")
        self._publish("view", "predicting the part in view", threshold=threshold)
        (self.folder / FOUND).mkdir(exist_ok=True)
        for slide in self._slides():
            try:
                if slide == self.job.slide and self.job.view is not None:
                    self._predict_view(model, slide)
                self._check_superseded()
                self._predict_slide(model, slide)
            except SlideError as error:
                self.left_out[slide] = f"{self.project.path(slide).name}: {error.problem}"

    def _slides(self) -> list[str]:
        """Return the slides whose files are there, the one in view first."""
        there = [each for each in self.project.slides if self.project.path(each).exists()]
        return sorted(there, key=lambda each: each != self.job.slide)

    def _predict_slide(self, model: Model, slide: str) -> None:
        opened = self.project.slide(slide)

        def report(event: Event) -> None:
            self._check_superseded()
            found = f"{opened.name}: {event.values['cells']:,} cells so far"
            self._publish("slides", found, share=event.share)

        predict_slide(
            opened,
            model,
            self.folder / FOUND / slide,
            throughput=Throughput(tile_px=512, threads=1),
            measuring=Measuring("none"),
            report=report,
        )

    def _suggest(self, checkpoint: Checkpoint) -> None:
        """Look for regions to mark next, unless somebody trains again; the run is done without them."""
        slides = {each: self.project.slide(each) for each in self._slides() if each not in self.left_out}
        try:
            write_next(
                self.folder,
                Model.load(checkpoint, device="cpu"),
                slides,
                run_data(self.folder / RUN),
                found={each: self.folder / FOUND / each for each in slides},
                is_wanted=lambda: not self._newer.exists(),
            )
        except Exception:
            traceback.print_exc()

    @property
    def _newer(self) -> Path:
        return self.folder.with_name(f"{self.job.number + 1:04d}") / JOB

    def _check_superseded(self) -> None:
        if self._newer.exists():
            raise Superseded

    def _predict_view(self, model: Model, name: str) -> None:
        slide = self.project.slide(name)
        assert self.job.view is not None
        result = SlideResult(self.folder / FOUND / name, slide.mpp)
        cells = predict_area(slide, model, self.job.view)
        write_json(result.view.with_suffix(".json"), list(self.job.view))
        cells.write(result.view)


def _task_of(start: str) -> str | None:
    """Return the task of a model; None for one that is gone, or for a starter, which there is for each."""
    if start == STARTER:
        return None
    try:
        return load_model(start).config.task
    except SparseshotError:
        return None


def main() -> None:
    """Rehearse, then do one job after the other."""
    os.nice(_NICE)
    torch.set_num_threads(os.cpu_count() or 2)
    folder = Path(sys.argv[1])
    rehearse(Project.open([], folder=folder), is_wanted=lambda: not select([sys.stdin], [], [], 0)[0])
    while line := sys.stdin.readline().strip():
        job = Path(line)
        with (job / SAID).open("a", buffering=1) as log, suppress(OutputError):  # another process has the job
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            Worker(Project.open([], folder=folder), job).run()


if __name__ == "__main__":
    main()
