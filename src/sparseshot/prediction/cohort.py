"""Several predicted slides at a glance: a table of their numbers, a page, and which are unlike the others."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sparseshot.cells.formats.geoparquet import measurement_names
from sparseshot.cells.shape_measures import ORIENTATION
from sparseshot.errors import FormatError, SparseshotError, utf8
from sparseshot.files import replacing
from sparseshot.pages import Part, Parts, Picture, escape, table, write_page
from sparseshot.prediction.export import OVERVIEW, PAGE, PredictionSummary, read_summary
from sparseshot.prediction.manifest import Manifest, predictions_in
from sparseshot.prediction.slide_pictures import jpeg
from sparseshot.prediction.slides import Outcome

COHORT_TABLE = "cohort.csv"

FEWEST_SLIDES = 5
"""With fewer slides, none is called unusual."""
_UNUSUAL = 3.5
"""Distance from the median, in robust standard deviations, beyond which a value is unusual (Iglewicz &
Hoaglin 1993)."""
_LEAST_SPREAD = 0.02
"""Least standard deviation that is assumed, as a share of the median: nearly equal values are not unusual."""


@dataclass(frozen=True)
class CohortSlide:
    """A slide of a cohort.

    Attributes:
        summary: its counts.
        medians: of each measurement.
    """

    summary: PredictionSummary
    medians: Mapping[str, float]

    @property
    def values(self) -> dict[str, float]:
        """The numbers by which slides are compared, in the order of the table."""
        summary = self.summary
        numbers = {
            "tissue mm²": summary.tissue_mm2,
            "cells": float(summary.cells),
            "cells per mm²": summary.per_mm2(summary.cells),
        }
        for name, count in summary.counts.items() if len(summary.counts) > 1 else ():
            numbers[f"{name}: cells"] = float(count)
            numbers[f"{name}: per mm²"] = summary.per_mm2(count)
        percents = {"": summary.positive, **summary.positive.get("classes", {})} if summary.positive else {}
        for name, share in percents.items():
            if share["percent"] is not None:
                numbers[f"{name}: positive %" if name else "positive %"] = share["percent"]
        return numbers | {f"median {name}": each for name, each in self.medians.items()}


@dataclass(frozen=True)
class Cohort:
    """Predicted slides.

    Attributes:
        slides: those that were predicted.
        failed: path and error of the others.
    """

    slides: Sequence[CohortSlide]
    failed: Sequence[tuple[Path, str]] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Cohort":
        """Read the measurements of predicted slides, one column of one slide at a time."""
        slides = [
            CohortSlide(each.summary, _medians(each.summary.folder)) for each in outcomes if each.summary
        ]
        return cls(slides, [(each.path, each.error) for each in outcomes if each.error])

    @property
    def columns(self) -> list[str]:
        """The numbers that any of the slides has."""
        return list(dict.fromkeys(name for slide in self.slides for name in slide.values))

    def unusual(self) -> dict[int, dict[str, tuple[float, float]]]:
        """Return the unusual values of each slide that has any: the value, and the median of all slides.

        A value is unusual if it is more than 3.5 robust standard deviations from the median. Numbers of cells
        and areas are left out, because they follow from the size of the tissue.
        """
        found: dict[int, dict[str, tuple[float, float]]] = {}
        for name in self.columns:
            values = np.array([slide.values.get(name, np.nan) for slide in self.slides])
            is_size = name in {"tissue mm²", "cells"} or name.endswith(": cells")
            if is_size or np.isfinite(values).sum() < FEWEST_SLIDES:
                continue
            middle = float(np.nanmedian(values))
            spread = 1.4826 * float(np.nanmedian(np.abs(values - middle)))
            least = _UNUSUAL * max(spread, _LEAST_SPREAD * abs(middle), 1e-9)
            for index in np.flatnonzero(np.abs(values - middle) > least).tolist():
                found.setdefault(index, {})[name] = (float(values[index]), middle)
        return dict(sorted(found.items()))

    def write_table(self, path: Path) -> None:
        """Write a line for each slide."""
        from sparseshot.cells.formats.points_csv import with_apostrophe  # noqa: PLC0415  of cohorts only

        unusual = self.unusual()
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            names = map(with_apostrophe, self.columns)
            table.writerow(["slide", "folder", "state", "unreadable places", *names, "unusual"])
            for index, slide in enumerate(self.slides):
                summary, values = slide.summary, slide.values
                numbers = [_short(values.get(name)) for name in self.columns]
                texts = summary.slide, summary.folder.name, "; ".join(unusual.get(index, ()))
                name, folder, strange = map(with_apostrophe, texts)
                table.writerow([name, folder, "done", len(summary.broken), *numbers, strange])
            for failed, error in self.failed:
                name, reason = (with_apostrophe(utf8(each)) for each in (failed.name, f"failed: {error}"))
                table.writerow([name, "", reason, "", *[""] * len(self.columns), ""])


def _short(value: float | None) -> str:
    """Return a number with at most six digits, as a spreadsheet reads it; empty for none."""
    if value is None or not np.isfinite(value):
        return ""
    return f"{value:.0f}" if value >= 1e5 else f"{value:.6g}"


def _medians(folder: Path) -> dict[str, float]:
    """Return the median of each measurement over the cells that have one; angles have no median."""
    manifest, medians = Manifest.load(folder), {}
    files = [] if manifest is None else [folder / shard.file.name for shard in manifest.shards]
    try:
        columns_of = {file: measurement_names(file) for file in files}
        names = {column: name for each in columns_of.values() for column, name in each.items()}
        for column, name in names.items():  # one at a time, because a slide has millions of cells
            own = [file for file in files if column in columns_of[file]]
            values = np.concatenate(
                [pq.read_table(file, columns=[column])[column].to_numpy() for file in own]
            )
            values = values[np.isfinite(values)]
            if len(values) and name != ORIENTATION:
                medians[name] = float(np.median(values))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(folder, f"its cells cannot be read ({error}); predict it again") from error
    return medians


COHORT_PAGE = "cohort.html"
_THUMBNAIL_PX = 300
_ACROSS = 3


def write_cohort(out: Path, outcomes: Sequence[Outcome]) -> Path | None:
    """Write ``cohort.csv`` and ``cohort.html``; return the page, or None for fewer than two slides.

    Finished slides of the same model that are in ``out`` from earlier calls belong to it too.
    """
    cohort = Cohort.of([*outcomes, *_earlier(out, outcomes)])
    if len(cohort.slides) < 2:
        for name in (COHORT_PAGE, COHORT_TABLE):  # left by other results
            (out / name).unlink(missing_ok=True)
        return None
    cohort.write_table(out / COHORT_TABLE)
    write_page(make_cohort_page(cohort), out / COHORT_PAGE)
    return out / COHORT_PAGE


def _earlier(out: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    new, models, finished = {each.summary.folder.resolve() for each in outcomes if each.summary}, [], []
    for folder in predictions_in(out.resolve()):
        with suppress(SparseshotError):  # a damaged result does not hide the others
            manifest = Manifest.load(folder)
            if manifest is not None and manifest.finished:
                model = manifest.identity["model"], manifest.identity["threshold"]
                if folder in new:
                    models.append(model)
                else:
                    finished.append((model, Outcome(folder, read_summary(folder, manifest))))
    return [outcome for model, outcome in finished if model in models]


def make_cohort_page(cohort: Cohort) -> Parts:
    """Return the page; it links to the folders of the slides beside it."""
    slides, unusual = cohort.slides, cohort.unusual()
    total, area = sum(each.summary.cells for each in slides), sum(each.summary.tissue_mm2 for each in slides)
    parts: Parts = [
        f"# {len(slides)} slides",
        f"{total:,} cells on {area:,.1f} mm² of tissue. All numbers are in [{COHORT_TABLE}]({COHORT_TABLE}).",
        "## Counts",
        _counts(slides, unusual),
        "## Unusual slides",
        *_unusual(cohort),
        "## Slides",
        *_gallery(slides),
    ]
    if cohort.failed:
        errors = [f"- {escape(path.name)}: {escape(error)}" for path, error in cohort.failed]
        parts += ["## Failed", "\n".join(errors)]
    return parts


def _number(value: float) -> str:
    """Return a number with three digits at least.

    >>> _number(19751.4), _number(0.00532)
    ('19,751', '0.00532')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _link(slide: CohortSlide) -> str:
    return f"[{escape(slide.summary.slide)}](<{quote(slide.summary.folder.name)}/{PAGE}>)"


def _counts(slides: Sequence[CohortSlide], unusual: dict[int, dict[str, tuple[float, float]]]) -> str:
    classes = list(dict.fromkeys(name for slide in slides for name in slide.summary.counts))
    split = classes if len(classes) > 1 else []
    header = ["", "slide", "tissue, mm²", "cells", "per mm²", *(f"{escape(name)} per mm²" for name in split)]
    rows = []
    for index, slide in enumerate(slides):
        summary = slide.summary
        densities = {"cells per mm²": summary.per_mm2(summary.cells)} | {
            f"{name}: per mm²": summary.per_mm2(summary.counts.get(name, 0)) for name in split
        }
        marked = [
            f"**{value:,.0f}**" if name in unusual.get(index, {}) else f"{value:,.0f}"
            for name, value in densities.items()
        ]
        rows.append(
            [str(index + 1), _link(slide), _number(summary.tissue_mm2), f"{summary.cells:,}", *marked]
        )
    return table(header, rows, text_columns=2)


def _unusual(cohort: Cohort) -> list[str]:
    found = cohort.unusual()
    if not found:
        is_known = len(cohort.slides) >= FEWEST_SLIDES
        return ["No slide is far from the others." if is_known else "Too few slides to tell."]
    lines = []
    for index, values in found.items():
        shown = [
            f"{escape(name)} {_number(value)} (median of all {_number(middle)})"
            for name, (value, middle) in values.items()
        ]
        lines.append(f"- {_link(cohort.slides[index])}: {'; '.join(shown)}")
    return [
        "\n".join(lines),
        "*More than 3.5 robust standard deviations from the median of all slides: look at these first. An "
        "unusual slide may be badly stained or out of focus, or simply different.*",
    ]


def _gallery(slides: Sequence[CohortSlide]) -> Iterator[Part]:
    pictures = [
        Picture(f"{k}.jpg", f"{k}. {_link(slide)}", partial(_thumbnail, slide))
        for k, slide in enumerate(slides, 1)
    ]
    across = min(_ACROSS, len(pictures))
    for start in range(0, len(pictures), across):
        row = pictures[start : start + across]
        yield (*row, *[None] * (across - len(row)))


def _thumbnail(slide: CohortSlide) -> bytes:
    """Return the slide with its cells; JPEG."""
    with Image.open(slide.summary.folder / OVERVIEW) as file:
        overview = file.convert("RGB")
    overview.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX))
    return jpeg(overview)
