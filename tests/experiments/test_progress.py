"""What is shown while an experiment runs."""

import io
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bars
from tests.experiments.made_results import metrics_of

from sparseshot.experiments import open_experiment
from sparseshot.experiments.progress import ProgressLines, steps_done
from sparseshot.experiments.results import Failure, Result

RUN = open_experiment("tnbc-headline").runs[0]
DONE = Result(RUN, Path("x"), metrics=metrics_of(RUN, 0.7123, 0.7456))


def test_a_line_has_score_time_and_time_left() -> None:
    text = io.StringIO()
    lines = ProgressLines(Console(file=text, width=40))
    lines.begun(1, 2)
    lines.ended(DONE, 124, 130)
    lines.ended(Result(RUN, Path("x"), failure=Failure("MemoryError", "[red] none left")), 3, 0)
    assert text.getvalue().splitlines() == [
        "1 of 3 runs are done, 2 to do",
        "[1/2] tnbc-segment-ece-0.3-s0: Dice 0.712 at 0.5, 0.746 calibrated, 2 min 04 s; "
        "about 2 min 10 s left",
        "[2/2] tnbc-segment-ece-0.3-s0: failed, MemoryError: [red] none left, 3 s",
    ]


def test_bars_come_and_go_with_their_runs(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss\n10,0.5\n20,0.4\n")
    console = Console(file=io.StringIO(), force_terminal=True)
    with Bars(console=console) as bars:
        progress = ProgressLines(console, bars)
        progress.begun(0, 2)
        progress.started(RUN)
        progress.working(RUN, tmp_path)
        assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
            ("all runs", 0, 2),
            (RUN.name, 20, RUN.config().steps),
        ]
        progress.ended(DONE, 10, 10)
        assert [(task.description, task.completed) for task in bars.tasks] == [("all runs", 1)]


def test_steps_add_up_over_rounds(tmp_path: Path) -> None:
    for folder, step in (("rounds/1", 400), (".", 30)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "log.csv").write_text(f"step,loss\n{step},0.4\n")
    assert steps_done(tmp_path) == 430
    assert steps_done(tmp_path / "nowhere") == 0
