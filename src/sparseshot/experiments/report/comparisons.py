"""Runs grouped for the report: for each data set and task, every method over the fraction of the marks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from statistics import fmean, stdev

from sparseshot.experiments.experiment import Experiment, Method, Run, Subject
from sparseshot.experiments.paper import paper_curve, paper_table
from sparseshot.experiments.results import POINTS, Point, Result, Results
from sparseshot.models.config import TASKS

TASK_WORDS: Mapping[str, str] = {"segment": "segmentation", "detect": "detection"}

FEW = (0.1, 0.2, 0.3, 0.4)
"""Fractions for which the paper makes its claim."""


@dataclass(frozen=True)
class Spread:
    """A score over seeds: its mean and the standard error of the mean, which one value does not have.

    >>> str(Spread.of([0.7, 0.74])), str(Spread.of([0.7]))
    ('0.72 ±0.02', '0.70')
    """

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of some values."""
        return cls(fmean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else None)

    def exceeds(self, other: "Spread") -> bool:
        """Return whether it is higher by more than the standard error of the difference, if that is known.

        >>> Spread(0.8, 0.03).exceeds(Spread(0.7, 0.04)), Spread(0.8, 0.03).exceeds(Spread(0.76, 0.04))
        (True, False)
        """
        if self.error is None or other.error is None:
            return False
        return self.mean - other.mean > hypot(self.error, other.error)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.error is None else f" ±{self.error:.2f}")


Curve = Mapping[float, Spread]


@dataclass(frozen=True)
class Row:
    """A method in a comparison.

    Attributes:
        method: the method.
        results: its planned runs by fraction, ascending.
        curves: score by fraction at each operating point, of finished runs.
        paper: the paper's curve; empty if it has none.
    """

    method: Method
    results: Mapping[float, Sequence[Result]]
    curves: Mapping[Point, Curve]
    paper: Mapping[float, float] = field(default_factory=dict)

    def kept(self, point: Point) -> dict[float, float]:
        """Return the score with few marks as a share of the score with all marks, by fraction."""
        curve = self.curves[point]
        if 1.0 not in curve or curve[1.0].mean <= 0:
            return {}
        return {fraction: curve[fraction].mean / curve[1.0].mean for fraction in FEW if fraction in curve}

    def show(self, fraction: float, point: Point) -> str:
        """Return the score as a cell of a table, or why there is none."""
        if (spread := self.curves[point].get(fraction)) is not None:
            return str(spread)
        states = {result.state for result in self.results.get(fraction, ())}
        return "failed" if "failed" in states else "–" if "missing" in states else ""


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
        return TASKS[self.task].score_name

    @property
    def fractions(self) -> tuple[float, ...]:
        """All planned fractions, ascending."""
        return tuple(sorted({fraction for row in self.rows for fraction in row.results}))

    def row(self, name: str) -> Row | None:
        """Return the row of a method; None if it was not run here."""
        return next((row for row in self.rows if row.method.name == name), None)

    def show(self, row: Row, fraction: float, point: Point) -> str:
        """Return a score as a cell of a table, in bold if it exceeds all others by more than the errors."""
        text, own = row.show(fraction, point), row.curves[point].get(fraction)
        others = [
            o.curves[point][fraction] for o in self.rows if o is not row and fraction in o.curves[point]
        ]
        is_best = own is not None and others and all(map(own.exceeds, others))
        return f"**{text}**" if is_best else text


def compare(results: Results) -> list[Comparison]:
    """Group the runs of all experiments that do not reproduce a table of the paper."""
    grouped: dict[tuple[Subject, str], dict[str, Result]] = {}
    for experiment in results.experiments:
        if experiment.paper_table is None:
            for result in results.of(experiment):
                same = grouped.setdefault((result.run.subject, result.run.task), {})
                same.setdefault(result.run.name, result)  # experiments may share it
    return [_comparison([*group.values()], _paper_curve) for group in grouped.values()]


def compare_table(experiment: Experiment, results: Results) -> Comparison:
    """Group the runs of an experiment that reproduces a table of the paper."""
    assert experiment.paper_table is not None
    paper = paper_table(experiment.paper_table)
    recall = experiment.paper_table == "exclusive_recall"
    return _comparison(
        results.of(experiment),
        lambda run: None if run.method.paper is None else paper[run.method.paper],
        score=Result.exclusive_recall if recall else Result.score,
    )


def _comparison(
    results: Sequence[Result],
    paper: Callable[[Run], Mapping[float, float] | None],
    *,
    score: Callable[[Result, Point], float | None] = Result.score,
) -> Comparison:
    """Return the comparison of runs on one data set and task."""
    methods: dict[str, list[Result]] = {}
    for result in results:
        methods.setdefault(result.run.method.name, []).append(result)
    rows = []
    for own in methods.values():
        planned: dict[float, list[Result]] = {}
        for result in sorted(own, key=lambda result: (result.run.fraction, result.run.seed)):
            planned.setdefault(result.run.fraction, []).append(result)
        curves: dict[Point, Curve] = {}
        for point in POINTS:
            known = {f: [s for r in rs if (s := score(r, point)) is not None] for f, rs in planned.items()}
            curves[point] = {fraction: Spread.of(values) for fraction, values in known.items() if values}
        rows.append(Row(own[0].run.method, planned, curves, paper(own[0].run) or {}))
    return Comparison(results[0].run.subject, results[0].run.task, tuple(rows))


def _paper_curve(run: Run) -> Mapping[float, float] | None:
    plain = not run.method.options and run.method.rounds == 1 and not run.subject.classes
    return paper_curve(run.subject.dataset, run.task, run.method.loss) if plain else None


def percent(fraction: float) -> str:
    r"""Return a fraction of the marks as text; its space does not break.

    >>> percent(0.3), percent(0.125)
    ('30\xa0%', '12.5\xa0%')
    """
    return f"{fraction:g}\xa0marks" if fraction > 1 else f"{100 * fraction:g}\xa0%"
