"""The history of runs: go back to one, or compare two."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from nicegui import events, ui

from sparseshot.studio.jobs import Job, State

_NONE = {"": "nothing"}


class RunsPanel:
    """All results of a slide, the latest first."""

    def __init__(self, *, show: Callable[[str, str], None]) -> None:
        self._show = show
        self.results: dict[str, str] = {}
        self.empty = ui.label(
            "No runs yet. Every training is kept here, to compare and to go back to."
        ).classes("studio-small")
        self.panel = ui.column().classes("w-full gap-2")
        with self.panel:
            self.choice = ui.radio({}, on_change=self._chosen).props("dense").classes("studio-runs")
            ui.label("The next training continues from the run that is shown.").classes("studio-small")
            ui.label("Compare with").classes("studio-title q-mt-sm")
            self.other = ui.select(_NONE, value="", on_change=self._chosen)
            self.other.props('dense outlined options-dense aria-label="compare with"').classes("w-full")
            self.outcome = ui.label().classes("studio-small").mark("compared")
        self.panel.set_visibility(False)

    @property
    def against(self) -> str:
        """The result to compare with; empty for none."""
        return self.other.value or ""

    def update(self, results: dict[str, str], history: list[tuple[Job, State]], shown: str) -> None:
        """Offer results by their ids."""
        begun = {f"r{job.number}": state.begun for job, state in history}
        named = {
            each: f"{name[0].upper()}{name[1:]}"
            + (f", {datetime.fromtimestamp(begun[each]):%d %b %H:%M}" if begun.get(each) else "")
            for each, name in results.items()
        }
        self.empty.set_visibility(not named)
        self.panel.set_visibility(bool(named))
        if named != self.results:
            self.results = named
            self.choice.set_options(named, value=shown if shown in named else None)
        if self.choice.value != shown and shown in named:
            self.choice.set_value(shown)
        others = _NONE | {each: name for each, name in named.items() if each != shown}
        if self.other.options != others:
            self.other.set_options(others, value=self.against if self.against in others else "")

    def alone(self) -> None:
        """End a comparison."""
        self.other.set_value("")

    def compared(self, in_slide: dict[str, int]) -> None:
        """Show in what two results differ; nothing without counts."""
        first, second = (
            self.results.get(str(each), "").split(",")[0] for each in (self.choice.value, self.against)
        )
        both, one, two = [*in_slide.values(), 0, 0, 0][:3]
        text = (
            f"{both:,} found by both, {one:,} only by {first}, {two:,} only by {second}" if in_slide else ""
        )
        self.outcome.set_text(text)

    def _chosen(self, _: events.ValueChangeEventArguments[Any]) -> None:
        if self.choice.value:
            against = "" if self.against == self.choice.value else self.against
            self._show(str(self.choice.value), against)
