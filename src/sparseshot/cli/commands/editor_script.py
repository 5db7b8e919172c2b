"""``sparseshot qupath-script``: a script for QuPath's own editor."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json
from sparseshot.errors import InputError


@app.command("qupath-script", rich_help_panel=options.FILES)
def qupath_script(
    action: Annotated[
        Literal["export", "train", "predict"],
        Option(help="Export the annotations, learn from all that were exported, or find all cells."),
    ] = "predict",
    model: Annotated[
        str, Option(help="Folder of the run, which train writes and predict reads; or starter.")
    ] = "starter",
    command: Annotated[
        str | None, Option(help="How QuPath starts sparseshot; default: the program that runs now.")
    ] = None,
) -> None:
    """Print a Groovy script that runs sparseshot on the image open in QuPath, or on all of a project.

    Example: `sparseshot qupath-script --action predict --model run`

    Save it to a file, such as predict.groovy. In QuPath: Automate, Script editor, open the file, then Run or
    Run for project. The script exports the annotations, runs `train` or `predict`, and imports the cells. It
    has not been tested in QuPath itself.
    """
    import shutil
    import sys

    if action == "train" and model in options.STARTERS:
        raise InputError("--action train needs --model, the folder that it writes")
    if model not in options.STARTERS:
        model = str(Path(model).absolute())
    beside = shutil.which("sparseshot", path=str(Path(sys.executable).parent))
    command = command or beside or "sparseshot"
    script = files("sparseshot.cli").joinpath("qupath.groovy").read_text(encoding="utf-8")
    for name, value in (("COMMAND", command), ("ACTION", action), ("MODEL", model)):
        script = script.replace(f"%{name}%", _groovy(value))
    print_json({"script": script})
    for line in script.splitlines():
        echo(line)


def _groovy(text: str) -> str:
    r"""Return text as a string of Groovy, in which a dollar sign would begin a variable.

    >>> print(_groovy("C:\\a$b"))
    "C:\\a\$b"
    """
    return json.dumps(text).replace("$", "\\$")
