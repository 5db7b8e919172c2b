"""The log of a run: a CSV file, TensorBoard events, and a note for the progress bar."""

import csv
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sparseshot.files import make_folder, replacing
from sparseshot.losses import excluded_share
from sparseshot.training.crops import CropBatch
from sparseshot.work.folder import BOARD, LOG

COLUMNS = (
    "step",
    "loss",
    "learning_rate",
    "excluded",
    "exclusion_precision",
    "exclusion_recall",
    "alpha",
    "marked_share",
    "true_marked_share",
    "crops_per_second",
    "criterion",
    "threshold",
)


class RunLog:
    """Lines of ``log.csv`` and TensorBoard scalars; a resumed run drops the steps it repeats."""

    def __init__(self, folder: Path, *, start: int) -> None:
        # It loads protobuf, which only a run needs. SummaryWriter would write in a thread, and at exit, where
        # a full disk ends in a traceback.
        from tensorboardX.event_file_writer import EventsWriter  # noqa: PLC0415
        from tensorboardX.proto.event_pb2 import SessionLog  # noqa: PLC0415

        self._path = folder / LOG
        kept = [row for row in read_log(self._path) if int(row["step"]) <= start]
        with replacing(self._path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")  # another version's columns
            writer.writeheader()
            writer.writerows(kept)
        make_folder(folder / BOARD)
        self._board = EventsWriter(str(folder / BOARD / "events"))
        self._add(start + 1, session_log=SessionLog(status=SessionLog.START))  # later steps are dropped

    def write(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add one line; values that are None or no number stay empty."""
        known = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow({"step": step, **known})
        from tensorboardX.summary import scalar  # noqa: PLC0415

        for name, value in known.items():
            self._add(step, summary=scalar(name, value))
        self._board.flush()

    def _add(self, step: int, **content: object) -> None:
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415

        self._board.write_event(Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Flush."""
        self._board.close()


def exclusion_values(excluded: Tensor | None, batch: CropBatch) -> dict[str, float | None]:
    """Return the excluded share of the unannotated locations and, with a truth, its precision and recall.

    Precision is the share of excluded locations inside an unmarked cell, recall the share of the
    locations inside unmarked cells that were excluded. The true marked share is that of the batch.
    """
    if excluded is None:
        return {}
    share = excluded_share(excluded, batch.target, annotated=batch.annotated)
    if batch.truth is None:
        return {"excluded": share}
    hidden = ~batch.annotated & (batch.target >= 0) & (batch.truth > 0)
    return {
        "excluded": share,
        "exclusion_precision": _share(hidden, excluded),
        "exclusion_recall": _share(excluded, hidden),
        "true_marked_share": _share(batch.target > 0, batch.truth > 0),
    }


def _share(part: Tensor, whole: Tensor) -> float | None:
    total = int(whole.sum())
    return None if total == 0 else float((part & whole).sum()) / total


def read_log(path: Path) -> list[dict[str, str]]:
    """Read the lines of a ``log.csv``; none if there is no such file. Damaged lines are left out."""
    if not path.is_file():
        return []
    with path.open(newline="", errors="replace") as file:
        try:
            return [row for row in csv.DictReader(file) if _is_sound(row)]
        except csv.Error:
            return []


def _is_sound(row: Mapping[Any, Any]) -> bool:
    """Return whether a line is whole, has a step, and numbers in the columns of this version."""
    try:
        _ = [float(row[column]) for column in COLUMNS if row.get(column)]
        return None not in row.values() and int(row["step"]) >= 0
    except (KeyError, TypeError, ValueError):
        return False


def numbers_of(rows: Sequence[Mapping[str, str]], column: str) -> list[float]:
    """Return the numbers of a column of a log, without the lines that leave it empty.

    >>> numbers_of([{"step": "10", "excluded": ""}, {"step": "20", "excluded": "0.1"}], "excluded")
    [0.1]
    """
    return [float(row[column]) for row in rows if row.get(column)]


def progress_note(values: Mapping[str, float | None]) -> str:
    """Return what the progress bar shows beside steps and time left, the most informative first.

    >>> progress_note({"loss": 0.25, "excluded": 0.031, "crops_per_second": 12.4})
    'loss 0.2500, excluded 3.1%, 12 crops/s'
    """
    formats = {
        "loss": "loss {:.4f}",
        "marked_share": "marked ≈ {:.0%}",
        "excluded": "excluded {:.1%}",
        "crops_per_second": "{:.0f} crops/s",
        "alpha": "α {:.2g}",
    }
    shown = {name: values.get(name) for name in formats}
    return ", ".join(formats[name].format(value) for name, value in shown.items() if value is not None)
