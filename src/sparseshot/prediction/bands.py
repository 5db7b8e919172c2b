"""Bands of a slide one by one: found in any order and anywhere, settled in order by one process.

The cells found in a band are a file in the slide's folder, so a killed process loses only its own band. The
name of the file holds a fingerprint of everything that decides its content.
"""

import hashlib
import json
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import FormatError
from sparseshot.files import read_as, replacing, write_json
from sparseshot.images.slide import Box, Grid
from sparseshot.images.tissue import TissueMask
from sparseshot.models.windows import Band
from sparseshot.prediction.engine import Engine, Throughput
from sparseshot.prediction.manifest import FOUND, SHARDS, TISSUE, File, Manifest
from sparseshot.prediction.slide_folder import SlideFolder


@dataclass(frozen=True)
class FoundBand:
    """What was found in a band, before it is settled with its neighbours.

    Attributes:
        file: the table of the cells.
        broken: places that could not be read, in grid pixels, with the reasons.
    """

    file: File
    broken: tuple[tuple[tuple[int, int, int, int], str], ...]


def find_band(work: SlideFolder, band: Band, pace: Throughput) -> None:
    """Find the cells of a band and write them to a file."""

    def close(band: Band, cells: Cells, carried: Cells, broken: dict[Box, str]) -> None:  # noqa: ARG001
        table, record = _names(work, band)
        write_cells(cells, work.folder / table)
        places = tuple((tuple(box), reason) for box, reason in broken.items())
        write_json(work.folder / record, {"file": File.of(work.folder, table), "broken": places})

    nothing = work.frame.no_cells()
    engine = Engine(work.slide, work.model, work.finder, work.measuring, pace, nothing, settles=False)
    engine.run([band], close)


def found_band(work: SlideFolder, band: Band) -> FoundBand | None:
    """Return what was found in a band; None if it is not done or its files are damaged."""
    record = work.folder / _names(work, band)[1]
    if not record.is_file():
        return None
    try:
        found = read_as(record, FoundBand)
    except FormatError:
        return None
    return found if found.file.is_in(work.folder) else None


def settle_bands(work: SlideFolder) -> None:
    """Settle what was found in the bands that are left, in order, and write their shards."""
    carried = work.carried()
    for band in work.todo:
        found = found_band(work, band)
        if found is None:
            raise FormatError(work.folder, f"band {band.index} is gone; run the same command again")
        cells = Cells.concatenate([carried, read_cells(work.folder / found.file.name)])
        decided, carried = work.finder.settle(cells, next_y0=band.next_y0)
        work.close(band, decided, carried, {Box(*box): reason for box, reason in found.broken})


def keep_tissue(work: SlideFolder) -> None:
    """Write the tissue of a slide into its folder, so that no other process has to find it again."""
    path, tissue = work.folder / _tissue_name(work.manifest), work.tissue
    overview = np.empty((0, 0, 3), np.uint8) if tissue.overview is None else tissue.overview
    with replacing(path) as temporary, temporary.open("wb") as file:
        grid, size = np.array(astuple(tissue.grid)), np.array(tissue.size)
        np.savez_compressed(file, mask=tissue.mask, grid=grid, size=size, overview=overview)


def kept_tissue(folder: Path, manifest: Manifest) -> TissueMask:
    """Read the tissue that :func:`keep_tissue` wrote."""
    with np.load(folder / _tissue_name(manifest), allow_pickle=False) as file:
        width, height, downsample, mpp = file["grid"].tolist()
        return TissueMask(
            file["mask"],
            Grid(int(width), int(height), downsample, mpp),
            (int(file["size"][0]), int(file["size"][1])),
            file["overview"] if file["overview"].size else None,
        )


def _names(work: SlideFolder, band: Band) -> tuple[str, str]:
    """Return the names of a band's table and of its record, which is written last."""
    decided_by = _decided_by(work.manifest, work.manifest.plan)
    stem = f"{SHARDS}/{band.index:05d}.{decided_by}.{FOUND}"
    return f"{stem}.parquet", f"{stem}.json"


def _tissue_name(manifest: Manifest) -> str:
    return f"{SHARDS}/{_decided_by(manifest)}.{TISSUE}.npz"


def _decided_by(manifest: Manifest, *more: str) -> str:
    """Return a hash of everything that decides what is found in a band."""
    content = json.dumps([dict(manifest.identity), astuple(manifest.layout), *more], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]
