import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.models.detection_grid import (
    decode,
    encode,
    foreground_probability,
    offset_from_channels,
)

places = st.lists(st.tuples(st.floats(0, 63.875), st.floats(0, 39.875)), min_size=0, max_size=30)


def output_that_says(
    target_label: NDArray[np.int64], offset: NDArray[np.float32], *, channels: int
) -> torch.Tensor:
    """Write a target as the network output that means it."""
    label = torch.from_numpy(target_label)
    if channels == 1:
        logits = torch.where(label > 0, 9.0, -9.0)[None]
    else:
        logits = 9.0 * torch.nn.functional.one_hot(label, channels).permute(2, 0, 1).float()
    offsets = torch.logit((torch.from_numpy(offset) + 0.5) / 2)  # the inverse of offset_from_channels
    return torch.cat([logits, offsets])


@given(places=places, stride=st.sampled_from([4, 8, 16]), channels=st.sampled_from([1, 4]), data=st.data())
def test_decode_is_the_inverse_of_encode(
    places: list[tuple[float, float]], stride: int, channels: int, data: st.DataObject
) -> None:
    xy = np.array(places, np.float64).reshape(-1, 2)
    _, first = np.unique(np.floor(xy / stride), axis=0, return_index=True)
    xy = xy[first]  # one to a grid cell, so that none is lost
    classes = max(1, channels - 1)
    label = np.array(data.draw(st.lists(st.integers(1, classes), min_size=len(xy), max_size=len(xy))), int)
    target = encode(xy, label, shape_px=(40, 64), stride=stride)
    found = decode(
        output_that_says(target.label, target.offset, channels=channels),
        out_channels=channels,
        stride=stride,
        threshold=0.5,
    )
    there, here = np.lexsort(found.xy.round(2).T), np.lexsort(xy.round(2).T)
    np.testing.assert_allclose(np.sort(found.xy, axis=0), np.sort(xy, axis=0), atol=1e-3)
    if len(np.unique(xy.round(1), axis=0)) == len(xy):
        np.testing.assert_array_equal(found.label[there], label[here])


def test_of_two_points_in_a_cell_the_one_nearer_the_middle_stays() -> None:
    xy = np.array([[4.1, 4.0], [0.5, 0.5]])
    for order in ([0, 1], [1, 0]):
        target = encode(xy[order], np.array([1, 2])[order], shape_px=(8, 8), stride=8)
        assert target.label.tolist() == [[1]]


def test_points_outside_are_left_out() -> None:
    xy = np.array([[-0.1, 3.0], [8.0, 3.0], [3.0, 8.0], [7.99, 7.99]])
    target = encode(xy, np.ones(4, int), shape_px=(8, 8), stride=8)
    assert target.label.sum() == 1
    assert target.offset[:, 0, 0] == pytest.approx([7.99 / 8] * 2)


def test_sizes_survive() -> None:
    size = np.array([[12.0, 20.0]])
    target = encode(np.array([[3.0, 3.0]]), np.ones(1, int), shape_px=(8, 16), stride=8, size=size)
    assert target.size[:, 0, 0].tolist() == [12.0, 20.0]
    assert np.isnan(target.size[:, 0, 1]).all()
    channels = torch.log(torch.nan_to_num(torch.from_numpy(target.size), nan=1.0) / 8)
    output = torch.cat([output_that_says(target.label, target.offset, channels=1), channels])
    found = decode(output, out_channels=1, stride=8, threshold=0.5)
    assert found.size is not None
    np.testing.assert_allclose(found.size, size, rtol=1e-5)


def test_offsets_reach_over_the_border() -> None:
    reach = offset_from_channels(torch.tensor([-50.0, 50.0]))
    assert reach.tolist() == [-0.5, 1.5]


def test_an_output_of_the_wrong_width_says_what_was_expected() -> None:
    with pytest.raises(InputError, match="3 or 5, rows, cols"):
        decode(torch.zeros(2, 4, 4), out_channels=1, stride=8, threshold=0.5)


def test_foreground_probability_is_one_minus_softmax_of_background() -> None:
    logits = torch.randn(5, 4, 3, 3, dtype=torch.float64)
    expected = 1 - torch.softmax(logits, dim=1)[:, 0]
    torch.testing.assert_close(foreground_probability(logits), expected)


@given(st.lists(st.tuples(st.floats(0, 63.99), st.floats(0, 39.99)), min_size=1, max_size=12, unique=True))
def test_a_mark_reaches_the_grid_cells_whose_offset_reaches_it(places: list[tuple[float, float]]) -> None:
    xy = np.array(places)
    one, four = (
        encode(xy, np.ones(len(xy), int), shape_px=(40, 64), stride=8, reach=reach) for reach in (0.0, 0.5)
    )
    assert (four.label >= one.label).all()
    row, col = np.nonzero(four.label)
    offset = four.offset[:, row, col]
    assert (offset >= -0.5).all()
    assert (offset < 1.5).all()
    point = 8 * (np.stack([col, row]) + offset)
    distance = np.abs(point.T[:, None] - xy).max(axis=2).min(axis=1)
    assert (distance < 1e-4).all(), "each grid cell points at one of the marks"
    own = np.array(((offset >= 0) & (offset < 1)).all(axis=0))
    assert np.array_equal(np.stack([row[own], col[own]]), np.nonzero(one.label)), "its own mark comes first"


def test_a_mark_in_the_middle_of_the_grid_reaches_four_grid_cells() -> None:
    target = encode(np.array([[17.0, 14.0]]), np.ones(1, int), shape_px=(40, 40), stride=8, reach=0.5)
    assert np.argwhere(target.label).tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
