"""An experiment: runs that differ in data set, task, method, fraction of the marks and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any, Self

from sparseshot.experiments.subjects import Subject
from sparseshot.training.config import TrainConfig
from sparseshot.training.rounds import WeakSupervision
from sparseshot.training.runs import make_config

HEADLINE = (0.3, 1.0, 0.1, 0.6)
"""Fractions that run first, so that a part of an experiment is already informative."""

LOSS_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "ece": "exclusive cross-entropy",
        "ece-plain": "exclusive cross-entropy, no re-weighting",
        "ece-nki": "exclusive cross-entropy, the authors' package",
        "adaptive": "adaptive exclusive cross-entropy",
        "ce": "cross-entropy",
        "focal": "focal loss",
        "huber": "Huber loss",
        "recalibration": "background recalibration",
        "nnpu": "non-negative PU",
        "elr": "early-learning regularisation",
        "annotated-only": "annotated only",
        "oracle": "oracle, trained on every cell",
    }
)
"""Names of the losses in reports."""


@dataclass(frozen=True)
class Method:
    """One row of a comparison: a loss with its options, and rounds of weak supervision if any.

    Attributes:
        name: short, for folders and figures.
        loss: a name of :data:`sparseshot.losses.LOSSES`.
        title: shown in reports.
        options: arguments of the loss.
        rounds: trainings in a row; 1 is ordinary training.
        tau: probability from which a prediction becomes a mark of the next round.
        paper: its row in the paper's table, if the experiment reproduces one.
    """

    name: str
    loss: str
    title: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1
    tau: float = 0.75
    paper: str | None = None

    @property
    def weak(self) -> WeakSupervision:
        """Rounds of weak supervision."""
        return WeakSupervision(self.rounds, self.tau)


@dataclass(frozen=True)
class Run:
    """One training and its evaluation.

    Attributes:
        subject: data set and classes.
        task: ``segment`` or ``detect``.
        method: the loss and its options.
        fraction: of the marks that are kept.
        seed: of the choice of marks, the weights and everything else that is random.
        profile: a name of :data:`sparseshot.training.config.PROFILES`.
        settings: of :class:`~sparseshot.training.config.TrainConfig`; they override the profile.
    """

    subject: Subject
    task: str
    method: Method
    fraction: float
    seed: int
    profile: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.subject.name}-{self.task}-{self.method.name}-{self.fraction:g}-s{self.seed}"

    def config(self) -> TrainConfig:
        """Return the configuration it is trained with."""
        return make_config(
            self.profile,
            None,
            {
                **self.settings,
                "task": self.task,
                "loss": self.method.loss,
                "loss_options": self.method.options,
                "classes": self.subject.classes,
                "negative_classes": self.subject.negative_classes,
                "seed": self.seed,
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the run that :meth:`as_json` returned as ``values``."""
        return cls(
            **{
                **values,
                "subject": Subject.from_json(values["subject"]),
                "method": Method(**values["method"]),
            }
        )


@dataclass(frozen=True)
class Experiment:
    """Runs that belong together.

    Attributes:
        name: short, valid as a file name.
        title: shown in reports.
        about: its purpose, in a sentence or two.
        runs: in the order in which they run, the most informative first.
        paper_table: table of the paper it reproduces, a name of :data:`sparseshot.experiments.TABLES`.
        file: path of its TOML file; empty for an experiment of the package.
    """

    name: str
    title: str
    about: str
    runs: tuple[Run, ...]
    paper_table: str | None = None
    file: str = ""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, in order of appearance."""
        return tuple(dict.fromkeys(run.subject.dataset for run in self.runs))

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the experiment that :meth:`as_json` returned as ``values``."""
        return cls(**{**values, "runs": tuple(map(Run.from_json, values["runs"]))})


def grid_of_runs(
    subjects: Sequence[Subject],
    tasks: Sequence[str],
    methods: Sequence[Method],
    fractions: Sequence[float],
    seeds: Sequence[int],
    *,
    profile: str,
    settings: Mapping[str, Any],
) -> list[Run]:
    """Return every combination: seed by seed, the headline fractions first, then method by method.

    >>> subjects, methods = [Subject("tnbc")], [Method("ece", "ece"), Method("ce", "ce")]
    >>> runs = grid_of_runs(subjects, ["segment"], methods, [0.2, 0.3], [0], profile="quick", settings={})
    >>> [(run.fraction, run.method.name) for run in runs]
    [(0.3, 'ece'), (0.3, 'ce'), (0.2, 'ece'), (0.2, 'ce')]
    """
    ordered = sorted(fractions, key=lambda f: (HEADLINE.index(f) if f in HEADLINE else len(HEADLINE), f))
    return [
        Run(subject, task, method, fraction, seed, profile, settings)
        for seed, fraction, subject, task, method in product(seeds, ordered, subjects, tasks, methods)
    ]
