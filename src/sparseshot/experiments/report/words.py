"""What the numbers say, in words made from the numbers."""

from collections.abc import Iterator, Mapping, Sequence

from sparseshot.experiments.report.comparisons import (
    Comparison,
    Focus,
    Row,
    Spread,
    paper_title,
    percent,
    percents,
)
from sparseshot.experiments.results import POINTS, Point

FEW = (0.1, 0.2, 0.3, 0.4)
"""The fractions the paper makes its claim for."""

KEPT = 0.92
"""The paper's claim in a number: with few marks within 8 % of what all marks give."""

AGREES = 0.03
"""Scores nearer than this are said to agree: two seeds of one method differ by about that."""

BETTER = 0.01
"""A score higher by less than this is not said to be better."""


def kept(row: Row, point: Point) -> dict[float, float]:
    """Give, for each of the few fractions, the score as a share of the method's own with all marks."""
    curve = row.curve(point)
    if 1.0 not in curve or curve[1.0].mean <= 0:
        return {}
    return {fraction: curve[fraction].mean / curve[1.0].mean for fraction in FEW if fraction in curve}


def headline(comparisons: Sequence[Comparison], focus: Focus) -> list[str]:
    """Say how often some methods keep what they have with all marks."""
    sentences = []
    for point, where in POINTS.items():
        told: list[str] = []
        fractions: set[float] = set()
        for name in focus.names:
            rows = [row for comparison in comparisons if (row := comparison.row(name)) is not None]
            shares = [values for row in rows if (values := kept(row, point))]
            if shares:
                fractions |= {fraction for values in shares for fraction in values}
                every = [share for values in shares for share in values.values()]
                low, high, claim = map(whole_percent, (min(every), max(every), KEPT))
                span = low if low == high else f"{low} to {high}"
                good = sum(min(values.values()) >= KEPT for values in shares)
                told.append(
                    f"{rows[0].method.title} keeps {span} of what it reaches with all marks "
                    f"(at least {claim} throughout in {good} of {len(shares)} comparisons)"
                )
        if told:
            few = percents(sorted(fractions))
            sentences.append(f"**At {_the(where)}**, with {few} of the marks: {'; '.join(told)}.")
    return sentences


def rivals(comparison: Comparison, first: str) -> list[str]:
    """Say where another method is better than the first."""
    reference = comparison.row(first)
    if reference is None:
        return []
    sentences = []
    for point, where in POINTS.items():
        own = reference.curve(point)
        found = []
        others = [row for row in comparison.rows if row is not reference]
        for row in others:
            better = [
                f"{percent(fraction)} ({spread.mean:.2f} against {own[fraction].mean:.2f})"
                for fraction, spread in row.curve(point).items()
                if fraction in own and spread.mean > own[fraction].mean + BETTER
            ]
            if better:
                found.append(f"{row.method.title} at {_and(better)}")
        if found:
            sentences.append(f"At {_the(where)}, better than {reference.method.title}: {'; '.join(found)}.")
        elif any(fraction in own for row in others for fraction in row.curve(point)):
            sentences.append(
                f"At {_the(where)} no other method is better than {reference.method.title} by more than "
                f"{BETTER}."
            )
    return sentences


def against_the_paper(comparison: Comparison) -> Iterator[str]:
    """Say where ours differs from the paper, at threshold 0.5."""
    rows = [(row, row.curve("half")) for row in comparison.rows if row.paper]
    for row, curve in rows:
        differences = {f: curve[f].mean - row.paper[f] for f in curve if f in row.paper}
        if not differences:
            continue
        widest = max(differences, key=lambda fraction: abs(differences[fraction]))
        mean = sum(differences.values()) / len(differences)
        where = percents(sorted(differences))
        if abs(differences[widest]) <= AGREES:
            yield f"Against the paper, {row.method.title} agrees within {AGREES} at {where}."
            continue
        side = "higher" if mean > 0 else "lower"
        yield (
            f"Against the paper, {row.method.title} is on average {abs(mean):.2f} {side} at {where}, "
            f"furthest off at {percent(widest)}: {curve[widest].mean:.2f}, in the paper "
            f"{row.paper[widest]:.2f}."
        )


def order_against_the_paper(comparison: Comparison) -> str | None:
    """Say at which fractions the paper's best method is ours too."""
    rows = [(row, row.curve("half")) for row in comparison.rows if row.paper]
    if len(rows) < 2:
        return None
    fractions = [f for f in comparison.fractions if all(f in curve and f in row.paper for row, curve in rows)]
    if not fractions:
        return None
    same = [
        fraction
        for fraction in fractions
        if max(rows, key=lambda pair: pair[1][fraction].mean)[0].method
        == max(rows, key=lambda pair: pair[0].paper[fraction])[0].method
    ]
    return (
        f"The method that is best in the paper ({paper_title(comparison.subject)}) is best here too, at "
        f"threshold 0.5, at {len(same)} of {len(fractions)} fractions"
        + (f": {percents(same)}." if same else ".")
    )


def best_in_table(
    fraction: float,
    ours: Mapping[Point, Mapping[str, Spread]],
    theirs: Mapping[float, Mapping[str, Spread]],
) -> str | None:
    """Say which row of a table is best at a fraction, here and in the paper; None if not known yet."""
    told = []
    for point, values in ours.items():
        if len(values) > 1:
            best = max(values, key=lambda title: values[title].mean)
            text = f"{best} ({values[best].mean:.2f})" if values[best].mean > 0 else "none (all 0.00)"
            told.append(f"at {_the(POINTS[point])} {text}")
    if not told:
        return None
    sentence = f"With {percent(fraction)} of the marks the best is {' and '.join(told)}"
    if values := theirs.get(fraction, {}):
        best = max(values, key=lambda title: values[title].mean)
        sentence += f"; in the paper {best} ({values[best].mean:.2f})"
    return f"{sentence}."


def whole_percent(share: float) -> str:
    """Say a share in whole percents."""
    return percent(round(share, 2))


def _the(where: str) -> str:
    return where if where[-1].isdigit() else f"the {where}"


def _and(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
