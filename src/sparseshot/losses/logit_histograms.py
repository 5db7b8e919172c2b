"""Running histograms of a model's logits, on marks and everywhere.

Estimates of the share of cells that is marked, or of the share of foreground, are made from them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.losses.locations import Hints, Locations, foreground_logit

_ENOUGH = 20
"""Number of marked locations needed to decide whether marks are points."""

_FEW_NEIGHBOURS = 3.5


class LogitHistograms(nn.Module):
    """Histograms of the foreground logit over about the last fifty batches, one for each class.

    A mark counts for its own class, any location for the class the model predicts. Old batches decay. Under
    ``torch.distributed`` the counts of all processes are added, so that each has the same.

    Args:
        classes: number of classes to distinguish; 1 counts all foreground together.
        objects: count cells instead of locations where marks are points: isolated, or with known centres. On
            the grid of a detector a model cannot know exactly in which of a few places a cell will be, and
            each of them would count as a cell. So a cell is a peak of the logits, and marked if the peak is
            a location of a mark; a mark beside it may belong to another cell.

    Attributes:
        points: whether marks are points; None until enough marks were seen.
        marks: ``(classes,)`` number of marks that are points, at a peak or not, outside exhaustive regions.
    """

    RANGE, BINS, DECAY = 12.0, 96, 0.98

    counts: Tensor
    crowding: Tensor
    marks: Tensor

    def __init__(self, classes: int = 1, *, objects: bool = False) -> None:
        super().__init__()
        self.classes = classes
        self.points: bool | None = None if objects else False
        # Of marks and of everything outside exhaustive regions, and of marks inside.
        self.register_buffer("counts", torch.zeros(3, classes, self.BINS))
        self.register_buffer("crowding", torch.zeros(2))  # of the first marks: their number and neighbours
        self.register_buffer("marks", torch.zeros(classes))

    @property
    def marked(self) -> Tensor:
        """``(classes, bins)`` counts of marks outside exhaustive regions."""
        return self.counts[0]

    @property
    def everything(self) -> Tensor:
        """``(classes, bins)`` counts of everything outside exhaustive regions, marks included."""
        return self.counts[1]

    @property
    def certain(self) -> Tensor:
        """``(classes, bins)`` counts of marks inside exhaustive regions."""
        return self.counts[2]

    @torch.no_grad()
    def observe(self, batch: Locations, hints: Hints | None = None) -> None:
        """Add a batch; until it is known whether marks are points, nothing is counted."""
        hints = hints or Hints()
        centres, inside = hints.centres, hints.exhaustive
        batch = batch._replace(logits=batch.logits.detach())
        if self.points is None and centres is not None:
            self.points = True
        if self.points is None:
            self.crowding += _of_all_processes(marks_and_neighbours(batch.label))
            self.points = are_points(self.crowding)
        if self.points is None:
            return
        logit, counted, label = foreground_logit(batch.logits), batch.counted, batch.label
        if self.points:  # a cell is a location whose logit is the highest among its neighbours
            peak = logit == F.max_pool2d(logit.unsqueeze(1), 3, stride=1, padding=1)[:, 0]
            counted, label = counted & peak, torch.where(peak, label, 0)
        bins = self.bins(logit)
        likeliest = batch.logits[:, 1:].argmax(1) if self.classes > 1 else None
        counts = torch.zeros_like(self.counts)
        outside = torch.ones_like(counted) if inside is None else ~inside
        for row, where in ((0, (label > 0) & outside), (2, (label > 0) & ~outside)):
            counts[row] = self._histogram(bins[where], label[where] - 1)
        counts[1] = self._histogram(torch.where(counted & outside, bins, -1), likeliest)
        self.counts.mul_(self.DECAY).add_(_of_all_processes(counts))
        if self.points:
            every = (batch.label > 0) & outside
            every = every if centres is None else every & centres
            marks = self._histogram(bins[every], batch.label[every] - 1).sum(-1)
            self.marks.mul_(self.DECAY).add_(_of_all_processes(marks.to(self.marks)))

    def bins(self, logit: Tensor) -> Tensor:
        """Return the bin of each logit; NaN is in the lowest."""
        # Clamped before it becomes an integer, which cannot hold an infinite logit.
        logit = logit.nan_to_num(-self.RANGE).clamp_(-self.RANGE, self.RANGE)
        return logit.add_(self.RANGE).mul_(self.BINS / (2 * self.RANGE)).int().clamp_(max=self.BINS - 1)

    def _histogram(self, bins: Tensor, kind: Tensor | None) -> Tensor:
        """Count the bins of each kind, from 0; bins of −1 do not count."""
        if self.classes > 1 and kind is not None:
            bins = torch.where(bins >= 0, bins + kind * self.BINS, bins)
        counts = torch.bincount(bins.flatten() + 1, minlength=self.classes * self.BINS + 1)
        return counts[1:].view(self.classes, self.BINS)

    def get_extra_state(self) -> dict[str, Any]:
        """Return whether marks are points."""
        return {"points": self.points}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore whether marks are points."""
        self.points = state["points"]


def marks_and_neighbours(label: Tensor) -> Tensor:
    """Return the number of marked locations ``(N, *)``, and the sum of their marked neighbours.

    Only images ``(N, H, W)`` have neighbours; elsewhere all eight are assumed to be marked.

    >>> label = torch.zeros(1, 40, 40, dtype=torch.long)
    >>> label[:, 10:13, 10:13] = 1
    >>> marks_and_neighbours(label).tolist()
    [9.0, 40.0]
    """
    marked = label > 0
    if label.ndim != 3:
        return torch.stack([marked.sum(), 8 * marked.sum()]).float()
    around = F.avg_pool2d(marked.float().unsqueeze(1), 3, stride=1, padding=1, divisor_override=1)[:, 0] - 1
    return torch.stack([marked.sum(), around[marked].sum()])


def are_points(crowding: Tensor) -> bool | None:
    """Return whether marks are isolated points, by :func:`marks_and_neighbours`; None if there are too few.

    In an area a marked location has at least four marked neighbours on average; points have that many only if
    every second location is one.

    >>> label = torch.zeros(1, 40, 40, dtype=torch.long)
    >>> label[:, ::3, ::3] = 1
    >>> are_points(marks_and_neighbours(label))
    True
    >>> are_points(marks_and_neighbours(label.roll(1, 1) + label + label.roll(1, 2)))
    True
    >>> are_points(marks_and_neighbours(label.repeat_interleave(3, 1).repeat_interleave(3, 2)))
    False
    """
    marks, neighbours = crowding.tolist()
    return None if marks < _ENOUGH else neighbours < _FEW_NEIGHBOURS * marks


def _of_all_processes(counts: Tensor) -> Tensor:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(counts)
    return counts


def reverse_cumsum(histogram: Tensor) -> Tensor:
    """Return the counts in each bin and all higher ones.

    >>> reverse_cumsum(torch.tensor([1.0, 2.0, 3.0]))
    tensor([6., 5., 3.])
    """
    return histogram.flip(-1).cumsum(-1).flip(-1)
