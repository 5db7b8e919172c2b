"""The page of the demo: numbers, pictures and next steps, as one HTML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells, read_cells
from sparseshot.experiments.demo import DemoFolder, matched
from sparseshot.images import Box, Slide, open_slide
from sparseshot.pages import Part, Parts, Picture, code, table
from sparseshot.prediction.slide_pictures import (
    Density,
    Overview,
    Shape,
    close_boxes,
    draw_cells,
    inside,
    jpeg,
)
from sparseshot.terminal import duration

_COLORS = {"found": (0, 168, 102), "missed": (245, 163, 0), "false": (18, 56, 255)}
_SHAPES: tuple[Shape, ...] = ("ring", "dot", "cross")
"""They differ too, for readers who cannot tell the colours apart."""
_OVERVIEW_PX, _CLOSE_PX = 1000, 560
_POINTS = ("half", "calibrated")

_INTRODUCTION = """# Every cell, from sparse marks

A synthetic slide has {cells:,} cells, and {marks:,} of them ({share:.0%}) are marked. The same network was
trained on these marks with each loss, and then predicted the whole slide. A cell is found if a prediction
lies within 3 µm of it, one for one. "Recall, unmarked" is the share of the cells without a mark that are
found. All of this took {time}."""

_QUICK = "**This is the quick demo. It shows that everything works, not how well.**"

_NEXT = """## Next steps

Mark some cells of your own slide in QuPath, export them as GeoJSON, and run

    sparseshot train --slide slide.svs --marks marks.geojson --task detect --loss {loss} --out run
    sparseshot predict run slide.svs --out found

Drop `found/slide.svs/qupath.zip` on the open slide in QuPath. Correct it, and train again.

In your own PyTorch code:

    from sparseshot.losses import ExclusiveCrossEntropy

    criterion = ExclusiveCrossEntropy()
    loss = criterion(logits, target, progress=step / steps)   # 0 in the target: not marked"""


def make_page(folder: DemoFolder, numbers: Mapping[str, Any]) -> Parts:
    """Return the page; ``numbers`` is the content of ``numbers.json``."""
    return [
        _INTRODUCTION.format(
            **numbers, share=numbers["marks"] / numbers["cells"], time=duration(numbers["seconds"])
        ),
        *([_QUICK] if numbers["quick"] else []),
        _scores(numbers),
        *_slide_section(folder, numbers),
        "## Files",
        _files(folder),
        _NEXT.format(loss=folder.plan.losses[-1]),
    ]


def _scores(numbers: Mapping[str, Any]) -> str:
    header = ["", "threshold", "F1", "precision", "recall", "recall, unmarked", "found", "missed", "false"]
    rows = []
    for each in numbers["losses"].values():
        for point in _POINTS:
            scores = each[point]
            shares = [scores[name] for name in ("f1", "precision", "recall", "recall_unmarked")]
            rows.append(
                [
                    each["title"],
                    "0.5" if point == "half" else f"{scores['threshold']:.3f}, calibrated",
                    *("–" if share is None else f"{share:.3f}" for share in shares),
                    *(f"{scores[name]:,}" for name in ("found", "missed", "false")),
                ]
            )
    return table(header, rows)


def _slide_section(folder: DemoFolder, numbers: Mapping[str, Any]) -> Parts:
    """Return the slide, its marks, and the cells that each loss found and missed."""
    truth, marks = (_colored(read_cells(path).xy) for path in (folder.truth, folder.marks))
    titles = {loss: each["title"] for loss, each in numbers["losses"].items()}
    seen = {
        (loss, point): _judged(read_cells(folder.truth), folder.run(loss), point)
        for loss in titles
        for point in _POINTS
    }
    with open_slide(folder.slide) as slide:
        density = Density.over(slide.size, slide.mpp, truth.classes)
        density.add(truth)
        box = close_boxes(density, slide, side_um=folder.plan.view_um, quantiles=[0.9])[0]
        given = {
            "The slide; the frame is enlarged below": _framed(slide, box),
            f"The marks: {len(marks):,} cells": _whole(slide, marks),
            f"The ground truth: {len(truth):,} cells": _whole(slide, truth),
        }
        whole = {
            f"{title}: {_counts(seen[loss, 'half'])}": _whole(slide, seen[loss, "half"])
            for loss, title in titles.items()
        }
        rows = []
        for point, known, name in (("half", marks, "Marks"), ("calibrated", truth, "Ground truth")):
            shown = {f"{name}: {np.count_nonzero(inside(known.xy, box))} cells": known}
            for loss, title in titles.items():
                cells, at = seen[loss, point], "threshold 0.5" if point == "half" else point
                shown[f"{title}, {at}: {_counts(cells[inside(cells.xy, box)])}"] = cells
            rows.append({title: _closely(slide, box, cells) for title, cells in shown.items()})
    return [
        "## The slide and its marks",
        _side_by_side("given", given),
        "## Found and missed cells",
        "Green rings: found. Yellow dots: missed. Blue crosses: false, no cell is there.",
        "### The whole slide, at threshold 0.5",
        _side_by_side("whole", whole),
        f"### Enlarged, {folder.plan.view_um:.0f} µm across",
        *(_side_by_side(f"close-{number}", row) for number, row in enumerate(rows)),
        "*This square is chosen by its number of cells alone: nine of ten squares have fewer.*",
    ]


def _judged(truth: Cells, run: Path, point: str) -> Cells:
    """Return the true and the predicted cells with the classes found, missed and false."""
    cells, matching = matched(run, point, truth)
    missed, false = np.delete(truth.xy, matching.truth, 0), np.delete(cells.xy, matching.found, 0)
    return _colored(truth.xy[matching.truth], missed, false)


def _colored(*places: NDArray[np.float64]) -> Cells:
    """Return found, missed and false cells, by their places; marks look like found cells."""
    label = np.repeat(range(len(places)), [len(xy) for xy in places])
    return Cells(np.concatenate(places), label=label, classes=_COLORS, colors=_COLORS.values())


def _counts(cells: Cells) -> str:
    found, missed, false = np.bincount(cells.label, minlength=3)
    return f"{found:,} found, {missed:,} missed, {false:,} false"


def _framed(slide: Slide, box: Box) -> bytes:
    """Draw the slide with a frame around a box; JPEG."""
    image = Image.fromarray(slide.thumbnail(_OVERVIEW_PX))
    frame = tuple(edge * image.width / slide.size[0] for edge in box)
    draw = ImageDraw.Draw(image)
    draw.rectangle(frame, outline="#ffffff", width=5)
    draw.rectangle(frame, outline="#111111", width=2)
    return jpeg(image)


def _whole(slide: Slide, cells: Cells) -> bytes:
    overview = Overview(slide, side_px=_OVERVIEW_PX)
    overview.add(cells)
    return jpeg(overview.image.convert("RGB"))


def _closely(slide: Slide, box: Box, cells: Cells) -> bytes:
    return draw_cells(slide, box, cells[inside(cells.xy, box)], side_px=_CLOSE_PX, shapes=_SHAPES)


def _files(folder: DemoFolder) -> str:
    run = folder.run(folder.plan.losses[-1])
    described = {
        folder.slide: "the slide; open it in QuPath",
        folder.marks: "the marks; drop the file on the slide",
        run / "found" / "qupath.zip": "the cells that were found; drop the file on the slide too",
        run / "cells.parquet": "the same as GeoParquet, for Python, R and GIS",
        folder.truth: "the ground truth as GeoParquet",
        folder.numbers: "the numbers of this page",
    }
    names = {path.relative_to(folder.path).as_posix(): text for path, text in described.items()}
    return "\n".join(f"- [{code(name)}]({name}): {text}" for name, text in names.items())


def _side_by_side(name: str, pictures: Mapping[str, bytes]) -> Part:
    return tuple(Picture(f"{name}-{k}.jpg", *each) for k, each in enumerate(pictures.items()))
