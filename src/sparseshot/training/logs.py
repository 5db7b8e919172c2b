"""What a run says while it goes on: a CSV file, TensorBoard events and, on a terminal, a bar."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseshot.files import replacing

if TYPE_CHECKING:
    from rich.progress import Progress

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
    """Lines of ``log.csv`` and TensorBoard scalars; a resumed run drops what it is about to do again."""

    def __init__(self, folder: Path, *, start: int) -> None:
        from tensorboardX import SummaryWriter  # noqa: PLC0415  it loads protobuf, which only a run needs

        self._path = folder / "log.csv"
        kept = [row for row in read_log(self._path) if int(row["step"]) <= start]
        with replacing(self._path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")  # another version's columns
            writer.writeheader()
            writer.writerows(kept)
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def write(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add one line; values that are None stay empty."""
        known = {name: value for name, value in values.items() if value is not None}
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow({"step": step, **known})
        for name, value in known.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        self._board.close()


def read_log(path: Path) -> list[dict[str, str]]:
    """Read the lines of a ``log.csv``; none if there is no such file. A last line cut short is left out."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values() and row["step"].isdigit()]


def numbers_of(rows: Sequence[Mapping[str, str]], column: str) -> list[float]:
    """Return the numbers of a column of a log, without the lines that leave it empty.

    >>> numbers_of([{"step": "10", "excluded": ""}, {"step": "20", "excluded": "0.1"}], "excluded")
    [0.1]
    """
    return [float(row[column]) for row in rows if row.get(column)]


class _Quiet:
    def update(self, done: int, values: Mapping[str, float | None]) -> None:
        """Say nothing."""


class _Bar(_Quiet):
    def __init__(self, progress: "Progress", task: Any) -> None:
        self._progress, self._task = progress, task

    def update(self, done: int, values: Mapping[str, float | None]) -> None:
        """Show what is known."""
        texts = []
        if (loss := values.get("loss")) is not None:
            texts.append(f"loss {loss:.4f}")
        if (excluded := values.get("excluded")) is not None:
            texts.append(f"excluded {excluded:.1%}")
        if (share := values.get("marked_share")) is not None:
            texts.append(f"marked ≈ {share:.0%}, α {values['alpha']:.2g}")
        if (speed := values.get("crops_per_second")) is not None:
            texts.append(f"{speed:.0f} crops/s")
        self._progress.update(self._task, completed=done, note=", ".join(texts))


@contextmanager
def progress_bar(title: str, total: int, *, start: int = 0, show: bool = True) -> Iterator[_Quiet]:
    """Show a bar with loss, excluded share, throughput and time left; silent where no terminal is."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not show or not console.is_terminal:
        yield _Quiet()
        return
    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task(title, total=total, completed=start, note=""))
