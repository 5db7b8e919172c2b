"""The pictures of the page, each with what is said under it."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from sparseshot.demo import pictures
from sparseshot.demo.charts import draw_exclusion, draw_thresholds, excluded_shares
from sparseshot.demo.folder import DemoFolder
from sparseshot.demo.judging import Judged, Verdict
from sparseshot.demo.pictures import FALSE, FOUND, MARK, MISSED
from sparseshot.demo.words import percent
from sparseshot.images import Box, Slide, open_slide

_KEY = (
    ("found", f'<circle cx="10" cy="10" r="7" fill="none" stroke="{FOUND.colour}" stroke-width="3.5"/>'),
    ("missed", f'<circle cx="10" cy="10" r="6" fill="{MISSED.colour}" stroke="{MISSED.edge}"/>'),
    (
        "false: no cell is there",
        f'<path d="M4 4 16 16M4 16 16 4" stroke="{FALSE.colour}" stroke-width="3.5"/>',
    ),
)


def slide_figures(folder: DemoFolder, judged: Judged) -> list[str]:
    """Show the slide, its marks, and what each loss found and missed."""
    with open_slide(folder.slide) as slide:
        view = pictures.choose_view(judged.truth, slide, folder.plan.view_um)
        return [
            "<h2>The slide and its marks</h2>",
            _given(slide, judged, view),
            "<h2>What each loss found and missed</h2>",
            _legend(),
            "<h3>The whole slide, at threshold 0.5</h3>",
            _whole(slide, judged),
            f"<h3>Closely, {folder.plan.view_um:.0f} µm across</h3>",
            _closely(slide, judged, view),
            '<p class="quiet">Chosen by its number of cells alone: it is fuller than nine of ten.</p>',
        ]


def chart_figures(judged: Judged) -> str:
    """Show F1 over the threshold and, where a loss excludes, how much it did."""
    charts = [
        _figure(
            draw_thresholds(judged),
            "F1 at every threshold.",
            "Squares: threshold 0.5. Circles: calibrated from held-out marks.",
            kind="svg+xml",
        )
    ]
    if shares := excluded_shares(judged):
        charts.append(
            _figure(
                draw_exclusion(shares),
                "Excluded while training.",
                "Share of the unmarked places that the loss left out, since the network held them for cells; "
                f"at the end {_last(shares)}.",
                kind="svg+xml",
            )
        )
    return _grid(charts, columns=2)


def _last(shares: Mapping[str, tuple[list[int], list[float]]]) -> str:
    return " and ".join(f"{100 * share[-1]:.1f} %" for _, share in shares.values())


def _given(slide: Slide, judged: Judged, view: Box) -> str:
    numbers, truth, marks = judged.numbers, judged.truth, judged.marks
    share = percent(numbers.marks / numbers.cells)
    return _grid(
        [
            _figure(
                pictures.overview(slide, [], view=view), "The slide.", "The frame is shown closely below."
            ),
            _figure(
                pictures.overview(slide, [(marks.xy, MARK)]),
                "The marks given.",
                f"{numbers.marks:,} cells, {share}.",
            ),
            _figure(
                pictures.overview(slide, [(truth.xy, MARK)]),
                "Every cell there is.",
                f"{numbers.cells:,} cells.",
            ),
        ],
        columns=3,
    )


def _whole(slide: Slide, judged: Judged) -> str:
    figures = []
    for loss, one in judged.losses.items():
        numbers = judged.numbers.losses[loss]
        layers = pictures.layers_of(one.half, judged.truth)
        text = _counts(numbers.half.found, numbers.half.missed, numbers.half.false)
        figures.append(_figure(pictures.overview(slide, layers), f"{numbers.title}.", text))
    return _grid(figures, columns=len(figures))


def _closely(slide: Slide, judged: Judged, view: Box) -> str:
    truth = judged.truth
    rows = []
    for point, cells, title in (
        ("threshold 0.5", judged.marks, "The marks given"),
        ("calibrated", truth, "Every cell there is"),
    ):
        count = np.count_nonzero(_inside(cells.xy, view))
        rows.append(
            _figure(pictures.close_view(slide, view, [(cells.xy, MARK)]), f"{title}.", f"{count} cells.")
        )
        for loss, one in judged.losses.items():
            seen = one.half if point == "threshold 0.5" else one.calibrated
            picture = pictures.close_view(slide, view, pictures.layers_of(seen, truth))
            rows.append(
                _figure(
                    picture, f"{judged.numbers.losses[loss].title}, {point}.", _counted(seen, judged, view)
                )
            )
    return _grid(rows, columns=1 + len(judged.losses))


def _counted(seen: Verdict, judged: Judged, view: Box) -> str:
    here = _inside(judged.truth.xy, view)
    false = _inside(seen.xy, view) & ~seen.right
    return _counts(*(int(each.sum()) for each in (here & seen.hit, here & ~seen.hit, false)))


def _counts(found: int, missed: int, false: int) -> str:
    return f"{found:,} found, {missed:,} missed, {false:,} false."


def _inside(xy: NDArray[np.float64], view: Box) -> NDArray[np.bool_]:
    return np.asarray(((xy >= view[:2]) & (xy < view[2:])).all(axis=1))


def _legend() -> str:
    keys = [
        f'<span><svg width="20" height="20" aria-hidden="true">{drawing}</svg>{text}</span>'
        for text, drawing in _KEY
    ]
    return f'<div class="legend">{"".join(keys)}</div>'


def _figure(content: bytes, title: str, text: str, *, kind: str = "jpeg") -> str:
    data = base64.b64encode(content).decode()
    words = f"{escape(title)} {escape(text)}"
    return (
        f'<figure><img alt="{words}" src="data:image/{kind};base64,{data}">'
        f"<figcaption><b>{escape(title)}</b> {escape(text)}</figcaption></figure>"
    )


def _grid(figures: Sequence[str], *, columns: int) -> str:
    return f'<div class="grid" style="--columns:{columns}">{"".join(figures)}</div>'
