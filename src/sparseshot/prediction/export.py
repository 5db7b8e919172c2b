"""What is made of all shards together: a density map, pictures, counts, the page."""

import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats.geoparquet import read_own, read_places
from sparseshot.errors import DataNotFoundError, SparseshotWarning
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.metrics import ExpectedQuality
from sparseshot.pages import write_page
from sparseshot.prediction.density import Density
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.shards import ShardWriter
from sparseshot.prediction.slide_page import DENSITY_PICTURE, Overview, close_boxes, make_slide_page
from sparseshot.prediction.slide_pictures import inside
from sparseshot.prediction.summary import SUMMARY, PredictionSummary, expected_on_slide

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
    quality: ExpectedQuality | None,
    measured: Mapping[str, Any],
) -> PredictionSummary:
    """Write everything that is made of all shards, but for the archive."""
    writer.complete()
    folder, frame, recipe = writer.work.path, writer.frame, writer.manifest.identity
    density = Density.over(frame.size, frame.mpp, frame.classes)
    overview = Overview(slide)
    places = [read_places(folder / each.file.name, measurements=False) for each in writer.manifest.shards]
    for part in places:
        density.add(part)
        overview.add(part)
    shown: list[tuple[Box, Cells]] = []
    for box in close_boxes(density, slide):
        near = [number for number, part in enumerate(places) if inside(part.xy, box).any()]
        cells = [read_own(folder / writer.manifest.shards[number].file.name) for number in near]
        shown.append((box, Cells.concatenate([each[inside(each.xy, box)] for each in cells])))
    summary = PredictionSummary(
        slide=slide.name,
        folder=folder,
        counts=dict(zip(frame.classes, density.counts.sum(axis=(1, 2)).tolist(), strict=True)),
        tissue_mm2=tissue.area_mm2,
        threshold=recipe["threshold"],
        broken=writer.manifest.broken,
        quality=expected_on_slide(quality, int(density.counts.sum())),
        measured=measured,
    )
    summary.write()
    with ThreadPoolExecutor(1, thread_name_prefix="density") as beside:
        picture = None if tissue.overview is None else tissue.picture()
        drawn = beside.submit(density.write_picture, folder / DENSITY_PICTURE, overview=picture)
        density.write_ome_tiff(folder / DENSITY_MAP)
        overview.write(folder / OVERVIEW)
        page = make_slide_page(slide, overview, shown, summary, model=recipe["model"], files=_LINKED)
        drawn.result()
    write_page(page, folder / PAGE)
    return summary
