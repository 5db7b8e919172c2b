"""The page of the demo: numbers, pictures and next steps, as one HTML file."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparseshot.cells import Cells
from sparseshot.demo.charts import draw_excluded_share, draw_thresholds
from sparseshot.demo.demo_folder import DemoFolder
from sparseshot.demo.judging import Judged, OperatingCells
from sparseshot.images import Box, open_slide
from sparseshot.pages import code, escape, table, to_html
from sparseshot.prediction.density import Density
from sparseshot.prediction.slide_page import close_boxes
from sparseshot.prediction.slide_pictures import Layer, Marker, draw_closely, draw_overview, inside
from sparseshot.terminal import duration

FOUND = Marker("ring", "#0bdc84", "#063", dot="#00a866")
MISSED = Marker("dot", "#ffd21f", "#3a2b00", dot="#f5a300")
FALSE = Marker("cross", "#1238ff", "#fff")
MARK = Marker("dot", "#0bdc84", "#032", dot="#00a866")
_OVERVIEW_PX, _CLOSE_PX = 760, 560
_POINTS = ("half", "calibrated")

_INTRODUCTION = """# Every cell, from sparse marks

A synthetic slide has {cells:,} cells, and {marks:,} of them ({share:.0%}) are marked. The same network was
trained on these marks with each loss, and then predicted the whole slide. A cell is found if a prediction
lies within 3 µm of it, one for one. "Recall, unmarked" is the share of the cells without a mark that are
found."""

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


def make_page(folder: DemoFolder, judged: Judged) -> str:
    """Draw the pictures and return the page."""
    numbers = judged.numbers
    pictures: dict[str, bytes] = {}
    parts = [
        _INTRODUCTION.format(**numbers, share=numbers["marks"] / numbers["cells"]),
        *([_QUICK] if numbers["quick"] else []),
        _scores(numbers),
        *_slide_section(folder, judged, pictures),
        *_chart_section(judged, pictures),
        *_speed_section(numbers),
        "## Files",
        _files(folder),
        _NEXT.format(loss=folder.plan.losses[-1]),
    ]
    return to_html("\n\n".join(parts), title="sparseshot demo", pictures=pictures)


def _scores(numbers: dict[str, Any]) -> str:
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


def _slide_section(folder: DemoFolder, judged: Judged, pictures: dict[str, bytes]) -> list[str]:
    """Return the slide, its marks, and the cells that each loss found and missed."""
    numbers, truth, marks = judged.numbers, judged.truth, judged.marks
    titles = {loss: each["title"] for loss, each in numbers["losses"].items()}
    with open_slide(folder.slide) as slide:
        density = Density.over(slide.size, slide.mpp, truth.classes)
        density.add(truth)
        box = close_boxes(density, slide, side_um=folder.plan.view_um, quantiles=[0.9])[0]

        def overview(layers: Sequence[Layer], frames: Sequence[Box] = ()) -> str:
            return _add(pictures, draw_overview(slide, layers, side_px=_OVERVIEW_PX, frames=frames))

        def closely(layers: Sequence[Layer]) -> str:
            return _add(pictures, draw_closely(slide, box, layers, side_px=_CLOSE_PX))

        given = {
            "The slide; the frame is enlarged below": overview([], [box]),
            f"The marks: {len(marks):,} cells": overview([(marks.xy, MARK)]),
            f"The ground truth: {len(truth):,} cells": overview([(truth.xy, MARK)]),
        }
        whole = {
            f"{titles[loss]}: {_counts(seen := one.points['half'], truth)}": overview(layers_of(seen, truth))
            for loss, one in judged.losses.items()
        }
        rows = []
        for point, cells, title in (
            ("half", marks, "Marks"),
            ("calibrated", truth, "Ground truth"),
        ):
            row = {f"{title}: {np.count_nonzero(inside(cells.xy, box))} cells": closely([(cells.xy, MARK)])}
            for loss, one in judged.losses.items():
                seen = one.points[point]
                name = f"{titles[loss]}, {'threshold 0.5' if point == 'half' else point}"
                row[f"{name}: {_counts(seen, truth, box)}"] = closely(layers_of(seen, truth))
            rows.append(row)
    return [
        "## The slide and its marks",
        _picture_table(given),
        "## Found and missed cells",
        "Green rings: found. Yellow dots: missed. Blue crosses: false, no cell is there.",
        "### The whole slide, at threshold 0.5",
        _picture_table(whole),
        f"### Enlarged, {folder.plan.view_um:.0f} µm across",
        *map(_picture_table, rows),
        "*This square is chosen by its number of cells alone: nine of ten squares have fewer.*",
    ]


def layers_of(seen: OperatingCells, truth: Cells) -> list[Layer]:
    """Return found, missed and false cells as layers of a picture."""
    matching = seen.matching
    missed, false = np.delete(truth.xy, matching.truth, 0), np.delete(seen.cells.xy, matching.found, 0)
    return [(truth.xy[matching.truth], FOUND), (missed, MISSED), (false, FALSE)]


def _counts(seen: OperatingCells, truth: Cells, box: Box | None = None) -> str:
    """Return the counts of found, missed and false cells, in a box if given."""
    found, missed, false = (
        len(xy) if box is None else np.count_nonzero(inside(xy, box)) for xy, _ in layers_of(seen, truth)
    )
    return f"{found:,} found, {missed:,} missed, {false:,} false"


def _chart_section(judged: Judged, pictures: dict[str, bytes]) -> list[str]:
    charts = {
        "F1 over the threshold. Squares: 0.5; circles: calibrated": _add(
            pictures, draw_thresholds(judged), kind="svg"
        )
    }
    if any(each["excluded"] is not None for each in judged.numbers["losses"].values()):
        title = "Share of the unmarked locations that the loss excluded"
        charts[title] = _add(pictures, draw_excluded_share(judged), kind="svg")
    return ["## Thresholds and exclusion", _picture_table(charts)]


def _speed_section(numbers: dict[str, Any]) -> list[str]:
    rows = []
    for each in numbers["losses"].values():
        speed = each["predicted_mm2_per_second"]
        training = [duration(each["training_seconds"]), f"{each['crops_per_second']:.0f}"]
        rows.append([each["title"], *training, "–" if speed is None else f"{speed:.2f}"])
    machine = numbers["machine"]
    began = "the rest, after an interruption," if numbers["resumed"] else "everything"
    versions = ", ".join(f"{name} {version}" for name, version in numbers["versions"].items())
    return [
        "## Speed",
        table(["", "training", "crops/s", "prediction, mm²/s"], rows),
        f"From the first pixel to this page, {began} took {duration(numbers['seconds'])} on "
        f"{machine['cores']} cores ({escape(machine['gpu'] or machine['processor'])}). The losses were "
        f"trained at the same time. Slide: {numbers['slide_px'][0]:,} × {numbers['slide_px'][1]:,} pixels at "
        f"{numbers['mpp']:g} µm. Versions: {escape(versions)}.",
    ]


def _files(folder: DemoFolder) -> str:
    own = folder.of_loss(folder.plan.losses[-1])
    described = {
        folder.slide: "the slide; open it in QuPath",
        folder.marks: "the marks; drop the file on the slide",
        own.found / "qupath.zip": "the cells that were found; drop the file on the slide too",
        own.cells: "the same as GeoParquet, for Python, R and GIS",
        folder.truth: "the ground truth as GeoParquet",
        folder.numbers: "the numbers of this page",
    }
    names = {path.relative_to(folder.path).as_posix(): text for path, text in described.items()}
    return "\n".join(f"- [{code(name)}]({name}): {text}" for name, text in names.items())


def _add(pictures: dict[str, bytes], content: bytes, *, kind: str = "jpg") -> str:
    """Add a picture to the page, and return its file name."""
    name = f"{len(pictures)}.{kind}"
    pictures[name] = content
    return name


def _picture_table(pictures: dict[str, str]) -> str:
    """Return a row of pictures under their titles."""
    return table(
        list(pictures), [[f"![{title}]({file})" for title, file in pictures.items()]], text_columns=9
    )
