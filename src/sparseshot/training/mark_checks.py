"""Checks of what people marked: places, task and classes."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sparseshot.cells import Cells
from sparseshot.errors import InputError, TrainingWarning, counted
from sparseshot.images import Slide, TissueMask
from sparseshot.images.pixel_size import SAME_MPP
from sparseshot.models.kinds import OTHER
from sparseshot.models.labelling import NEGATIVE, SUGGESTED, Labelling

_NEGATIVE_NAME = re.compile(r"debris|art[ei]fact|other|ignore|negative|background|\bnot?\b", re.IGNORECASE)

_SAME_MARK_UM = 1.0
"""Two marks this near are one cell, marked twice."""

_MOST_NAMED = 5

_MOST_ON_GLASS = 0.1
"""The tissue mask may miss some pale tissue."""

_LEAST_EXPLAINED = 0.8
_LEAST_MARKS = 10
"""A mistake is named if it puts this share of the marks on tissue, and certain with this many marks."""
_ANOTHER = "these look like the marks of another slide"


def marks_on(slide: Slide, marks: Cells, file: object, tissue: TissueMask) -> Cells:
    """Return the marks and regions that lie on a slide.

    Warn of those beside it and of marks on glass. Raise if more than half of the marks lie there, and say
    what they look like: µm, pixels of a smaller image, swapped axes, or another slide.

    Args:
        slide: the slide.
        marks: in level-0 pixels.
        file: name of their file, for messages.
        tissue: of the slide.
    """
    if marks.mpp is not None and not math.isclose(marks.mpp, slide.mpp, rel_tol=SAME_MPP):
        raise InputError(
            f"{file}: its marks are of a slide with {marks.mpp:g} µm per pixel, and {slide.name} has "
            f"{slide.mpp:g}; give the marks of this slide, or the right --mpp"
        )
    marks = replace(marks, mpp=slide.mpp)
    width, height = slide.size
    where = f"outside {slide.name}, which has {width:,} × {height:,} pixels"
    inside = _on_slide(marks.xy, slide)
    if outside := int((~inside).sum()):
        if outside > len(marks) / 2:
            raise InputError(
                f"{file}: {_marks(outside, len(marks))} {where}; {_likely_cause(slide, marks.xy, tissue)}"
            )
        x, y = marks.xy[~inside][0]
        warn(
            f"{file}: {_marks(outside, len(marks))} {where}, and are left out; "
            f"the first is at ({x:.0f}, {y:.0f})"
        )
        marks = marks[inside]
    _check_tissue(slide, marks, file, tissue)
    beside = ~shapely.intersects(marks.regions, shapely.box(0, 0, width, height))
    if beside.any():
        number = int(beside.sum())
        what = counted(number, "exhaustive region") + (" lies" if number == 1 else " lie")
        warn(f"{file}: {what} {where}, left out")
        notes = None if marks.region_notes is None else marks.region_notes[~beside]
        marks = replace(marks, regions=marks.regions[~beside], region_notes=notes)
    return marks


def _check_tissue(slide: Slide, marks: Cells, file: object, tissue: TissueMask) -> None:
    """Warn of marks on glass; raise if a mistake explains them. Marks of what is no cell may be anywhere."""
    negative = [number for number, name in enumerate(marks.classes) if _NEGATIVE_NAME.search(name)]
    xy = marks.xy[~np.isin(marks.label, negative)]
    on_glass = int((~tissue.contains(xy)).sum())
    if not tissue.mask.any() or on_glass <= _MOST_ON_GLASS * len(xy):
        return
    told = f"{file}: {_marks(on_glass, len(xy))} on glass of {slide.name}"
    if on_glass <= len(xy) / 2:
        warn(f"{told}; they are learned, but compare them with `sparseshot slide --picture`")
        return
    cause = _likely_cause(slide, xy, tissue)
    if cause != _ANOTHER and len(xy) >= _LEAST_MARKS:
        raise InputError(f"{told}; {cause}. If the marks are right, add --everywhere")
    warn(f"{told}; {cause}, or its tissue is not recognised: compare them with `sparseshot slide --picture`")


def _likely_cause(slide: Slide, xy: NDArray[np.float64], tissue: TissueMask) -> str:
    """Return which mistake would put most marks on tissue."""
    readings = {
        "they look like µm; convert them to pixels": xy / slide.mpp,
        "they look like pixels of an image half as large; export them at full size": xy * 2,
        "they look like pixels of an image a quarter as large; export them at full size": xy * 4,
        "they look like pixels of an image twice as large; give the marks of this one": xy / 2,
        "their x and y look swapped; exchange them": xy[:, ::-1],
    }
    shares = {
        cause: float((_on_slide(places, slide) & tissue.contains(places)).mean())
        for cause, places in readings.items()
    }
    best = max(shares.values())
    if best < _LEAST_EXPLAINED:
        return _ANOTHER
    return ", or ".join(cause for cause, share in shares.items() if share > best - 0.02)


def _on_slide(xy: NDArray[np.float64], slide: Slide) -> NDArray[np.bool_]:
    return np.asarray(((xy >= 0) & (xy <= slide.size)).all(axis=1))


def warn(message: str) -> None:
    """Warn of marks."""
    warnings.warn(message, TrainingWarning, stacklevel=3)


def _marks(count: int, total: int) -> str:
    return f"{count:,} of {counted(total, 'mark')} " + ("lies" if count == 1 else "lie")


def check_marks(tables: Sequence[Cells], labelling: Labelling) -> None:
    """Raise if a named class has no mark, or there is none to learn from."""
    labelling.check({name for cells in tables for name, count in cells.counts().items() if count})
    if not any(len(labelling.positives(cells)) for cells in tables):
        raise InputError("none of the images holds a mark to learn from; mark at least a few cells")


def without_suggestions(marks: Cells) -> Cells:
    """Return marks without suggested regions that nobody has worked on; a small one could pass for a cell.

    >>> without_suggestions(Cells([[1, 1], [2, 2]], classes=("Suggested", "tumour"), label=[0, 1])).counts()
    {'tumour': 1}
    """
    if SUGGESTED not in marks.classes:
        return marks
    kept = marks[marks.label != marks.classes.index(SUGGESTED)]
    return kept.with_classes(name for name in marks.classes if name != SUGGESTED)


def warn_of_contradictions(marks: Cells, labelling: Labelling, slide: str) -> None:
    """Warn of cells that are marked as positive and as negative, and of exhaustive regions without any mark.

    Args:
        marks: in level-0 pixels.
        labelling: targets of the classes.
        slide: its name, for messages.
    """
    targets = labelling.targets(marks)
    positive, negative = marks[targets > 0], marks[targets == NEGATIVE]
    pairs = _on_one_cell(positive, negative)
    if pairs:
        listed = [
            f"{class_of(positive, one)} and {class_of(negative, other)} at "
            f"({positive.xy[one, 0]:.0f}, {positive.xy[one, 1]:.0f})"
            for one, other in pairs
        ]
        what = "1 cell is" if len(pairs) == 1 else f"{len(pairs):,} cells are"
        warn(
            f"{slide}: {what} marked as positive and as negative; learned as positive, but remove one of the "
            f"marks: {_some(listed)}"
        )
    bare = [region for region in marks.regions if not shapely.contains_xy(region, marks.xy).any()]
    if bare:
        places = shapely.get_coordinates(shapely.centroid(bare))
        what, they = (
            ("1 region is", "it is") if len(bare) == 1 else (f"{len(bare):,} regions are", "they are")
        )
        warn(
            f"{slide}: {what} declared exhaustive and without any mark, so {they} learned as background: "
            + _some([f"around ({x:.0f}, {y:.0f})" for x, y in places])
        )


def _on_one_cell(positive: Cells, negative: Cells) -> list[tuple[int, int]]:
    """Return the pairs of a positive and a negative mark on one cell: inside its outline, or within 1 µm."""
    if not len(positive) or not len(negative):
        return []
    near = cKDTree(positive.xy).query_ball_point(negative.xy, _SAME_MARK_UM / (positive.mpp or 1))
    pairs = {(one, other) for other, ones in enumerate(near) for one in ones}
    if positive.outline is not None:
        other, one = shapely.STRtree(positive.outline).query(shapely.points(negative.xy), predicate="within")
        pairs |= set(zip(one.tolist(), other.tolist(), strict=True))
    return sorted(pairs)


def class_of(cells: Cells, row: int) -> str:
    """Return the name of the class of one cell."""
    return cells.classes[cells.label[row]] if cells.label[row] >= 0 else "unclassified"


def _some(listed: Sequence[str]) -> str:
    return ", ".join([*listed[:_MOST_NAMED], *(["…"] if len(listed) > _MOST_NAMED else [])])


def task_of_marks(tables: Sequence[Cells]) -> tuple[Literal["segment", "detect"], str]:
    """Return the task that marks are made for, and the reason.

    >>> task_of_marks([Cells([[1, 1], [2, 2]])])
    ('detect', 'all 2 marks are points')
    """
    total = sum(map(len, tables))
    outlined = sum(
        0 if cells.outline is None else int((~shapely.is_missing(cells.outline)).sum()) for cells in tables
    )
    if outlined == 0:
        return "detect", "the only mark is a point" if total == 1 else f"all {total:,} marks are points"
    if outlined < total / 2:
        return "detect", f"{total - outlined:,} of {total:,} marks are points"
    if total == 1:
        return "segment", "the only mark is an outline"
    return "segment", f"{outlined:,} of {total:,} marks are outlines"


def classes_of_marks(labelling: Labelling, tables: Sequence[Cells]) -> tuple[str, ...]:
    """Return the classes to learn: those of the labelling, else the only class of the marks.

    Marks of several classes, or without one, are learned together as one class without a name.
    """
    if labelling.classes:
        return labelling.classes
    names = {
        cells.classes[label] if label >= 0 else ""
        for cells in tables
        for label in np.unique(cells.label[labelling.targets(cells) > 0])
    }
    return tuple(names) if len(names) == 1 and names != {""} else ()


def colors_of_marks(classes: Sequence[str], tables: Sequence[Cells]) -> tuple[str, ...]:
    """Return the colours of classes in the marks as ``#rrggbb``; empty unless each of them has one.

    >>> colors_of_marks(["a"], [Cells([[0, 0]], classes=("a",), label=[0], colors=[(0, 170, 255)])])
    ('#00aaff',)
    """
    known: dict[str, tuple[int, int, int]] = {}
    for cells in tables:
        known = dict(zip(cells.classes, cells.colors or (), strict=False)) | known
    return tuple("#" + bytes(known[name]).hex() for name in classes) if {*classes} <= {*known} else ()


def suppression_radius_um(tables: Sequence[Cells]) -> float:
    """Return the distance below which two detections are one cell, from the marks.

    Cells that touch are one diameter apart, so for outlines it is 0.6 of the median diameter. Two points are
    two cells, so for points it is 0.8 of their shortest distances, but at most 4 µm: nuclei are larger. A
    cell that was clicked twice does not count.

    >>> suppression_radius_um([Cells([[0, 0], [10, 0], [400, 0]], mpp=0.5)])
    4.0
    """
    areas = [
        shapely.area(cells.outline) * (cells.mpp or 1) ** 2 for cells in tables if cells.outline is not None
    ]
    known = np.concatenate([*areas, np.empty(0)])
    if (known > 0).any():
        return round(float(np.clip(0.6 * np.median(2 * np.sqrt(known[known > 0] / np.pi)), 2, 8)), 2)
    nearest = [
        cKDTree(cells.xy).query(cells.xy, k=2)[0][:, 1] * (cells.mpp or 1)
        for cells in tables
        if len(cells) > 1
    ]
    distances = np.concatenate([*nearest, [5.0]])
    distances = distances[distances > _SAME_MARK_UM]
    return round(float(np.clip(0.8 * np.quantile(distances, 0.05, method="lower"), 2, 4)), 2)


def describe_classes(labelling: Labelling, tables: Sequence[Cells], *, own_marks: bool) -> str:
    """Return which classes are learned, and warn of those whose names sound negative.

    Args:
        labelling: targets of the classes.
        tables: the marks.
        own_marks: class names are the user's own, not those of a benchmark set.
    """
    counts: Counter[str] = Counter()
    for cells in tables:
        counts.update(cells.counts())
    known = {name: count for name, count in counts.items() if count}
    negative = {name: count for name, count in known.items() if labelling.is_negative(name)}
    learned = {
        name: count
        for name, count in known.items()
        if name not in negative and (not labelling.classes or name in labelling.classes)
    }
    unused = {name: count for name, count in known.items() if name not in negative and name not in learned}
    suspects = [name for name in learned if _NEGATIVE_NAME.search(name) and name not in labelling.classes]
    if suspects and own_marks:
        warn(
            f"marks of class {', '.join(map(repr, suspects))} are learned as cells; if they are no cells, "
            f"add --negative {','.join(suspects)}"
        )
    parts = [f"learning {_listed(learned)}" + ("" if labelling.classes else " as one class, cell")]
    parts += [f"certain negatives: {_listed(negative)}"] if negative else []
    parts += [f"unused: {_listed(unused)}"] if unused else []
    return "; ".join(parts)


def describe_kinds(kinds: Sequence[str], tables: Sequence[Cells]) -> str:
    """Return which classes are learned as kinds of cells."""
    counts: Counter[str] = Counter()
    for cells in tables:
        counts.update(cells.counts())
    learned = _listed({name: counts[name] for name in kinds})
    return (
        f"learning which found cells are {learned}; the others become {OTHER}; --classes any finds all alike"
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({counted(count, 'mark')})" for name, count in counts.items())
