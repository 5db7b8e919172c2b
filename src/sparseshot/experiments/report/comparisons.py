"""Runs put side by side: for each data set and task, every method over the fraction of the marks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparseshot.errors import InputError
from sparseshot.experiments.paper import SETS, paper_curve
from sparseshot.experiments.plan import Method
from sparseshot.experiments.results import Point, Result, Results
from sparseshot.experiments.subjects import Subject

TASK_WORDS: Mapping[str, str] = {"segment": "segmentation", "detect": "detection"}
MEASURES: Mapping[str, str] = {"segment": "Dice", "detect": "F1"}


class Focus(NamedTuple):
    """The method a report is about, and those it is held against first, by their short names."""

    first: str
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the first one first."""
        return (self.first, *self.others)


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
        """Take the mean and the range."""
        return cls(sum(values) / len(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        spread = f" ±{(self.high - self.low) / 2:.2f}" if self.seeds > 1 else ""
        return f"{self.mean:.2f}{spread}"


Curve = Mapping[float, Spread]


@dataclass(frozen=True)
class Row:
    """A method in a comparison.

    Attributes:
        method: which.
        planned: the fractions that were asked for, ascending.
        results: its runs by fraction.
        paper: the paper's curve, where it has one.
    """

    method: Method
    planned: tuple[float, ...]
    results: Mapping[float, Sequence[Result]]
    paper: Mapping[float, float] = field(default_factory=dict)

    def curve(self, point: Point) -> Curve:
        """Return the score by fraction at an operating point, where runs are done."""
        curve = {}
        for fraction in self.planned:
            values = [
                score for result in self.results[fraction] if (score := result.score(point)) is not None
            ]
            if values:
                curve[fraction] = Spread.of(values)
        return curve

    def state(self, fraction: float) -> str:
        """Tell what became of the runs of a fraction: done if one of them is."""
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
        """Short, fit for a file."""
        return f"{self.subject.name}-{self.task}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.subject.title}, {TASK_WORDS[self.task]}"

    @property
    def measure(self) -> str:
        """What is measured: Dice or F1."""
        return MEASURES[self.task]

    @property
    def fractions(self) -> tuple[float, ...]:
        """Every fraction that was asked for, ascending."""
        return tuple(sorted({fraction for row in self.rows for fraction in row.planned}))

    def row(self, name: str) -> Row | None:
        """Return the row of a method."""
        return next((row for row in self.rows if row.method.name == name), None)

    def shared_fractions(self, row: Row, point: Point) -> tuple[float, ...]:
        """Return the fractions over which a row can be held against those planned like it, and the paper's.

        These are the fractions that all rows with the same plan have done.
        """
        alike = [other for other in self.rows if other.planned == row.planned]
        curves: list[Iterable[float]] = [other.curve(point) for other in alike if other.curve(point)]
        curves += [other.paper for other in alike if other.paper]
        return tuple(fraction for fraction in row.planned if all(fraction in curve for curve in curves))


def compare(results: Results) -> list[Comparison]:
    """Put the runs of all experiments side by side, but for those that stand for a table of the paper."""
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


def choose_focus(comparisons: Sequence[Comparison], first: str | None, others: Sequence[str]) -> Focus:
    """Take the methods asked for; else exclusive cross-entropy and its first rivals, if they were run."""
    names = list(dict.fromkeys(row.method.name for comparison in comparisons for row in comparison.rows))
    for name in (first, *others):
        if name is not None and name not in names:
            raise InputError(f"no run is of the method {name!r}; there are {', '.join(names) or 'none'}")
    first = first or next((name for name in ("ece", *names) if name in names and name not in others), "ece")
    rest = [name for name in names if name != first]
    usual = [name for name in ("adaptive", "ece", "ce") if name in rest] or rest[:1]
    return Focus(first, tuple(others or usual))


def make_row(subject: Subject, task: str, runs: Sequence[Result]) -> Row:
    """Put the runs of one method together."""
    method = runs[0].run.method
    by_fraction: dict[float, list[Result]] = {}
    for result in sorted(runs, key=lambda result: (result.run.fraction, result.run.seed)):
        by_fraction.setdefault(result.run.fraction, []).append(result)
    plain = not method.options and method.rounds == 1 and not subject.classes
    paper = paper_curve(subject.dataset, task, method.loss) if plain else None
    return Row(method, tuple(by_fraction), by_fraction, paper or {})


def paper_title(subject: Subject) -> str:
    """Say which set the paper's numbers are of."""
    known = SETS[subject.dataset]
    return known.title if known.same else f"{known.title}, for which {subject.title} stands in"


def percent(fraction: float) -> str:
    r"""Say a fraction of the marks.

    >>> percent(0.3), percent(0.125)
    ('30\xa0%', '12.5\xa0%')
    """
    return f"{100 * fraction:g}\xa0%"  # no line may break before the sign


def percents(fractions: Sequence[float]) -> str:
    r"""Say several fractions.

    >>> percents([0.1, 0.3])
    '10 and 30\xa0%'
    >>> percents([0.1, 0.2, 0.3, 0.4, 0.5])
    '5 fractions from 10 to 50\xa0%'
    """
    *most, last = (f"{100 * fraction:g}" for fraction in fractions)
    if len(most) > 3:
        return f"{len(fractions)} fractions from {most[0]} to {last}\xa0%"
    return f"{', '.join(most)} and {last}\xa0%" if most else f"{last}\xa0%"
