"""Slides to choose from, with thumbnails; and the question for the size of a slide's pixels."""

from contextlib import suppress

from nicegui import run, ui

from sparseshot.errors import SparseshotError, counted
from sparseshot.studio.project import needs_mpp
from sparseshot.studio.studio import Studio


def slide_cards(studio: Studio, *, shown: str = "") -> None:
    """Show a card for each slide of the project."""
    with ui.row().classes("gap-4 studio-cards"):
        for slide in studio.project.slides:
            _card(studio, slide, is_shown=slide == shown)


def _card(studio: Studio, slide: str, *, is_shown: bool) -> None:
    path = studio.project.path(slide)
    problem = "" if path.exists() else "The file is missing. Put it back, and nothing is lost."
    unknown, facts = False, ""
    try:
        unknown = needs_mpp(studio.project, slide)
        facts = "" if problem or unknown else slide_facts(studio, slide)
    except (SparseshotError, OSError) as error:
        problem = f"The slide cannot be opened: {getattr(error, 'problem', error)}"
    with ui.link(target=f"/?slide={slide}").classes("studio-card" + (" on" if is_shown else "")):
        if problem or unknown:
            ui.icon("broken_image" if problem else "straighten", size="48px").classes("studio-thumbnail")
        else:
            ui.image(f"/slides/{slide}/thumbnail.jpg").classes("studio-thumbnail").props(
                "fit=contain no-spinner no-transition"
            )
        ui.label(path.name).classes("studio-card-name")
        if problem or unknown:
            ui.label(problem or "The size of its pixels is not known yet.").classes("studio-small")
            return
        about = ui.label(facts).classes("studio-small")
        marks = studio.book.count([slide])
        ui.label(counted(marks, "mark")).classes("studio-small")

        async def add_tissue() -> None:
            with suppress(SparseshotError, OSError):
                if tissue := await run.io_bound(studio.tissue, slide):
                    about.set_text(f"{facts}, {tissue.area_mm2:.1f} mm² tissue")

        ui.timer(0.2, add_tissue, once=True)


def slide_facts(studio: Studio, slide: str) -> str:
    """Return size and resolution of a slide in words."""
    opened = studio.project.slide(slide)
    return f"{opened.size[0]:,} × {opened.size[1]:,} px, {opened.mpp:.3g} µm/px"


def ask_for_mpp(studio: Studio, slide: str) -> None:
    """Show a form for the pixel size of a slide that states none."""
    with ui.card().classes("absolute-center studio-form"):
        ui.label(f"{studio.project.path(slide).name} does not state the size of its pixels.").classes(
            "text-lg"
        )
        ui.label("The model needs it to know how large a cell is. Your scanner's software shows it.").classes(
            "studio-small"
        )
        size = ui.number("µm per pixel", value=0.25, min=0.01, max=100, step=0.01).props("outlined autofocus")
        with ui.row().classes("gap-2"):
            for name, value in (("40×", 0.25), ("20×", 0.5), ("10×", 1.0)):
                ui.button(f"{name}: {value} µm", on_click=lambda _, v=value: size.set_value(v)).props(
                    "outline dense no-caps"
                )

        def save() -> None:
            try:
                studio.project.set_mpp(slide, float(size.value or 0))
            except SparseshotError as error:
                ui.notify(str(error), type="negative")
                return
            ui.navigate.reload()

        size.on("keydown.enter", save)
        ui.button("Open the slide", on_click=save).props("unelevated no-caps").classes("w-full")
