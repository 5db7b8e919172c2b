"""The server of the studio."""

import logging
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from getpass import getuser
from pathlib import Path

import uvicorn
from nicegui import ui
from nicegui.elements.leaflet import leaflet  # the page then knows the module nicegui-leaflet

from sparseshot.errors import InputError
from sparseshot.studio.api import make_api
from sparseshot.studio.guard import Guard
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio
from sparseshot.terminal import printable

FIRST_PORT = 8686
_MOST_MESSAGE_BYTES = 2**20
_LOCAL = {"127.0.0.1", "localhost", "::1"}
_EVERYWHERE = {"0.0.0.0", "::"}


class StudioPage(ui.element, component="studio_page.js", esm={"sparseshot-studio": "browser"}):
    """The whole page; ``studio_page.js`` and ``browser`` are its part in the browser.

    It learns and says everything by HTTP, and nothing through NiceGUI's own connection.
    """

    def __init__(self, project: Project, slide: str) -> None:
        super().__init__()
        self.add_resource(Path(leaflet.__file__).with_name("dist"))
        person = ""
        with suppress(OSError, KeyError):
            person = getuser()
        self._props |= {"wanted": slide, "project": project.identity, "person": person}


def serve(
    studio: Studio, *, host: str, port: int, browser: bool, say: Callable[[str], None] = lambda _: None
) -> None:
    """Serve the page until Ctrl-C or SIGTERM.

    Args:
        studio: what to show.
        host: address to bind to; one beyond this machine asks for a token.
        port: 0 for a free one.
        browser: open the page in the browser.
        say: called with the address.
    """
    listening = _listening(host, port)
    port = int(listening.getsockname()[1])
    token = None if host in _LOCAL else secrets.token_urlsafe(24)
    for name in ("nicegui", "uvicorn.error"):
        logging.getLogger(name).addFilter(_without_escapes)
    api = make_api(studio)
    css, mark = (Path(__file__).with_name(name).read_text("utf-8") for name in ("studio.css", "mark.svg"))

    @ui.page("/", title="sparseshot studio")
    def page(slide: str = "") -> None:
        ui.add_css(css)
        StudioPage(studio.project, slide)

    ui.run_with(
        api, title="sparseshot studio", favicon=mark, show_welcome_message=False, reconnect_timeout=30
    )
    address = address_of(host, port) + (f"?token={token}" if token else "")
    say(address)
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    studio.begin()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it again when it has ended
    try:
        guarded = Guard(api, host=host, port=port, token=token)
        config = uvicorn.Config(guarded, log_level="warning", ws_max_size=_MOST_MESSAGE_BYTES)
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # uvicorn ended in order, and raises it again
    finally:
        listening.close()
        studio.runs.close()


def _without_escapes(record: logging.LogRecord) -> bool:
    """Escape control characters of a log record: addresses that strangers ask for are among them."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def address_of(host: str, port: int) -> str:
    """Return the address at which a browser finds the page.

    >>> address_of("::1", 8686)
    'http://[::1]:8686/'
    """
    name = _own_address() if host in _EVERYWHERE else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def _own_address() -> str:
    """Return the address of this machine in its network, or its name if it is in none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # chooses a route; nothing is sent
        except OSError:
            return socket.gethostname()
        return str(asking.getsockname()[0])


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections, at the first free port if none is given."""
    problem = ""
    for each in [port] if port else [*range(FIRST_PORT, FIRST_PORT + 20), 0]:
        opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, each))
            opened.listen(128)
        except OSError as error:
            problem = error.strerror or str(error)
            opened.close()
        else:
            return opened
    raise InputError(
        f"cannot serve at {host}, port {port or 'any'} ({problem}); give another --host or --port"
    )
