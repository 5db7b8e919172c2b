import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import linear_sum_assignment

from sparseshot.cells import Cells
from sparseshot.cells.trace import trace
from sparseshot.errors import InputError
from sparseshot.metrics import (
    AreaCounts,
    Counts,
    area_counts,
    match_cells,
    overlaps_of_labels,
    overlaps_of_outlines,
)

Labels = NDArray[np.int64]
label_image = arrays(np.int64, (5, 6), elements={"min_value": 0, "max_value": 4})


def slowly(truth: Labels, found: Labels) -> tuple[float, float]:
    """Panoptic quality and aggregated Jaccard index, one mask at a time, as their papers write them."""
    trues = [truth == i for i in np.unique(truth) if i]
    founds = [found == i for i in np.unique(found) if i]
    if not trues and not founds:
        return 1.0, 1.0

    def iou(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
        return float((a & b).sum() / (a | b).sum())

    pairs = [iou(a, b) for a in trues for b in founds if iou(a, b) > 0.5]
    quality = sum(pairs) / (len(pairs) + (len(trues) - len(pairs)) / 2 + (len(founds) - len(pairs)) / 2)
    common = united = 0
    used = set()
    for a in trues:
        ious = [iou(a, b) for b in founds]
        if ious and max(ious) > 0:
            best = int(np.argmax(ious))
            used.add(best)
            common += (a & founds[best]).sum()
            united += (a | founds[best]).sum()
        else:
            united += a.sum()
    united += sum(b.sum() for i, b in enumerate(founds) if i not in used)
    return quality, float(common / united)


@settings(max_examples=300, deadline=None)
@given(label_image, label_image)
def test_label_images_agree_with_masks_one_by_one(truth: Labels, found: Labels) -> None:
    counts = area_counts(overlaps_of_labels(truth, found))
    quality, jaccard = slowly(truth, found)
    assert counts.panoptic_quality == pytest.approx(quality)
    assert counts.aggregated_jaccard_index == pytest.approx(jaccard)


def as_cells(labels: Labels) -> Cells:
    """Each label as the union of its pixels' squares."""
    outlines = []
    for label in np.unique(labels[labels > 0]):
        rows, columns = np.nonzero(labels == label)
        outlines.append(shapely.union_all(shapely.box(columns, rows, columns + 1, rows + 1)))
    column = np.array(outlines, dtype=object)
    return Cells(shapely.get_coordinates(shapely.centroid(column)), outline=column)


@settings(max_examples=60, deadline=None)
@given(label_image, label_image)
def test_outlines_agree_with_their_label_images(truth: Labels, found: Labels) -> None:
    by_label = area_counts(overlaps_of_labels(truth, found))
    by_outline = area_counts(overlaps_of_outlines(as_cells(truth), as_cells(found)))
    assert (by_outline.tp, by_outline.fp, by_outline.fn) == (by_label.tp, by_label.fp, by_label.fn)
    assert by_outline.iou_sum == pytest.approx(by_label.iou_sum)
    assert by_outline.panoptic_quality == pytest.approx(by_label.panoptic_quality)


def test_panoptic_quality_is_recognition_times_segmentation() -> None:
    counts = AreaCounts(tp=8, fp=2, fn=4, iou_sum=6.0)
    assert counts.panoptic_quality == pytest.approx(counts.recognition_quality * counts.segmentation_quality)
    assert math.isnan(AreaCounts(fn=1, united=5.0).segmentation_quality)
    assert AreaCounts(fn=1, united=5.0).panoptic_quality == 0
    assert (AreaCounts().panoptic_quality, AreaCounts().aggregated_jaccard_index) == (1.0, 1.0)


def test_counts_of_images_side_by_side_add_up() -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 5, (2, 8, 8)) for _ in range(3)]
    parts = [area_counts(overlaps_of_labels(*image)) for image in images]
    whole = np.concatenate([np.where(image, image + 10 * i, 0) for i, image in enumerate(images)], axis=2)
    together = area_counts(overlaps_of_labels(*whole))
    added = parts[0] + parts[1] + parts[2]
    assert (added.tp, added.fp, added.fn) == (together.tp, together.fp, together.fn)
    assert (added.iou_sum, added.common, added.united) == pytest.approx(
        (together.iou_sum, together.common, together.united)
    )


def test_labels_of_any_size() -> None:
    truth = np.array([[0, 4_000_000_000], [7, 7]], np.uint32)
    counts = area_counts(overlaps_of_labels(truth, truth))
    assert (counts.panoptic_quality, counts.aggregated_jaccard_index, counts.tp) == (1.0, 1.0, 2)


def test_real_nuclei_by_label_by_outline_and_by_point(real_data: Path) -> None:
    """A shifted copy with every seventh nucleus missing: three ways to count the same."""
    path = real_data / "tnbc" / "labels_instance" / "01_1_label.png"
    truth = np.asarray(Image.open(path)).astype(np.int64)
    found = np.roll(np.where(truth % 7 == 0, 0, truth), (2, 2), axis=(0, 1))
    found[:2] = found[:, :2] = 0  # what the shift brought round
    by_label = area_counts(overlaps_of_labels(truth, found))
    quality, jaccard = slowly(truth, found)
    assert by_label.panoptic_quality == pytest.approx(quality)
    assert by_label.aggregated_jaccard_index == pytest.approx(jaccard)
    assert 0.4 < quality < 0.9

    tables = []
    for labels in (truth, found):
        _, xy, outline = trace(labels)
        tables.append(Cells(xy, outline=outline, mpp=0.25))
    by_outline = area_counts(overlaps_of_outlines(*tables))
    assert (by_outline.tp, by_outline.fp, by_outline.fn) == (by_label.tp, by_label.fp, by_label.fn)
    assert by_outline.panoptic_quality == pytest.approx(quality)
    assert by_outline.aggregated_jaccard_index == pytest.approx(jaccard)
    # The middles of nuclei cut by the border move less or more than the shift, but never 3 µm.
    assert match_cells(*tables).counts == Counts(tp=len(tables[1]), fn=len(tables[0]) - len(tables[1]))


def random_boxes(seed: int, n: int) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    corner = random.integers(0, 30, (n, 2)).astype(float)
    return np.hstack((corner, corner + random.integers(1, 10, (n, 2))))


def outlined(boxes: NDArray[np.float64]) -> Cells:
    return Cells((boxes[:, :2] + boxes[:, 2:]) / 2, outline=shapely.box(*boxes.T))


@pytest.mark.parametrize("seed", range(10))
def test_as_many_areas_as_possible_are_matched(seed: int) -> None:
    truth, found = random_boxes(seed, 70), random_boxes(seed + 100, 60)
    low = np.maximum(truth[:, None, :2], found[:, :2])
    high = np.minimum(truth[:, None, 2:], found[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (truth, found)]
    iou = common / (areas[0][:, None] + areas[1] - common)
    overlaps = overlaps_of_outlines(outlined(truth), outlined(found))
    dense = np.zeros_like(iou)
    dense[overlaps.truth, overlaps.found] = overlaps.iou
    assert dense == pytest.approx(iou)
    for least in (0.1, 0.5):
        rows, columns = linear_sum_assignment(iou >= least, maximize=True)
        matching = overlaps.match(iou=least)
        assert matching.counts.tp == (iou >= least)[rows, columns].sum()
        assert (iou[matching.truth, matching.found] >= least).all()
        assert 1 - matching.distance == pytest.approx(iou[matching.truth, matching.found])


def test_half_is_enough_to_match_and_not_for_panoptic_quality() -> None:
    overlaps = overlaps_of_labels(np.array([[1, 1, 1, 1]]), np.array([[1, 1, 0, 0]]))
    assert overlaps.match(iou=0.5).counts == Counts(tp=1)
    assert area_counts(overlaps).tp == 0


def test_no_areas() -> None:
    some, none = outlined(random_boxes(0, 3)), Cells(np.empty((0, 2)))
    assert overlaps_of_outlines(none, some).match().counts == Counts(fp=3)
    assert overlaps_of_outlines(some, none).match().counts == Counts(fn=3)


def test_an_outline_that_crosses_itself() -> None:
    bow = shapely.Polygon([(0, 0), (4, 4), (4, 0), (0, 4)])
    cells = Cells(np.array([[2.0, 2.0]]), outline=np.array([bow], dtype=object))
    overlaps = overlaps_of_outlines(cells, cells)
    assert overlaps.iou.tolist() == [1.0]
    assert overlaps.truth_area.tolist() == [8.0]


def test_intersections_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    truth, found = (
        Cells(xy, outline=shapely.buffer(shapely.points(xy), 3)) for xy in random.random((2, 60, 2)) * 40
    )
    whole = overlaps_of_outlines(truth, found)
    monkeypatch.setattr("sparseshot.metrics.overlaps.INTERSECTED_AT_ONCE", 7)
    assert overlaps_of_outlines(truth, found).common.tolist() == whole.common.tolist()


def test_bad_input() -> None:
    points = Cells(np.zeros((1, 2)))
    with pytest.raises(InputError, match="the true cells have no outlines"):
        overlaps_of_outlines(points, points)
    mixed = replace(points, outline=np.array([None], dtype=object))
    with pytest.raises(InputError, match="found cell 0 has no outline"):
        overlaps_of_outlines(Cells(np.empty((0, 2))), mixed)
    with pytest.raises(InputError, match=r"shapes \(2, 2\) and \(2, 3\)"):
        overlaps_of_labels(np.zeros((2, 2), int), np.zeros((2, 3), int))
    with pytest.raises(InputError, match="the found labels are float64"):
        overlaps_of_labels(np.zeros((2, 2), int), np.zeros((2, 2)))  # type: ignore[arg-type]
