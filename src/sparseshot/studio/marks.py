"""The marks of a project: changes, undo and redo, and the resulting table."""

import colorsys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Literal

import numpy as np
import shapely
from pydantic import AfterValidator, BaseModel, Field

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.journal import Event, Journal

NEGATIVE = "not a cell"
"""Class of the marks that say where no cell is."""

FIRST_CLASS = "cell"
_PALETTE = ("#f0e442", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#0072b2", "#d55e00", "#882255", "#44aa99")
"""Okabe and Ito's colours, those first that stand out from stained tissue."""

_SNAPSHOT = "all of "
"""Prefix of the keys of snapshots, with which journals that 0.2.0 shortened start."""

_DECIMALS = 2
"""Decimals of coordinates in pixels."""

Item = dict[str, Any]
"""A mark with ``id``, ``class``, and ``at`` (x, y) or ``outline``; or a region with ``id`` and ``region``;
or a region to count in, with ``id``, ``count`` and ``name``.

A found cell that a person has accepted or rejected has its ``score`` too, and a reviewed region a ``note``.
"""

Coordinate = Annotated[float, Field(ge=-1e6, le=1e7, allow_inf_nan=False, strict=True)]
_Place = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]


def polygon_of(ring: Sequence[Sequence[float]]) -> shapely.Polygon:
    """Return what a ring encloses, valid also where it crosses itself."""
    shape = shapely.Polygon(ring)
    return shape if shape.is_valid else shape.buffer(0)


def _encloses(ring: list[_Place]) -> list[_Place]:
    if not polygon_of(ring).area > 0:
        raise ValueError("it encloses nothing")
    return ring


_Ring = Annotated[list[_Place], Field(min_length=3), AfterValidator(_encloses)]


class _StoredItem(BaseModel):
    """An item in the journal, which a person or another program may have edited."""

    id: str | None = None
    class_: Annotated[str, Field(min_length=1)] | None = Field(None, alias="class")
    at: _Place | None = None
    outline: _Ring | None = None
    region: _Ring | None = None
    count: _Ring | None = None
    name: str | None = None
    score: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    note: dict[str, str] | None = None


class _StoredEvent(BaseModel):
    """An event in the journal: a change of a slide's marks, a class, or known keys."""

    key: str
    slide: Annotated[str, Field(pattern="^[0-9]{1,9}$")] | None = None
    add: list[_StoredItem] = []
    remove: list[str] = []
    undo: bool = False
    redo: bool = False
    class_: Annotated[str, Field(min_length=1)] | None = Field(None, alias="class")
    color: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")] | None = None
    was: str | None = None
    gone: bool = False
    keys: list[str] | None = None


def _check_event(event: Event) -> None:
    """Raise ValueError for what is no event."""
    known = _StoredEvent.model_validate(event)
    is_class = known.class_ is not None and (known.gone or known.color is not None)
    if known.slide is None and known.keys is None and not is_class:
        raise ValueError("it is of no slide, and no class")
    for item in known.add:
        kinds = [each for each in (item.at, item.outline, item.region, item.count) if each is not None]
        is_mark = item.region is None and item.count is None
        if len(kinds) != 1 or is_mark != (item.class_ is not None):
            raise ValueError("a mark has a class and a place; a region has neither")
        if item.id is None and known.key.startswith(_SNAPSHOT):
            raise ValueError("a mark has no id")


@dataclass(frozen=True)
class Delta:
    """What one event changed."""

    removed: tuple[Item, ...]
    added: tuple[Item, ...]

    def inverse(self) -> "Delta":
        """Return the change that takes this one back."""
        return Delta(self.added, self.removed)

    def apply(self, items: dict[str, Item]) -> None:
        """Change items by id."""
        for item in self.removed:
            items.pop(item["id"], None)
        items |= {item["id"]: item for item in self.added}


@dataclass
class _SlideMarks:
    items: dict[str, Item] = field(default_factory=dict)
    done: list[Delta] = field(default_factory=list)
    undone: list[Delta] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)

    def change(self, remove: Sequence[str], add: Sequence[Item]) -> None:
        gone = tuple(self.items[each] for each in dict.fromkeys(remove) if each in self.items)
        self.done.append(Delta(gone, tuple(add)))
        self.undone.clear()
        self._apply(self.done[-1])

    def step_back(self) -> None:
        if self.done:
            self.undone.append(self.done.pop())
            self._apply(self.undone[-1].inverse())

    def step_forward(self) -> None:
        if self.undone:
            self.done.append(self.undone.pop())
            self._apply(self.done[-1])

    def _apply(self, delta: Delta) -> None:
        delta.apply(self.items)
        self.deltas.append(delta)


class MarkBook:
    """All marks of a project, kept in a :class:`~sparseshot.studio.journal.Journal`.

    An event is a dict with a ``key`` that its sender chose: an event that is sent twice counts once.

    >>> import tempfile
    >>> book = MarkBook(Path(tempfile.mkdtemp(), "marks.jsonl"))
    >>> book.record([{"key": "k1", "slide": "1", "add": [{"class": "cell", "at": [5, 6]}]}])
    >>> book.items("1")
    [{'id': 'k1:0', 'class': 'cell', 'at': [5, 6]}]
    >>> book.record([{"key": "k2", "slide": "1", "undo": True}])
    >>> book.items("1")
    []
    """

    def __init__(self, path: Path) -> None:
        self._mutex = RLock()
        self._clear()
        self._journal = Journal(path, fold=self._fold, clear=self._clear)

    def record(
        self,
        events: Sequence[Event],
        *,
        classes: Sequence[str] = (),
        colors: Mapping[str, str] | None = None,
    ) -> None:
        """Write events to disk and apply them; those that are known already are left out.

        Args:
            events: what happened. Classes that are new in them are added first.
            classes: further classes, which are added if they are new.
            colors: of new classes, as ``#rrggbb``; those without one get one of the palette.
        """
        with self._mutex:
            self._journal.follow()
            added = [item for event in events for item in event.get("add", ())]
            names = dict.fromkeys([*classes, *(item["class"] for item in added if "class" in item)])
            missing = [name for name in names if name not in {NEGATIVE, *self._classes}]
            given, used = dict(colors or {}), set(self._classes.values())
            created = []
            for name in missing:
                color = given.get(name) or self._colors.get(name) or _free_color(used)
                used.add(color)
                created.append(_class_event(name, color))
            new = {event["key"]: event for event in [*created, *events] if event["key"] not in self._keys}
            for event in new.values():
                _check_event(event)
            if new:
                self._journal.append(new.values())

    def rename(self, key: str, name: str, other: str | None) -> None:
        """Rename a class, merge it into one that there is, or delete it with its marks if ``other`` is None.

        The first class stays, because it says that there is a cell, and not which. Undo brings marks back.
        """
        with self._mutex:
            self._journal.follow()
            if name not in self._classes:
                raise InputError(f"there is no class {name!r}")
            events: list[Event] = []
            if other is not None and other not in {NEGATIVE, *self._classes}:
                was = {} if name == FIRST_CLASS else {"was": name}
                events.append(_class_event(other, self._classes[name], key) | was)
            for slide, marks in self._slides.items():
                own = [item for item in marks.items.values() if item.get("class") == name]
                if own:
                    plain = [{field: value for field, value in item.items() if field != "id"} for item in own]
                    add = [] if other is None else [item | {"class": other} for item in plain]
                    remove = [item["id"] for item in own]
                    events.append({"key": f"{key} {slide}", "slide": slide, "remove": remove, "add": add})
            if name != FIRST_CLASS:
                events.append({"key": f"{key} gone", "class": name, "gone": True})
            self.record(events)

    @property
    def slides(self) -> list[str]:
        """Ids of slides in the journal."""
        with self._mutex:
            return list(self._slides)

    def items(self, slide: str) -> list[Item]:
        """Return the marks and regions of a slide."""
        with self._mutex:
            self._journal.follow()
            return list(self._slides[slide].items.values())

    def count(self, slides: Iterable[str], what: Literal["class", "region"] = "class") -> int:
        """Return the number of marks of some slides, or of regions in which every cell is marked."""
        return sum(what in item for slide in slides for item in self.items(slide))

    def version(self, slide: str) -> str:
        """Return what changes with every change of the marks of a slide."""
        return self.since(slide, "")[0]

    def since(self, slide: str, version: str) -> tuple[str, list[Delta] | None]:
        """Return the current version, and the changes after another one; None if that is unknown."""
        with self._mutex:
            self._journal.follow()
            generation, _, number = version.partition(".")
            deltas = self._slides[slide].deltas
            present = f"{self._journal.generation}.{len(deltas)}"
            if generation != self._journal.generation or not number.isdecimal() or len(number) > 9:
                return present, None
            return present, deltas[int(number) :] if int(number) <= len(deltas) else None

    @property
    def classes(self) -> dict[str, str]:
        """Names and colours of the classes, in the order of their keys; ``not a cell`` is none of them."""
        with self._mutex:
            self._journal.follow()
            return dict(self._classes)

    def cells(self, slide: str, *, mpp: float | None = None) -> Cells:
        """Return the marks of a slide as a table; regions become exhaustively marked ones."""
        items = self.items(slide)
        marks = [item for item in items if "class" in item]
        regions = [item for item in items if "region" in item]
        colors = self.classes | {NEGATIVE: "#000000", REJECTED: "#000000"}
        labels = [REJECTED if is_rejected_item(item) else item["class"] for item in marks]
        # An earlier version let a class have the name of the rejected ones.
        names = [*dict.fromkeys([*self.classes, NEGATIVE, *([REJECTED] if REJECTED in labels else [])])]
        shapes = [polygon_of(item["outline"]) if "outline" in item else None for item in marks]
        places = [place_of(item) for item in marks]
        scores = [item.get("score", 1.0) for item in marks]
        notes = [item.get("note", {}) for item in regions]
        return Cells(
            np.array(places, np.float64).reshape(-1, 2),
            classes=names,
            label=[names.index(label) for label in labels],
            score=scores if any(score < 1 for score in scores) else None,
            outline=np.array(shapes, object) if any(shapes) else None,
            regions=[polygon_of(item["region"]) for item in regions],
            region_notes=notes if any(notes) else None,
            mpp=mpp,
            colors=[bytes.fromhex(colors[name][1:]) for name in names],  # type: ignore[misc]
        )

    def _clear(self) -> None:
        self._slides: dict[str, _SlideMarks] = defaultdict(_SlideMarks)
        self._classes: dict[str, str] = {FIRST_CLASS: _PALETTE[0]}
        self._colors = dict(self._classes)  # those of classes that are gone, too
        self._keys: dict[str, None] = {}  # in order

    def _fold(self, event: Event) -> None:
        _check_event(event)
        key = event["key"]
        if key in self._keys:
            return
        self._keys[key] = None
        if "keys" in event:
            self._keys |= dict.fromkeys(event["keys"])
            return
        if "class" in event:
            self._fold_class(event["class"], event.get("color"), event.get("was"))
            return
        slide = self._slides[event["slide"]]
        if event.get("undo"):
            taken_back = slide.done[-1].added if slide.done else ()
            slide.step_back()
            self._drop_unmarked({item["class"] for item in taken_back if "class" in item})
        elif event.get("redo"):
            slide.step_forward()
        elif key.startswith(_SNAPSHOT):
            slide.items = {item["id"]: item for item in event["add"]}  # which cannot be undone
        else:
            added = [{"id": f"{key}:{i}"} | item for i, item in enumerate(event.get("add", ()))]
            slide.change(event.get("remove", ()), added)
        present = slide.deltas[-1].added if slide.deltas else tuple(event.get("add", ()))
        for name in dict.fromkeys(item["class"] for item in present if "class" in item):
            if name not in {NEGATIVE, *self._classes}:  # brought back, or its own event was damaged
                self._fold_class(name, self._colors.get(name) or _free_color(set(self._classes.values())))

    def _fold_class(self, name: str, color: str | None, was: str | None = None) -> None:
        """Give a class a colour, in the place of another if it was renamed; None: it is gone."""
        if color is None:
            self._classes.pop(name, None)
            return
        self._colors[name] = color
        if was in self._classes:
            self._classes = {name if each == was else each: own for each, own in self._classes.items()}
        self._classes[name] = color

    def _drop_unmarked(self, names: set[str]) -> None:
        """Drop classes without marks, but for the first."""
        used = {item.get("class") for slide in self._slides.values() for item in slide.items.values()}
        for name in names - used - {FIRST_CLASS}:
            self._classes.pop(name, None)


def _class_event(name: str, color: str, key: str = "") -> Event:
    return {"key": f"class {name} {key or time.time_ns()}", "class": name, "color": color}


def _free_color(used: set[str]) -> str:
    """Return the first colour of the palette that no class has; further ones go round the wheel."""
    free = [color for color in _PALETTE if color not in used]
    if free:
        return free[0]
    turn = 0.618 * len(used) % 1  # the golden ratio: neighbours are far from each other
    return "#" + bytes(round(255 * each) for each in colorsys.hls_to_rgb(turn, 0.45, 0.7)).hex()


def place_of(item: Item) -> tuple[float, float]:
    """Return where a mark is: its point, or the centroid of its outline."""
    if "at" in item:
        return item["at"][0], item["at"][1]
    centre = polygon_of(item["outline"]).centroid
    return centre.x, centre.y


def is_rejected_item(item: Item) -> bool:
    """Return whether a mark is a found cell that a person has rejected."""
    return bool(item.get("class") == NEGATIVE and "score" in item)


def items_of(cells: Cells) -> list[Item]:
    """Return cells and exhaustive regions as marks; a cell without a class gets the first one."""
    items: list[Item] = []
    for row in range(len(cells)):
        name = cells.classes[cells.label[row]] if cells.label[row] >= 0 else FIRST_CLASS
        item: Item = {"class": NEGATIVE if name == REJECTED else name}
        shape = None if cells.outline is None else cells.outline[row]
        if shape is None:
            item["at"] = np.round(cells.xy[row], _DECIMALS).tolist()
        else:
            item["outline"] = corners_of(shape)
        score = 1.0 if cells.score is None else round(float(cells.score[row]), 4)
        items.append(item | ({"score": score} if score < 1 else {}))
    notes = cells.region_notes
    if notes is None:
        notes = np.array([{} for _ in cells.regions], object)
    for region, note in zip(cells.regions, notes, strict=True):
        own = {"note": dict(note)} if note else {}
        items += [{"region": corners_of(part)} | own for part in _without_holes(region)]
    return items


def _without_holes(region: shapely.Polygon | shapely.MultiPolygon) -> Iterator[shapely.Polygon]:
    """Yield polygons that cover a region, cut through its holes, because a mark has one ring."""
    parts = list(shapely.get_parts(region))
    while parts:
        part = parts.pop()
        if part.geom_type != "Polygon":
            continue  # where a cut touches a corner
        if not part.interiors:
            yield part
            continue
        left, bottom, right, top = part.bounds
        hole = part.interiors[0].bounds
        middle = round((hole[0] + hole[2]) / 2, _DECIMALS)
        for half in (shapely.box(middle, bottom, right, top), shapely.box(left, bottom, middle, top)):
            cut = shapely.intersection(part, half, grid_size=10**-_DECIMALS)
            parts += shapely.get_parts(cut).tolist()


def corners_of(
    shape: shapely.Polygon | shapely.MultiPolygon, *, decimals: int = _DECIMALS
) -> list[list[float]]:
    """Return the corners of the largest part of a shape, without its holes."""
    largest = max(shapely.get_parts(shape), key=shapely.area)
    ring = shapely.get_coordinates(shapely.get_exterior_ring(largest))[:-1]
    corners: list[list[float]] = np.round(ring, decimals).tolist()
    return corners
