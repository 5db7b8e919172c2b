"""Exclusive cross-entropy (Panteli, Teuwen, Horlings and Gavves, ICCV 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError, unknown_name
from sparseshot.losses.base import Loss
from sparseshot.losses.locations import (
    IGNORE_INDEX,
    Locations,
    Reduction,
    foreground_logit,
    number_of_classes,
    reduce,
    values_can_be_read,
)
from sparseshot.losses.schedules import (
    NOT_NEGATIVE,
    SHARE,
    Logistic,
    Schedule,
    Sigmoid,
    check_choice,
    check_class_weights,
    class_weight_tensor,
    value_at,
)
from sparseshot.losses.threshold import NEVER, output_confidence, over_threshold, threshold_logit

Confidence = Literal["probability", "output"]

NO_LOCATIONS = Locations(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
"""A call to check parameters with."""


def exclusive_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    rho: float,
    annotated: Tensor | None = None,
    beta: float = 1.0,
    alpha: float = 1.0,
    gamma: float = 0.0,
    class_weights: Tensor | None = None,
    max_excluded: float = 1.0,
    excluded: Tensor | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    r"""Cross-entropy that excludes unannotated locations of which the model is confident (eq. 7, 8).

    .. math::
        L = \sum_{F} -\log p_i(y_i) + \sum_{\bar F} [p_i < \rho^\beta] \, u(1 - p_i), \qquad
        u(1 - p) = -\alpha \, p^\gamma \log(1 - p)

    F are the annotated locations, F̄ the others, p the probability of any foreground: σ(z) with one logit,
    1 − softmax(z)₀ with C + 1. The test carries no gradient. (The paper prints a minus before the second sum
    and again inside u; one of them is a slip.)

    Args:
        logits: ``(N, 1, *)`` for one class, ``(N, C + 1, *)`` for C classes and background; computed in
            float32, float64 if they are.
        target: integers ``(N, *)``: 0 background, 1…C classes, ``ignore_index`` ignored.
        rho: exclusion threshold in (0, 1]; 1 excludes nothing.
        annotated: booleans ``(N, *)``: the label is certain here. The default is ``target > 0``. An annotated
            0 is certain background. The target of an unannotated location is taken as 0.
        beta: exponent of the threshold.
        alpha: weight of the unannotated part.
        gamma: focal exponent of the unannotated part.
        class_weights: ``(C + 1,)`` floats, background first; unannotated locations have the weight of
            background.
        max_excluded: bound in (0, 1] on the excluded share of the unannotated locations of the batch. If more
            qualify, only the most confident of them are excluded. 1 is the formula above.
        excluded: booleans ``(N, *)``: further unannotated locations to exclude.
        reduction: ``mean`` over all locations that are not ignored (an excluded one counts, as 0), weighted
            as in ``F.cross_entropy``; ``sum``; or ``none`` for the losses ``(N, *)``.
        ignore_index: value of the target at locations to ignore.

    >>> logits = torch.tensor([[2.0], [2.0], [-1.0]])
    >>> target = torch.tensor([1, 0, 0])  # one mark, two unannotated locations
    >>> exclusive_cross_entropy(logits, target, rho=0.6, reduction="none")  # the second is excluded
    tensor([0.1269, 0.0000, 0.3133])
    >>> exclusive_cross_entropy(logits, target, rho=1.0, reduction="none")  # ordinary cross-entropy
    tensor([0.1269, 2.1269, 0.3133])
    """
    check_choice("reduction", reduction, Reduction)
    locations = Locations(logits, target, annotated, ignore_index=ignore_index)
    if excluded is not None and (excluded.dtype is not torch.bool or excluded.shape != target.shape):
        raise InputError(
            f"excluded is {excluded.dtype} of shape {tuple(excluded.shape)}; "
            f"give booleans of shape {tuple(target.shape)}"
        )
    terms = Terms(
        threshold=threshold_logit(rho, beta),
        alpha=alpha,
        gamma=gamma,
        max_excluded=max_excluded,
        excluded=excluded,
    )
    if class_weights is not None and values_can_be_read(class_weights):
        check_class_weights(class_weights)
    return reduce(exclusive_losses(locations, terms), weights_of(locations, class_weights), reduction)


@dataclass(frozen=True, eq=False, kw_only=True)
class Terms:
    """The parameters of :func:`exclusive_cross_entropy` at one step; the defaults are cross-entropy.

    Attributes:
        threshold: foreground logit from which an unannotated location is excluded, or ``NEVER``.
    """

    threshold: float = NEVER
    alpha: float = 1.0
    gamma: float = 0.0
    max_excluded: float = 1.0
    excluded: Tensor | None = None

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check("alpha", self.alpha)
        NOT_NEGATIVE.check("gamma", self.gamma)
        SHARE.check("max_excluded", self.max_excluded)


def excluded_locations(locations: Locations, terms: Terms) -> Tensor:
    """Return the locations that are excluded, ``(N, *)``."""
    over = over_threshold(
        foreground_logit(locations.logits.detach()),
        locations.unannotated,
        threshold=terms.threshold,
        max_excluded=terms.max_excluded,
    )
    return locations.unannotated & (over if terms.excluded is None else over | terms.excluded)


def exclusive_losses(locations: Locations, terms: Terms) -> Tensor:
    """Return exclusive cross-entropy of each location, ``(N, *)``; 0 where excluded or ignored."""
    logit = foreground_logit(locations.logits)
    kept = locations.unannotated & ~excluded_locations(locations, terms)
    # The weights of the annotated and of the others, with the sign of −log p.
    weight, unsure = locations.annotated.to(logit.dtype).neg_(), kept.to(logit.dtype).mul_(-terms.alpha)
    side = locations.foreground.to(logit.dtype).mul_(2.0).sub_(1.0)
    if terms.gamma:
        # p^γ in log space: with γ < 1 the derivative of the plain power is infinite at p = 0.
        weight = torch.addcmul(weight, unsure, torch.exp(terms.gamma * F.logsigmoid(logit)))
    else:
        weight += unsure
    losses = weight * F.logsigmoid(side * logit)
    if locations.logits.shape[1] > 2:  # p(y) is p, the probability of any foreground, times p(y | foreground)
        losses = losses + F.cross_entropy(
            locations.logits[:, 1:], locations.label - 1, ignore_index=-1, reduction="none"
        )
    return losses


def weights_of(locations: Locations, class_weights: Tensor | None) -> Tensor | None:
    """Return the weight of each location in the mean, ``(N, *)``; None if all are equal."""
    counted = None if locations.ignored is None else ~locations.ignored
    if class_weights is None:
        return counted
    channels = number_of_classes(locations.logits) + 1
    if class_weights.shape != (channels,):
        raise InputError(
            f"class_weights have shape {tuple(class_weights.shape)}; logits of "
            f"{tuple(locations.logits.shape)} need ({channels},), background first"
        )
    weights = class_weights.to(locations.logits)[locations.label]
    return weights if counted is None else weights * counted


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The paper states neither α nor γ; these are from the authors' code.
        "paper": {"rho": Sigmoid(0.75), "alpha": 0.2, "gamma": 0.1},
        "plain": {"rho": Sigmoid(0.75), "alpha": 1.0, "gamma": 0.0},
        "nki": {
            "rho": Logistic(height=0.5, centre=50 / 300, width=10 / 300),
            "alpha": 0.2,
            "gamma": 0.1,
            "confidence": "output",
            "sampling": Logistic(height=0.5, centre=150 / 300, width=10 / 300),
        },
    }
)
"""The arguments of :class:`ExclusiveCrossEntropy` by preset; docs/losses.md says how they differ and why."""


@dataclass(eq=False, repr=False, kw_only=True)
class ExclusiveLoss(Loss):
    """A loss that is exclusive cross-entropy with terms of its own."""

    def terms(self, locations: Locations) -> Terms:
        """Return the parameters at this call."""
        raise NotImplementedError

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        return exclusive_losses(locations, self.terms(locations))

    def exclusion_mask(
        self, logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, progress: float = 1.0
    ) -> Tensor:
        """Return where the model's confidence excludes a location, ``(N, *)``."""
        locations = Locations(
            logits.detach(), target, annotated, progress=progress, ignore_index=self.ignore_index
        )
        return excluded_locations(locations, self.terms(locations))


@dataclass(eq=False, repr=False, kw_only=True)
class ExclusiveCrossEntropy(ExclusiveLoss):
    """:func:`exclusive_cross_entropy` with a threshold that moves with progress; by default preset ``paper``.

    Args:
        rho: threshold as a schedule over progress, or one number.
        beta: exponent of the threshold, as a schedule over progress, or one number.
        alpha: weight of the unannotated part.
        gamma: focal exponent of the unannotated part.
        class_weights: C + 1 weights, background first.
        max_excluded: bound on the excluded share of the unannotated locations of a batch; 1, no bound, is the
            paper.
        confidence: what is compared with the threshold: the foreground ``probability``, or the raw ``output``
            as in the authors' package (:func:`~sparseshot.losses.threshold.output_confidence`).
        sampling: probability with which an unannotated location takes part in a step, over progress. It is
            drawn from torch's global generator, as dropout is.

    >>> loss = ExclusiveCrossEntropy(alpha=0.05)
    >>> logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    >>> float(loss(logits - 0.1, target, progress=0.5))  # doctest: +ELLIPSIS
    0.20...
    """

    rho: Schedule | float = PRESETS["paper"]["rho"]
    beta: Schedule | float = 1.0
    alpha: float = PRESETS["paper"]["alpha"]
    gamma: float = PRESETS["paper"]["gamma"]
    class_weights: Sequence[float] | Tensor | None = None
    max_excluded: float = 1.0
    confidence: Confidence = "probability"
    sampling: Schedule | float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("class_weight", class_weight_tensor(self.class_weights), persistent=False)
        if self.confidence == "output" and self.max_excluded < 1:
            raise InputError("max_excluded bounds probabilities; it cannot go with confidence='output'")
        self.terms(NO_LOCATIONS)  # checks the parameters
        self.changes_with_progress = any(map(callable, (self.rho, self.beta, self.sampling)))
        if self.sampling is not None:
            value_at(self.sampling, 1.0, name="sampling")

    @classmethod
    def preset(cls, name: str, *, options: Mapping[str, Any] | None = None) -> Self:
        """Return the loss of preset ``paper``, ``nki`` or ``plain``, with some arguments replaced.

        >>> ExclusiveCrossEntropy.preset("paper", options={"alpha": 0.05}).alpha
        0.05
        """
        if name not in PRESETS:
            raise InputError(unknown_name("preset", name, PRESETS))
        return cls(**{**PRESETS[name], **(options or {})})

    def terms(self, locations: Locations) -> Terms:
        """Return the parameters at this progress, without sampling."""
        rho, excluded = value_at(self.rho, locations.progress), None
        beta = value_at(self.beta, locations.progress, name="beta", within=NOT_NEGATIVE)
        if self.confidence == "output":
            excluded, rho = output_confidence(locations.logits.detach()) > rho**beta, 1.0
        return Terms(
            threshold=threshold_logit(rho, beta),
            alpha=self.alpha,
            gamma=self.gamma,
            max_excluded=self.max_excluded,
            excluded=excluded,
        )

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location at this progress."""
        terms = self.terms(locations)
        if self.sampling is not None:
            draws = torch.rand(locations.target.shape, device=locations.target.device)
            sampled_out = draws > value_at(self.sampling, locations.progress, name="sampling")
            excluded = sampled_out if terms.excluded is None else terms.excluded | sampled_out
            terms = replace(terms, excluded=excluded)
        return exclusive_losses(locations, terms)

    def weights(self, locations: Locations) -> Tensor | None:
        """Return the weights by class."""
        return weights_of(locations, cast(Tensor | None, self.class_weight))
