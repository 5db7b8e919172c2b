"""Non-negative learning from positive and unlabelled locations."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.base import Loss
from sparseshot.losses.locations import Locations, foreground_logit, label_loss
from sparseshot.losses.logit_histograms import LogitHistograms, reverse_cumsum
from sparseshot.losses.schedules import INSIDE, NOT_NEGATIVE, SHARE_OR_ZERO

Surrogate = Literal["sigmoid", "logistic"]


def estimate_prior(marked: Tensor, everything: Tensor) -> Tensor:
    """Estimate the share π of foreground from two histograms of the foreground logit over the same bins.

    At any threshold, the share of all locations above it is at least π times the share of the marks above it.
    So the smallest ratio of the two is an upper bound of π, and a close one where only foreground is left (as
    in the best-bin estimate of Garg et al., NeurIPS 2021). Thresholds with less than a fifth of the marks
    above them are too noisy and left out.

    >>> float(estimate_prior(torch.tensor([0.0, 10.0]), torch.tensor([75.0, 25.0])))
    0.25
    """
    of_marks = reverse_cumsum(marked) / marked.sum().clamp(min=1e-12)
    of_all = reverse_cumsum(everything) / everything.sum().clamp(min=1e-12)
    ratio = torch.where(of_marks >= 0.2, of_all / of_marks.clamp(min=1e-12), 1.0)
    return _inside(ratio.min())


def _inside(prior: Tensor) -> Tensor:
    return prior.clamp(1e-4, 1.0 - 1e-4)


@dataclass(eq=False, repr=False, kw_only=True)
class NonNegativePU(Loss):
    r"""Risk of non-negative positive-unlabelled learning (Kiryo et al., NeurIPS 2017).

    .. math:: R = \pi \, E_P[\ell^+] + \max(0, \; E_U[\ell^-] - \pi \, E_P[\ell^-])

    P are the annotated foreground locations. U is a sample of *all* locations, which here is the batch
    itself, marks included: they were taken from it, not drawn a second time. Certain background N leaves the
    bracket, which then stands for unmarked background: (n_N/n)·E_N[ℓ⁻] + max(0, (n_U/n)·E_U[ℓ⁻] − π·E_P[ℓ⁻]),
    where U is now the rest. With several classes, ℓ⁺ also contains −log p(y | foreground).

    If the bracket falls below −β, its gradient is that of −γ times the bracket and nothing else, as in the
    original: a step back from memorised negatives.

    An estimated prior (:func:`estimate_prior`) comes from about the last fifty batches and is part of the
    checkpoint. It needs a model that ranks, so until ``warm_up`` of training has passed, the loss is ordinary
    cross-entropy. With reduction ``none``, the mean of the losses is the risk.

    Args:
        prior: π, the share of foreground among all locations, in (0, 1). None to estimate it; ``truth`` to
            take that of each batch from ``hints=Hints(truth=…)``, for an upper bound in simulations.
        surrogate: ℓ⁺(z) is ``sigmoid`` σ(−z), as in the original, or ``logistic`` −log σ(z); ℓ⁻(z) = ℓ⁺(−z).
        gamma: size of the step back.
        beta: how negative the bracket may become.
        warm_up: the part of training before an estimate is used.

    >>> logits, target = torch.tensor([[2.0], [-2.0], [-2.0], [2.0]]), torch.tensor([1, 0, 0, 0])
    >>> NonNegativePU(prior=0.5)(logits, target)
    tensor(0.1192)
    """

    prior: float | Literal["truth"] | None = None
    surrogate: Surrogate = "sigmoid"
    gamma: Annotated[float, NOT_NEGATIVE] = 1.0
    beta: Annotated[float, NOT_NEGATIVE] = 0.0
    warm_up: Annotated[float, SHARE_OR_ZERO] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, float | int):
            INSIDE.check("prior", self.prior)
        elif self.prior not in ("truth", None):
            raise InputError(f"prior is {self.prior!r}; give a number between 0 and 1, or 'truth'")
        self.histograms = LogitHistograms()
        self.estimates = self.changes_with_progress = self.prior is None  # an estimate takes a warm-up
        self.wants = frozenset({"truth"} if self.prior == "truth" else ())

    def losses(self, locations: Locations) -> Tensor:
        """Return the contribution of each location; in training, an estimated prior is updated first."""
        if self.prior is None:
            if self.training:
                self.histograms.observe(locations)
            if locations.progress < self.warm_up:
                return label_loss(locations)
            marked, everything, _ = self.histograms.counts[:, 0]
            prior: float | Tensor = estimate_prior(marked, everything)
        elif self.prior == "truth":
            positive = (locations.counted & (locations.truth() > 0)).sum()
            prior = _inside(positive / locations.counted.sum().clamp(min=1))
        else:
            prior = self.prior
        return self._contributions(locations, prior)

    def _contributions(self, locations: Locations, prior: float | Tensor) -> Tensor:
        logit = foreground_logit(locations.logits)
        surrogate = torch.sigmoid if self.surrogate == "sigmoid" else F.softplus
        positive, negative = surrogate(-logit), surrogate(logit)
        if locations.logits.shape[1] > 2:
            positive = positive + label_loss(locations) - F.softplus(-logit)
        marked = locations.annotated & (locations.label > 0)
        certain = locations.annotated & (locations.label == 0)
        total = locations.counted.sum()
        # Each mark stands for π·n of the n locations, shared among the marks.
        stands_for = prior * total / marked.sum().clamp(min=1)
        certain_part = torch.where(marked, stands_for * positive, torch.where(certain, negative, 0.0))
        bracket = torch.where(
            marked, (1.0 - stands_for) * negative, torch.where(locations.unannotated, negative, 0.0)
        )
        step = -self.gamma * bracket
        return torch.where(
            bracket.detach().sum() < -self.beta * total,
            certain_part.detach() - self.beta + step - step.detach(),
            certain_part + bracket,
        )
