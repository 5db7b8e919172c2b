"""Measurements of shape, stains and neighbours against independent computations."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial import cKDTree
from skimage import measure

from sparseshot.cells import Cells, rasterise, read_cells, trace, write_cells
from sparseshot.cells.neighbours import neighbour_measurements
from sparseshot.cells.shape_measures import (
    AREA,
    CIRCULARITY,
    ECCENTRICITY,
    LENGTH,
    MAJOR,
    MINOR,
    ORIENTATION,
    SOLIDITY,
    shape_measurements,
)
from sparseshot.cells.stains import CIRCLE_UM, DENSITY, STAINS, stain_measurements

DATA = Path(os.environ.get("SPARSESHOT_DATA", Path(__file__).parents[3] / "shared" / "data"))
FINER = 6
"""Outlines are drawn so many times larger for regionprops, whose pixels are then small beside a nucleus."""


def _regions(labels: NDArray[np.int32], **options: Any) -> Any:
    return measure.regionprops(labels, **options)  # type: ignore[no-untyped-call]


def ellipse(x: float, y: float, a: float, b: float, angle: float) -> shapely.Polygon:
    """Return an ellipse whose major axis is ``angle`` degrees above the x axis, as one looks at it."""
    turn = np.radians(-angle)
    t = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    along, across = a * np.cos(t), b * np.sin(t)
    return shapely.Polygon(
        np.column_stack(
            [
                x + along * np.cos(turn) - across * np.sin(turn),
                y + along * np.sin(turn) + across * np.cos(turn),
            ]
        )
    )


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 135.0])
def test_an_ellipse_has_its_own_axes(angle: float) -> None:
    shape = shape_measurements(np.array([ellipse(5000, 9000, 30, 12, angle)]), mpp=0.25)
    values = {name: float(column[0]) for name, column in shape.items()}
    assert values[AREA] == pytest.approx(np.pi * 30 * 12 / 16, rel=1e-3)
    assert values[MAJOR] == pytest.approx(15, abs=0.01)
    assert values[MINOR] == pytest.approx(6, abs=0.01)
    assert values[ECCENTRICITY] == pytest.approx(np.sqrt(1 - 0.16), abs=1e-3)
    assert values[ORIENTATION] == pytest.approx(angle, abs=0.1)
    assert values[SOLIDITY] == 1


def test_holes_and_parts_count() -> None:
    square, hole = shapely.box(0, 0, 20, 20), shapely.box(5, 5, 15, 15)
    ring = square.difference(hole)
    pair = shapely.MultiPolygon([shapely.box(0, 0, 10, 10), shapely.box(20, 0, 30, 10)])
    shape = shape_measurements(np.array([ring, shapely.reverse(ring), pair, None]), mpp=1.0)
    assert shape[AREA][:3].tolist() == [300, 300, 200]
    assert shape[LENGTH][:3].tolist() == [120, 120, 80]
    np.testing.assert_allclose(shape[SOLIDITY][:3], [0.75, 0.75, 200 / 300], atol=1e-4)
    # The second moment of a square is side⁴ / 12; a hole takes its own away.
    axis = 4 * np.sqrt((20**4 - 10**4) / 12 / 300)
    np.testing.assert_allclose(shape[MAJOR][:2], axis, atol=0.01)
    assert all(np.isnan(column[3]) for column in shape.values())


def test_a_line_has_no_shape() -> None:
    flat = shapely.Polygon([(0, 0), (10, 0), (5, 0)])
    assert np.isnan(shape_measurements(np.array([flat]), mpp=1.0)[AREA]).all()


def real_labels() -> list[NDArray[np.int32]]:
    """Return label maps of nuclei that people outlined."""
    files = sorted((DATA / "monuseg" / "labels_instance").glob("*.png"))[:2]
    files += sorted((DATA / "tnbc" / "labels_instance").glob("*.png"))[:6]
    return [np.asarray(Image.open(file)).astype(np.int32) for file in files]


def wiggly_labels() -> list[NDArray[np.int32]]:
    """Return a label map of ellipses with wiggly edges."""
    random = np.random.default_rng(0)
    label = np.zeros((300, 300), np.int32)
    rows, columns = np.mgrid[:300, :300]
    for number in range(36):
        y, x = 25 + 50 * (number // 6), 25 + 50 * (number % 6)
        a, b, turn = random.uniform(7, 18), random.uniform(5, 10), random.uniform(0, np.pi)
        dx, dy = columns - x, rows - y
        u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
        wiggle = 1 + 0.15 * np.sin(5 * np.arctan2(v, u))
        label[(u / a) ** 2 + (v / b) ** 2 <= wiggle] = number + 1
    return [label]


def cases() -> list[object]:
    needs_data = pytest.mark.skipif(not (DATA / "monuseg").is_dir(), reason=f"no MoNuSeg in {DATA}")
    return [
        pytest.param(wiggly_labels, 36, id="synthetic"),
        pytest.param(real_labels, 1000, id="real", marks=needs_data),
    ]


@pytest.mark.parametrize(("labels", "wanted"), cases())
def test_shapes_are_those_of_regionprops(labels: object, wanted: int) -> None:
    assert callable(labels)
    checked = 0
    for label in labels():
        _, _, outlines = trace(label)
        outlines = outlines[: wanted - checked]
        outlines = shapely.simplify(outlines, 0.8)  # else pixels would be compared with pixels
        measured = shape_measurements(outlines, mpp=1.0)
        for row, outline in enumerate(outlines):
            x0, y0, x1, y1 = (int(each) for each in outline.bounds)
            shape = (y1 - y0 + 3) * FINER, (x1 - x0 + 3) * FINER
            large = rasterise(
                Cells([[x0, y0]], outline=[outline]), shape, scale=FINER, origin=(x0 - 1, y0 - 1)
            )
            (there,) = _regions(large, spacing=1 / FINER)
            own = {name: float(column[row]) for name, column in measured.items()}
            assert own[AREA] == pytest.approx(there.area, rel=0.01)
            assert own[MAJOR] == pytest.approx(there.axis_major_length, rel=0.01)
            assert own[MINOR] == pytest.approx(there.axis_minor_length, rel=0.02)
            # Of round nuclei the eccentricity itself depends on the least difference of the axes.
            assert own[ECCENTRICITY] ** 2 == pytest.approx(there.eccentricity**2, abs=0.03)
            # Its convex hull is that of pixels with their edges: half a pixel wider.
            wider = there.perimeter / (2 * FINER) / there.area_convex
            assert own[SOLIDITY] == pytest.approx(there.solidity, abs=0.005 + wider)
            # Its perimeter is an estimate from pixels, up to 5 % off along slanted lines.
            assert own[LENGTH] == pytest.approx(there.perimeter, rel=0.06)
            roundness = 4 * np.pi * there.area / there.perimeter**2
            assert own[CIRCULARITY] == pytest.approx(min(1, roundness), rel=0.12)
            if there.axis_major_length > 1.1 * there.axis_minor_length:
                # Its orientation is that against the rows, ours above the x axis.
                difference = (own[ORIENTATION] - np.degrees(there.orientation) - 90) % 180
                assert min(difference, 180 - difference) < 2
            checked += 1
    assert checked == wanted


@pytest.mark.parametrize(("labels", "wanted"), cases())
@pytest.mark.parametrize("kind", ["he", "hdab"])
def test_stains_are_those_of_regionprops(labels: object, wanted: int, kind: str) -> None:
    assert callable(labels)
    stains, checked = STAINS[kind], 0
    for number, label in enumerate(labels()):
        pixels = np.random.default_rng(number).integers(0, 256, (*label.shape, 3), dtype=np.uint8)
        _, _, outlines = trace(label)
        outlines = outlines[: wanted - checked]
        xy = shapely.get_coordinates(shapely.centroid(outlines))
        measured = stain_measurements(Cells(xy, outline=outlines), pixels, stains, mpp=0.25)
        rest = np.cross(*stains.vectors)
        rows = np.array([*stains.vectors, rest / np.linalg.norm(rest)])
        density = np.linalg.solve(rows.T, -np.log10(np.maximum(pixels, 1) / 255).reshape(-1, 3).T)
        density = density.T.reshape(pixels.shape)
        drawn = rasterise(Cells(xy, outline=outlines), label.shape, by="instance")
        regions = _regions(drawn, intensity_image=density)
        assert len(regions) == len(outlines)
        for k, stain in enumerate(stains.names):
            mean = measured[f"Nucleus: {stain} OD mean"]
            spread = measured[f"Nucleus: {stain} OD std dev"]
            np.testing.assert_allclose(mean, [each.intensity_mean[k] for each in regions], atol=1e-4)
            np.testing.assert_allclose(spread, [each.intensity_std[k] for each in regions], atol=1e-4)
        checked += len(outlines)
    assert checked == wanted


def test_a_point_is_measured_in_a_circle() -> None:
    pixels = np.full((40, 40, 3), 255, np.uint8)
    rows, columns = np.mgrid[:40, :40] + 0.5
    disc = np.hypot(rows - 20, columns - 20) <= CIRCLE_UM / 0.5
    pixels[disc] = (100, 60, 150)
    cells = Cells([[1010.0, 2010.0], [900.0, 2010.0]], mpp=0.25)  # a grid of two level-0 pixels each
    measured = stain_measurements(cells, pixels, STAINS["he"], mpp=0.5, scale=0.5, origin=(485, 985))
    amount = STAINS["he"].unmixing @ DENSITY[[100, 60, 150]]
    assert next(iter(measured)) == "Circle: Diameter 6.0 µm: Hematoxylin OD mean"
    for k, stain in enumerate(("Hematoxylin", "Eosin")):
        mean, spread = (
            measured[f"Circle: Diameter 6.0 µm: {stain} OD {what}"] for what in ("mean", "std dev")
        )
        assert mean[0] == pytest.approx(amount[k], abs=1e-4)
        assert spread[0] == pytest.approx(0, abs=1e-4)
        assert np.isnan(mean[1])


def test_stains_are_estimated() -> None:
    random = np.random.default_rng(3)
    true = np.array([[0.60, 0.74, 0.30], [0.10, 0.90, 0.42]])
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    amounts = np.concatenate(
        [random.uniform(0.2, 1, (5000, 2)) * kind for kind in ((1, 0.03), (0.03, 1), (1, 1))]
    )
    pixels = np.round(255 * 10 ** -(amounts @ true)).astype(np.uint8)
    glass = np.full((5000, 3), 250, np.uint8)
    found = STAINS["he"].estimated(np.concatenate([pixels, glass]))
    assert found.names == ("Hematoxylin", "Eosin")
    cosine = np.clip((np.array(found.vectors) * true).sum(axis=1), -1, 1)
    assert (np.degrees(np.arccos(cosine)) < 4).all()
    assert STAINS["he"].estimated(glass) is STAINS["he"]
    one_stain = np.round(255 * 10 ** -(amounts[:, :1] * true[:1])).astype(np.uint8)
    assert STAINS["hdab"].estimated(one_stain) is STAINS["hdab"]


@pytest.mark.parametrize("count", [0, 1, 2, 400])
def test_neighbours_are_those_of_all_pairs(count: int) -> None:
    random = np.random.default_rng(count)
    xy, label = random.uniform(0, 2000, (count, 2)), random.integers(-1, 2, count)
    if count > 2:
        xy[:3] = xy[3]  # cells of one place
        xy[-1] = (9000, 9000)  # far from all others
    columns = neighbour_measurements(xy, label, classes=("a", "b", "none of these"), mpp=0.25)
    distance = np.hypot(*(xy[:, None] - xy[None]).transpose(2, 0, 1)) * 0.25
    np.fill_diagonal(distance, np.inf)
    for index, name in enumerate(("a", "b", "none of these")):
        nearest = distance[:, label == index].min(axis=1, initial=np.inf)
        expected = np.where(np.isinf(nearest), np.nan, nearest)
        np.testing.assert_allclose(columns[f"Distance to detection {name} µm"], expected, atol=0.006)
    for radius in (20, 50):
        assert (columns[f"Neighbors within {radius} µm"] == (distance <= radius).sum(axis=1)).all()


def test_neighbours_of_many_are_those_of_a_tree() -> None:
    random = np.random.default_rng(7)
    xy, label = random.uniform(0, 20_000, (30_000, 2)), random.integers(0, 2, 30_000)
    columns = neighbour_measurements(xy, label, classes=("a", "b"), mpp=0.5)
    near = cKDTree(xy).query_ball_point(xy, 100, return_length=True) - 1
    assert (columns["Neighbors within 50 µm"] == near).all()
    distance = cKDTree(xy[label == 1]).query(xy[label == 0])[0] * 0.5
    np.testing.assert_allclose(columns["Distance to detection b µm"][label == 0], distance, atol=0.006)


@pytest.mark.parametrize("suffix", ["parquet", "geojson", "csv"])
def test_measurements_survive_a_file(tmp_path: Path, suffix: str) -> None:
    narrow, wide = np.array([0.1234, np.nan], np.float32), np.array([1 / 3, 2.0])
    cells = Cells([[1, 2], [3, 4]], measurements={"Nucleus: Area µm^2": narrow, "other": wide}, mpp=0.5)
    write_cells(cells, tmp_path / f"cells.{suffix}")
    back = read_cells(tmp_path / f"cells.{suffix}").measurements
    assert set(back) == {"Nucleus: Area µm^2", "other"}
    np.testing.assert_array_equal(back["other"], wide)
    np.testing.assert_array_equal(back["Nucleus: Area µm^2"].astype(np.float32), narrow)
    if suffix == "parquet":
        assert back["Nucleus: Area µm^2"].dtype == np.float32
    text = (tmp_path / f"cells.{suffix}").read_bytes()
    assert suffix == "parquet" or b"0.1234" in text  # the shortest text of a float32


def test_tables_of_narrow_columns_stay_narrow() -> None:
    one = Cells([[1, 2]], measurements={"a": np.array([1], np.float32)})
    both = Cells.concatenate([Cells([[5, 6]]), one])
    assert both.measurements["a"].dtype == np.float32
    assert np.isnan(both.measurements["a"][0])
