"""Which layers are shown, and how."""

from collections.abc import Callable

from nicegui import ui

from sparseshot.studio.slide_map import SlideMap

COLORINGS = {"class": "class", "score": "score", "excluded": "left out"}
_HEAT = {"": "none", "density": "density", "doubt": "uncertainty"}
_ABOUT = {
    "class": "Each cell in the colour of its class.",
    "score": "From dark (unlikely) to bright (certain).",
    "excluded": (
        "What the loss does with unmarked cells: those it is sure of are left out, neither cell nor "
        "background; the others count as background."
    ),
    "": "",
    "density": "How crowded found cells are.",
    "doubt": "Where decisions are probably wrong: cells near the threshold, weaker ones included.",
}


class LayersPanel:
    """Switches and sliders of the layers; the map shows what they say."""

    def __init__(self, slide_map: SlideMap, *, on_coloring: Callable[[str], None]) -> None:
        self.map, self._on_coloring = slide_map, on_coloring
        self.switches: dict[str, ui.switch] = {}
        with ui.column().classes("w-full gap-1"):
            self._layer("Slide", "s", show="show_slide", strength="slide_strength", value=1.0)
            self._layer("Marks", "g", show="show_marks")
            self._layer("Found cells", "f", show="show_found", strength="strength", value=0.9)
            self._layer("Overview", "v", show="overview")
        self.coloring = self._choice("Colour found cells by", COLORINGS, "class", self._color)
        self.heat = self._choice("Heat map", _HEAT, "", lambda heat: self.map.show(heat=heat))
        with ui.row().classes("w-full items-center no-wrap gap-3 studio-small") as heat_row:
            ui.label("Opacity")
            ui.slider(min=0.1, max=1, step=0.05, value=0.7).props(
                'dense aria-label="opacity of the heat map"'
            ).on_value_change(lambda e: self.map.show(heat_strength=e.value))
        heat_row.bind_visibility_from(self.heat, "value", bool)

    def _layer(self, name: str, key: str, *, show: str, strength: str = "", value: float = 1.0) -> None:
        with ui.row().classes("w-full items-center no-wrap gap-2 studio-layer"):
            switch = ui.switch(name, value=True).props("dense size=sm").classes("studio-layer-name")
            switch.on_value_change(lambda e: self.map.show(**{show: bool(e.value)}))
            self.switches[key] = switch
            if strength:
                ui.slider(min=0.1, max=1, step=0.05, value=value).props(
                    f'dense aria-label="opacity of {name.lower()}"'
                ).classes("flex-grow").on_value_change(lambda e: self.map.show(**{strength: e.value}))
            else:
                ui.space()
            ui.html(f"<kbd>{key.upper()}</kbd>", sanitize=False)

    @staticmethod
    def _choice(title: str, options: dict[str, str], value: str, choose: Callable[[str], None]) -> ui.toggle:
        ui.label(title).classes("studio-title q-mt-sm")
        toggle = ui.toggle(options, value=value, on_change=lambda e: choose(str(e.value)))
        toggle.props("dense no-caps spread unelevated toggle-color=primary").classes("w-full studio-toggle")
        ui.label().classes("studio-small").bind_text_from(toggle, "value", _ABOUT.get)
        return toggle

    def press(self, key: str) -> bool:
        """Do what a key stands for; return whether it is one of a layer."""
        if key in self.switches:
            self.switches[key].set_value(not self.switches[key].value)
        elif key in {"d", "u"}:
            wanted = "density" if key == "d" else "doubt"
            self.heat.set_value("" if self.heat.value == wanted else wanted)
        else:
            return False
        return True

    def _color(self, coloring: str) -> None:
        self.map.show(paint="score" if coloring == "score" else "class")
        self._on_coloring(coloring)
