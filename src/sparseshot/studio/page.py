"""The page: the map, and beside it the panels for work, layers and runs."""

from contextlib import suppress
from getpass import getuser

from nicegui import events, run, ui

from sparseshot.errors import SparseshotError
from sparseshot.studio.exchange import ENDINGS
from sparseshot.studio.found_cells import Area
from sparseshot.studio.help_sheet import help_sheet
from sparseshot.studio.jobs import ENDED
from sparseshot.studio.layers_panel import LayersPanel
from sparseshot.studio.project import needs_mpp
from sparseshot.studio.runs_panel import RunsPanel
from sparseshot.studio.slide_map import SlideMap
from sparseshot.studio.slide_picker import ask_for_mpp, slide_cards, slide_facts
from sparseshot.studio.slide_tiles import levels_of
from sparseshot.studio.studio import Studio
from sparseshot.studio.work_panel import FoundPanel, LearnPanel, section


class StudioPage:
    """What one tab shows.

    Attributes:
        shown: id of the result; empty for none.
        against: id of the result it is compared with; empty for none.
        coloring: a key of :data:`~sparseshot.studio.layers_panel.COLORINGS`.
        reviewed: id of the result that a person reviews; empty for none.
    """

    def __init__(self, studio: Studio, slide: str) -> None:
        self.studio, self.slide = studio, slide
        self.view: Area | None = None
        self.latest = 0
        self.shown, self.against, self.coloring, self.reviewed = "", "", "class", ""
        self._build()
        self.client = ui.context.client
        ui.timer(0.7, self.refresh)

    # ---- layout

    def _build(self) -> None:
        opened = self.studio.project.slide(self.slide)
        about = {
            "id": self.slide,
            "project": self.studio.project.identity,
            "size": opened.size,
            "mpp": opened.mpp,
            "levels": levels_of(opened),
        }
        self.dark = ui.dark_mode(None)
        self.help = help_sheet()
        with ui.column().classes("w-screen h-screen no-wrap gap-0"):
            self._build_head()
            with ui.row().classes("w-full no-wrap gap-0 flex-grow min-h-0"):
                with ui.element("div").classes("flex-grow h-full min-w-0"):
                    self.map = SlideMap(about, person=_person())
                    self.map.classes("w-full h-full")
                with ui.column().classes("studio-side gap-0 no-wrap"):
                    self._build_side()
        self.map.on("view", self._on_view)
        self.map.on("counted", self._on_counted)
        self.map.on("reviewing", self._on_reviewing)
        self.map.on("asked", self._on_key)

    def _build_head(self) -> None:
        name = self.studio.project.path(self.slide).name
        with ui.dialog() as self.slides, ui.card().classes("studio-sheet"):
            ui.label("Slides").classes("text-lg")
            slide_cards(self.studio, shown=self.slide)
        with ui.row().classes("w-full items-center no-wrap gap-2 studio-head"):
            ui.html("<b>sparse<span>shot</span></b>", sanitize=False).classes("studio-brand")
            with ui.button(on_click=self.slides.open, color=None).props("flat no-caps dense") as chip:
                chip.classes("studio-chip").tooltip("Slides of this project")
                ui.image(f"/slides/{self.slide}/thumbnail.jpg").props("fit=cover no-spinner no-transition")
                ui.label(name).classes("ellipsis")
                ui.icon("expand_more", size="18px")
            ui.label(slide_facts(self.studio, self.slide)).classes("studio-small gt-xs ellipsis")
            ui.space()
            ui.button(
                "Import", icon="upload", color=None, on_click=lambda: self.map.run_method("pickFile")
            ).props("flat dense no-caps").tooltip("Marks from QuPath GeoJSON, GeoParquet, CSV and others")
            with (
                ui.button("Export", icon="download", color=None).props("flat dense no-caps").mark("export"),
                ui.menu(),
            ):
                for what in ("Marks", "Found cells"):
                    ui.item_label(what).props("header")
                    for ending, title in ENDINGS.items():
                        ui.menu_item(title, on_click=lambda _, w=what, e=ending: self._export(w, e))
            ui.button(
                icon="contrast", color=None, on_click=lambda: self.dark.set_value(not self.dark.value)
            ).props('flat dense round aria-label="light or dark"').tooltip("Light or dark")
            ui.button(icon="help_outline", color=None, on_click=self.help.open).props(
                'flat dense round aria-label="help"'
            ).tooltip("Keys (?)")

    def _build_side(self) -> None:
        with ui.tabs().props("dense no-caps align=justify indicator-color=primary").classes("w-full") as tabs:
            work, layers, runs = ui.tab("Work"), ui.tab("Layers"), ui.tab("Runs")
        with (
            ui.tab_panels(tabs, value=work)
            .props("animated=false keep-alive")
            .classes("w-full flex-grow studio-panels")
        ):
            with ui.tab_panel(work):
                with section("Learn"):
                    self.learn = LearnPanel(self.studio, train=self.train)
                with section("Found"):
                    self.found = FoundPanel(
                        self.studio, self.slide, on_threshold=lambda each: self.map.show(threshold=each)
                    )
                    self.next_button = (
                        ui.button(
                            "Next region to review",
                            icon="explore",
                            on_click=lambda: self.map.run_method("next"),
                        )
                        .props("outline no-caps")
                        .classes("w-full")
                    )
                    with self.next_button:
                        ui.html("<kbd>N</kbd>", sanitize=False).classes("q-ml-sm")
            with ui.tab_panel(layers):
                self.layers = LayersPanel(self.map, on_coloring=self._on_coloring)
            with ui.tab_panel(runs):
                self.runs = RunsPanel(show=self._show)

    # ---- events

    def _on_view(self, event: events.GenericEventArguments) -> None:
        x0, y0, x1, y1 = event.args["area"]
        width, height = self.studio.project.slide(self.slide).size
        self.view = max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1)

    def _on_counted(self, event: events.GenericEventArguments) -> None:
        in_view, in_slide = event.args["in_view"], event.args["in_slide"]
        if event.args["result"] != self.effective:
            return
        self.runs.compared(in_slide if self.against else {})
        if self.against:
            in_view, in_slide = ({name: count for name, count in counts.items() if name != "only the second"}
                                 for counts in (in_view, in_slide))  # fmt: skip
        self.found.counted(in_view, in_slide)

    def _on_reviewing(self, event: events.GenericEventArguments) -> None:
        self.reviewed = event.args["result"]
        if not self.reviewed:
            return
        self.layers.coloring.set_value("class")
        self.layers.switches["f"].set_value(True)
        self.runs.alone()
        if self.reviewed in self.studio.results(self.slide):
            self._show(self.reviewed, "")

    async def _on_key(self, event: events.GenericEventArguments) -> None:
        key = event.args["key"]
        if self.layers.press(key):
            return
        if key == "?":
            self.help.open()
        elif key == "t":
            await self.train()

    def _on_coloring(self, coloring: str) -> None:
        self.coloring = coloring
        if coloring == "excluded" and self.shown and self.studio.exclusion(self.shown) is None:
            ui.notify("What the loss has left out is known of finished runs only.")
            self.layers.coloring.set_value("class")
            return
        self._apply()

    def _export(self, what: str, ending: str) -> None:
        name = "marks" if what == "Marks" else self.shown
        if not name:
            ui.notify("Nothing has been found yet. Train first.", type="warning")
            return
        query = "" if name == "marks" else f"?threshold={self.found.threshold.value:.3f}"
        self.map.run_method("saveFile", f"/slides/{self.slide}/export/{name}.{ending}{query}")

    async def train(self) -> None:
        """Begin a run; it continues from the one that is shown."""
        start = int(self.shown[1:]) if self.shown.startswith("r") else None
        try:
            await run.io_bound(self.studio.jobs.train, self.slide, self.view, start=start)
        except (SparseshotError, OSError) as error:
            ui.notify(str(error), type="warning", multi_line=True)
        await self.refresh()

    # ---- what changes by itself

    async def refresh(self) -> None:
        """Show the state of the work and of its results."""
        if not self.client.has_socket_connection:  # a change would be lost, and not be sent again
            return
        try:
            history = await run.io_bound(self.studio.jobs.history)
            results = await run.io_bound(self.studio.results, self.slide)
            # A run learns from all slides.
            marks = await run.io_bound(self.studio.book.count, list(self.studio.project.slides))
        except (SparseshotError, OSError) as error:
            self.learn.doing.set_text(str(error))
            return
        if history is None or results is None or marks is None:  # the server is about to end
            return
        self.learn.update(history, marks)
        self._offer(results)
        self.runs.update(results, history, self.shown)
        self.found.show(self.shown, is_compared=bool(self.against))
        self.next_button.set_visibility(any(state.stage == "done" for _, state in history))
        await self.found.judge(self.shown)
        if not history or history[0][1].stage in ENDED:
            await run.io_bound(self.studio.jobs.warm_up)
            if self.learn.wants_training(marks, history[0][0].marks if history else 0):
                await self.train()

    @property
    def effective(self) -> str:
        """Id of what the map shows: a result, two compared, or what the loss has left out."""
        if self.against:
            return f"{self.shown}-{self.against}"
        return f"{self.shown}x" if self.coloring == "excluded" and self.shown else self.shown

    def _offer(self, results: dict[str, str]) -> None:
        if not results:
            return
        newest = next(iter(results))
        number = int(newest[1:]) if newest.startswith("r") else 0
        is_newer = number > self.latest and not self.reviewed  # a person accepts the cells that are shown
        if is_newer or self.shown not in results:
            self.latest = number
            self.runs.alone()
            self._show(newest, "")
        self._apply()

    def _show(self, result: str, against: str) -> None:
        """Show a result, at the threshold that was calibrated for it."""
        if (result, against) != (self.shown, self.against):
            if result != self.shown:
                self.found.threshold.set_value(round(self.studio.threshold(self.slide, result), 2))
            self.shown, self.against = result, against
            self._apply()

    def _apply(self) -> None:
        if self.shown:
            names = [self.shown, *([self.against] if self.against else [])]
            version = "-".join(self.studio.result(self.slide, name).version for name in names)
            self.map.show(result=self.effective, version=version)


def _person() -> str:
    with suppress(OSError, KeyError):
        return getuser()
    return ""


def show_page(studio: Studio, slide: str) -> None:
    """Build the page of a slide, or say why it cannot be shown."""
    slides = studio.project.slides
    if slide not in slides and len(slides) > 1:
        ui.dark_mode(None)
        with ui.column().classes("studio-gallery"):
            ui.html("<b>sparse<span>shot</span></b>", sanitize=False).classes("studio-brand")
            ui.label("Choose a slide").classes("text-lg")
            slide_cards(studio)
        return
    slide = slide if slide in slides else next(iter(slides))
    try:
        if needs_mpp(studio.project, slide):
            ui.dark_mode(None)
            ask_for_mpp(studio, slide)
        else:
            StudioPage(studio, slide)
    except (SparseshotError, OSError) as error:
        with ui.card().classes("absolute-center studio-form"):
            ui.label("The slide cannot be opened.").classes("text-lg")
            ui.label(str(error)).classes("studio-small")
