"""The page: the map, and beside it what to learn, what was found, and files."""

from contextlib import contextmanager
from typing import Any

from nicegui import events, run, ui

from sparseshot.errors import SparseshotError
from sparseshot.studio.exchange import ENDINGS
from sparseshot.studio.found_cells import Area
from sparseshot.studio.jobs import ENDED, Job, State
from sparseshot.studio.project import needs_mpp
from sparseshot.studio.slide_map import SlideMap
from sparseshot.studio.slide_tiles import levels_of
from sparseshot.studio.studio import Studio
from sparseshot.training.logs import numbers_of

_KEYS = {
    "1 … 9": "choose a class",
    "M": "mark a cell: click. Alt + click: not a cell. Shift + click: delete",
    "X": "mark what is not a cell",
    "O": "outline a cell: drag around it",
    "E": "delete a mark or a region",
    "R": "region in which all cells are marked: drag a box",
    "A, J": "accept or reject the found cells in a box",
    "Enter": "use the tool in the middle of the view",
    "Z, Y": "undo, redo",
    "T": "train on all marks",
    "N": "next suggested region",
    "F, G, S, V": "show or hide found cells, marks, the slide, the overview",
    "+ − and arrows": "zoom and move",
    "?": "this sheet",
}
_STAGES = {
    "waiting": "starting",
    "training": "learning",
    "view": "finding cells in view",
    "slides": "finding cells",
    "done": "finished",
    "stopped": "stopped",
    "failed": "failed",
}
_AUTO_MARKS = 20


class StudioPage:
    """What one tab shows."""

    def __init__(self, studio: Studio, slide: str) -> None:
        self.studio, self.slide = studio, slide
        self.view: Area | None = None
        self.marks = 0
        self.shown = ""  # the result
        self.latest = 0  # the run that was shown last by itself
        self.said: tuple[int, str] | None = None
        self._build()
        ui.timer(0.7, self.refresh)

    # ---- layout

    def _build(self) -> None:
        opened = self.studio.project.slide(self.slide)
        about = {"id": self.slide, "name": opened.name, "size": list(opened.size), "mpp": opened.mpp}
        self.dark = ui.dark_mode(None)
        with ui.row().classes("w-screen h-screen no-wrap gap-0"):
            with ui.element("div").classes("flex-grow h-full min-w-0"):
                self.map = SlideMap(about | {"levels": levels_of(opened)}).classes("w-full h-full")
            with ui.column().classes("studio-side p-4 gap-3"):
                self._build_head(
                    opened.name, f"{opened.size[0]:,} × {opened.size[1]:,} px, {opened.mpp:.4g} µm/px"
                )
                self._build_learn()
                self._build_found()
                self._build_files()
        self._build_help()
        self.map.on("view", self._on_view)
        self.map.on("counted", self._on_counted)
        self.map.on("marked", self._on_marked)
        self.map.on("asked", self._on_key)

    def _build_head(self, name: str, about: str) -> None:
        with ui.row().classes("w-full items-center no-wrap gap-1"):
            ui.label("sparseshot studio").classes("text-base font-medium flex-grow")
            ui.button(icon="contrast", on_click=self._toggle_dark).props("flat dense round").tooltip(
                "Light or dark"
            )
            ui.button(icon="help_outline", on_click=lambda: self.help.set_value(True)).props(
                "flat dense round"
            ).tooltip("Help (?)")
        names = {each: self.studio.project.path(each).name for each in self.studio.project.slides}
        if len(names) > 1:
            ui.select(
                names,
                value=self.slide,
                on_change=lambda e: ui.navigate.to(f"/?slide={e.value}"),
                label="Slide",
            ).props("dense outlined").classes("w-full")
        else:
            ui.label(name).classes("text-sm break-all")
        ui.label(about).classes("text-xs opacity-60 -mt-2")

    def _build_learn(self) -> None:
        with _section("Learn"):
            self.summary = ui.label().classes("text-sm")
            with ui.row().classes("w-full items-center no-wrap"):
                self.train_button = ui.button("Train", icon="model_training", on_click=self.train)
                self.train_button.props("unelevated").classes("flex-grow").mark("train")
                self.resume_button = ui.button("Resume", on_click=self._resume).props("outline")
                self.stop_button = ui.button("Stop", icon="stop", on_click=self._stop).props(
                    "outline color=negative"
                )
            self.auto = ui.switch(f"train after every {_AUTO_MARKS} marks").props("dense").classes("text-sm")
            self.bar = ui.linear_progress(0, show_value=False).props("rounded size=6px")
            self.doing = ui.label().classes("text-xs opacity-80 break-words w-full").mark("doing")
            self.curve = ui.html("", sanitize=False).classes("w-full")

    def _build_found(self) -> None:
        with _section("Found cells"):
            self.nothing = ui.label("Nothing yet. Mark some cells, then train.").classes("text-sm opacity-70")
            self.panel = ui.column().classes("w-full gap-2")
            with self.panel:
                self.choice = (
                    ui.select({}, on_change=self._on_choice).props("dense outlined").classes("w-full")
                )
                self.counts = ui.label().classes("text-sm").mark("counts")
                with ui.row().classes("w-full items-center no-wrap text-xs"):
                    ui.label("threshold")
                    self.threshold = ui.slider(min=0.01, max=0.99, step=0.01, value=0.5).classes("flex-grow")
                    shown = ui.label().classes("w-8 text-right")
                    shown.bind_text_from(self.threshold, "value", lambda value: f"{value:.2f}")
                self.threshold.on_value_change(lambda e: self.map.show(threshold=round(e.value, 3)))
                with ui.row().classes("w-full items-center no-wrap text-xs"):
                    ui.label("opacity")
                    ui.slider(min=0.1, max=1, step=0.05, value=0.9).classes("flex-grow").on_value_change(
                        lambda e: self.map.show(strength=e.value)
                    )
                paints = {"class": "class", "score": "score", "density": "density"}
                ui.toggle(paints, value="class", on_change=lambda e: self.map.show(paint=e.value)).props(
                    "dense no-caps size=sm spread unelevated"
                ).classes("w-full")
            self.layers = {}
            with ui.row().classes("gap-3 text-xs"):
                for name, key in (("found", "f"), ("marks", "g"), ("slide", "s"), ("overview", "v")):
                    self.layers[key] = ui.checkbox(name, value=True, on_change=self._on_layer).props(
                        "dense size=xs"
                    )

    def _build_files(self) -> None:
        with _section("Files"), ui.row().classes("w-full gap-2 no-wrap"):
            ui.button("Import", icon="upload", on_click=lambda: self.map.run_method("pickFile")).props(
                "outline dense no-caps size=sm"
            ).classes("flex-grow")
            for what, icon in (("Marks", "download"), ("Found", "download")):
                with (
                    ui.button(what, icon=icon)
                    .props("outline dense no-caps size=sm")
                    .classes("flex-grow") as button
                ):
                    button.mark(f"export-{what.lower()}")
                    with ui.menu():
                        for ending, name in ENDINGS.items():
                            ui.menu_item(name, on_click=lambda _, w=what, e=ending: self._export(w, e))

    def _build_help(self) -> None:
        with ui.dialog() as self.help, ui.card():
            ui.label("Keys").classes("text-lg")
            with ui.element("table").classes("studio-keys text-sm"), ui.element("tbody"):
                for key, meaning in _KEYS.items():
                    with ui.element("tr"):
                        with ui.element("td"), ui.element("kbd"):
                            ui.label(key)
                        with ui.element("td"):
                            ui.label(meaning)
            ui.label(
                "A cell that nobody marked counts as unmarked, not as background: mark a few typical ones, "
                "train, and correct what is wrong."
            ).classes("text-sm opacity-70 max-w-md")
            ui.button("Close", on_click=self.help.close).props("flat")

    # ---- events

    def _on_view(self, event: events.GenericEventArguments) -> None:
        x0, y0, x1, y1 = event.args["area"]
        width, height = self.studio.project.slide(self.slide).size
        self.view = max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1)

    def _on_counted(self, event: events.GenericEventArguments) -> None:
        view, everywhere = event.args["in_view"], event.args["in_slide"]
        text = f"{sum(view.values()):,} in view, {sum(everywhere.values()):,} in the slide"
        if len(everywhere) > 1:
            text += ": " + ", ".join(f"{count:,} {name}" for name, count in everywhere.items())
        self.counts.set_text(text)

    def _on_marked(self, event: events.GenericEventArguments) -> None:
        self.marks = int(event.args["total"])

    async def _on_key(self, event: events.GenericEventArguments) -> None:
        key = event.args["key"]
        if key in self.layers:
            self.layers[key].set_value(not self.layers[key].value)
        elif key == "?":
            self.help.open()
        elif key == "t":
            await self.train()
        else:
            ui.notify("There are no suggestions yet.")

    def _on_layer(self) -> None:
        names = {"f": "show-found", "g": "show-marks", "s": "show-slide", "v": "overview"}
        self.map.show(**{name: bool(self.layers[key].value) for key, name in names.items()})

    def _on_choice(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value and event.value != self.shown:
            self._show(event.value)

    def _toggle_dark(self) -> None:
        self.dark.set_value(not self.dark.value)

    def _export(self, what: str, ending: str) -> None:
        name = "marks" if what == "Marks" else self.shown
        if not name:
            ui.notify("Nothing has been found yet; train first.", type="warning")
            return
        query = "" if name == "marks" else f"?threshold={self.threshold.value:.3f}"
        ui.navigate.to(f"/slides/{self.slide}/export/{name}.{ending}{query}")

    async def train(self) -> None:
        """Begin a run."""
        try:
            await run.io_bound(self.studio.jobs.train, self.slide, self.view)
        except (SparseshotError, OSError) as error:
            ui.notify(str(error), type="warning", multi_line=True)

    async def _resume(self) -> None:
        try:
            await run.io_bound(self.studio.jobs.resume, self.studio.jobs.history()[0][0].number)
        except (SparseshotError, OSError) as error:
            ui.notify(str(error), type="warning", multi_line=True)

    def _stop(self) -> None:
        if current := self.studio.jobs.current():
            self.studio.jobs.stop(current[0].number)

    # ---- what changes by itself

    async def refresh(self) -> None:
        """Show the state of the work and of its results."""
        try:
            history = await run.io_bound(self.studio.jobs.history)
            results = await run.io_bound(self.studio.results, self.slide)
        except (SparseshotError, OSError) as error:
            self.doing.set_text(str(error))
            return
        if history is None or results is None:  # the server is about to end
            return
        current = history[0] if history and history[0][1].stage not in ENDED else None
        learned = history[0][0].marks if history else 0
        self.summary.set_text(f"{self.marks:,} marks" + (f", {learned:,} of them learned" if learned else ""))
        self.train_button.set_enabled(current is None and self.marks > 0)
        self.stop_button.set_visibility(current is not None)
        self.resume_button.set_visibility(bool(history) and history[0][1].stage in {"stopped", "failed"})
        self.bar.set_visibility(current is not None)
        if history:
            self._tell(*history[0])
        self._offer(results)
        if current is None:
            await run.io_bound(self.studio.jobs.warm_up)
        if self.auto.value and current is None and self.marks >= learned + _AUTO_MARKS:
            await self.train()

    def _tell(self, job: Job, state: State) -> None:
        text = f"run {job.number}: {_STAGES[state.stage]}" + (f", {state.message}" if state.message else "")
        if state.stage == "training" and 0.05 < state.share < 1:
            left = (state.changed - state.begun) * (1 - state.share) / state.share
            text += f", about {left:.0f} s left"
        self.doing.set_text(text)
        self.bar.set_value(state.share)
        loss = numbers_of(self.studio.jobs.log(job.number), "loss")
        curve = _curve(loss)
        if curve != self.curve.content:
            self.curve.set_content(curve)
        if self.said not in {None, (job.number, state.stage)} and state.stage == "failed":
            ui.notify(f"The training failed: {state.message}", type="negative", multi_line=True, timeout=0)
        self.said = (job.number, state.stage)

    def _offer(self, results: dict[str, str]) -> None:
        self.nothing.set_visibility(not results)
        self.panel.set_visibility(bool(results))
        if not results:
            return
        if self.choice.options != results:
            self.choice.set_options(results, value=self.shown if self.shown in results else None)
        newest = next(iter(results))
        number = int(newest[1:]) if newest.startswith("r") else 0
        if number > self.latest or not self.shown:
            self.latest = number
            self._show(newest)
        version = self.studio.result(self.slide, self.shown).version
        self.map.show(version=version)

    def _show(self, result: str) -> None:
        """Show a result, at the threshold that was calibrated for it."""
        self.shown = result
        if result.startswith("r"):
            threshold = self.studio.jobs.state(int(result[1:])).threshold
        else:
            manifest = self.studio.result(self.slide, result).manifest()
            threshold = float(manifest.identity.get("threshold", 0.5)) if manifest else 0.5
        self.threshold.set_value(round(threshold, 2))
        self.choice.set_value(result)
        version = self.studio.result(self.slide, result).version
        self.map.show(result=result, version=version, threshold=round(threshold, 3))


@contextmanager
def _section(title: str) -> Any:
    with ui.column().classes("w-full gap-2 pt-2"):
        ui.html(f"<h2>{title}</h2>", sanitize=False)
        yield


def _curve(loss: list[float]) -> str:
    """Return the loss as a line in SVG.

    >>> _curve([1.0]), _curve([2.0, 1.0])[:20]
    ('', '<svg class="studio-c')
    """
    if len(loss) < 2:
        return ""
    low, high = min(loss), max(*loss, min(loss) + 1e-9)
    points = " ".join(
        f"{300 * i / (len(loss) - 1):.1f},{40 - 38 * (value - low) / (high - low):.1f}"
        for i, value in enumerate(loss)
    )
    return (
        '<svg class="studio-curve" viewBox="0 0 300 42" preserveAspectRatio="none" aria-label="loss">'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/></svg>'
    )


def ask_for_mpp(studio: Studio, slide: str) -> None:
    """Show a form for the pixel size of a slide that states none."""
    with ui.card().classes("absolute-center"):
        ui.label(f"{studio.project.path(slide).name} does not state the size of its pixels.").classes(
            "text-lg"
        )
        ui.label("40x is about 0.25 µm, 20x about 0.5 µm.").classes("text-sm opacity-70")
        size = ui.number("µm per pixel", value=0.25, min=0.01, max=100, step=0.01)

        def save() -> None:
            try:
                studio.project.set_mpp(slide, float(size.value or 0))
            except SparseshotError as error:
                ui.notify(str(error), type="negative")
                return
            ui.navigate.reload()

        ui.button("Open the slide", on_click=save)


def show_page(studio: Studio, slide: str) -> None:
    """Build the page of a slide, or what keeps it from being shown."""
    slide = slide if slide in studio.project.slides else next(iter(studio.project.slides))
    try:
        if needs_mpp(studio.project, slide):
            ask_for_mpp(studio, slide)
        else:
            studio.project.slide(slide)
            StudioPage(studio, slide)
    except (SparseshotError, OSError) as error:
        with ui.card().classes("absolute-center"):
            ui.label("The slide cannot be opened.").classes("text-lg")
            ui.label(str(error)).classes("text-sm")
