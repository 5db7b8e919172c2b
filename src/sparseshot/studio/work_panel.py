"""The panel for work: training, found cells, their expected quality, and what to do next."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import run, ui

from sparseshot.errors import SparseshotError, counted
from sparseshot.metrics import ExpectedQuality
from sparseshot.studio.jobs import ENDED, LEARNING, Job, State
from sparseshot.studio.studio import Studio
from sparseshot.studio.svg import curve, meter
from sparseshot.training.logs import numbers_of

_STAGES = {
    "waiting": "starting",
    "training": "learning",
    "view": "finding cells in view",
    "slides": "finding cells",
    "done": "finished",
    "stopped": "stopped",
    "failed": "failed",
}
_ENOUGH = 20
"""Marks that are enough to begin with."""


def advice(marks: int, learned: int, stage: str) -> str:
    """Return what to do next.

    >>> advice(12, 0, "")
    '12 marks. 8 more, then train.'
    """
    if stage and stage not in ENDED:
        return f"Learning from {_marks(learned)}. You can go on marking."
    if not marks:
        return "Click some cells on the slide, typical ones and odd ones."
    if not learned:
        missing = _ENOUGH - marks
        return (
            f"{_marks(marks)}. {missing} more, then train." if missing > 0 else f"{_marks(marks)}. Train now."
        )
    if marks > learned:
        return f"{_marks(marks - learned)} since the last run. Train to learn from them."
    return "Correct what is wrong, or press N to go where the model is unsure."


def _marks(count: int) -> str:
    return counted(count, "mark")


class LearnPanel:
    """Training: button, progress, curve."""

    def __init__(self, studio: Studio, *, train: Callable[[], Awaitable[None]]) -> None:
        self.studio = studio
        self.said: tuple[int, str] | None = None
        self.advice = ui.label().classes("studio-advice").mark("advice")
        with ui.row().classes("w-full items-center no-wrap gap-2"):
            self.train_button = ui.button("Train", icon="play_arrow", on_click=train)
            self.train_button.props("unelevated no-caps").classes("flex-grow").mark("train")
            with self.train_button:
                ui.html("<kbd>T</kbd>", sanitize=False).classes("q-ml-sm")
            self.resume_button = ui.button("Resume", icon="replay", on_click=self._resume)
            self.resume_button.props("outline no-caps")
            self.stop_button = ui.button("Stop", icon="stop", on_click=self._stop)
            self.stop_button.props("outline no-caps color=negative")
        self.bar = ui.linear_progress(0, show_value=False).props("rounded size=6px instant-feedback")
        self.doing = ui.label().classes("studio-small break-words w-full").mark("doing")
        self.curve = ui.html("", sanitize=False).classes("w-full")
        with ui.row().classes("items-center no-wrap gap-1 studio-small"):
            self.auto = ui.switch("Train by itself after every").props("dense size=sm")
            self.every = ui.number(value=_ENOUGH, min=1, max=10_000, step=1, format="%d")
            self.every.props('dense borderless input-class="text-center" aria-label="marks"').classes("w-10")
            ui.label("marks")

    def wants_training(self, marks: int, learned: int) -> bool:
        """Return whether the automatic mode begins a run now."""
        return bool(self.auto.value) and marks >= learned + max(1, int(self.every.value or _ENOUGH))

    def update(self, history: list[tuple[Job, State]], marks: int) -> None:
        """Show the progress of the latest run."""
        job, state = history[0] if history else (None, None)
        stage = state.stage if state else ""
        is_busy = bool(stage) and stage not in ENDED
        learned = job.marks if job else 0
        self.advice.set_text(advice(marks, learned, stage))
        self.train_button.set_enabled(marks > 0)
        self.train_button.set_visibility(stage not in LEARNING)
        self.stop_button.set_visibility(is_busy)
        self.resume_button.set_visibility(stage in {"stopped", "failed"})
        self.bar.set_visibility(is_busy)
        self.curve.set_visibility(is_busy)
        if job and state:
            self._show_state(job, state)

    def _show_state(self, job: Job, state: State) -> None:
        text = f"run {job.number}: {_STAGES[state.stage]}" + (f", {state.message}" if state.message else "")
        if state.stage == "training" and 0.05 < state.share < 1:
            left = (state.changed - state.begun) * (1 - state.share) / state.share
            text += f", about {left:.0f} s left" if left < 100 else f", about {left / 60:.0f} min left"
        self.doing.set_text(text)
        self.bar.set_value(state.share)
        content = curve(numbers_of(self.studio.jobs.log(job.number), "loss"))
        if content != self.curve.content:
            self.curve.set_content(content)
        if self.said not in {None, (job.number, state.stage)} and state.stage == "failed":
            ui.notify(f"The training failed: {state.message}", type="negative", multi_line=True, timeout=0)
        self.said = (job.number, state.stage)

    async def _resume(self) -> None:
        try:
            await run.io_bound(self.studio.jobs.resume, self.studio.jobs.history()[0][0].number)
        except (SparseshotError, OSError) as error:
            ui.notify(str(error), type="warning", multi_line=True)

    def _stop(self) -> None:
        if current := self.studio.jobs.current():
            self.studio.jobs.stop(current[0].number)


class FoundPanel:
    """Counts, threshold and expected quality of the result that is shown."""

    def __init__(self, studio: Studio, slide: str, *, on_threshold: Callable[[float], None]) -> None:
        self.studio, self.slide = studio, slide
        self.asked: tuple[str, float] = ("", 0.0)
        self.quality: ExpectedQuality | None = None
        self.in_slide: dict[str, int] = {}
        self.nothing = ui.label("Nothing yet. Found cells appear here while the model learns.").classes(
            "studio-small"
        )
        self.panel = ui.column().classes("w-full gap-2")
        with self.panel:
            with ui.row().classes("items-baseline gap-2 no-wrap"):
                self.total = ui.label("0").classes("studio-number")
                self.counts = ui.label().classes("studio-small").mark("counts")
            self.expected = ui.label().classes("studio-small")
            with ui.row().classes("w-full items-center no-wrap gap-3 studio-small"):
                ui.label("Threshold")
                self.threshold = ui.slider(min=0.01, max=0.99, step=0.01, value=0.5)
                self.threshold.props('dense aria-label="threshold"').classes("flex-grow")
                shown = ui.label().classes("studio-tabular")
                shown.bind_text_from(self.threshold, "value", lambda value: f"{value:.2f}")
            self.threshold.on_value_change(lambda e: on_threshold(round(float(e.value), 3)))
            self.meter = ui.html("", sanitize=False).classes("w-full")
            self.sentence = ui.label().classes("studio-small").mark("quality")

    def show(self, result: str, *, is_compared: bool) -> None:
        """Show or hide the panel."""
        self.nothing.set_visibility(not result)
        self.panel.set_visibility(bool(result))
        self.threshold.set_enabled(not is_compared)

    def counted(self, in_view: dict[str, int], in_slide: dict[str, int]) -> None:
        """Show how many cells there are."""
        self.in_slide = in_slide
        self.total.set_text(f"{sum(in_slide.values()):,}")
        self.counts.set_text(f"found in the slide, {sum(in_view.values()):,} in view")
        self._show_expected()

    async def judge(self, result: str) -> None:
        """Show the expected quality of a result at the current threshold."""
        wanted = result, round(float(self.threshold.value), 2)
        if wanted == self.asked or not result:
            return
        self.asked = wanted
        quality = await run.io_bound(self.studio.quality, *wanted)
        if self.asked != wanted:
            return
        self.quality = quality
        if quality is None and self.studio.checkpoint(result) is None:
            self.asked = ("", 0.0)  # it may be finished soon
        self.meter.set_content(meter(quality) if quality else "")
        self.sentence.set_text(plain_sentence(quality))
        self._show_expected()

    def _show_expected(self) -> None:
        found = sum(self.in_slide.values())
        expected = None if self.quality is None or not found else self.quality.cells(found)
        self.expected.set_visibility(expected is not None)
        if expected is not None:
            cells, low, high = expected
            self.expected.set_text(f"Probably {cells:,} cells in all, between {low:,} and {high:,}.")


def plain_sentence(quality: ExpectedQuality | None) -> str:
    """Return the expected quality of a model in plain words."""
    if quality is None:
        return "How good this is cannot be told: no mark was held out, or none of them is found."
    basis = f"from {_marks(quality.marks).replace('mark', 'held-out mark')}"
    if quality.certain:
        basis += f" and {quality.certain:,} cells in finished regions"
    found = f"About {100 * quality.recall.value:.0f} % of the cells are found"
    right = "finish a region to learn how many of the found ones are cells"
    if quality.precision is not None:
        right = f"{100 * quality.precision.value:.0f} % of what is found are cells"
    few = " So few marks say little: see the hatched ranges." if quality.marks < _ENOUGH else ""
    return f"{found}, {basis}; {right}.{few}"


def section(title: str) -> Any:
    """Return a titled part of the side panel."""
    column = ui.column().classes("w-full gap-2 studio-section")
    with column:
        ui.label(title).classes("studio-title")
    return column
