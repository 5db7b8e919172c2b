"""Runs grouped for the report: for each data set and task, every method over the fraction of the marks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparseshot.errors import InputError
from sparseshot.experiments.experiment import Method
from sparseshot.experiments.paper import paper_curve
from sparseshot.experiments.results import Point, Result, Results
from sparseshot.experiments.subjects import Subject

TASK_WORDS: Mapping[str, str] = {"segment": "segmentation", "detect": "detection"}
MEASURES: Mapping[str, str] = {"segment": "Dice", "detect": "F1"}

FEW = (0.1, 0.2, 0.3, 0.4)
"""Fractions for which the paper makes its claim."""


@dataclass(frozen=True)
class Spread:
    """A score over seeds.

    >>> str(Spread.of([0.7, 0.74])), str(Spread.of([0.7]))
    ('0.72 ±0.02', '0.70')
    """

    mean: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the mean and the range."""
        return cls(sum(values) / len(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        spread = f" ±{(self.high - self.low) / 2:.2f}" if self.seeds > 1 else ""
        return f"{self.mean:.2f}{spread}"


Curve = Mapping[float, Spread]


@dataclass(frozen=True)
class Row:
    """A method in a comparison.

    Attributes:
        method: the method.
        planned: fractions of the experiment, ascending.
        results: its runs by fraction.
        paper: the paper's curve; empty if it has none.
    """

    method: Method
    planned: tuple[float, ...]
    results: Mapping[float, Sequence[Result]]
    paper: Mapping[float, float] = field(default_factory=dict)

    def curve(self, point: Point) -> Curve:
        """Return the score by fraction at an operating point, for finished runs."""
        curve = {}
        for fraction in self.planned:
            values = [
                score for result in self.results[fraction] if (score := result.score(point)) is not None
            ]
            if values:
                curve[fraction] = Spread.of(values)
        return curve

    def kept(self, point: Point) -> dict[float, float]:
        """Return the score with few marks as a share of the score with all marks, by fraction."""
        curve = self.curve(point)
        if 1.0 not in curve or curve[1.0].mean <= 0:
            return {}
        return {fraction: curve[fraction].mean / curve[1.0].mean for fraction in FEW if fraction in curve}

    def state(self, fraction: float) -> str:
        """Return the state of the runs at a fraction: done if one of them is, empty if none was planned."""
        states = {result.state for result in self.results.get(fraction, ())}
        return next((state for state in ("done", "failed", "missing") if state in states), "")


@dataclass(frozen=True)
class Comparison:
    """Methods on one data set and task."""

    subject: Subject
    task: str
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """Short name, valid as a file name."""
        return f"{self.subject.name}-{self.task}"

    @property
    def title(self) -> str:
        """Heading in the report."""
        return f"{self.subject.title}, {TASK_WORDS[self.task]}"

    @property
    def measure(self) -> str:
        """Dice or F1."""
        return MEASURES[self.task]

    @property
    def fractions(self) -> tuple[float, ...]:
        """All planned fractions, ascending."""
        return tuple(sorted({fraction for row in self.rows for fraction in row.planned}))

    def row(self, name: str) -> Row | None:
        """Return the row of a method; None if it was not run here."""
        return next((row for row in self.rows if row.method.name == name), None)

    def shared_fractions(self, row: Row, point: Point) -> tuple[float, ...]:
        """Return the fractions that all rows with the same plan, and their curves in the paper, have."""
        alike = [other for other in self.rows if other.planned == row.planned]
        curves: list[Iterable[float]] = [other.curve(point) for other in alike if other.curve(point)]
        curves += [other.paper for other in alike if other.paper]
        return tuple(fraction for fraction in row.planned if all(fraction in curve for curve in curves))


def compare(results: Results) -> list[Comparison]:
    """Group the runs of all experiments that do not reproduce a table of the paper."""
    grouped: dict[tuple[Subject, str], dict[str, list[Result]]] = {}
    for experiment in results.experiments:
        if experiment.paper_table is None:
            for result in results.of(experiment):
                rows = grouped.setdefault((result.run.subject, result.run.task), {})
                same = rows.setdefault(result.run.method.name, [])
                if result not in same:
                    same.append(result)
    return [
        Comparison(subject, task, tuple(make_row(subject, task, runs) for runs in rows.values()))
        for (subject, task), rows in grouped.items()
    ]


def choose_focus(
    comparisons: Sequence[Comparison], first: str | None, others: Sequence[str]
) -> tuple[str, ...]:
    """Return the method a report is about, then those it is compared with first, by their short names."""
    names = list(dict.fromkeys(row.method.name for comparison in comparisons for row in comparison.rows))
    for name in (first, *others):
        if name is not None and name not in names:
            raise InputError(f"no run is of the method {name!r}; there are {', '.join(names) or 'none'}")
    first = first or next((name for name in ("ece", *names) if name in names and name not in others), "ece")
    rest = [name for name in names if name != first]
    usual = [name for name in ("adaptive", "ece", "ce") if name in rest] or rest[:1]
    return (first, *(others or usual))


def make_row(subject: Subject, task: str, runs: Sequence[Result]) -> Row:
    """Return the row of one method's runs."""
    method = runs[0].run.method
    by_fraction: dict[float, list[Result]] = {}
    for result in sorted(runs, key=lambda result: (result.run.fraction, result.run.seed)):
        by_fraction.setdefault(result.run.fraction, []).append(result)
    plain = not method.options and method.rounds == 1 and not subject.classes
    paper = paper_curve(subject.dataset, task, method.loss) if plain else None
    return Row(method, tuple(by_fraction), by_fraction, paper or {})


def percent(fraction: float) -> str:
    r"""Return a fraction of the marks as text; its space does not break.

    >>> percent(0.3), percent(0.125)
    ('30\xa0%', '12.5\xa0%')
    """
    return f"{100 * fraction:g}\xa0%"
