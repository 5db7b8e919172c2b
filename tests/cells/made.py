"""Tables of every kind, made by hypothesis, and a look whether two are the same."""

from typing import Any

import numpy as np
import shapely
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.cells import Cells

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn", "Co"]),
    min_size=1,
    max_size=9,
).filter(lambda name: name == name.strip() and name not in {"Exhaustive", "None"} and not name.isdigit())
CENTS = st.integers(0, 200_000).map(lambda cents: cents / 100)


@st.composite
def outlines(draw: st.DrawFn, *, holes: bool = True, several: bool = True) -> shapely.Geometry:
    """Return a valid polygon, perhaps with a hole, or several, with vertices of two decimals."""
    count = draw(st.integers(3, 7))
    radii = np.array(draw(st.lists(st.integers(10, 20), min_size=count, max_size=count)))
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False) + draw(st.floats(0, 1))
    star = np.column_stack([np.cos(angles), np.sin(angles)]) * radii[:, None]
    centre = np.array([draw(CENTS), draw(CENTS)]) + 50
    hole = [np.round(centre + star / 4, 2)] if holes and draw(st.booleans()) else []
    polygon = shapely.Polygon(np.round(centre + star, 2), hole)
    if several and draw(st.booleans()):
        return shapely.MultiPolygon([polygon, shapely.box(*(centre + 30), *(centre + 33.25))])
    return polygon


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    points: bool = True,
    shapes: bool = True,
    holes: bool = True,
    several: bool = True,
    scores: bool = True,
    texts_as_ids: bool = True,
    measured: bool = True,
    nuclei: bool = True,
    named: bool = True,
    regions: bool = True,
    classes_of: int = 3,
    mpp: bool = True,
) -> Cells:
    """Return a table of what a format can hold."""
    count = draw(st.integers(0, 5))
    classes = tuple(draw(st.lists(NAMES, min_size=1, max_size=classes_of, unique=True)))
    outline: list[Any] = []
    for _ in range(count):
        is_point = points and (not shapes or draw(st.booleans()))
        outline.append(None if is_point else draw(outlines(holes=holes, several=several)))
    xy = [[draw(CENTS), draw(CENTS)] if each is None else list(each.centroid.coords[0]) for each in outline]
    ids: Any = draw(st.permutations(range(1, 50)).map(lambda numbers: numbers[:count]))
    if texts_as_ids and draw(st.booleans()):
        ids = [f"{name}-ü{i}" for i, name in enumerate(ids)]
    numbers = st.just(np.nan) | st.floats(1e-250, 1e250) | st.floats(-1e9, 0, allow_subnormal=False)
    column = st.lists(
        numbers.filter(lambda number: not 0 < abs(number) < 1e-250), min_size=count, max_size=count
    )
    names = draw(st.lists(NAMES, max_size=2, unique=True)) if measured else []
    return Cells(
        np.reshape(xy, (count, 2)),
        classes=classes,
        label=draw(st.lists(st.integers(-1, len(classes) - 1), min_size=count, max_size=count)),
        score=draw(st.none() | st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count))
        if scores
        else None,
        outline=None if all(each is None for each in outline) else outline,
        id=ids,
        mpp=draw(st.none() | st.floats(0.01, 2)) if mpp else None,
        regions=draw(st.lists(outlines(holes=holes, several=several), max_size=2)) if regions else None,
        measurements={name: draw(column) for name in names if name.casefold() not in {"x", "y", "id"}},
        kind=draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)),
        colors=draw(st.none() | st.just(tuple((k, 10 * k, 255) for k in range(len(classes))))),
        name=draw(st.none() | st.lists(st.none() | NAMES, min_size=count, max_size=count).filter(any))
        if named
        else None,
        nucleus=[each and shapely.Point(each.centroid).buffer(1, quad_segs=2) for each in outline]
        if nuclei and any(outline)
        else None,
    )


def assert_same(came: Cells, wanted: Cells, *, places_px: float = 1e-9, shapes_px: float = 0.0) -> None:
    """See that every column is the same: places and shapes to a tolerance, the rest exactly."""
    assert came.classes == wanted.classes
    assert len(came) == len(wanted)
    np.testing.assert_allclose(came.xy, wanted.xy, atol=places_px, rtol=0)
    np.testing.assert_array_equal(came.label, wanted.label)
    for name in ("score", "id", "kind", "name"):
        one, other = getattr(came, name), getattr(wanted, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.tolist() == other.tolist(), name
    for name in ("outline", "nucleus", "regions"):
        assert_same_shapes(getattr(came, name), getattr(wanted, name), shapes_px, name)
    assert dict.fromkeys(came.measurements) == dict.fromkeys(wanted.measurements)
    for name, column in wanted.measurements.items():
        np.testing.assert_array_equal(came.measurements[name], column)
    assert came.mpp == wanted.mpp
    assert came.colors == wanted.colors


def assert_same_shapes(
    came: NDArray[Any] | None, wanted: NDArray[Any] | None, tolerance: float, what: str
) -> None:
    if came is None or wanted is None:
        assert came is wanted, what
        return
    assert shapely.is_missing(came).tolist() == shapely.is_missing(wanted).tolist(), what
    some = ~shapely.is_missing(wanted)
    assert shapely.get_type_id(came[some]).tolist() == shapely.get_type_id(wanted[some]).tolist(), what
    counts = shapely.get_num_coordinates(came[some])
    assert counts.tolist() == shapely.get_num_coordinates(wanted[some]).tolist(), what
    apart = shapely.hausdorff_distance(came[some], wanted[some])
    assert apart.max(initial=0) <= tolerance, what
