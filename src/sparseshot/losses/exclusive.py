"""Exclusive cross-entropy (Panteli, Teuwen, Horlings and Gavves, ICCV 2021)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.exclusion import exclusion_mask, output_confidence, threshold_logit
from sparseshot.losses.fused import can_fuse, fused_exclusive_cross_entropy
from sparseshot.losses.parameters import check_not_negative, check_share, checked_class_weights
from sparseshot.losses.plain import Terms, plain_exclusive_cross_entropy
from sparseshot.losses.schedules import Constant, Logistic, Schedule, Sigmoid
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import (
    Reduction,
    check_batch,
    check_reduction,
    number_of_classes,
    read_batch,
    widened,
)

Confidence = Literal["probability", "output"]


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
) -> Tensor:
    r"""Cross-entropy that leaves out unannotated locations the model is already sure of (eq. 7, 8).

    .. math::
        L = \sum_{F} -\log p_i(y_i) + \sum_{\bar F} [p_i < \rho^\beta] \, u(1 - p_i), \qquad
        u(1 - p) = -\alpha \, p^\gamma \log(1 - p)

    F are the annotated locations, F̄ the others, p the probability of any foreground: σ(z) with one logit,
    1 − softmax(z)₀ with C + 1. The test carries no gradient. (The paper prints a minus before the second sum
    and again inside u; one of them is a slip.)

    Args:
        logits: ``(N, 1, *)`` for one class, ``(N, C + 1, *)`` for C classes and background; computed in
            float32, float64 if they are.
        target: integers ``(N, *)``: 0 background, 1…C classes, -100 ignored.
        rho: exclusion threshold in (0, 1]; 1 excludes nothing.
        annotated: booleans ``(N, *)``: the label is certain here; left out, ``target > 0``. An annotated 0 is
            certain background; the target of an unannotated location is taken for 0.
        beta: exponent of the threshold.
        alpha: weight of the unannotated part.
        gamma: focal exponent of the unannotated part.
        class_weights: ``(C + 1,)`` floats, background first; unannotated locations have the weight of
            background.
        max_excluded: bound in (0, 1] on the excluded share of the unannotated locations of the batch. If more
            qualify, only the most confident of them are excluded. 1 is the formula above.
        excluded: booleans ``(N, *)``: unannotated locations to exclude besides.
        reduction: ``mean`` over all locations that are not ignored (an excluded one counts, as 0), weighted
            as in ``F.cross_entropy``; ``sum``; or ``none`` for the losses ``(N, *)``.

    >>> logits = torch.tensor([[2.0], [2.0], [-1.0]])
    >>> target = torch.tensor([1, 0, 0])  # a mark, and two locations that nobody looked at
    >>> exclusive_cross_entropy(logits, target, rho=0.6, reduction="none")  # the second may be a missed cell
    tensor([0.1269, 0.0000, 0.3133])
    >>> exclusive_cross_entropy(logits, target, rho=1.0, reduction="none")  # ordinary cross-entropy
    tensor([0.1269, 2.1269, 0.3133])
    """
    check_batch(logits, target, annotated)
    check_reduction(reduction)
    check_share("max_excluded", max_excluded)
    check_not_negative("alpha", alpha)
    check_not_negative("gamma", gamma)
    if excluded is not None and (excluded.dtype is not torch.bool or excluded.shape != target.shape):
        raise InputError(
            f"excluded is {excluded.dtype} of shape {tuple(excluded.shape)}; "
            f"give booleans of shape {tuple(target.shape)}"
        )
    if class_weights is not None and class_weights.shape != (number_of_classes(logits) + 1,):
        raise InputError(
            f"class_weights have shape {tuple(class_weights.shape)}; logits of {tuple(logits.shape)} need "
            f"({number_of_classes(logits) + 1},), background first"
        )
    terms = Terms(threshold_logit(rho, beta), alpha, gamma, max_excluded, class_weights, reduction)
    logits = widened(logits)
    compute = fused_exclusive_cross_entropy if can_fuse(logits) else plain_exclusive_cross_entropy
    return compute(logits, target, annotated, excluded, terms)


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The paper gives neither α nor γ; these are in the authors' code.
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


class ExclusiveCrossEntropy(Loss):
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
            as in the authors' package (:func:`~sparseshot.losses.exclusion.output_confidence`).
        sampling: probability with which an unannotated location is taken into a step at all, over progress.
        seed: of the sampling.
        reduction: mean, sum or none.

    >>> loss = ExclusiveCrossEntropy(alpha=0.05)
    >>> logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    >>> float(loss(logits - 0.1, target, progress=0.5))  # doctest: +ELLIPSIS
    0.20...
    """

    class_weights: Tensor | None

    def __init__(
        self,
        *,
        rho: Schedule | float = PRESETS["paper"]["rho"],
        beta: float = 1.0,
        alpha: float = PRESETS["paper"]["alpha"],
        gamma: float = PRESETS["paper"]["gamma"],
        class_weights: Sequence[float] | Tensor | None = None,
        max_excluded: float = 1.0,
        confidence: Confidence = "probability",
        sampling: Schedule | float | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.rho = rho if callable(rho) else Constant(rho)
        self.beta, self.alpha, self.gamma = beta, alpha, gamma
        self.max_excluded, self.confidence, self.reduction = max_excluded, confidence, reduction
        self.sampling = Constant(sampling) if isinstance(sampling, int | float) else sampling
        self.register_buffer("class_weights", checked_class_weights(class_weights))
        self._generator = torch.Generator().manual_seed(seed)
        check_not_negative("beta", beta)
        check_share("max_excluded", max_excluded)
        check_reduction(reduction)
        check_not_negative("alpha", alpha)
        check_not_negative("gamma", gamma)
        if confidence not in get_args(Confidence):
            raise InputError(f"confidence is {confidence!r}; choose probability or output")
        if confidence == "output" and max_excluded < 1:
            raise InputError("max_excluded bounds probabilities; leave it out with confidence='output'")

    @classmethod
    def preset(cls, name: str, *, options: Mapping[str, Any] | None = None) -> Self:
        """Return the loss of preset ``paper``, ``nki`` or ``plain``, with some arguments replaced.

        >>> ExclusiveCrossEntropy.preset("paper", options={"alpha": 0.05}).alpha
        0.05
        """
        if name not in PRESETS:
            raise InputError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **(options or {})})

    def compute(self, call: Call) -> Tensor:
        """Compute the loss at this progress."""
        rho, excluded = self.rho(call.progress), None
        if self.confidence == "output":
            check_batch(call.logits, call.target, call.annotated)
            excluded, rho = output_confidence(widened(call.logits.detach())) > rho**self.beta, 1.0
        if self.sampling is not None:
            draws = torch.rand(call.target.shape, generator=self._generator).to(call.target.device)
            sampled_out = draws > self.sampling(call.progress)
            excluded = sampled_out if excluded is None else excluded | sampled_out
        return exclusive_cross_entropy(
            call.logits,
            call.target,
            rho=rho,
            annotated=call.annotated,
            beta=self.beta,
            alpha=self.alpha,
            gamma=self.gamma,
            class_weights=self.class_weights,
            max_excluded=self.max_excluded,
            excluded=excluded,
            reduction=self.reduction,
        )

    def left_out(self, call: Call) -> Tensor:
        """Tell what the model's confidence excludes; what sampling leaves out is not among it."""
        rho = self.rho(call.progress)
        if self.confidence == "output":
            batch = read_batch(call.logits, call.target, call.annotated)
            sure: Tensor = output_confidence(batch.logits) > rho**self.beta
            return batch.unannotated & sure
        return exclusion_mask(
            call.logits,
            call.target,
            rho=rho,
            beta=self.beta,
            annotated=call.annotated,
            max_excluded=self.max_excluded,
        )

    def get_extra_state(self) -> Tensor:
        """Return the state of the sampling, so that a run that goes on draws what it would have drawn."""
        return self._generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Take the state of the sampling back."""
        self._generator.set_state(state.cpu())

    def extra_repr(self) -> str:
        """Say the parameters."""
        text = f"rho={self.rho}, beta={self.beta}, alpha={self.alpha}, gamma={self.gamma}"
        bound = f", max_excluded={self.max_excluded}" if self.max_excluded < 1 else ""
        sampling = f", sampling={self.sampling}" if self.sampling is not None else ""
        return f"{text}{bound}, confidence={self.confidence!r}{sampling}, reduction={self.reduction!r}"
