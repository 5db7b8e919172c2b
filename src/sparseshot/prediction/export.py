"""What is made of all shards together: one QuPath file, a density map, counts."""

import hashlib
import uuid
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats import qupath_write
from sparseshot.cells.formats.geoparquet import read_own, read_places
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.repairs import Repairs
from sparseshot.errors import DataNotFoundError, SparseshotWarning
from sparseshot.files import replacing
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.metrics import ExpectedQuality
from sparseshot.models.finder import PLACE_DECIMALS, SlideFrame
from sparseshot.pages import write_page
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

_DEFLATE_LEVEL = 4
"""Half the time of level 6, and a file an eighth larger."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_HYPHENS = (8, 13, 18, 23)  # of the text of a UUID
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
    if not manifest.finished:
        done = f"{len(manifest.shards)} of {manifest.bands} parts are done; predict it again to finish it"
        warnings.warn(f"{folder}: {done}", SparseshotWarning, stacklevel=2)
    return Cells.concatenate(read_shards(folder, manifest))


def export(
    folder: Path,
    manifest: Manifest,
    frame: SlideFrame,
    slide: Slide,
    tissue: TissueMask,
    *,
    quality: ExpectedQuality | None,
    measured: Mapping[str, Any],
) -> PredictionSummary:
    """Write everything that is made of all shards, and then that nothing is left to be done."""
    density = Density.over(frame.size, frame.mpp, frame.classes)
    overview = Overview(slide)
    for shard in manifest.shards:
        places = read_places(folder / shard.file.name, measurements=False)
        density.add(places)
        overview.add(places)
    close_ups: dict[Box, list[Cells]] = {box: [] for box in close_boxes(density, slide)}
    with (
        replacing(folder / QUPATH) as temporary,
        ThreadPoolExecutor(1, thread_name_prefix="qupath") as beside,
    ):
        shards = _noted(_own_shards(folder, manifest), close_ups)
        written = beside.submit(_write_qupath, temporary, shards, frame, slide.name)
        density.write_ome_tiff(folder / DENSITY_MAP)
        overview.write(folder / OVERVIEW)
        density.write_picture(
            folder / DENSITY_PICTURE, overview=None if tissue.overview is None else tissue.picture()
        )
        written.result()
    summary = PredictionSummary(
        slide=slide.name,
        folder=folder,
        counts=dict(zip(frame.classes, density.counts.sum(axis=(1, 2)).tolist(), strict=True)),
        tissue_mm2=tissue.area_mm2,
        threshold=manifest.identity["threshold"],
        broken=manifest.broken,
        quality=expected_on_slide(quality, int(density.counts.sum())),
        measured=measured,
    )
    summary.write()
    shown = [(box, Cells.concatenate(cells)) for box, cells in close_ups.items()]
    model = manifest.identity["model"]
    page = make_slide_page(slide, overview, shown, summary, model=model, files=_FILES)
    write_page(page, folder / PAGE)
    files = sorted([*_FILES, DENSITY_PICTURE, PAGE])
    finished = replace(manifest, files=tuple(File.of(folder, file) for file in files), finished=True)
    finished.save(folder)
    sweep(folder, finished)
    return summary


def _own_shards(folder: Path, manifest: Manifest) -> Iterator[Cells]:
    """Read the shards of an unfinished result, whose bytes were compared with the manifest."""
    for shard in manifest.shards:
        yield read_own(folder / shard.file.name)


def _noted(shards: Iterator[Cells], close_ups: Mapping[Box, list[Cells]]) -> Iterator[Cells]:
    """Collect the cells of some boxes as they pass."""
    for cells in shards:
        for box, kept in close_ups.items():
            kept.append(cells[inside(cells.xy, box)])
        yield cells


def _write_qupath(path: Path, shards: Iterator[Cells], frame: SlideFrame, name: str) -> None:
    """Write a zip of GeoJSON parts, one in memory at a time; there is one, if an empty one, at least."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, part in enumerate(_parts(shards, frame.no_cells())):
            entry = zipfile.ZipInfo(f"cells-{number:05d}.geojson", _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry._compresslevel = _DEFLATE_LEVEL  # type: ignore[attr-defined]  # public from Python 3.13 on
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
    if cells.outline is None:
        shapes = np.ascontiguousarray(cells.xy, "<f8").view("V16").ravel().tolist()
    else:
        shapes = shapely.to_wkb(cells.outline, byte_order=1)
    start = hashlib.sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False)
    digests = []
    for shape in shapes:
        digest = start.copy()
        digest.update(shape)
        digests.append(digest.digest())
    octets = np.frombuffer(b"".join(digests), np.uint8).reshape(len(cells), start.digest_size)[:, :16].copy()
    octets[:, 6] = octets[:, 6] & 0x0F | 0x50  # version 5
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # variant of RFC 9562
    letters = np.frombuffer(octets.tobytes().hex().encode(), "S1").reshape(len(cells), 32)
    names = np.full((len(cells), 36), b"-")
    names[:, [k for k in range(36) if k not in _HYPHENS]] = letters
    return names.view("S36").ravel()
