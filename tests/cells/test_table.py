import pickle
from dataclasses import replace

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from sparseshot.cells import Cells
from sparseshot.errors import InputError


def example() -> Cells:
    return Cells(
        [[1, 2], [3, 4], [5, 6]],
        classes=("tumour", "immune"),
        label=[1, 0, -1],
        score=[0.5, 1, 0],
        outline=[shapely.box(0, 1, 2, 3), None, shapely.box(4, 5, 6, 7)],
        id=["a", "b", "ü"],
        mpp=0.25,
        regions=[shapely.box(0, 0, 10, 10)],
        measurements={"area": [4, np.nan, 4]},
        kind=[0, 1, 2],
        colors=((255, 0, 0), (0, 0, 255)),
        nucleus=[None, None, shapely.box(4.5, 5.5, 5.5, 6.5)],
    )


def test_columns_have_their_types_and_cannot_be_written() -> None:
    cells = example()
    assert cells.xy.dtype == np.float64
    assert cells.label.dtype == np.int16
    assert cells.score is not None
    assert cells.score.dtype == np.float32
    assert cells.id is not None
    assert cells.id.tolist() == [b"a", b"b", "ü".encode()]
    for column in (cells.xy, cells.label, cells.score, cells.measurements["area"]):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
    with pytest.raises(AttributeError):
        cells.mpp = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        cells.measurements["new"] = 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"xy": [[1, 2, 3]]}, r"\(N, 2\)"),
        ({"xy": [[0, 0], [np.nan, 1]]}, r"xy\[1\]"),
        ({"classes": ("a", "a")}, "repeat"),
        ({"label": [5]}, "5"),
        ({"label": [-2]}, "-2"),
        ({"score": [0.5, 0.5]}, "score has shape"),
        ({"score": [[0.5]]}, "score has shape"),
        ({"measurements": {"area": []}}, "area has shape"),
        ({"mpp": 0}, "mpp is 0"),
        ({"mpp": np.inf}, "mpp is inf"),
        ({"colors": ()}, "0 colours"),
    ],
)
def test_what_does_not_fit_is_told(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Cells(**({"xy": [[0, 0]]} | wrong))  # type: ignore[arg-type]


def test_selection_keeps_every_column() -> None:
    cells = example()[[2, 0]]
    assert cells.xy.tolist() == [[5, 6], [1, 2]]
    assert cells.label.tolist() == [-1, 1]
    assert cells.score is not None
    assert cells.score.tolist() == [0, 0.5]
    assert cells.id is not None
    assert cells.id.tolist() == ["ü".encode(), b"a"]
    assert cells.kind is not None
    assert cells.kind.tolist() == [2, 0]
    assert cells.measurements["area"].tolist() == [4, 4]
    assert cells.outline is not None
    assert cells.outline[0].bounds == (4, 5, 6, 7)
    assert cells.nucleus is not None
    assert cells.nucleus[0].bounds == (4.5, 5.5, 5.5, 6.5)
    assert len(cells.regions) == 1
    assert len(example()[1:]) == 2
    assert len(example()[[]]) == 0
    assert example()[np.array([True, False, False])].xy.tolist() == [[1, 2]]


def test_counts_and_classes() -> None:
    assert example().counts() == {"tumour": 1, "immune": 1, "unclassified": 1}
    assert example().of_class("immune").xy.tolist() == [[1, 2]]
    with pytest.raises(InputError, match="Known are tumour, immune"):
        example().of_class("stroma")


def test_a_class_may_be_named_unclassified() -> None:
    cells = Cells([[0, 0]] * 3, classes=("unclassified",), label=[0, 0, -1])
    assert cells.counts() == {"unclassified": 3}


def test_renaming_merges_and_keeps_what_has_no_class() -> None:
    merged = example().renamed({"immune": "tumour"})
    assert merged.classes == ("tumour",)
    assert merged.label.tolist() == [0, 0, -1]
    assert merged.colors == ((255, 0, 0),)


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30)), max_size=20), st.integers(1, 9))
def test_the_crops_of_a_tiling_hold_every_cell_once(points: list[tuple[float, float]], size: int) -> None:
    cells = Cells(np.reshape(points, (-1, 2)), id=np.arange(len(points)))
    crops = [cells.crop(x, y, x + size, y + size) for x in range(0, 31, size) for y in range(0, 31, size)]
    found = [int(i) for crop in crops if crop.id is not None for i in crop.id]
    assert sorted(found) == list(range(len(points)))


def test_crop_with_shift_moves_places_outlines_and_regions() -> None:
    crop = example().crop(4, 4, 8, 8, shift=True)
    assert crop.xy.tolist() == [[1, 2]]
    assert crop.outline is not None
    assert crop.outline[0].bounds == (0, 1, 2, 3)
    assert crop.nucleus is not None
    assert crop.nucleus[0].bounds == (0.5, 1.5, 1.5, 2.5)
    assert crop.regions[0].bounds == (0, 0, 4, 4)


def test_crop_keeps_only_regions_with_an_area_in_the_box() -> None:
    notched = shapely.box(0, 0, 20, 20).difference(shapely.box(4, 4, 10, 12))
    regions = [shapely.box(10, 0, 20, 10), shapely.box(10, 10, 20, 20), shapely.box(0, 0, 5, 5), notched]
    notes = [{"name": str(k)} for k in range(4)]
    crop = Cells([], regions=regions, region_notes=notes).crop(4, 3, 10, 12)
    assert shapely.area(crop.regions).tolist() == [2, 6]
    assert set(shapely.get_type_id(crop.regions).tolist()) == {shapely.GeometryType.POLYGON}
    assert crop.region_notes is not None
    assert [note["name"] for note in crop.region_notes] == ["2", "3"]


def test_rescaling_there_and_back() -> None:
    cells = example()
    double = cells.rescaled(0.125)
    assert double.mpp == 0.125
    assert double.xy.tolist() == (cells.xy * 2).tolist()
    assert double.outline is not None
    assert double.outline[0].bounds == (0, 2, 4, 6)
    assert double.regions[0].bounds == (0, 0, 20, 20)
    assert double.rescaled(0.25).xy.tolist() == cells.xy.tolist()
    with pytest.raises(InputError, match="mpp"):
        replace(cells, mpp=None).rescaled(1)


def test_concatenation_unites_classes_and_fills_what_is_missing() -> None:
    plain = Cells([[9, 9]], classes=("stroma", "immune"), label=[0], mpp=0.25)
    both = Cells.concatenate([example(), plain])
    assert both.counts() == {"tumour": 1, "immune": 1, "stroma": 1, "unclassified": 1}
    assert both.score is not None
    assert both.score.tolist() == [0.5, 1, 0, 1]
    assert both.outline is not None
    assert both.outline[3] is None
    assert np.isnan(both.measurements["area"][3])
    assert both.id is None  # one table had none
    assert both.colors == ((255, 0, 0), (0, 0, 255), (128, 128, 128))
    assert len(Cells.concatenate([])) == 0
    with pytest.raises(InputError, match="different mpp"):
        Cells.concatenate([plain, replace(plain, mpp=0.5)])


def test_it_travels_to_worker_processes() -> None:
    cells = pickle.loads(pickle.dumps(example()))
    assert repr(cells) == repr(example())
    assert cells.measurements["area"][0] == 4


def test_repr_tells_what_there_is() -> None:
    assert repr(example()) == (
        "Cells(3: 1 tumour, 1 immune, 1 unclassified; 0.25 µm/px; x 1–5, y 2–6; with score, outline, id; "
        "1 exhaustive regions)"
    )
    assert repr(Cells([])) == "Cells(0)"


def test_size_in_memory_grows_with_the_columns() -> None:
    points = Cells(np.zeros((1000, 2)))
    assert points.nbytes == 1000 * (16 + 2)
    assert replace(points, outline=np.array([shapely.box(0, 0, 1, 1)] * 1000)).nbytes > 250_000
