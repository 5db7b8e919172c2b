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
    first, *others = numbers.losses.values()
    sentences = [_compared(first, other) for other in others]
    if numbers.quick:
        sentences.insert(0, "This was the quick demo: it shows that everything works, not how well.")
    return sentences


def _compared(plain: LossNumbers, other: LossNumbers) -> str:
    one, two = plain.title.lower(), other.title.lower()
    said = (
        f"At threshold 0.5, <b>{one} finds {percent(plain.half.recall)} of the cells, "
        f"{two} {percent(other.half.recall)}</b> (F1 {plain.half.f1:.2f} and {other.half.f1:.2f})."
    )
    behind = other.half.f1 - plain.half.f1 > AS_GOOD
    if behind:
        said += f" The cells that nobody marked taught {one} that most cells are background."
    figures = f"F1 {plain.calibrated.f1:.2f} and {other.calibrated.f1:.2f}"
    gain = other.calibrated.f1 - plain.calibrated.f1
    if gain > AS_GOOD:
        outcome = f"{one} comes closer but stays behind" if behind else f"{two} is ahead"
    else:
        outcome = f"{one} is {'as good' if gain > -AS_GOOD else 'better'}"
    return (
        f"{said} With thresholds calibrated from held-out marks, {plain.calibrated.threshold:.2f} and "
        f"{other.calibrated.threshold:.2f}, {outcome} ({figures})."
    )


def percent(share: float) -> str:
    r"""Say a share, in one piece: the space does not break.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", "_") for share in (0.2, 0.0, 0.004)]
    ['20_%', '0_%', '0.4_%']
    """
    return f"{100 * share:.{1 if 0 < share < 0.01 else 0}f}\N{NO-BREAK SPACE}%"
