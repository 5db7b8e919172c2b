"""Exclusive cross-entropy that finds out by itself how much was marked."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.losses.exclusion import exclusion_mask
from sparseshot.losses.exclusive import PRESETS, exclusive_cross_entropy
from sparseshot.losses.histograms import LogitHistograms, reverse_cumsum
from sparseshot.losses.parameters import check_not_negative, check_share
from sparseshot.losses.schedules import Constant, Schedule
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import Reduction, check_reduction, number_of_classes, read_batch, reduced

_FEW_MARKS = 20
"""With fewer marks in the histograms than this there is no estimate yet."""

_SMALLEST_ALPHA = 1e-3

_SUREST = 0.2
"""The share of the marks that an estimate looks at."""

_SWING = 2.0
"""A ratio of one estimate to the next that deserves a warning, late in training."""

_RHO_OF_AREAS, _RHO_OF_POINTS = Constant(0.75), Constant(0.9)
"""The lowest threshold of exclusion where nothing else is asked for."""


def estimate_marked_share(marked: Tensor, everything: Tensor) -> Tensor:
    """Estimate ĉ, the share of the true cells that were marked, from two histograms over the same bins.

    Above the threshold that a fifth of the marks reach, the model is surest, and what is not marked is for
    the most part a cell that was missed. So ĉ is the share of marks among all that is above: c times the
    precision there, a little low. It holds if the marks were chosen without regard to how sure a model would
    be of them.

    Args:
        marked: ``(…, bins)`` how many marked locations have a logit in each bin.
        everything: ``(…, bins)`` the same for all locations, marked ones included.

    Returns:
        ``(…)``; NaN where nothing is marked.

    >>> marked, everything = torch.tensor([0.0, 4.0, 6.0]), torch.tensor([900.0, 50.0, 20.0])
    >>> estimate_marked_share(marked, everything)  # 6 of the 20 locations of which the model is surest
    tensor(0.3000)
    """
    marked, everything = reverse_cumsum(marked), reverse_cumsum(everything)
    surest = ((marked >= _SUREST * marked[..., :1]).sum(-1, keepdim=True) - 1).clamp(min=0)
    share = marked.gather(-1, surest) / everything.gather(-1, surest).clamp(min=1e-12)
    return torch.where(marked[..., :1] > 0, share, torch.nan).squeeze(-1)


def attainable_f1(marked: Tensor, everything: Tensor, marks: Tensor, share: Tensor) -> Tensor:
    """Return the highest F1 of any threshold, if what is marked is a share of what there is.

    Args:
        marked: ``(…, bins)`` how many marked locations have a logit in each bin.
        everything: ``(…, bins)`` the same for all locations that could be found.
        marks: ``(…)`` how many marks there are, those included that are found nowhere.
        share: ``(…)`` how much is marked of what there is.

    Returns:
        ``(…)``.

    >>> marked, everything = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([900.0, 50.0, 20.0])
    >>> attainable_f1(marked, everything, torch.tensor(10.0), torch.tensor(0.3))
    tensor(0.7500)
    """
    found, there = reverse_cumsum(marked) / share.unsqueeze(-1), (marks / share).unsqueeze(-1)
    return (2 * found / (reverse_cumsum(everything) + there)).amax(-1).clamp(max=1.0)


class AdaptiveExclusiveCrossEntropy(Loss):
    r"""Exclusive cross-entropy that sets α and ρ by an estimate of how much was marked.

    If a share c of the true cells is marked, a location that is a cell with probability p* settles at odds of
    c p* / (α(1 − c p*)); so one α fits one c. This loss watches the model's logits on marks and everywhere,
    estimates c (:func:`estimate_marked_share`), and takes

    .. math:: \alpha = \frac{z \hat c}{1 - z \hat c}, \qquad \rho = \max(\rho(t), \hat c / (2 - \hat c))

    With this α a location with p* = z settles at one half, however much was marked; with this ρ a location is
    left out only where it is more likely than not a cell that was missed: with everything marked, nowhere.
    Each class has its own α: an unannotated location has that of the class the model would give it.

    The estimates are part of ``state_dict()``, and the same in all processes of a distributed run.

    Args:
        break_even_probability: z. If None, 1/2 for areas, and half of :func:`attainable_f1` where they are
            points (:func:`~sparseshot.losses.histograms.are_points`), as on the grid of a detector, which is
            never quite sure of the place.
        first_alpha: α until there is an estimate.
        warm_up: the part of training before the first estimate: a model that does not rank yet knows nothing.
        every: training steps from one estimate to the next.
        rho: lowest threshold of exclusion as a schedule over progress, or one number. Left out, 0.75 where
            marks are areas, and 0.9 where they are points: what is likely there is often beside a cell.
        gamma: focal exponent of the unannotated part.
        max_excluded: bound on the excluded share of the unannotated locations of a batch, so that some
            background always stays in.
        reduction: mean, sum or none.

    >>> loss = AdaptiveExclusiveCrossEntropy()
    >>> logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    >>> float(loss(logits - 0.1, target, progress=0.1))  # doctest: +ELLIPSIS
    0.2...
    >>> loss.log_values()["alpha"]
    0.2
    """

    def __init__(
        self,
        *,
        break_even_probability: float | None = None,
        first_alpha: float = PRESETS["paper"]["alpha"],
        warm_up: float = 0.15,
        every: int = 20,
        rho: Schedule | float | None = None,
        gamma: float = PRESETS["paper"]["gamma"],
        max_excluded: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        if break_even_probability is not None:
            check_share("break_even_probability", break_even_probability)
        check_share("first_alpha", first_alpha)
        check_not_negative("gamma", gamma)
        check_share("max_excluded", max_excluded)
        check_reduction(reduction)
        if not 0.0 <= warm_up <= 1.0:
            raise InputError(f"warm_up is {warm_up}; give a part of training, from 0 to 1")
        if every < 1:
            raise InputError(f"every is {every}; give a number of steps, at least 1")
        self.break_even_probability, self.rho = (
            break_even_probability,
            Constant(rho) if isinstance(rho, float | int) else rho,
        )
        self.first_alpha, self.warm_up, self.every = first_alpha, warm_up, every
        self.gamma, self.max_excluded, self.reduction = gamma, max_excluded, reduction
        self._warned = False
        self._reset(1)

    def _reset(self, classes: int) -> None:
        """Begin with no knowledge of so many classes."""
        self.histograms = LogitHistograms(classes, objects=True)
        # Not buffers: on the CPU they can be read in every step without waiting for a GPU.
        self.share, self.alpha = torch.full((classes,), torch.nan), torch.full((classes,), self.first_alpha)
        self.steps = 0

    def compute(self, call: Call) -> Tensor:
        """Compute the loss; in training also look at the batch, and now and then estimate anew."""
        if len(self.alpha) != number_of_classes(call.logits):
            self._reset(number_of_classes(call.logits))
            self.histograms.to(call.logits.device)
        batch, one = read_batch(call.logits, call.target, call.annotated), len(self.alpha) == 1
        if self.training:
            self.histograms.observe(batch)
            self.steps += 1
            if call.progress >= self.warm_up and self.steps % self.every == 0:
                self._estimate(call.progress)
        losses = exclusive_cross_entropy(
            call.logits,
            call.target,
            rho=self._threshold(call.progress),
            annotated=call.annotated,
            alpha=float(self.alpha) if one else 1.0,
            gamma=self.gamma,
            max_excluded=self.max_excluded,
            reduction=self.reduction if one else "none",
        )
        if one:
            return losses
        likeliest = call.logits.detach()[:, 1:].argmax(1)
        weight = torch.where(batch.unannotated, self.alpha.to(losses)[likeliest], 1.0)
        return reduced(losses * weight, batch.counted, self.reduction)

    def left_out(self, call: Call) -> Tensor:
        """Tell what the model's confidence excludes."""
        return exclusion_mask(
            call.logits,
            call.target,
            rho=self._threshold(call.progress),
            annotated=call.annotated,
            max_excluded=self.max_excluded,
        )

    def _threshold(self, progress: float) -> float:
        """Return ρ: the schedule, or where an unmarked location is as likely a cell as background."""
        share = min(float(self.share.nan_to_num(0.0).min()), 1.0)
        rho = self.rho or (_RHO_OF_POINTS if self.histograms.points else _RHO_OF_AREAS)
        return max(rho(progress), share / (2.0 - share))

    def log_values(self) -> dict[str, float]:
        """Tell the estimated share of marks and α; with several classes their mean, then one by one."""
        told = {"alpha": round(float(self.alpha.mean()), 6)}
        if not self.share.isnan().all():
            told["marked_share"] = float(self.share.nanmean())
        if len(self.alpha) > 1:
            for number, (share, alpha) in enumerate(zip(self.share, self.alpha, strict=True), 1):
                told |= {f"alpha_{number}": float(alpha), f"marked_share_{number}": float(share)}
        return told

    def _estimate(self, progress: float) -> None:
        seen = self.histograms
        marked, everything = seen.marked.cpu(), seen.everything.cpu()
        share = estimate_marked_share(marked, everything)
        share = torch.where(marked.sum(-1) >= _FEW_MARKS, share, self.share)
        self._warn_of_swing(share, progress)
        if self.break_even_probability is not None or not seen.points:
            certain = share * (self.break_even_probability or 1 / 2)
        else:
            certain = share * attainable_f1(marked, everything, seen.marks.cpu(), share) / 2
        alpha = (certain / (1.0 - certain)).clamp(_SMALLEST_ALPHA, 1.0)
        self.share, self.alpha = share, torch.where(share.isnan(), self.alpha, alpha)

    def _warn_of_swing(self, share: Tensor, progress: float) -> None:
        """Warn once if an estimate late in training is far from the one before."""
        ratio = share / self.share
        swings = (ratio > _SWING) | (ratio < 1 / _SWING)
        if progress > 0.5 and swings.any() and not self._warned:
            self._warned = True
            number = int(swings.nonzero()[0])
            warnings.warn(
                f"the estimate of how much is marked went from {float(self.share[number]):.0%} to "
                f"{float(share[number]):.0%} late in training; α follows it, so compare with a fixed one "
                f"(loss ece, alpha {float(self.alpha[number]):.2g})",
                TrainingWarning,
                stacklevel=2,
            )

    def get_extra_state(self) -> dict[str, Any]:
        """Return the estimates."""
        return {"share": self.share, "alpha": self.alpha, "steps": self.steps}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take estimates back, of as many classes as there are."""
        if len(state["alpha"]) != len(self.alpha):
            device = self.histograms.marked.device
            self._reset(len(state["alpha"]))
            self.histograms.to(device)
        self.share, self.alpha, self.steps = state["share"].cpu(), state["alpha"].cpu(), state["steps"]

    def extra_repr(self) -> str:
        """Say the parameters."""
        return (
            f"break_even_probability={self.break_even_probability}, rho={self.rho}, "
            f"first_alpha={self.first_alpha}, warm_up={self.warm_up}, every={self.every}, "
            f"gamma={self.gamma}, max_excluded={self.max_excluded}, reduction={self.reduction!r}"
        )
