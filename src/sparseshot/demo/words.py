"""What the page and the terminal say of the numbers."""

from sparseshot.demo.judging import LossNumbers, Numbers

AS_GOOD = 0.01
"""F1 that two losses may differ by and still be called equally good."""

_NUMBERS = ("no", "one", "two", "three", "four")


def lead(numbers: Numbers) -> str:
    """Say what was done."""
    return (
        f"A made slide holds {numbers.cells:,} cells; {numbers.marks:,} of them, "
        f"{percent(numbers.marks / numbers.cells)}, were marked. The same network learned from these marks, "
        f"equally long, with {_NUMBERS[len(numbers.losses)]} losses. Then it was to find every cell."
    )


def comparison(numbers: Numbers) -> list[str]:
    """Say what the numbers say, at both thresholds, whichever way they fall."""
    plain, *others = numbers.losses.values()
    one = plain.title.lower()
    found = ", ".join(f"{each.title.lower()} {percent(each.half.recall)}" for each in others)
    at_half = f"At threshold 0.5, <b>{one} finds {percent(plain.half.recall)} of the cells, {found}</b>."
    if any(each.half.f1 - plain.half.f1 > AS_GOOD for each in others):
        at_half += f" The cells that nobody marked taught {one} that most cells are background."
    calibrated = (
        f"With thresholds calibrated from held-out marks, {one} comes to F1 {plain.calibrated.f1:.2f}. "
        + " ".join(_calibrated(plain, each) for each in others)
    )
    quick = (
        ["This was the quick demo: it shows that everything works, not how well."] if numbers.quick else []
    )
    return [*quick, at_half, calibrated]


def _calibrated(plain: LossNumbers, other: LossNumbers) -> str:
    gain = other.calibrated.f1 - plain.calibrated.f1
    order = "is ahead" if gain > AS_GOOD else "is behind" if gain < -AS_GOOD else "is as good, no better"
    return f"{other.title} {order}: {other.calibrated.f1:.2f}."


def percent(share: float) -> str:
    r"""Say a share, in one piece: the space does not break.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", "_") for share in (0.2, 0.0, 0.004)]
    ['20_%', '0_%', '0.4_%']
    """
    return f"{100 * share:.{1 if 0 < share < 0.01 else 0}f}\N{NO-BREAK SPACE}%"
