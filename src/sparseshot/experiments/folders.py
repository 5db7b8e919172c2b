"""Files of an experiment.

::

    OUT/plans/NAME.json        an experiment with all its runs
    OUT/runs/RUN/run.json      the run, the folder of its data, and hashes of the user's own files
    OUT/runs/RUN/config.json   settings of the training, which also writes log.csv, model.pt and source.json
    OUT/runs/RUN/metrics.json  written last: the run is finished
    OUT/runs/RUN/error.json    why it failed
    OUT/runs/RUN/output.txt    output of its process
    OUT/runs/RUN/panels/       small pictures
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparseshot.errors import FormatError, OutputError
from sparseshot.files import write_json

RUN, CONFIG, METRICS, ERROR = "run.json", "config.json", "metrics.json", "error.json"
OUTPUT, LOG = "output.txt", "log.csv"


def run_folder(out: Path, name: str) -> Path:
    """Return the folder of a run."""
    return out / "runs" / name


def plan_path(out: Path, name: str) -> Path:
    """Return the file of an experiment."""
    return out / "plans" / f"{name}.json"


def make_folder(path: Path) -> None:
    """Make a folder and its parents; raise OutputError if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(path, f"cannot be created ({error.strerror})") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """Read a JSON object; other content is a FormatError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise FormatError(
            path, f"cannot be read ({error}); delete it and run the experiment again"
        ) from error
    if not isinstance(value, dict):
        raise FormatError(path, "holds no JSON object; delete it and run the experiment again")
    return value


def write_error(folder: Path, *, kind: str, message: str) -> None:
    """Record why a run failed."""
    write_json(folder / ERROR, {"kind": kind, "message": message})
