"""Exclusive cross-entropy that estimates the share of cells that is marked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from sparseshot.losses.exclusive import NO_LOCATIONS, PRESETS, ExclusiveLoss, Terms
from sparseshot.losses.locations import Locations, foreground_logit, number_of_classes
from sparseshot.losses.logit_histograms import (
    LogitHistograms,
    attainable_f1,
    estimate_marked_share,
    unmarked_cell_probability,
)
from sparseshot.losses.schedules import SHARE, SHARE_OR_ZERO, STEPS, Schedule, value_at
from sparseshot.losses.threshold import threshold_logit

_FEW_MARKS = 20
"""Number of marks in the histograms that an estimate needs."""

_SMALLEST_ALPHA = 1e-3

_FEW_MARKED, _TYPICAL_Z = 0.05, 0.4
"""Marked share and break-even probability of a model that goes on learning, where they are unknown."""

_SWING = 2.0
"""Ratio of one estimate to the next that causes a warning late in training, or where it ends near 1."""

_NEARLY_ALL = 0.9
"""Marked share that a model also seems to have if it remembers the marks of a few images."""

_FEW_IMAGES = 32
"""Number of different images up to which that is likely."""

_RHO_OF_AREAS, _RHO_OF_POINTS = 0.75, 0.9
"""Default of the lowest exclusion threshold."""

TEACHER_FROM = 0.4
"""The ``teacher_from`` of areas from a start that knows cells; of points a teacher has little to teach."""

_SURE = 0.9
"""Probability from which the prediction of a teacher, cell or background, becomes a label."""


def exclusion_probability(share: float, *, points: bool, lowest: float | None = None) -> float:
    """Return ρ: c / (2 − c), or ``lowest`` if that is higher.

    Where an unmarked location is more likely a cell than background, the model is at c / (2 − c) or above.

    Args:
        share: marked share of all cells.
        points: marks are points.
        lowest: ρ is not lower; by default 0.9 for points and 0.75 for areas.

    >>> exclusion_probability(0.1, points=True), exclusion_probability(1.0, points=False)
    (0.9, 1.0)
    """
    if lowest is None:
        lowest = _RHO_OF_POINTS if points else _RHO_OF_AREAS
    return max(lowest, share / (2.0 - share))


def options_to_continue(marked_share: float | None) -> dict[str, float]:
    """Return the options with which a model that was trained with the adaptive loss learns on.

    It already ranks, so the first steps estimate; until then the earlier share counts. The usual first α is
    that of a fifth of the cells. Where far fewer are marked, a short training by it unlearns the cells that
    nobody marked.

    Args:
        marked_share: the share of the cells that was marked, as estimated then; None if unknown.
    """
    share = _FEW_MARKED if marked_share is None else marked_share
    alpha = min(max(_TYPICAL_Z * share, _SMALLEST_ALPHA), PRESETS["paper"]["alpha"])
    return {"first_alpha": round(alpha, 4), "warm_up": 0.0, "every": 4}


@dataclass(eq=False, repr=False, kw_only=True)
class AdaptiveExclusiveCrossEntropy(ExclusiveLoss):
    r"""Exclusive cross-entropy that sets α and ρ from an estimate of the share of cells that is marked.

    If a share c of the true cells is marked, a location that is a cell with probability p* settles at odds of
    c p* / (α(1 − c p*)). So one α fits one c. This loss watches the model's logits on marks and everywhere,
    estimates c (:func:`estimate_marked_share`), and sets

    .. math:: \alpha = \frac{z \hat c}{1 - z \hat c}, \qquad \rho = \max(\rho(t), \hat c / (2 - \hat c))

    With this α a location with p* = z settles at one half, whatever share is marked. Below
    this ρ no location is more likely than not an unmarked cell; with everything marked, none is excluded.
    Each class has its own α; an unannotated location has that of the class the model predicts.

    With ``Hints(teacher_logits=…)``, the predictions of a teacher of averaged weights
    (:class:`~sparseshot.losses.EmaTeacher`), unannotated locations get labels in the later part of training:
    a cell or background where that is at least 90 % probable by :func:`unmarked_cell_probability`. The others
    remain unannotated.

    The estimates are part of ``state_dict()``, and equal in all processes of a distributed run. Since they
    depend on values of the batch, ``torch.compile`` runs this loss uncompiled, and refuses it with
    ``fullgraph=True``: compile the model, not the loss.

    Args:
        break_even_probability: z. If None, 1/2 for areas. For points
            (:func:`~sparseshot.losses.logit_histograms.are_points`), as on the grid of a detector, whose
            positions are uncertain, half of :func:`attainable_f1`.
        first_alpha: α until there is an estimate.
        warm_up: the part of training before the first estimate, which needs a model that ranks.
        every: training steps between estimates.
        rho: lowest exclusion threshold as a schedule over progress, or one number. The default is 0.75 for
            areas, and 0.9 for points, where a likely location is often beside a cell.
        gamma: focal exponent of the unannotated part.
        max_excluded: bound on the excluded share of the unannotated locations of a batch, so that some
            background is always left to learn from.
        teacher_from: the part of training after which a teacher's confident predictions are labels. By
            default they never are: a model must know cells before it can teach, so this is for those that
            do not start from random weights.

    >>> loss = AdaptiveExclusiveCrossEntropy()
    >>> logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    >>> float(loss(logits - 0.1, target, progress=0.1))  # doctest: +ELLIPSIS
    0.2...
    >>> loss.log_values()["alpha"]
    0.2
    """

    break_even_probability: Annotated[float | None, SHARE] = None
    first_alpha: Annotated[float, SHARE] = PRESETS["paper"]["alpha"]
    warm_up: Annotated[float, SHARE_OR_ZERO] = 0.15
    every: Annotated[int, STEPS] = 20
    rho: Schedule | float | None = None
    gamma: float = PRESETS["paper"]["gamma"]
    max_excluded: float = 0.5
    teacher_from: Annotated[float, SHARE_OR_ZERO] = 1.0  # type: ignore[misc]  # of the class elsewhere

    teacher_decay = 0.98  # a short training from a starter has 150 steps
    wants = frozenset({"centres", "exhaustive"})
    estimates = True
    changes_with_progress = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher_from < 1:
            self.wants |= {"teacher_logits"}
        self._reset(1)
        self.terms(NO_LOCATIONS)  # checks the other parameters

    @property
    def built_for(self) -> float | None:  # type: ignore[override]  # depends on the marks
        """One half, once there is an estimate."""
        return None if self.share.isnan().all() else 0.5

    def _reset(self, classes: int) -> None:
        """Start without an estimate for this number of classes."""
        self.histograms = LogitHistograms(classes, objects=True)
        # Not buffers: on the CPU they can be read in every step without waiting for a GPU.
        self.share, self.alpha = torch.full((classes,), torch.nan), torch.full((classes,), self.first_alpha)
        self.steps = 0
        self._images: set[int] = set()

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location; in training, count the batch and at times estimate again."""
        if len(self.alpha) != number_of_classes(locations.logits):
            self._reset(number_of_classes(locations.logits))
            self.histograms.to(locations.logits.device)
        if self.training:
            self.histograms.observe(locations)
            self._count_images(locations)
            self.steps += 1
            if locations.progress >= self.warm_up and self.steps % self.every == 0:
                self._estimate(locations.progress)
            locations = self._with_teacher(locations)
        losses = super().losses(locations)
        if len(self.alpha) == 1:
            return losses
        alpha = self.alpha.to(losses)[locations.likeliest]
        return losses * torch.where(locations.unannotated, alpha, 1.0)

    def _count_images(self, locations: Locations) -> None:
        """Remember the marks of each image that a model learns from, until there are more than a few.

        Several processes see different images, and must not differ in what follows: there nothing is counted.
        """
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        if alone and locations.logits.requires_grad and len(self._images) <= _FEW_IMAGES:
            marks = locations.foreground.cpu().numpy()
            self._images.update(hash(image.tobytes()) for image in (marks if marks.ndim > 1 else marks[None]))

    @torch.no_grad()
    def _with_teacher(self, locations: Locations) -> Locations:
        """Return the locations with the confident predictions of the teacher as labels."""
        late = self.teacher_from < 1 and locations.progress >= self.teacher_from
        teacher = locations.teacher_logits() if late else None
        if teacher is None:
            return locations
        marked, everything, _ = self.histograms.counts
        of_bin = unmarked_cell_probability(marked, everything, self.share.to(marked))
        label = (
            teacher[:, 1:].argmax(1)
            if teacher.shape[1] > 1
            else torch.zeros_like(locations.target, dtype=torch.long)
        )
        probability = of_bin[label, self.histograms.bins(foreground_logit(teacher)).long()]
        unannotated = locations.unannotated
        cell, background = unannotated & (probability >= _SURE), unannotated & (probability <= 1 - _SURE)
        return Locations(
            locations.logits,
            torch.where(cell, label + 1, locations.target.long()),
            locations.annotated | cell | background,
            progress=locations.progress,
            ignore_index=locations.ignore_index,
        )

    def terms(self, locations: Locations) -> Terms:
        """Return the parameters at this progress; with several classes without α."""
        share = min(float(self.share.nan_to_num(0.0).min()), 1.0)
        lowest = None if self.rho is None else value_at(self.rho, locations.progress)
        rho = exclusion_probability(share, points=bool(self.histograms.points), lowest=lowest)
        return Terms(
            threshold=threshold_logit(rho),
            alpha=float(self.alpha) if len(self.alpha) == 1 else 1.0,
            gamma=self.gamma,
            max_excluded=self.max_excluded,
        )

    def log_values(self) -> dict[str, float]:
        """Return the estimated marked share and α; with several classes their mean, then one by one."""
        values = {"alpha": round(float(self.alpha.mean()), 6)}
        if not self.share.isnan().all():
            values["marked_share"] = float(self.share.nanmean())
        if len(self.alpha) > 1:
            for number, (share, alpha) in enumerate(zip(self.share, self.alpha, strict=True), 1):
                values |= {f"alpha_{number}": float(alpha), f"marked_share_{number}": float(share)}
        return values

    def _estimate(self, progress: float) -> None:
        marked, everything, certain = self.histograms.counts.cpu()
        share = estimate_marked_share(marked, everything, certain)
        share = torch.where((marked + certain).sum(-1) >= _FEW_MARKS, share, self.share)
        share = self._without_remembered(share)
        # Where most marks are inside exhaustive regions, the few outside say little, and decide little.
        self._warn_of_swing(share.where(marked.sum(-1) >= certain.sum(-1), self.share), progress)
        if self.break_even_probability is not None or not self.histograms.points:
            zc = share * (self.break_even_probability or 1 / 2)
        else:
            zc = share * attainable_f1(marked, everything, self.histograms.marks.cpu(), share) / 2
            zc = torch.where(share > 0, zc, share)  # every mark is inside exhaustive regions
        zc = zc.clamp(max=0.5)  # where α is 1, its largest value
        alpha = (zc / (1.0 - zc)).clamp(_SMALLEST_ALPHA, 1.0)
        self.share, self.alpha = share, torch.where(share.isnan(), self.alpha, alpha)

    def _without_remembered(self, share: Tensor) -> Tensor:
        """Return the share; the previous one, with a warning, where the model rather remembers the marks."""
        remembered = share > _NEARLY_ALL
        if not (remembered.any() and 0 < len(self._images) <= _FEW_IMAGES):
            return share
        self.warn_once(
            "remembered",
            f"nearly all cells seem to be marked ({float(share[remembered].max()):.0%}), but the model has "
            f"seen only {len(self._images)} images, whose marks it may remember. So α stays as it is; train "
            "with random crops and turns, or more images. If all cells are marked, use the loss ce",
        )
        return torch.where(remembered, self.share, share)

    def _warn_of_swing(self, share: Tensor, progress: float) -> None:
        """Warn once if an estimate late in training, or one near 1, is far from the previous one."""
        ratio = share / self.share
        swings = ((ratio > _SWING) | (ratio < 1 / _SWING)) & ((share > _NEARLY_ALL) | (progress > 0.5))
        if swings.any():
            number = int(swings.nonzero()[0])
            late = " late in training" if progress > 0.5 else ""
            self.warn_once(
                "share",
                f"the estimated share of marked cells went from {float(self.share[number]):.0%} to "
                f"{float(share[number]):.0%}{late}, and α with it; compare with a fixed one "
                f"(loss ece, alpha {float(self.alpha[number]):.2g})",
            )

    def get_extra_state(self) -> dict[str, Any]:
        """Return the estimates."""
        return {"share": self.share, "alpha": self.alpha, "steps": self.steps}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore the estimates, for any number of classes."""
        if len(state["alpha"]) != len(self.alpha):
            device = self.histograms.counts.device
            self._reset(len(state["alpha"]))
            self.histograms.to(device)
        self.share, self.alpha, self.steps = state["share"].cpu(), state["alpha"].cpu(), state["steps"]
