"""Small drawings of the side panel."""

from collections.abc import Sequence

from sparseshot.metrics import ExpectedQuality


def curve(loss: Sequence[float]) -> str:
    """Return the loss as a line.

    >>> curve([1.0]), curve([2.0, 1.0])[:20]
    ('', '<svg class="studio-c')
    """
    if len(loss) < 2:
        return ""
    low, high = min(loss), max(*loss, min(loss) + 1e-9)
    points = " ".join(
        f"{300 * i / (len(loss) - 1):.1f},{40 - 36 * (value - low) / (high - low):.1f}"
        for i, value in enumerate(loss)
    )
    return (
        '<svg class="studio-curve" viewBox="0 0 300 44" preserveAspectRatio="none" role="img" '
        f'aria-label="loss, now {loss[-1]:.3f}"><polygon points="0,44 {points} 300,44"/>'
        f'<polyline points="{points}"/></svg><div class="studio-small">loss {loss[-1]:.3f}</div>'
    )


def meter(quality: ExpectedQuality) -> str:
    """Return recall and precision, if it is known, as bars with their intervals.

    >>> from sparseshot.metrics.operating_point.quality import Expected
    >>> share = Expected(0.9, 0.8, 0.95)
    >>> meter(ExpectedQuality(share, share, share, share, 20, 20, 0.5)).count("<i")
    6
    """
    rows = []
    for name, share, says in (
        ("found", quality.recall, "of the cells are found"),
        ("right", quality.precision, "of what is found are cells"),
    ):
        if share is None:
            continue
        low, value, high = (100 * each for each in (share.low, share.value, share.high))
        rows.append(
            f'<div class="studio-meter" title="{share.shown()} {says}"><span>{name}</span>'
            f'<div role="img" aria-label="{share.shown()} {says}"><i style="width:{value:.1f}%"></i>'
            f'<i class="range" style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
            f'<i class="now" style="left:{value:.1f}%"></i></div><b>{value:.0f} %</b></div>'
        )
    return "".join(rows)
