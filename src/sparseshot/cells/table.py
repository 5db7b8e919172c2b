"""The table of cells."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from sparseshot.cells.buckets import checked_points
from sparseshot.cells.columns import (
    as_column,
    as_frozen,
    as_ids,
    as_notes,
    as_numbers,
    stacked,
    stacked_ids,
)
from sparseshot.errors import InputError, unknown_name

KINDS = ("detection", "annotation", "cell")
"""The kinds of object QuPath knows, in the order of the codes in :attr:`Cells.kind`."""

MOST_CLASSES = 32_767
"""Largest number of classes that an int16 label can tell apart."""

GREY = (128, 128, 128)
"""Colour of a class without one, where other classes have one."""

# Distinguishable for most people, including those with red-green colour blindness (Okabe & Ito 2008).
PALETTE = (
    (213, 94, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
)

_OPTIONAL = {"score": 1.0, "outline": None, "kind": 0, "nucleus": None, "name": None}
"""Columns that a table may lack, and the value that fills them where another table has the column."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Cells:
    """Immutable table of cells, one row for each, either marked by a person or found by a model.

    Columns accept anything that NumPy converts to an array.

    Attributes:
        xy: ``(N, 2)`` float64, x and y in level-0 pixels; (0, 0) is the corner of the first pixel.
        classes: names of the classes.
        label: ``(N,)`` int16, index into ``classes``; -1 for a cell without a class. Default: all 0.
        score: ``(N,)`` float32 confidence in [0, 1], or None for marks.
        outline: ``(N,)`` shapely (multi)polygons, None for a cell that is only a point; or None altogether.
        id: ``(N,)`` instance ids, int64 or fixed-width UTF-8 bytes (``S36`` holds a UUID), or None.
        mpp: µm per level-0 pixel, or None if unknown.
        regions: array of shapely polygons in which every cell is marked.
        region_notes: a mapping of texts for each region, e.g. who reviewed it; or None.
        measurements: further columns of numbers by name, float32 or float64.
        kind: ``(N,)`` uint8 index into :data:`KINDS`, or None if the source does not say.
        colors: red, green and blue (0–255) of each class, or None.
        nucleus: ``(N,)`` outlines of the nuclei where ``outline`` is that of the whole cell, or None.
        name: ``(N,)`` names that a person gave to single annotations, None for the others; or None.

    >>> cells = Cells([[10, 20], [30, 40]], classes=("tumour", "lymphocyte"), label=[1, 0], mpp=0.25)
    >>> cells
    Cells(2: 1 tumour, 1 lymphocyte; 0.25 µm/px; x 10–30, y 20–40)
    >>> cells[cells.label == 1].xy
    array([[10., 20.]])
    """

    xy: NDArray[np.float64]
    classes: tuple[str, ...]
    label: NDArray[np.int16]
    score: NDArray[np.float32] | None
    outline: NDArray[np.object_] | None
    id: NDArray[Any] | None
    mpp: float | None
    regions: NDArray[np.object_]
    measurements: Mapping[str, NDArray[np.floating]]
    kind: NDArray[np.uint8] | None
    colors: tuple[tuple[int, int, int], ...] | None
    nucleus: NDArray[np.object_] | None
    name: NDArray[np.object_] | None
    region_notes: NDArray[np.object_] | None

    def __init__(
        self,
        xy: ArrayLike,
        *,
        classes: Iterable[str] = ("cell",),
        label: ArrayLike | None = None,
        score: ArrayLike | None = None,
        outline: ArrayLike | None = None,
        id: ArrayLike | None = None,  # noqa: A002  the name of the column
        mpp: float | None = None,
        regions: ArrayLike | None = None,
        measurements: Mapping[str, ArrayLike] = MappingProxyType({}),
        kind: ArrayLike | None = None,
        colors: Iterable[tuple[int, int, int]] | None = None,
        nucleus: ArrayLike | None = None,
        name: ArrayLike | Sequence[str | None] | None = None,
        region_notes: Sequence[Mapping[str, str]] | NDArray[np.object_] | None = None,
    ) -> None:
        xy = checked_points(xy, "xy")
        classes = tuple(str(each) for each in classes)
        if len(set(classes)) != len(classes):
            raise InputError(f"classes {classes} repeat a name; merge them first")
        if len(classes) > MOST_CLASSES:
            raise InputError(
                f"{len(classes):,} classes; at most {MOST_CLASSES:,} are possible; are they ids?"
            )
        label = np.zeros(len(xy), np.int16) if label is None else np.asarray(label)
        if label.size and (label.min() < -1 or label.max() >= len(classes)):
            raise InputError(
                f"labels run from {label.min()} to {label.max()}, but there are {len(classes)} classes "
                f"{classes}; labels are indices into classes, or -1 for none"
            )
        if mpp is not None and not (np.isfinite(mpp) and mpp > 0):
            raise InputError(f"mpp is {mpp}; give µm per pixel, e.g. 0.25 for 40x")
        colors = None if colors is None else tuple((int(r), int(g), int(b)) for r, g, b in colors)
        if colors is not None and len(colors) != len(classes):
            raise InputError(f"{len(colors)} colours for {len(classes)} classes; give one for each")
        if colors is not None and not all(0 <= value <= 255 for color in colors for value in color):
            raise InputError(f"colours {colors} are not red, green and blue from 0 to 255")
        columns: dict[str, NDArray[Any] | None] = {
            "xy": xy,
            "label": label.astype(np.int16, copy=False),
            "score": as_column(score, np.float32),
            "outline": as_column(outline, object),
            "id": as_ids(id),
            "kind": as_column(kind, np.uint8),
            "nucleus": as_column(nucleus, object),
            "name": as_column(name, object),
        }
        extra = {each: as_numbers(values) for each, values in measurements.items()}
        for each, column in {**columns, **extra, "xy": None}.items():
            if column is not None and column.shape != (len(xy),):
                raise InputError(
                    f"{each} has shape {column.shape}, xy {xy.shape}; every column needs one value a cell"
                )
        areas = np.empty(0, object) if regions is None else np.asarray(regions, dtype=object)
        columns |= {"regions": areas, "region_notes": as_notes(region_notes, of=len(areas))}
        values = {each: as_frozen(column) for each, column in columns.items()} | {
            "classes": classes,
            "mpp": mpp,
            "measurements": MappingProxyType({each: as_frozen(column) for each, column in extra.items()}),
            "colors": colors,
        }
        for each, value in values.items():
            object.__setattr__(self, each, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the measurements as a plain dict, since their read-only view cannot be pickled."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return partial(Cells, **columns | {"measurements": dict(self.measurements)}), ()

    def __len__(self) -> int:
        return len(self.xy)

    def __getitem__(self, rows: ArrayLike | slice) -> Self:
        """Return the cells of a boolean mask, an array of indices or a slice, with everything else kept."""
        index: Any = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and index.dtype != bool:
            index = index.astype(np.intp).reshape(-1)
        chosen: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[index]
            for name in ("xy", "label", "id", *_OPTIONAL)
        }
        measurements = {name: column[index] for name, column in self.measurements.items()}
        return replace(self, **chosen, measurements=measurements)

    def __repr__(self) -> str:
        parts = [f"{count:,} {name}" for name, count in self.counts().items() if count]
        text = f"Cells({len(self):,}" + (": " + ", ".join(parts) if parts else "")
        if self.mpp is not None:
            text += f"; {self.mpp:g} µm/px"
        if len(self):
            (x0, y0), (x1, y1) = self.xy.min(axis=0), self.xy.max(axis=0)
            text += f"; x {x0:g}–{x1:g}, y {y0:g}–{y1:g}"
        extras = [name for name in ("score", "outline", "id") if getattr(self, name) is not None]
        if extras:
            text += "; with " + ", ".join(extras)
        if len(self.regions):
            text += f"; {len(self.regions)} exhaustive regions"
        return text + ")"

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; outlines count with their coordinates and about 200 bytes each."""
        columns = [self.xy, self.label, self.score, self.id, self.kind, *self.measurements.values()]
        total = sum(column.nbytes for column in columns if column is not None)
        for shapes in (self.outline, self.nucleus):
            if shapes is not None:
                total += 16 * int(shapely.get_num_coordinates(shapes).sum()) + 200 * len(self)
        return total

    @property
    def extent_px(self) -> tuple[int, int]:
        """Width and height in whole pixels of an image from (0, 0) on that holds every cell."""
        corner = np.floor(self.xy.max(axis=0, initial=0)) + 1
        if self.outline is not None and len(self):
            corner = np.fmax(corner, np.ceil(shapely.total_bounds(self.outline)[2:]))
        return int(corner[0]), int(corner[1])

    def counts(self) -> dict[str, int]:
        """Return the number of cells of each class, and of ``unclassified`` cells if there are any."""
        numbers = np.bincount(self.label.astype(np.intp) + 1, minlength=len(self.classes) + 1).tolist()
        counts = dict(zip(self.classes, numbers[1:], strict=True))
        if numbers[0]:
            counts["unclassified"] = counts.get("unclassified", 0) + numbers[0]
        return counts

    def of_class(self, *names: str) -> Self:
        """Return the cells of the named classes."""
        unknown = [name for name in names if name not in self.classes]
        if unknown:
            raise InputError(unknown_name("class", unknown[0], self.classes))
        return self[np.isin(self.label, [self.classes.index(name) for name in names])]

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the cells with other names for some classes; classes of the same name are merged.

        >>> Cells([[0, 0], [1, 1], [2, 2]], classes=("1", "2", "3"), label=[0, 1, 2]).renamed(
        ...     {"1": "tumour", "2": "tumour"}
        ... ).counts()
        {'tumour': 2, '3': 1}
        """
        return self.with_classes(dict.fromkeys(names.get(name, name) for name in self.classes), names)

    def with_classes(self, classes: Iterable[str], names: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return the cells with these classes, in this order, after renaming some by ``names``.

        Cells of a class that is not among ``classes`` become unclassified. Colours follow their classes; a
        class without a colour is grey if others have one.

        >>> cells = Cells([[0, 0], [1, 1]], classes=("a", "b"), label=[0, 1], colors=[(9, 0, 0), (0, 9, 0)])
        >>> cells.with_classes(["c", "b"]).label.tolist(), cells.with_classes(["c", "b"]).colors
        ([-1, 1], ((128, 128, 128), (0, 9, 0)))
        """
        classes = tuple(classes)
        number = {name: i for i, name in enumerate(classes)}
        own = [names.get(name, name) for name in self.classes]
        label = np.array([*(number.get(name, -1) for name in own), -1], np.int16)[self.label]
        colors = None
        if self.colors is not None:
            known = dict(zip(reversed(own), reversed(self.colors), strict=True))  # the first of a name wins
            colors = tuple(known.get(name, GREY) for name in classes)
        return replace(self, classes=classes, label=label, colors=colors)

    def crop(self, x0: float, y0: float, x1: float, y1: float, *, shift: bool = False) -> Self:
        """Return the cells whose ``xy`` lies in a half-open box; with ``shift``, relative to its corner.

        The box is half-open so that the crops of a tiling contain every cell exactly once.
        """
        x, y = self.xy.T
        inside = self[(x >= x0) & (x < x1) & (y >= y0) & (y < y1)]
        regions = shapely.intersection(self.regions, shapely.box(x0, y0, x1, y1))
        mixed = shapely.get_type_id(regions) == shapely.GeometryType.GEOMETRYCOLLECTION
        regions[mixed] = shapely.buffer(regions[mixed], 0)  # without points and lines
        kept = shapely.area(regions) > 0
        notes = None if self.region_notes is None else self.region_notes[kept]
        cropped = replace(inside, regions=regions[kept], region_notes=notes)
        return cropped._moved(1.0, (-x0, -y0)) if shift else cropped

    def rescaled(self, mpp: float) -> Self:
        """Return the same cells in pixels of another size."""
        if self.mpp is None:
            raise InputError("cells without mpp cannot be rescaled; set it with replace(cells, mpp=0.25)")
        return replace(self._moved(self.mpp / mpp, (0.0, 0.0)), mpp=mpp)

    def _moved(self, factor: float, offset: tuple[float, float]) -> Self:
        def move(coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
            return coordinates * factor + offset

        return replace(
            self,
            xy=move(self.xy),
            outline=None if self.outline is None else shapely.transform(self.outline, move),
            nucleus=None if self.nucleus is None else shapely.transform(self.nucleus, move),
            regions=shapely.transform(self.regions, move) if len(self.regions) else self.regions,
        )

    def write(self, path: Path | str) -> None:
        """Write to a file; :func:`~sparseshot.cells.formats.registry.write_cells` has options too."""
        from sparseshot.cells.formats.registry import write_cells  # noqa: PLC0415  it imports this module

        write_cells(self, path)

    @classmethod
    def concatenate(cls, tables: Iterable["Cells"]) -> "Cells":
        """Concatenate tables; classes are united by name, and columns that one table lacks are filled.

        Missing scores become 1, missing measurements NaN, missing outlines None.
        """
        tables = list(tables)
        if not tables:
            return cls(np.empty((0, 2)))
        if len(tables) == 1:
            return tables[0]
        mpps = {table.mpp for table in tables}
        if len(mpps) > 1:
            raise InputError(
                f"cells of different mpp {sorted(map(str, mpps))}; read them with mpp, or use rescaled(mpp)"
            )
        classes = tuple(dict.fromkeys(name for table in tables for name in table.classes))
        colors: dict[str, tuple[int, int, int]] = {}
        for table in reversed(tables):
            colors |= dict(zip(table.classes, table.colors or (), strict=False))
        names = dict.fromkeys(name for table in tables for name in table.measurements)
        rows, regions = [len(table) for table in tables], [len(table.regions) for table in tables]
        measured: dict[str, Any] = {
            name: stacked([t.measurements.get(name) for t in tables], rows, np.nan) for name in names
        }
        return cls(
            xy=np.concatenate([table.xy for table in tables]),
            classes=classes,
            label=np.concatenate([table.with_classes(classes).label for table in tables]),
            id=stacked_ids([table.id for table in tables]),
            mpp=mpps.pop(),
            regions=np.concatenate([table.regions for table in tables]),
            region_notes=stacked([table.region_notes for table in tables], regions, {}),
            measurements=measured,
            colors=tuple(colors.get(name, GREY) for name in classes) if colors else None,
            **{
                name: stacked([getattr(table, name) for table in tables], rows, missing)
                for name, missing in _OPTIONAL.items()
            },
        )
