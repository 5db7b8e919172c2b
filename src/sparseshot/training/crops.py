"""Batches of crops, each a pure function of seed and step, so that a resumed run sees the same ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.images import Box
from sparseshot.images.tiles import work_ahead
from sparseshot.models.config import TrainSettings
from sparseshot.models.inference import draw_stain_jitter
from sparseshot.models.task import Points
from sparseshot.training.canvas import BlockCache, Canvas

Scalar = TypeVar("Scalar", bound=np.generic)
_AHEAD = 3  # batches prepared while the network works


@dataclass(frozen=True)
class CropBatch:
    """Crops with their targets; ``*`` is ``H, W`` for pixels or ``rows, cols`` of the detector's grid.

    Attributes:
        image: ``(N, 3, H, W)`` uint8, channels last in memory.
        jitter: ``(N, 3, 4)`` changes of stain.
        target: ``(N, *)`` int64: 0, 1…C, −100 ignored.
        annotated: ``(N, *)`` bool.
        exhaustive: ``(N, *)`` bool: inside a region in which every cell is marked.
        truth: ``(N, *)`` int64 with every cell, in simulations; else None.
        offset: ``(N, 2, *)`` float32 for a detector; else None.
        size: ``(N, 2, *)`` float32 for a detector, NaN where unknown; else None.
        kind: int64 over the grid of the features: index of the kind, −1 where there is none; None where no
            kinds are learned.
        height: ``(N, H, W)`` uint8 inside marked outlines, 0 elsewhere; None where no heights are learned.
    """

    image: Tensor
    jitter: Tensor
    target: Tensor
    annotated: Tensor
    exhaustive: Tensor | None = None
    truth: Tensor | None = None
    offset: Tensor | None = None
    size: Tensor | None = None
    kind: Tensor | None = None
    height: Tensor | None = None

    @property
    def centres(self) -> Tensor | None:
        """Where the marks themselves lie, on the detector's grid; None for pixels."""
        if self.offset is None:
            return None
        return (self.target > 0) & ((self.offset >= 0) & (self.offset < 1)).all(dim=1)

    def to(self, device: torch.device) -> Self:
        """Return the same batch on another device."""
        moved = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return replace(self, **moved)


class CropSource:
    """Draws crops from canvases, as the configuration of a run states."""

    def __init__(self, canvases: Sequence[Canvas], config: TrainSettings) -> None:
        if not canvases:
            raise InputError("no images to train on; give at least one")
        self._canvases, self._config, self._task = canvases, config, config.make_task()
        self._cache = BlockCache()
        points = [canvas.points for canvas in canvases]
        if not any((marks.target > 0).any() for marks in points):
            raise InputError("none of the images holds a mark to learn from; mark at least a few cells")
        self._marks = np.concatenate([marks.xy for marks in points])
        self._marked_canvas = np.repeat(np.arange(len(canvases)), [len(marks.xy) for marks in points])
        self._area = np.cumsum([canvas.weight * canvas.area_px for canvas in canvases], dtype=np.float64)

    def batch(self, step: int, items: Sequence[int]) -> CropBatch:
        """Draw the crops ``items`` of the batch of one step."""
        crops = [self._crop(step, item) for item in items]
        columns: dict[str, Any] = {
            name: None if first is None else torch.from_numpy(np.stack([crop[name] for crop in crops]))
            for name, first in crops[0].items()
        }
        return CropBatch(**columns | {"image": columns["image"].permute(0, 3, 1, 2)})

    def ahead(self, steps: range, items: Sequence[int]) -> Iterator[CropBatch]:
        """Return the batches of steps in order, prepared in a thread ahead of their use."""
        return work_ahead(lambda step: self.batch(step, items), steps, threads=1, ahead=_AHEAD)

    def _crop(self, step: int, item: int) -> dict[str, Any]:
        """Return one crop by the fields of :class:`CropBatch`, the image as ``(H, W, 3)``."""
        task, size = self._task, self._config.crop_px
        random = np.random.Generator(np.random.Philox(key=[self._config.seed, (step << 20) + item]))
        canvas, x0, y0 = self._place(random)
        patch = canvas.cut(Box(x0, y0, x0 + size, y0 + size), self._cache)
        turn = int(random.integers(8))
        jitter = draw_stain_jitter(random, strength=self._config.stain_jitter)
        label = _turned(patch.label, turn)
        made = task.target(label, self._points(canvas.points, x0, y0, turn))
        truth = None
        if canvas.truth is not None:
            every = np.zeros_like(label) if patch.truth is None else _turned(patch.truth, turn)
            truth = task.target(every, self._points(canvas.truth, x0, y0, turn)).target
        middle = slice(task.stride // 2, None, task.stride)
        maps: dict[str, Any] = {"exhaustive": _turned(patch.exhaustive, turn)[middle, middle], "truth": truth}
        if self._config.heights:
            none = np.zeros(label.shape, np.uint8)
            maps["height"] = _turned(none if patch.height is None else patch.height, turn)
        return {"image": _turned(patch.image, turn), "jitter": jitter, **maps, **made._asdict()}

    def _place(self, random: np.random.Generator) -> tuple[Canvas, int, int]:
        size = self._config.crop_px
        if random.random() < self._config.near_marks:
            mark = int(random.integers(len(self._marks)))
            canvas = self._canvases[self._marked_canvas[mark]]
            x, y = self._marks[mark] - random.uniform(0, size - 1, 2)
        else:
            place = random.random() * self._area[-1]
            canvas = self._canvases[int(np.searchsorted(self._area, place, "right"))]
            x, y = canvas.draw_place(random) - size / 2
        return canvas, _kept_inside(x, size, canvas.width), _kept_inside(y, size, canvas.height)

    def _points(self, points: Points, x0: int, y0: int, turn: int) -> Points:
        """Return the marks of a crop, turned with it."""
        size = self._config.crop_px
        xy = points.xy - (x0, y0)
        inside = ((xy >= 0) & (xy < size)).all(axis=1)
        xy, extent = _turned_points(xy[inside], points.size[inside], turn, size)
        kind = None if points.kind is None else points.kind[inside]
        return Points(xy, points.target[inside], extent, kind)


def _kept_inside(start: float, size: int, limit: int) -> int:
    """Move a crop into the image; one larger than the image is centred on it."""
    if size >= limit:
        return (limit - size) // 2
    return int(np.clip(np.floor(start), 0, limit - size))


def _turned(square: NDArray[Scalar], turn: int) -> NDArray[Scalar]:
    """Return one of the eight symmetries of a square: quarter turns, and a flip for ``turn`` from 4."""
    turned = np.rot90(square, turn % 4)
    return turned[:, ::-1] if turn >= 4 else turned


def _turned_points(
    xy: NDArray[np.float64], extent: NDArray[np.float64], turn: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn points and their widths and heights as :func:`_turned` turns the square they lie in."""
    x, y = xy.T
    for _ in range(turn % 4):
        x, y = y, size - x
    if turn >= 4:
        x = size - x
    turned = np.stack([x, y], axis=1)
    # A point on the left edge is inside, one on the right edge outside, but turning swaps the edges.
    return np.minimum(turned, np.nextafter(size, 0)), extent[:, ::-1] if turn % 2 else extent
