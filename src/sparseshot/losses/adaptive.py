"""Exclusive cross-entropy that finds out by itself how much was marked."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.losses.exclusion import exclusion_mask
from sparseshot.losses.exclusive import PRESETS, exclusive_cross_entropy
from sparseshot.losses.histograms import LogitHistograms, above
from sparseshot.losses.parameters import check_not_negative, check_share
from sparseshot.losses.schedules import Constant, Schedule
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import Reduction, check_reduction, number_of_classes, read_batch, reduced

_FEW_MARKS = 50
"""With fewer marked locations in the histograms than this there is no estimate yet."""

_SWING = 2.0
"""A ratio of one estimate to the next that deserves a warning, late in training."""


def estimate_marked_share(marked: Tensor, everything: Tensor) -> Tensor:
    """Estimate ĉ, the share of the true cells that were marked, from two histograms over the same bins.

    Among all thresholds q it takes the one with the highest recall² / P(predicted positive), which needs no
    negatives (Lee & Liu 2003) and is about where F1 is highest; what is above q is what the model holds for
    cells. ĉ is the share of marks among it: c times the precision of the model at q, so a little low.

    Args:
        marked: ``(…, bins)`` how many marked locations have a logit in each bin.
        everything: ``(…, bins)`` the same for all locations, marked ones included.

    Returns:
        ``(…)``; NaN where nothing is marked.

    >>> marked, everything = torch.tensor([0.0, 1.0, 9.0]), torch.tensor([900.0, 50.0, 30.0])
    >>> estimate_marked_share(marked, everything)  # 9 of the 30 locations that the model calls cells
    tensor(0.3000)
    """
    marked, everything = above(marked), above(everything)
    best = (marked**2 / everything.clamp(min=1e-12)).argmax(-1, keepdim=True)
    share = marked.gather(-1, best) / everything.gather(-1, best).clamp(min=1e-12)
    return torch.where(marked[..., :1] > 0, share, torch.nan).squeeze(-1)


class AdaptiveExclusiveCrossEntropy(Loss):
    r"""Exclusive cross-entropy whose α follows an estimate of how much was marked; nothing has to be set.

    If a share c of the true cells is marked, the model settles at p = c / (c + α(1 − c)) on a cell, and
    exclusion begins only where that exceeds ρ. So one α fits one c. This loss watches the model's logits on
    marks and everywhere, estimates c (:func:`estimate_marked_share`) and takes

    .. math:: \alpha = \min(1, \; k \, \hat c / (1 - \hat c))

    for each class by itself: an unannotated location has the α of the class the model would give it. The
    estimates are part of ``state_dict()``, and the same in all processes of a distributed run.

    Args:
        k: how strongly unmarked cells are held down at most; below 1, or they would stay under one half.
        first_alpha: α until there is an estimate.
        warm_up: the part of training before the first estimate: a model that does not rank yet knows nothing.
        every: training steps from one estimate to the next.
        rho: threshold of exclusion as a schedule over progress, or one number.
        gamma: focal exponent of the unannotated part.
        max_excluded: bound on the excluded share of the unannotated locations of a batch, so that some
            background always stays in.
        reduction: mean, sum or none.

    >>> loss = AdaptiveExclusiveCrossEntropy()
    >>> logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    >>> float(loss(logits - 0.1, target, progress=0.1))  # doctest: +ELLIPSIS
    0.2...
    >>> loss.told()["alpha"]
    0.2
    """

    def __init__(
        self,
        *,
        k: float = 0.75,
        first_alpha: float = PRESETS["paper"]["alpha"],
        warm_up: float = 0.15,
        every: int = 20,
        rho: Schedule | float = PRESETS["paper"]["rho"],
        gamma: float = PRESETS["paper"]["gamma"],
        max_excluded: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_not_negative("k", k)
        check_share("first_alpha", first_alpha)
        check_not_negative("gamma", gamma)
        check_share("max_excluded", max_excluded)
        check_reduction(reduction)
        if not 0.0 <= warm_up <= 1.0:
            raise InputError(f"warm_up is {warm_up}; give a part of training, from 0 to 1")
        if every < 1:
            raise InputError(f"every is {every}; give a number of steps, at least 1")
        self.k, self.first_alpha, self.warm_up, self.every = k, first_alpha, warm_up, every
        self.rho = rho if callable(rho) else Constant(rho)
        self.gamma, self.max_excluded, self.reduction = gamma, max_excluded, reduction
        self._warned = False
        self._reset(1)

    def _reset(self, classes: int) -> None:
        """Begin with no knowledge of so many classes."""
        self.histograms = LogitHistograms(classes)
        # Not buffers: on the CPU they can be read in every step without waiting for a GPU.
        self.share, self.alpha = torch.full((classes,), torch.nan), torch.full((classes,), self.first_alpha)
        self.steps = 0

    def compute(self, call: Call) -> Tensor:
        """Compute the loss; in training also look at the batch, and now and then estimate anew."""
        if len(self.alpha) != number_of_classes(call.logits):
            self._reset(number_of_classes(call.logits))
            self.histograms.to(call.logits.device)
        if self.training:
            self.histograms.observe(read_batch(call.logits, call.target, call.annotated))
            self.steps += 1
            if call.progress >= self.warm_up and self.steps % self.every == 0:
                self._estimate(call.progress)
        rho = self.rho(call.progress)
        if len(self.alpha) == 1:
            return exclusive_cross_entropy(
                call.logits,
                call.target,
                rho=rho,
                annotated=call.annotated,
                alpha=float(self.alpha),
                gamma=self.gamma,
                max_excluded=self.max_excluded,
                reduction=self.reduction,
            )
        losses = exclusive_cross_entropy(
            call.logits,
            call.target,
            rho=rho,
            annotated=call.annotated,
            gamma=self.gamma,
            max_excluded=self.max_excluded,
            reduction="none",
        )
        batch = read_batch(call.logits, call.target, call.annotated)
        likeliest = call.logits.detach()[:, 1:].argmax(1)
        weight = torch.where(batch.unannotated, self.alpha.to(losses)[likeliest], 1.0)
        return reduced(losses * weight, batch.counted, self.reduction)

    def left_out(self, call: Call) -> Tensor:
        """Tell what the model's confidence excludes."""
        return exclusion_mask(
            call.logits,
            call.target,
            rho=self.rho(call.progress),
            annotated=call.annotated,
            max_excluded=self.max_excluded,
        )

    def told(self) -> dict[str, float]:
        """Tell the estimated share of marks and α; with several classes their mean, then one by one."""
        told = {"alpha": round(float(self.alpha.mean()), 6)}
        if not self.share.isnan().all():
            told["marked_share"] = float(self.share.nanmean())
        if len(self.alpha) > 1:
            for number, (share, alpha) in enumerate(zip(self.share, self.alpha, strict=True), 1):
                told |= {f"alpha_{number}": float(alpha), f"marked_share_{number}": float(share)}
        return told

    def _estimate(self, progress: float) -> None:
        marked, everything = self.histograms.marked.cpu(), self.histograms.everything.cpu()
        enough = marked.sum(-1) >= _FEW_MARKS
        share = torch.where(enough, estimate_marked_share(marked, everything), self.share)
        self._warn_of_swing(share, progress)
        alpha = (self.k * share / (1.0 - share).clamp(min=1e-6)).clamp(max=1.0)
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
        """Give the estimates."""
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
            f"k={self.k}, first_alpha={self.first_alpha}, warm_up={self.warm_up}, every={self.every}, "
            f"rho={self.rho}, gamma={self.gamma}, max_excluded={self.max_excluded}, "
            f"reduction={self.reduction!r}"
        )
