"""What is made of all shards together: counts, a density map, pictures, the page."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from sparseshot import __version__
from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats.geoparquet import read_own, read_places
from sparseshot.errors import DataNotFoundError, FormatError, SlideError, SparseshotWarning, counted
from sparseshot.files import read_json, write_json
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.metrics import ExpectedQuality
from sparseshot.metrics.kind_quality import KindEvidence
from sparseshot.metrics.quality import Expected
from sparseshot.pages import Parts, Picture, code, escape, table, write_page
from sparseshot.prediction.manifest import Broken, Manifest, PredictRecipe
from sparseshot.prediction.shards import ShardWriter
from sparseshot.prediction.slide_pictures import (
    CLOSE_PX,
    CLOSE_UM,
    Density,
    Overview,
    close_boxes,
    draw_cells,
    inside,
    jpeg,
)

SUMMARY, DENSITY_PICTURE = "summary.json", "density.png"
QUPATH, OVERVIEW, DENSITY_MAP, PAGE = "qupath.zip", "overview.png", "density.ome.tif", "index.html"

_LINKED = {
    QUPATH: "all cells; drop the file on the open slide in QuPath",
    OVERVIEW: "the overview",
    DENSITY_MAP: "cells per mm² as an image, a channel for each class",
    SUMMARY: "the counts",
}
"""The files that the page links to."""

FILES = (*sorted([*_LINKED, DENSITY_PICTURE, PAGE]),)
"""The files that are made of all shards."""


@dataclass(frozen=True)
class PredictionSummary:
    """What was found on a slide.

    Attributes:
        slide: its name.
        folder: where the result is.
        counts: cells of each class.
        tissue_mm2: area that was looked at.
        threshold: lowest probability of a cell.
        broken: places that could not be read.
        quality: what is expected of the model, in words, and the expected number of cells; empty if unknown.
        measured: what was measured of each cell, and with which stains.
        positive: number and percentage of positive cells, and the criterion; empty if they are not scored.
        tiles: looked at by this call.
        seconds: taken by this call.
        skipped: whether it was finished before.
    """

    slide: str
    folder: Path
    counts: Mapping[str, int]
    tissue_mm2: float
    threshold: float
    broken: tuple[Broken, ...] = ()
    quality: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    positive: Mapping[str, Any] = field(default_factory=dict)
    tiles: int = 0
    seconds: float = 0.0
    skipped: bool = False

    @property
    def cells(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @property
    def positive_text(self) -> str:
        """The share of positive cells in words; empty if they are not scored."""
        if not self.positive or not self.positive["cells"]:
            return ""
        numbers = f"{self.positive['positive']:,} of {self.positive['cells']:,} cells"
        return f"{self.positive['percent']:.1f} % ({numbers}, by a {self.positive['criterion']})"

    def per_mm2(self, count: int) -> float:
        """Return a count for each mm² of tissue; 0 where there is none."""
        return count / self.tissue_mm2 if self.tissue_mm2 else 0.0

    def write(self) -> None:
        """Write the summary into its folder."""
        classes = {
            name: {
                "cells": count,
                "per_mm2": round(self.per_mm2(count), 2),
                "share": round(count / max(1, self.cells), 4),
            }
            for name, count in self.counts.items()
        }
        content = {
            "slide": self.slide,
            "cells": self.cells,
            "cells_per_mm2": round(self.per_mm2(self.cells), 2),
            "classes": classes,
            "tissue_mm2": round(self.tissue_mm2, 6),
            "threshold": self.threshold,
            "unreadable_places": len(self.broken),
            "expected": dict(self.quality),
            "measured": dict(self.measured),
        } | ({"positive": dict(self.positive)} if self.positive else {})
        write_json(self.folder / SUMMARY, content)


def expected_on_slide(
    quality: ExpectedQuality | None, found: Mapping[str, int], kinds: KindEvidence | None = None
) -> dict[str, Any]:
    """Return what is expected of a prediction, as the summary holds it; empty if it is unknown.

    Args:
        quality: of finding.
        found: number of cells of each class.
        kinds: what held-out marks say about them.
    """
    of_kinds: dict[str, Any] = {}
    if kinds is not None and (sentence := kinds.sentence()):
        recall, shares = _rounded(kinds.recall()), _rounded(kinds.shares(found))
        own = {"sentence": sentence, "recall": recall, "shares": shares, "marks": kinds.marks}
        of_kinds = {"kinds": own}
    if quality is None:
        return of_kinds
    known = _rounded({name: getattr(quality, name) for name in ("recall", "precision", "f1")})
    cells = quality.cells(sum(found.values()))
    counted = {} if cells is None else {"cells": list(cells)}
    return {"sentence": quality.sentence(), **counted, **known, "marks": quality.marks} | of_kinds


def _rounded(shares: Mapping[str, Iterable[float] | None]) -> dict[str, list[float]]:
    """Return the shares that are known, as a summary holds them."""
    return {name: [round(each, 4) for each in share] for name, share in shares.items() if share is not None}


def read_summary(folder: Path, manifest: Manifest) -> PredictionSummary:
    """Read the summary of a finished prediction."""
    path = folder / SUMMARY
    content = read_json(path)
    try:
        return PredictionSummary(
            slide=content["slide"],
            folder=folder,
            counts={name: each["cells"] for name, each in content["classes"].items()},
            tissue_mm2=content["tissue_mm2"],
            threshold=content["threshold"],
            broken=manifest.done.broken,
            quality=dict(content.get("expected", {})),
            measured=dict(content.get("measured", {})),
            positive=dict(content.get("positive", {})),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(path, f"cannot be read ({error}); predict the slide again with --force") from None


def read_shards(folder: Path, manifest: Manifest) -> Iterator[Cells]:
    """Read the cells of a prediction, shard by shard."""
    for shard in manifest.shards:
        yield read_cells(folder / shard.file.name)


def read_prediction(folder: Path | str) -> Cells:
    """Read every cell of a prediction at once; of millions of outlines rather read the shards one by one."""
    folder = Path(folder)
    manifest = Manifest.load(folder)
    if manifest is None:
        raise DataNotFoundError(folder, "holds no prediction; give the folder of one slide")
    if not manifest.finished:
        done = (
            f"{len(manifest.shards)} of {manifest.done.bands} parts are done; predict it again to finish it"
        )
        warnings.warn(f"{folder}: {done}", SparseshotWarning, stacklevel=2)
    return Cells.concatenate(read_shards(folder, manifest))


def export(
    writer: ShardWriter,
    slide: Slide,
    tissue: TissueMask,
    *,
    recipe: PredictRecipe,
    quality: ExpectedQuality | None,
) -> PredictionSummary:
    """Write everything that is made of all shards, but for the archive."""
    writer.complete()
    folder, frame, shards = writer.work.path, writer.shown, writer.done.shards
    density = Density.over(frame.size, frame.mpp, frame.classes)
    overview = Overview(slide)
    places = [read_places(folder / each.file.name, measurements=False) for each in shards]
    for part in places:
        density.add(part)
        overview.add(part)
    shown: list[tuple[Box, Cells]] = []
    for box in close_boxes(density, slide):
        near = [number for number, part in enumerate(places) if inside(part.xy, box).any()]
        cells = [read_own(folder / shards[number].file.name) for number in near]
        shown.append((box, Cells.concatenate([each[inside(each.xy, box)] for each in cells])))
    counts = dict(zip(frame.classes, density.counts.sum(axis=(1, 2)).tolist(), strict=True))
    summary = PredictionSummary(
        slide=slide.name,
        folder=folder,
        counts=counts,
        tissue_mm2=tissue.area_mm2,
        threshold=recipe.threshold,
        broken=writer.done.broken,
        quality=expected_on_slide(quality, counts, None if frame.kinds is None else frame.kinds.evidence),
        measured=writer.measuring.settings(),
        positive=writer.measuring.positive(counts),
    )
    summary.write()
    with ThreadPoolExecutor(1, thread_name_prefix="density") as beside:
        picture = None if tissue.overview is None else tissue.picture()
        drawn = beside.submit(density.write_picture, folder / DENSITY_PICTURE, overview=picture)
        density.write_ome_tiff(folder / DENSITY_MAP)
        overview.write(folder / OVERVIEW)
        page = make_slide_page(slide, overview, shown, summary, model=recipe.model)
        drawn.result()
    write_page(page, folder / PAGE)
    return summary


def make_slide_page(
    slide: Slide,
    overview: Overview,
    cells_in: Iterable[tuple[Box, Cells]],
    summary: PredictionSummary,
    *,
    model: Mapping[str, Any],
) -> Parts:
    """Return the page.

    Args:
        slide: the slide.
        overview: with all cells drawn.
        cells_in: the squares of the close-ups, with their cells.
        summary: the counts.
        model: its task, resolution and fingerprint, as the recipe holds them.
    """
    width, height = slide.size
    facts = {
        "slide": f"{width:,} × {height:,} pixels of {slide.mpp:g} µm",
        "tissue": f"{summary.tissue_mm2:,.{2 if summary.tissue_mm2 >= 1 else 4}f} mm²",
        "expected": summary.quality.get("sentence"),
        "kinds": summary.quality.get("kinds", {}).get("sentence"),
        "positive": summary.positive_text,
        "threshold": f"{summary.threshold:.3f}",
        "unreadable places": str(len(summary.broken)),
        "model": f"{model['task']} at {model['mpp']:g} µm, fingerprint {model['fingerprint'][:12]}",
        "predicted": f"{date.today()}, sparseshot {__version__}",
    }
    expected = summary.quality.get("kinds", {}).get("shares", {})
    titles = ["class", "cells", "per mm²", "share", *(["expected share"] if expected else [])]
    counts = []
    for name, n in summary.counts.items():
        share = f"{100 * n / max(1, summary.cells):.1f} %"
        shares = [share, Expected(*expected[name]).shown()] if expected else [share]
        counts.append([escape(name), f"{n:,}", f"{summary.per_mm2(n):,.0f}", *shares])
    close_ups: Parts = [row for k, each in enumerate(cells_in) if (row := _close_up(slide, k, *each))]
    if close_ups:
        close_ups = [
            "## Close-ups",
            *close_ups,
            f"*{CLOSE_UM:.0f} µm across, chosen by the number of cells alone: of the squares with cells, the "
            "median, the 90th percentile and the fullest.*",
        ]
    density = (summary.folder / DENSITY_PICTURE).read_bytes  # it may not be drawn yet
    return [
        f"# {escape(slide.name)}",
        table(titles, counts),
        table(["", ""], [[name, escape(value)] for name, value in facts.items() if value], text_columns=2),
        "## Overview",
        Picture(
            "overview.jpg",
            "The slide in grey; each dot is a cell in the colour of its class.",
            jpeg(overview.image.convert("RGB")),
        ),
        *close_ups,
        "## Density",
        Picture("density.png", "Cells per mm².", density),
        "## Files",
        "\n".join(f"- [{code(name)}]({name}): {text}" for name, text in _LINKED.items()),
    ]


def _close_up(slide: Slide, number: int, box: Box, cells: Cells) -> tuple[Picture, Picture] | None:
    """Return a square without and with its cells; None if it cannot be read."""
    try:
        plain, drawn = (draw_cells(slide, box, each, side_px=CLOSE_PX) for each in (cells[:0], cells))
    except SlideError:
        return None
    return (
        Picture(f"close-{number}-plain.jpg", f"The slide at x {box.x0}, y {box.y0}", plain),
        Picture(f"close-{number}-cells.jpg", f"With its {counted(len(cells), 'cell')}", drawn),
    )
