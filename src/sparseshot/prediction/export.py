"""What is made of all shards together: one QuPath file, a density map, counts."""

import hashlib
import json
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats import qupath_write
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.repairs import Repairs
from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.files import replacing, write_json
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.models.finder import PLACE_DECIMALS, SlideFrame
from sparseshot.prediction.density import Density
from sparseshot.prediction.manifest import MANIFEST, Broken, File, Manifest, sweep
from sparseshot.prediction.slide_page import Overview, close_boxes, make_slide_page
from sparseshot.prediction.slide_pictures import inside

QUPATH, SUMMARY, OVERVIEW, PAGE = "qupath.zip", "summary.json", "overview.png", "index.html"
DENSITY_PICTURE, DENSITY_MAP = "density.png", "density.ome.tif"

PART_CELLS = 50_000
"""QuPath reads each part of the zip whole into memory, so they stay small."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_NAMESPACE = uuid.UUID("4d8f8f2e-7d0a-5f0c-9a56-6f5ae2b6c1d3")


@dataclass(frozen=True)
class PredictionSummary:
    """What was found on a slide.

    Attributes:
        slide: its name.
        folder: where the result is.
        counts: cells of each class.
        tissue_mm2: area that was looked at.
        threshold: probability from which on something was a cell.
        broken: places that could not be read.
        tiles: looked at by this call.
        seconds: taken by this call.
        skipped: it was all there already.
    """

    slide: str
    folder: Path
    counts: Mapping[str, int]
    tissue_mm2: float
    threshold: float
    broken: tuple[Broken, ...] = ()
    tiles: int = 0
    seconds: float = 0.0
    skipped: bool = False

    @property
    def cells(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def per_mm2(self, count: int) -> float:
        """Return a count for each mm² of tissue; 0 where there is none."""
        return count / self.tissue_mm2 if self.tissue_mm2 else 0.0


def read_shards(folder: Path, manifest: Manifest) -> Iterator[Cells]:
    """Read the cells of a prediction, shard by shard."""
    for shard in manifest.shards:
        yield read_cells(folder / shard.file.name)


def read_prediction(folder: Path | str) -> Cells:
    """Read every cell of a prediction at once; of millions of outlines rather read the shards one by one."""
    folder = Path(folder)
    manifest = Manifest.load(folder)
    if manifest is None:
        raise DataNotFoundError(folder, f"holds no prediction (no {MANIFEST}); give the folder of one slide")
    return Cells.concatenate(read_shards(folder, manifest))


def export(
    folder: Path, manifest: Manifest, frame: SlideFrame, slide: Slide, tissue: TissueMask
) -> PredictionSummary:
    """Write everything that is made of all shards, and then that nothing is left to be done."""
    density = Density.over(frame.size, frame.mpp, frame.classes)
    overview = Overview(slide)
    rows: list[tuple[float, float]] = []
    with replacing(folder / QUPATH) as temporary:
        shards = _counted(read_shards(folder, manifest), density, overview, rows)
        _write_qupath(temporary, shards, frame, slide.name)
    density.write_ome_tiff(folder / DENSITY_MAP)
    overview.write(folder / OVERVIEW)
    density.write_picture(
        folder / DENSITY_PICTURE, overview=None if tissue.overview is None else tissue.picture()
    )
    summary = PredictionSummary(
        slide=slide.name,
        folder=folder,
        counts=dict(zip(frame.classes, density.counts.sum(axis=(1, 2)).tolist(), strict=True)),
        tissue_mm2=tissue.area_mm2,
        threshold=manifest.identity["threshold"],
        broken=manifest.broken,
    )
    write_json(folder / SUMMARY, _as_json(summary))
    boxes = close_boxes(density, slide)
    page = _page(slide, overview, _cells_in(boxes, folder, manifest, rows), summary)
    with replacing(folder / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    files = [QUPATH, DENSITY_MAP, DENSITY_PICTURE, SUMMARY, OVERVIEW, PAGE]
    finished = replace(manifest, files=tuple(File.of(folder, file) for file in sorted(files)), finished=True)
    finished.save(folder)
    sweep(folder)
    return summary


def read_summary(folder: Path, manifest: Manifest) -> PredictionSummary:
    """Read the summary of a finished prediction."""
    path = folder / SUMMARY
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PredictionSummary(
            slide=content["slide"],
            folder=folder,
            counts={name: each["cells"] for name, each in content["classes"].items()},
            tissue_mm2=content["tissue_mm2"],
            threshold=content["threshold"],
            broken=manifest.broken,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(path, f"cannot be read ({error}); predict the slide again with --force") from None


def _as_json(summary: PredictionSummary) -> dict[str, Any]:
    counts = {"all": summary.cells, **summary.counts}
    told = {
        name: {"cells": count, "per_mm2": round(summary.per_mm2(count), 2)} for name, count in counts.items()
    }
    return {
        "slide": summary.slide,
        "cells": told["all"]["cells"],
        "cells_per_mm2": told.pop("all")["per_mm2"],
        "classes": told,
        "tissue_mm2": round(summary.tissue_mm2, 6),
        "threshold": summary.threshold,
        "unreadable_places": len(summary.broken),
    }


def _counted(
    shards: Iterator[Cells], density: Density, overview: Overview, rows: list[tuple[float, float]]
) -> Iterator[Cells]:
    """Count and draw the cells as they pass; ``rows`` receives the lowest and highest y of each shard."""
    for cells in shards:
        density.add(cells)
        overview.add(cells)
        y = cells.xy[:, 1]
        rows.append((float(y.min()), float(y.max())) if len(y) else (np.inf, -np.inf))
        yield cells


def _cells_in(
    boxes: Sequence[Box], folder: Path, manifest: Manifest, rows: Sequence[tuple[float, float]]
) -> Iterator[tuple[Box, Cells]]:
    """Yield each box with its cells, reading only the shards that reach into it."""
    for box in boxes:
        reaching = [
            shard
            for shard, (low, high) in zip(manifest.shards, rows, strict=True)
            if low < box.y1 and high >= box.y0
        ]
        parts = [read_cells(folder / shard.file.name) for shard in reaching]
        yield box, Cells.concatenate([part[inside(part.xy, box)] for part in parts])


def _page(
    slide: Slide, overview: Overview, cells_in: Iterator[tuple[Box, Cells]], summary: PredictionSummary
) -> str:
    counts = [(name, count, summary.per_mm2(count)) for name, count in summary.counts.items()]
    width, height = slide.size
    facts = [
        ("slide", f"{width:,} × {height:,} pixels of {slide.mpp:g} µm"),
        ("tissue", f"{summary.tissue_mm2:,.2f} mm²"),
        ("threshold", f"{summary.threshold:.3f}"),
        ("unreadable places", str(len(summary.broken))),
    ]
    files = [
        (QUPATH, "all cells; drop the file on the open slide in QuPath"),
        (OVERVIEW, "the overview"),
        (DENSITY_MAP, "cells per mm² as an image, a channel for each class"),
        (SUMMARY, "the counts"),
    ]
    return make_slide_page(
        slide,
        overview,
        cells_in,
        counts=counts,
        facts=facts,
        files=files,
        density_png=(summary.folder / DENSITY_PICTURE).read_bytes(),
    )


def _write_qupath(path: Path, shards: Iterator[Cells], frame: SlideFrame, name: str) -> None:
    """Write a zip of GeoJSON parts, one in memory at a time; there is one, if an empty one, at least."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for number, part in enumerate(_parts(shards, frame.no_cells())):
            entry = zipfile.ZipInfo(f"cells-{number:05d}.geojson", _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # else the system it is written on would be told
            with archive.open(entry, "w") as file:
                named = replace(part, id=_ids(part, name))
                qupath_write.write(
                    named, cast(BinaryIO, file), WriteOptions(Repairs(), decimals=PLACE_DECIMALS)
                )


def _parts(shards: Iterator[Cells], nothing: Cells) -> Iterator[Cells]:
    """Join small shards and cut large ones."""
    waiting, given = nothing, False
    for cells in shards:
        waiting = Cells.concatenate([waiting, cells])
        while len(waiting) >= PART_CELLS:
            yield waiting[:PART_CELLS]
            waiting, given = waiting[PART_CELLS:], True
    if len(waiting) or not given:
        yield waiting


def _ids(cells: Cells, name: str) -> NDArray[np.bytes_]:
    """Name every cell by a UUID made of slide and shape: version 5, the same whenever it is made."""
    shapes = shapely.points(cells.xy) if cells.outline is None else cells.outline
    start = hashlib.sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False)
    ids = []
    for shape in shapely.to_wkb(shapes, byte_order=1):
        digest = start.copy()
        digest.update(shape)
        ids.append(str(uuid.UUID(bytes=digest.digest()[:16], version=5)).encode())
    return np.array(ids, "S36")
