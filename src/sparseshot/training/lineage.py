"""Where a run comes from: the models it continues, and what changed in the marks since."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import FormatError
from sparseshot.files import read_json
from sparseshot.metrics import match_points
from sparseshot.models.checkpoint import Checkpoint, fingerprint
from sparseshot.models.config import STARTER_NAMES
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.mark_checks import class_of
from sparseshot.work.folder import MARKS, RECIPE, SOURCE

_SAME_CELL_UM = 3.0
"""How far a mark may have moved and still be that of the same cell."""


class Start(NamedTuple):
    """The model that a run starts from.

    Attributes:
        model: its weights and settings.
        parents: the model, then those that it came from itself.
        is_run: a run on own slides, rather than a starter or a lone model file.
        changes: how the marks differ from those the run learned from; None if it kept none.
        certainty: mean probability that it gives the marks, none of which it has learned from; 0 if that is
            unknown.
    """

    model: Checkpoint
    parents: "tuple[Parent, ...]" = ()
    is_run: bool = False
    changes: "MarkChanges | None" = None
    certainty: float = 0.0


class Parent(NamedTuple):
    """A model that a run continues: its path, or the name of a starter, and its fingerprint."""

    path: str
    fingerprint: str


def start_of(model: Checkpoint, name: str, slides: Sequence[AnnotatedSlide] | None) -> Start:
    """Return what a run starts from.

    Args:
        model: its weights.
        name: path, or name of a starter.
        slides: the user's own, with the marks to learn; None for a benchmark set.
    """
    if name in STARTER_NAMES:
        return Start(model, (Parent(name, fingerprint(model)),))
    run = model.path.parent
    parents = (Parent(str(model.path.absolute()), fingerprint(model)), *recorded_parents(run))
    if slides is None or not any((run / file).is_file() for file in (RECIPE, SOURCE)):
        return Start(model, parents)
    return Start(model, parents, is_run=True, changes=changes_since_parent(run, slides))


def recorded_parents(run: Path) -> list[Parent]:
    """Return the parents that a run has recorded; none if an earlier version trained it."""
    path = next((run / name for name in (RECIPE, SOURCE) if (run / name).is_file()), None)
    if path is None:
        return []
    content = read_json(path)
    try:
        rows = [each.values() if isinstance(each, dict) else each for each in content.get("parents", [])]
        return [Parent(str(place), str(digest)) for place, digest in rows]
    except (AttributeError, TypeError, ValueError) as error:
        raise FormatError(path, f"its parents cannot be understood ({error!r})") from error


def keep_marks(folder: Path, slides: Sequence[AnnotatedSlide]) -> None:
    """Write the marks of each slide into the folder of a run, as ``marks/0 NAME.parquet`` and so on."""
    (folder / MARKS).mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(slides):
        write_cells(item.marks, folder / MARKS / f"{number} {_plain(item.slide.name)}.parquet")


def kept_marks(run: Path) -> dict[str, Cells]:
    """Return the marks that a run has learned from, by the name of their slide; empty if it kept none."""
    files = sorted((run / MARKS).glob("*.parquet"), key=lambda file: int(file.stem.partition(" ")[0] or 0))
    return _by_name((file.stem.partition(" ")[2], read_cells(file)) for file in files)


class MarkChanges(NamedTuple):
    """How marks differ from earlier ones.

    Attributes:
        new: without an earlier one near.
        gone: earlier ones without one near.
        moved: at most 3 µm.
        renamed: of another class than before.
    """

    new: int = 0
    gone: int = 0
    moved: int = 0
    renamed: int = 0

    @property
    def total(self) -> int:
        """Number of changes."""
        return sum(self)

    def __str__(self) -> str:
        """Return the changes in words.

        >>> print(MarkChanges(new=12, moved=1))
        12 new, 1 moved
        """
        names = {"new": self.new, "gone": self.gone, "moved": self.moved, "of another class": self.renamed}
        return ", ".join(f"{count:,} {name}" for name, count in names.items() if count) or "none changed"


def changes_since(before: Cells, after: Cells) -> MarkChanges:
    """Compare the marks of a slide with earlier ones.

    >>> changes_since(Cells([[0, 0], [50, 0], [90, 0]], mpp=0.5), Cells([[0, 0], [52, 0], [70, 0]], mpp=0.5))
    MarkChanges(new=1, gone=1, moved=1, renamed=0)
    """
    reach = _SAME_CELL_UM / (after.mpp or before.mpp or 1.0)
    same = match_points(before.xy, after.xy, radius=reach)
    moved = (np.round(before.xy[same.truth], 2) != np.round(after.xy[same.found], 2)).any(axis=1)
    pairs = zip(same.truth.tolist(), same.found.tolist(), strict=True)
    renamed = sum(class_of(before, one) != class_of(after, other) for one, other in pairs)
    kept = len(same.truth)
    return MarkChanges(len(after) - kept, len(before) - kept, int(moved.sum()), renamed)


def _by_name(tables: Iterable[tuple[str, Cells]]) -> dict[str, Cells]:
    """Return tables by name; the second of one name, which is of another slide, has a number too."""
    named: dict[str, Cells] = {}
    seen: Counter[str] = Counter()
    for name, cells in tables:
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = cells
    return named


def changes_since_parent(run: Path, slides: Sequence[AnnotatedSlide]) -> MarkChanges | None:
    """Compare marks with those that a run has learned from; None if it kept none."""
    before = kept_marks(run)
    if not before:
        return None
    after = _by_name((_plain(item.slide.name), item.marks) for item in slides)
    nothing = Cells(np.empty((0, 2)))
    names = {*before, *after}
    changes = [changes_since(before.get(name, nothing), after.get(name, nothing)) for name in names]
    return MarkChanges(*map(sum, zip(*changes, strict=True)))


def _plain(name: str) -> str:
    """Return a name that is part of a file name on every system."""
    return re.sub(r"[^\w .-]+", "_", name)[:60].strip(" .") or "slide"
