"""The sheet with all keys."""

from nicegui import ui

_KEYS = {
    "Mark": {
        "1 … 9": "choose a class",
        "C": "new class",
        "M": "mark a cell: click. Alt + click: not a cell. Shift + click: delete",
        "X": "mark what is not a cell",
        "O": "outline a cell, for segmentation: drag around it",
        "E": "delete a mark or a region",
        "R": "region in which every cell is marked: drag",
        "Z, Y": "undo, redo",
    },
    "Learn and correct": {
        "T": "train on all marks",
        "N": "next suggested region",
        "Enter": "region done; elsewhere: use the tool in the middle of the view",
        "Esc": "leave the region, or the tool",
        "A, J": "accept or reject found cells: drag",
        "L": "drag a lasso or a box",
    },
    "Look": {
        "+ − arrows": "zoom and move; the wheel and dragging do, too",
        "Home": "the whole slide",
        "F, G, S, V": "show or hide found cells, marks, the slide, the overview",
        "D, U": "heat map of density, of uncertainty",
        "?": "this sheet",
    },
}


def help_sheet() -> ui.dialog:
    """Return a dialog with the keys."""
    with ui.dialog() as sheet, ui.card().classes("studio-sheet"):
        with ui.row().classes("w-full items-center no-wrap"):
            ui.label("Keys").classes("text-lg flex-grow")
            ui.button(icon="close", on_click=sheet.close).props('flat dense round aria-label="close"')
        with ui.row().classes("gap-8 items-start"):
            for title, keys in _KEYS.items():
                with ui.column().classes("gap-1 studio-keys"):
                    ui.label(title).classes("studio-title")
                    for key, meaning in keys.items():
                        with ui.row().classes("no-wrap gap-3 items-baseline"):
                            with ui.element("div"), ui.element("kbd"):
                                ui.label(key)
                            ui.label(meaning)
        ui.label(
            "A cell that nobody marked counts as unmarked, not as background. So mark a few typical cells, "
            "train, and correct what is wrong; nobody has to mark them all."
        ).classes("studio-small")
    return sheet
