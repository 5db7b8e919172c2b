"""What is made of all shards together: one QuPath file, a density map, counts."""

import hashlib
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats import qupath_write
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.repairs import Repairs
from sparseshot.errors import DataNotFoundError
from sparseshot.files import replacing
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.metrics import ExpectedQuality
from sparseshot.models.finder import PLACE_DECIMALS, SlideFrame
from sparseshot.prediction.density import Density
from sparseshot.prediction.manifest import MANIFEST, File, Manifest, sweep
from sparseshot.prediction.slide_page import DENSITY_PICTURE, Overview, close_boxes, make_slide_page
from sparseshot.prediction.slide_pictures import inside
from sparseshot.prediction.summary import SUMMARY, PredictionSummary, expected_on_slide

QUPATH, OVERVIEW, DENSITY_MAP, PAGE = "qupath.zip", "overview.png", "density.ome.tif", "index.html"

_FILES = {
    QUPATH: "all cells; drop the file on the open slide in QuPath",
    OVERVIEW: "the overview",
    DENSITY_MAP: "cells per mm² as an image, a channel for each class",
    SUMMARY: "the counts",
}
"""The files that the page links to."""

PART_CELLS = 50_000
"""QuPath reads each part of the zip whole into memory, so they stay small."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_NAMESPACE = uuid.UUID("4d8f8f2e-7d0a-5f0c-9a56-6f5ae2b6c1d3")


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
    folder: Path,
    manifest: Manifest,
    frame: SlideFrame,
    slide: Slide,
    tissue: TissueMask,
    *,
    quality: ExpectedQuality | None,
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
        quality=expected_on_slide(quality, int(density.counts.sum())),
    )
    summary.write()
    close_ups = _cells_in(close_boxes(density, slide), folder, manifest, rows)
    page = make_slide_page(slide, overview, close_ups, summary, _FILES)
    with replacing(folder / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    files = sorted([*_FILES, DENSITY_PICTURE, PAGE])
    finished = replace(manifest, files=tuple(File.of(folder, file) for file in files), finished=True)
    finished.save(folder)
    sweep(folder)
    return summary


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
