"""The page: a Vue component, which learns and says everything by HTTP."""

from contextlib import suppress
from getpass import getuser
from pathlib import Path

from nicegui import ui
from nicegui.elements.leaflet import leaflet  # the page then knows the module nicegui-leaflet

from sparseshot.studio.project import Project


class StudioPage(ui.element, component="studio_page.js", esm={"sparseshot-studio": "browser"}):
    """The whole page; ``studio_page.js`` and ``browser`` are its part in the browser.

    Nothing goes through NiceGUI's own connection.
    """

    def __init__(self, project: Project, slide: str) -> None:
        super().__init__()
        self.add_resource(Path(leaflet.__file__).with_name("dist"))
        self._props |= {"wanted": slide, "project": project.identity, "person": _person()}


def _person() -> str:
    with suppress(OSError, KeyError):
        return getuser()
    return ""
