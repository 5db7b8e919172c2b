"""``sparseshot studio``: a page in the browser to mark cells, train, and see what is found."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json
from sparseshot.errors import SparseshotError


@app.command(rich_help_panel=options.TRAINING)
def studio(
    paths: Annotated[
        list[Path] | None,
        Argument(
            help="Slides or folders of them; folders that `predict` wrote; or one project folder. "
            "Without any, slides are added on the page."
        ),
    ] = None,
    project: Annotated[
        Path | None,
        Option(help="Folder for marks, runs and results; default: SLIDE.studio beside the slide."),
    ] = None,
    mpp: options.Mpp = None,
    host: Annotated[
        str, Option(help="Address to bind to. Beyond this machine, the page asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 for a free one.")] = 0,
    steps: Annotated[int, Option(min=0, help="Optimiser steps of a training; 0 lets training choose.")] = 0,
    everywhere: options.Everywhere = False,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open slides in the browser: click some cells, train, see all of them, correct.

    Example: `sparseshot studio slide.svs`
    """
    paths = paths or []
    options.check_paths(*paths)
    if find_spec("nicegui") is None:
        raise SparseshotError('the studio needs NiceGUI; install it with: pip install "sparseshot[studio]"')
    from sparseshot.studio.choosing import FileRoots
    from sparseshot.studio.project import Project
    from sparseshot.studio.serving import serve
    from sparseshot.studio.studio import Studio

    known = Project.open(paths, folder=project, mpp=mpp)
    opened = Studio.of(known, steps=steps, everywhere=everywhere)
    opened.files = FileRoots.around([*paths, *map(known.path, known.slides)] or [Path()])

    def say(address: str) -> None:
        print_json({"project": opened.project.folder, "address": address})
        echo(f"project: {opened.project.folder}")
        echo(f"studio:  {address}")
        echo("marks are saved as you make them; Ctrl-C ends the studio")

    serve(opened, host=host, port=port, browser=browser, say=say)
