"""Running histograms of a model's logits, on marks and everywhere.

Estimates of the share of cells that is marked, or of the share of foreground, are made from them.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.losses.locations import Locations, foreground_logit

_ENOUGH = 20
"""Number of marked locations needed to decide whether marks are points."""

_FEW_NEIGHBOURS = 3.5

_CONFIDENT = 0.2
"""Share of the marks, from the highest logit down, that an estimate uses."""


class LogitHistograms(nn.Module):
    """Histograms of the foreground logit over about the last fifty batches, one for each class.

    A mark counts for its own class, any location for the class the model predicts. Old batches decay. Under
    ``torch.distributed`` the counts of all processes are added, so that each has the same.

    Args:
        classes: number of classes to distinguish; 1 counts all foreground together.
        objects: count cells instead of locations where marks are points: isolated, or with known centres. On
            the grid of a detector a model cannot know exactly in which of a few places a cell will be, and
            each of them would count as a cell. So a cell is a peak of the logits, and marked if the peak is
            a location of a mark; a mark beside it may belong to another cell. Centres and exhaustive regions
            are taken from the hints; without ``objects`` they do not count.

    Attributes:
        counts: ``(3, classes, bins)`` of marks outside exhaustive regions, of everything outside them, marks
            included, and of marks inside.
        points: whether marks are points; None until enough marks were seen.
        marks: ``(classes,)`` number of marks that are points, at a peak or not, outside exhaustive regions.
    """

    RANGE, BINS, DECAY = 12.0, 96, 0.98

    counts: Tensor
    crowding: Tensor
    marks: Tensor

    def __init__(self, classes: int = 1, *, objects: bool = False) -> None:
        super().__init__()
        self.classes, self.objects = classes, objects
        self.points: bool | None = None if objects else False
        self.register_buffer("counts", torch.zeros(3, classes, self.BINS))
        self.register_buffer("crowding", torch.zeros(2))  # of the first marks: their number and neighbours
        self.register_buffer("marks", torch.zeros(classes))

    @torch.no_grad()
    def observe(self, batch: Locations) -> None:
        """Add a batch; until it is known whether marks are points, nothing is counted."""
        centres, inside = (batch.hints.centres, batch.hints.exhaustive) if self.objects else (None, None)
        if self.points is None and centres is not None:
            self.points = True
        if self.points is None:
            self.crowding += _of_all_processes(marks_and_neighbours(batch.foreground))
            self.points = are_points(self.crowding)
        if self.points is None:
            return
        logit, ignored, marked = foreground_logit(batch.logits.detach()), batch.ignored, batch.foreground
        if self.points:  # a cell is a location whose logit is the highest among its neighbours
            beside = logit < highest_around(logit)
            ignored = beside if ignored is None else ignored | beside
        # One count of all combinations: in a region or not, marked class, predicted class, bin.
        kind = marked.int() if self.classes == 1 else batch.label.int()
        if inside is not None:
            kind += (self.classes + 1) * inside.int()
        if self.classes > 1:
            kind = kind.mul_(self.classes).add_(batch.likeliest)
        place = kind.mul_(self.BINS).add_(self.bins(logit))
        shape = (2, self.classes + 1, self.classes, self.BINS)
        size = math.prod(shape)
        if ignored is not None:
            place.add_(ignored.int().mul_(size))
        counts = torch.bincount(place.flatten(), minlength=size)[:size].view(shape)
        outside, certain = counts
        counts = torch.stack([outside[1:].sum(1), outside.sum(0), certain[1:].sum(1)])
        self.counts.mul_(self.DECAY).add_(_of_all_processes(counts.to(self.counts)))
        if self.points:
            every = marked if inside is None else marked & ~inside
            every = every if centres is None else every & centres
            if self.classes == 1:
                marks = every.count_nonzero()
            else:
                marks = torch.bincount(batch.label[every], minlength=self.classes + 1)[1:]
            self.marks.mul_(self.DECAY).add_(_of_all_processes(marks.to(self.marks).view(-1)))

    def bins(self, logit: Tensor) -> Tensor:
        """Return the bin of each logit; NaN is in the lowest."""
        # Clamped before it becomes an integer, which cannot hold an infinite logit.
        logit = logit.nan_to_num(-self.RANGE).clamp_(-self.RANGE, self.RANGE)
        return logit.add_(self.RANGE).mul_(self.BINS / (2 * self.RANGE)).int().clamp_(max=self.BINS - 1)

    def get_extra_state(self) -> dict[str, Any]:
        """Return whether marks are points."""
        return {"points": self.points}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore whether marks are points."""
        self.points = state["points"]


def marks_and_neighbours(marked: Tensor) -> Tensor:
    """Return the number of marked locations, of booleans ``(N, *)``, and the sum of their marked neighbours.

    Only images ``(N, H, W)`` have neighbours; elsewhere all eight are assumed to be marked.

    >>> marked = torch.zeros(1, 40, 40, dtype=torch.bool)
    >>> marked[:, 10:13, 10:13] = True
    >>> marks_and_neighbours(marked).tolist()
    [9.0, 40.0]
    """
    if marked.ndim != 3:
        return torch.stack([marked.sum(), 8 * marked.sum()]).float()
    around = F.avg_pool2d(marked.float().unsqueeze(1), 3, stride=1, padding=1, divisor_override=1)[:, 0] - 1
    return torch.stack([marked.sum(), around[marked].sum()])


def highest_around(logit: Tensor) -> Tensor:
    """Return the highest of each location of ``(N, H, W)`` and its eight neighbours.

    Rows first and then columns take a tenth of the time of ``F.max_pool2d``, which also finds places.

    >>> highest_around(torch.tensor([[[1.0, 2.0, 3.0, 0.0]]]))
    tensor([[[2., 3., 3., 3.]]])
    """
    wide = F.pad(logit, (1, 1, 1, 1), value=-torch.inf)
    rows = torch.maximum(wide[:, :-2], wide[:, 2:]).maximum(wide[:, 1:-1])
    return torch.maximum(rows[..., :-2], rows[..., 2:]).maximum(rows[..., 1:-1])


def are_points(crowding: Tensor) -> bool | None:
    """Return whether marks are isolated points, by :func:`marks_and_neighbours`; None if there are too few.

    In an area a marked location has at least four marked neighbours on average; points have that many only if
    every second location is one.

    >>> marked = torch.zeros(1, 40, 40, dtype=torch.bool)
    >>> marked[:, ::3, ::3] = True
    >>> are_points(marks_and_neighbours(marked))
    True
    >>> are_points(marks_and_neighbours(marked.roll(1, 1) | marked | marked.roll(1, 2)))
    True
    >>> are_points(marks_and_neighbours(marked.repeat_interleave(3, 1).repeat_interleave(3, 2)))
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


def estimate_marked_share(marked: Tensor, everything: Tensor, certain: Tensor | None = None) -> Tensor:
    """Estimate ĉ, the share of the true cells that is marked, from two histograms over the same bins.

    Above the threshold that a fifth of the marks reach, the model is most confident, and unmarked locations
    are mostly cells that nobody marked. So ĉ is the share of marks among all locations above: c times the
    precision there, slightly low. It assumes that marks were chosen independently of the model's confidence.

    Args:
        marked: ``(…, bins)`` number of marked locations with a logit in each bin.
        everything: ``(…, bins)`` the same for all locations, marked ones included.
        certain: ``(…, bins)`` marks inside exhaustive regions, which are in neither of the others: they count
            for the threshold, and not for the share.

    Returns:
        ``(…)``; NaN where there are no marks.

    >>> marked, everything = torch.tensor([0.0, 4.0, 6.0]), torch.tensor([900.0, 50.0, 20.0])
    >>> estimate_marked_share(marked, everything)  # 6 of the 20 most confident locations
    tensor(0.3000)
    """
    marked, everything = reverse_cumsum(marked), reverse_cumsum(everything)
    marks = marked if certain is None else marked + reverse_cumsum(certain)
    bin_ = ((marks >= _CONFIDENT * marks[..., :1]).sum(-1, keepdim=True) - 1).clamp(min=0)
    # A class that is marked but not predicted yet has marks and hardly any locations.
    share = (marked.gather(-1, bin_) / everything.gather(-1, bin_).clamp(min=1e-12)).clamp(max=1.0)
    return torch.where(marks[..., :1] > 0, share, torch.nan).squeeze(-1)


def attainable_f1(marked: Tensor, everything: Tensor, marks: Tensor, share: Tensor) -> Tensor:
    """Return the highest F1 of any threshold, given the share of cells that is marked.

    Args:
        marked: ``(…, bins)`` number of marked locations with a logit in each bin.
        everything: ``(…, bins)`` the same for all locations that could be found.
        marks: ``(…)`` number of marks, including those at no such location.
        share: ``(…)`` marked share of all cells.

    Returns:
        ``(…)``.

    >>> marked, everything = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([900.0, 50.0, 20.0])
    >>> attainable_f1(marked, everything, torch.tensor(10.0), torch.tensor(0.3))
    tensor(0.7500)
    """
    hits, cells = reverse_cumsum(marked) / share.unsqueeze(-1), (marks / share).unsqueeze(-1)
    # Locations of a mark in an exhaustive region may lie outside, so that there are hits without marks.
    return (2 * hits / (reverse_cumsum(everything) + cells).clamp(min=1e-12)).amax(-1).clamp(max=1.0)


def unmarked_cell_probability(marked: Tensor, everything: Tensor, share: Tensor) -> Tensor:
    """Return the probability that an unmarked location is a cell, by the bin of its logit.

    The cells among the locations of a bin are the marked ones, divided by the share that is marked. Bins are
    taken together with four on each side, and the probability never falls as the logit rises. With all cells
    marked it is 0.

    Args:
        marked: ``(classes, bins)`` number of marked locations with a logit in each bin.
        everything: ``(classes, bins)`` the same for all locations, marked ones included.
        share: ``(classes,)`` marked share of all cells.

    Returns:
        ``(classes, bins)``; NaN where the share is 0 or unknown.

    >>> marked, everything = torch.tensor([[0.0] * 9 + [2.0] * 9]), torch.tensor([[90.0] * 9 + [10.0] * 9])
    >>> unmarked_cell_probability(marked, everything, torch.tensor([0.25]))[0, [0, -1]]
    tensor([0.0000, 0.7500])
    """
    near = partial(F.avg_pool1d, kernel_size=9, stride=1, padding=4)
    marked, everything = near(marked), near(everything)
    cells = marked / share.unsqueeze(-1)
    probability = ((cells - marked) / (everything - marked).clamp(min=1e-12)).clamp(max=1.0)
    return torch.where(share.unsqueeze(-1) > 0, probability.cummax(-1).values, torch.nan)
