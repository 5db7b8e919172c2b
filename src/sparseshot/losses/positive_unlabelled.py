"""Non-negative learning from positive and unlabelled locations."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.histograms import LogitHistograms, reverse_cumsum
from sparseshot.losses.ordinary import cross_entropy
from sparseshot.losses.parameters import check_not_negative
from sparseshot.losses.plain import annotated_loss
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import (
    IGNORE_INDEX,
    Reduction,
    check_reduction,
    foreground_logit,
    read_batch,
    reduced,
)

Surrogate = Literal["sigmoid", "logistic"]


def non_negative_pu(
    logits: Tensor,
    target: Tensor,
    *,
    prior: float | Tensor,
    annotated: Tensor | None = None,
    surrogate: Surrogate = "sigmoid",
    gamma: float = 1.0,
    beta: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Risk of non-negative positive-unlabelled learning (Kiryo et al., NeurIPS 2017).

    .. math:: R = \pi \, E_P[\ell^+] + \max(0, \; E_U[\ell^-] - \pi \, E_P[\ell^-])

    P are the annotated foreground locations. U is a sample of *all* locations, which here is the batch
    itself, marks included: they were taken out of it, not drawn a second time. Certain background N leaves
    the bracket, which then stands for the background nobody marked: (n_N/n)·E_N[ℓ⁻] + max(0, (n_U/n)·E_U[ℓ⁻]
    − π·E_P[ℓ⁻]), U now the rest. With several classes, ℓ⁺ also holds −log p(y | foreground).

    If the bracket falls below −β, its gradient is that of −γ times the bracket and nothing else, as in the
    original: a step back from negatives learned by heart.

    Args:
        logits: ``(N, 1, *)`` or ``(N, C + 1, *)``.
        target: integers ``(N, *)``.
        prior: π, the share of foreground among all locations, in (0, 1).
        annotated: booleans ``(N, *)``; left out, ``target > 0``.
        surrogate: ℓ⁺(z) is ``sigmoid`` σ(−z), as in the original, or ``logistic`` −log σ(z); ℓ⁻(z) = ℓ⁺(−z).
        gamma: size of the step back.
        beta: how negative the bracket may become.
        reduction: ``mean`` is the risk, ``none`` contributions ``(N, *)`` with this mean, ``sum`` their sum.

    >>> logits, target = torch.tensor([[2.0], [-2.0], [-2.0], [2.0]]), torch.tensor([1, 0, 0, 0])
    >>> non_negative_pu(logits, target, prior=0.5)
    tensor(0.1192)
    """
    if not isinstance(prior, Tensor):
        check_prior(prior)
    _check_options(surrogate, gamma, beta)
    batch = read_batch(logits, target, annotated)
    logit = foreground_logit(batch.logits)
    positive, negative = _surrogates(logit, surrogate)
    if logits.shape[1] > 2:
        positive = positive + annotated_loss(batch) - F.softplus(-logit)
    marked = batch.annotated & (batch.label > 0)
    certain = batch.annotated & (batch.label == 0)
    # Each mark stands for π·n of the n locations, shared among the marks.
    stands_for = prior * batch.counted.sum() / marked.sum().clamp(min=1)
    certain_part = torch.where(marked, stands_for * positive, torch.where(certain, negative, 0.0))
    bracket = torch.where(
        marked, (1.0 - stands_for) * negative, torch.where(batch.unannotated, negative, 0.0)
    )
    steps_back = bracket.detach().sum() < -beta * batch.counted.sum()
    step = -gamma * bracket
    losses = torch.where(
        steps_back, certain_part.detach() - beta + step - step.detach(), certain_part + bracket
    )
    return reduced(losses, batch.counted, reduction)


def estimate_prior(marked: Tensor, everything: Tensor) -> Tensor:
    """Estimate the share π of foreground from two histograms of the foreground logit over the same bins.

    Whatever the threshold, the share of everything above it is at least π times the share of the marks above
    it; so the smallest ratio of the two is an upper bound of π, and a close one where only foreground is left
    (as in the best-bin estimate of Garg et al., NeurIPS 2021). Thresholds with less than a fifth of the marks
    above are too noisy to be asked.

    >>> float(estimate_prior(torch.tensor([0.0, 10.0]), torch.tensor([75.0, 25.0])))
    0.25
    """
    of_marks = reverse_cumsum(marked) / marked.sum().clamp(min=1e-12)
    of_all = reverse_cumsum(everything) / everything.sum().clamp(min=1e-12)
    ratio = torch.where(of_marks >= 0.2, of_all / of_marks.clamp(min=1e-12), 1.0)
    return _inside(ratio.min())


def _inside(prior: Tensor) -> Tensor:
    return prior.clamp(1e-4, 1.0 - 1e-4)


def check_prior(prior: float) -> None:
    """Raise unless ``prior`` is in (0, 1)."""
    if not 0.0 < prior < 1.0:
        raise InputError(
            f"prior is {prior}; give the share of foreground among all locations, between 0 and 1"
        )


def _check_options(surrogate: str, gamma: float, beta: float) -> None:
    if surrogate not in get_args(Surrogate):
        raise InputError(f"surrogate is {surrogate!r}; choose sigmoid or logistic")
    check_not_negative("gamma", gamma)
    check_not_negative("beta", beta)


def _surrogates(logit: Tensor, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
    if surrogate == "sigmoid":
        return torch.sigmoid(-logit), torch.sigmoid(logit)
    return F.softplus(-logit), F.softplus(logit)


class NonNegativePU(Loss):
    """:func:`non_negative_pu` with a prior that is given, or estimated while training.

    The estimate (:func:`estimate_prior`) looks at the last fifty batches or so and is part of the checkpoint.
    It needs a model that ranks; so until ``warm_up`` of training has passed, the loss is ordinary
    cross-entropy.

    Args:
        prior: π; None to estimate it; ``truth`` to take that of each batch from ``hints=Hints(truth=…)``, for
            simulations that ask how good this can be at its best.
        surrogate: as in :func:`non_negative_pu`.
        gamma: size of the step back.
        beta: how negative the bracket may become.
        warm_up: the part of training before an estimate is trusted.
        reduction: mean, sum or none.

    >>> NonNegativePU(prior=0.2)(torch.zeros(2, 1), torch.tensor([1, 0]))
    tensor(0.5000)
    """

    def __init__(
        self,
        *,
        prior: float | Literal["truth"] | None = None,
        surrogate: Surrogate = "sigmoid",
        gamma: float = 1.0,
        beta: float = 0.0,
        warm_up: float = 0.1,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        if isinstance(prior, str) and prior != "truth":
            raise InputError(f"prior is {prior!r}; give a number between 0 and 1, or 'truth'")
        if isinstance(prior, float | int):
            check_prior(prior)
        _check_options(surrogate, gamma, beta)
        check_reduction(reduction)
        if not 0.0 <= warm_up <= 1.0:
            raise InputError(f"warm_up is {warm_up}; give a part of training, from 0 to 1")
        self.prior, self.surrogate, self.gamma, self.beta = prior, surrogate, gamma, beta
        self.warm_up, self.reduction = warm_up, reduction
        self.histograms = LogitHistograms()

    def compute(self, call: Call) -> Tensor:
        """Compute the loss; a training step without a given prior also updates the estimate."""
        prior: float | Tensor
        if self.prior == "truth":
            counted = call.target != IGNORE_INDEX
            share = (counted & (call.truth > 0)).sum() / counted.sum().clamp(min=1)
            prior = _inside(share)
        elif self.prior is not None:
            prior = self.prior
        else:
            if self.training:
                self.histograms.observe(read_batch(call.logits, call.target, call.annotated))
            if call.progress < self.warm_up:
                return cross_entropy(
                    call.logits, call.target, annotated=call.annotated, reduction=self.reduction
                )
            prior = estimate_prior(self.histograms.marked[0], self.histograms.everything[0])
        return non_negative_pu(
            call.logits,
            call.target,
            prior=prior,
            annotated=call.annotated,
            surrogate=self.surrogate,
            gamma=self.gamma,
            beta=self.beta,
            reduction=self.reduction,
        )
