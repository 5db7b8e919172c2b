"""The map of a slide, as an element of the page."""

from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.elements.leaflet import leaflet  # the page then knows the module nicegui-leaflet


class SlideMap(ui.element, component="slide_map.js", esm={"sparseshot-studio": "browser"}):
    """A slide to look at and to mark; ``slide_map.js`` and ``browser`` are its part in the browser.

    It sends and fetches marks, tiles, found cells and suggestions by itself. Events: ``view`` (the area in
    view), ``counted`` (found cells in view and in the slide), ``reviewing`` (a suggested region is shown, or
    left), ``asked`` (a key).
    """

    def __init__(self, slide: dict[str, Any], *, person: str) -> None:
        super().__init__()
        self.add_resource(Path(leaflet.__file__).with_name("dist"))
        self.show(
            slide=slide,
            person=person,
            result="",
            version="",
            threshold=0.5,
            paint="class",
            heat="",
            strength=0.9,
            heat_strength=0.7,
            slide_strength=1.0,
            show_slide=True,
            show_marks=True,
            show_found=True,
            overview=True,
        )

    def show(self, **values: Any) -> None:
        """Set properties; the page hears only of those that change."""
        named = {name.replace("_", "-"): value for name, value in values.items()}
        changed = {name: value for name, value in named.items() if self._props.get(name) != value}
        if changed:
            self._props.update(changed)
            self.update()
