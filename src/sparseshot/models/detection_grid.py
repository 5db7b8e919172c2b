"""Targets and outputs of the detector: points on a grid and back.

Grid cell ``(row, col)`` covers the pixels ``col·stride ≤ x < (col + 1)·stride``, and likewise in y. A point
is its cell and its offset in that cell. The network's offset channel ``o`` means ``2σ(o) − ½`` cells: it
reaches half a cell over each border, so that both neighbours can predict a centre on their border without
saturating the sigmoid. The size channels ``s`` mean
``stride · exp(s)`` pixels.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.errors import InputError

_SIZE_LIMIT = 8.0  # exp(8) grid cells: far above any cell, far below overflow


class GridTarget(NamedTuple):
    """Maps over the grid that a detector should output.

    Attributes:
        label: ``(rows, cols)`` int64, 0 or 1…C.
        offset: ``(2, rows, cols)`` float32, x and y from the corner of the grid cell, in grid cells; in
            [0, 1) where the point lies in the cell; 0 where ``label`` is 0.
        size: ``(2, rows, cols)`` float32, width and height in pixels; NaN where unknown.
    """

    label: NDArray[np.int64]
    offset: NDArray[np.float32]
    size: NDArray[np.float32]


def encode(
    xy: NDArray[np.floating],
    label: NDArray[np.integer],
    *,
    shape_px: tuple[int, int],
    stride: int,
    reach: float = 0.0,
    size: NDArray[np.floating] | None = None,
) -> GridTarget:
    """Encode points as a grid.

    Args:
        xy: ``(K, 2)`` places in pixels; those outside the image are dropped.
        label: ``(K,)`` 1…C.
        shape_px: height and width of the image.
        stride: pixels to a grid cell.
        reach: how far over its border a grid cell also stands for a point, in grid cells: 0 is one grid cell
            a point, 0.5 the four nearest ones.
        size: ``(K, 2)`` width and height in pixels, NaN where unknown.

    Of several points of one grid cell the one nearest its centre is kept.

    >>> target = encode(np.array([[9.0, 2.0]]), np.array([1]), shape_px=(16, 16), stride=8)
    >>> target.label
    array([[0, 1],
           [0, 0]])
    >>> target.offset[:, 0, 1]
    array([0.125, 0.25 ], dtype=float32)
    >>> encode(np.array([[9.0, 2.0]]), np.array([1]), shape_px=(16, 16), stride=8, reach=0.5).label
    array([[1, 1],
           [0, 0]])
    """
    height, width = shape_px
    rows, cols = -(-height // stride), -(-width // stride)
    target = GridTarget(
        np.zeros((rows, cols), np.int64),
        np.zeros((2, rows, cols), np.float32),
        np.full((2, rows, cols), np.nan, np.float32),
    )
    inside = ((xy >= 0) & (xy < (width, height))).all(axis=1)
    xy, label = xy[inside], label[inside]
    steps = np.array([(0, 0)] if reach == 0 else list(itertools.product((-1, 0, 1), repeat=2)))
    place = (np.floor(xy / stride).astype(np.intp)[:, None] + steps).reshape(-1, 2)
    point = np.repeat(np.arange(len(xy)), len(steps))
    offset = xy[point] / stride - place
    stands = ((offset >= -reach) & (offset < 1 + reach) & (place >= 0) & (place < (cols, rows))).all(axis=1)
    place, point, offset = place[stands], point[stands], offset[stands]
    # From the farthest to the nearest, those inside the grid cell last: the last one written stays.
    inside_cell = ((offset >= 0) & (offset < 1)).all(axis=1)
    order = np.lexsort((-((offset - 0.5) ** 2).sum(axis=1), inside_cell))
    col, row = place[order].T
    target.label[row, col] = label[point[order]]
    target.offset[:, row, col] = offset[order].T
    if size is not None:
        target.size[:, row, col] = size[inside][point[order]].T
    return target


def offset_from_channels(channels: Tensor) -> Tensor:
    """Decode offset channels: ``2σ(o) − ½`` grid cells."""
    return 2 * torch.sigmoid(channels) - 0.5


def size_from_channels(channels: Tensor, *, stride: int) -> Tensor:
    """Decode size channels: ``stride · exp(s)`` pixels."""
    return stride * torch.exp(channels.clamp(-_SIZE_LIMIT, _SIZE_LIMIT))


@dataclass(frozen=True)
class Detections:
    """Places, scores and labels of detections, in no particular order.

    Attributes:
        xy: ``(K, 2)`` float64 pixels.
        score: ``(K,)`` float32 probability of any foreground.
        label: ``(K,)`` int64, 1…C, the most probable class.
        size: ``(K, 2)`` float64 pixels, or None if the network has no size channels.
        place: ``(K, 2)`` int64 row and column of the grid cell.
    """

    xy: NDArray[np.float64]
    score: NDArray[np.float32]
    label: NDArray[np.int64]
    size: NDArray[np.float64] | None
    place: NDArray[np.int64]


def decode(output: Tensor, *, out_channels: int, stride: int, threshold: float) -> Detections:
    """Decode one image's output ``(channels, rows, cols)``: grid cells with p ≥ threshold."""
    sizes = output.shape[0] == out_channels + 4
    if output.ndim != 3 or (not sizes and output.shape[0] != out_channels + 2):
        raise InputError(
            f"output has shape {tuple(output.shape)}; give one image's ({out_channels + 2} or "
            f"{out_channels + 4}, rows, cols) for {out_channels} logits"
        )
    output = output.detach().float()
    p = foreground_probability(output[None, :out_channels])[0]
    row, col = torch.nonzero(p >= threshold, as_tuple=True)
    chosen = output[:, row, col]
    offset = offset_from_channels(chosen[out_channels : out_channels + 2])
    xy = stride * torch.stack([col + offset[0].double(), row + offset[1].double()], dim=1)
    label = chosen[1:out_channels].argmax(dim=0) + 1 if out_channels > 1 else torch.ones_like(row)
    size = size_from_channels(chosen[out_channels + 2 :], stride=stride).double().T if sizes else None
    return Detections(
        xy.cpu().numpy(),
        p[row, col].cpu().numpy(),
        label.cpu().numpy(),
        None if size is None else size.cpu().numpy(),
        torch.stack([row, col], dim=1).cpu().numpy(),
    )


def foreground_probability(logits: Tensor) -> Tensor:
    """Return p of any foreground, ``(N, *)``: σ(z) of one logit, 1 − softmax(z)₀ of C + 1.

    >>> foreground_probability(torch.zeros(1, 4))
    tensor([0.7500])
    """
    if logits.shape[1] == 1:
        return torch.sigmoid(logits[:, 0])
    from sparseshot.losses import foreground_logit  # noqa: PLC0415  a prediction of one class needs no loss

    return torch.sigmoid(foreground_logit(logits))
