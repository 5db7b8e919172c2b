"""Exclusive cross-entropy (Panteli, Teuwen, Horlings and Gavves, ICCV 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from sparseshot.errors import InputError, unknown_name
from sparseshot.losses.fused import can_fuse, fused_exclusive_cross_entropy
from sparseshot.losses.locations import IGNORE_INDEX, Call, Reduction, number_of_classes
from sparseshot.losses.parameters import check_choice, class_weight_tensor
from sparseshot.losses.plain import Terms, excluded_locations, plain_exclusive_cross_entropy
from sparseshot.losses.schedules import Logistic, Schedule, Sigmoid, value_at
from sparseshot.losses.signature import Loss
from sparseshot.losses.threshold import output_confidence, threshold_logit

Confidence = Literal["probability", "output"]

_NO_LOCATIONS = Call(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))


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
    call = Call(logits, target, annotated, ignore_index=ignore_index)
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
        class_weights=class_weights,
    )
    return compute(call, terms, reduction)


def compute(call: Call, terms: Terms, reduction: Reduction) -> Tensor:
    """Compute exclusive cross-entropy by the kernel where it can, else by torch."""
    channels = number_of_classes(call.logits) + 1
    if terms.class_weights is not None and terms.class_weights.shape != (channels,):
        raise InputError(
            f"class_weights have shape {tuple(terms.class_weights.shape)}; logits of "
            f"{tuple(call.logits.shape)} need ({channels},), background first"
        )
    if can_fuse(call.logits):
        return fused_exclusive_cross_entropy(call, terms, reduction)
    return plain_exclusive_cross_entropy(call, terms, reduction)


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

    def terms(self, call: Call) -> Terms:
        """Return the parameters at this call."""
        raise NotImplementedError

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss."""
        return compute(call, self.terms(call), self.reduction)

    def exclusion_mask(
        self, logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, progress: float = 1.0
    ) -> Tensor:
        """Return where the model's confidence excludes a location, ``(N, *)``."""
        call = Call(logits.detach(), target, annotated, progress=progress, ignore_index=self.ignore_index)
        return excluded_locations(call.read(), self.terms(call))


@dataclass(eq=False, repr=False, kw_only=True)
class ExclusiveCrossEntropy(ExclusiveLoss):
    """:func:`exclusive_cross_entropy` with a threshold that moves with progress; by default preset ``paper``.

    Args:
        rho: threshold as a schedule over progress, or one number.
        beta: exponent of the threshold.
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
    beta: float = 1.0
    alpha: float = PRESETS["paper"]["alpha"]
    gamma: float = PRESETS["paper"]["gamma"]
    class_weights: Sequence[float] | Tensor | None = None
    max_excluded: float = 1.0
    confidence: Confidence = "probability"
    sampling: Schedule | float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("weights", class_weight_tensor(self.class_weights), persistent=False)
        if self.confidence == "output" and self.max_excluded < 1:
            raise InputError("max_excluded bounds probabilities; it cannot go with confidence='output'")
        self.terms(_NO_LOCATIONS)  # checks the parameters
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

    def terms(self, call: Call) -> Terms:
        """Return the parameters at this progress, without sampling."""
        rho, excluded = value_at(self.rho, call.progress), None
        if self.confidence == "output":
            excluded, rho = output_confidence(call.logits.detach()) > rho**self.beta, 1.0
        return Terms(
            threshold=threshold_logit(rho, self.beta),
            alpha=self.alpha,
            gamma=self.gamma,
            max_excluded=self.max_excluded,
            excluded=excluded,
            class_weights=cast(Tensor | None, self.weights),
        )

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss at this progress."""
        terms = self.terms(call)
        if self.sampling is not None:
            draws = torch.rand(call.target.shape, device=call.target.device)
            sampled_out = draws > value_at(self.sampling, call.progress, name="sampling")
            excluded = sampled_out if terms.excluded is None else terms.excluded | sampled_out
            terms = replace(terms, excluded=excluded)
        return compute(call, terms, self.reduction)
