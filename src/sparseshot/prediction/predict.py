"""Prediction of one slide into a folder."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import OutputError
from sparseshot.files import locked
from sparseshot.images.slide import Box, Slide
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.models.finder import Finder, SlideFrame
from sparseshot.models.inference import TILE_PX
from sparseshot.models.windows import Band, plan
from sparseshot.prediction.engine import DEFAULT_PACE, Engine, Progress, Throughput
from sparseshot.prediction.export import export
from sparseshot.prediction.manifest import SHARDS, UNDECIDED, Broken, File, Manifest, Shard, claim
from sparseshot.prediction.model import Model
from sparseshot.prediction.naming import slide_identity
from sparseshot.prediction.reading import any_readable
from sparseshot.prediction.summary import PredictionSummary, read_summary

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def predict_slide(
    slide: Slide,
    model: Model,
    folder: Path | str,
    *,
    tile_px: int = TILE_PX,
    pace: Throughput = DEFAULT_PACE,
    only_tissue: bool = True,
    force: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> PredictionSummary:
    """Find every cell of a slide and write them into ``folder``.

    Each band becomes a shard of GeoParquet. Interrupted at any moment, the same call resumes after the last
    finished shard and ends with the same bytes. Memory does not grow with the slide.

    Places of the slide that cannot be read count as glass and are listed in the summary. Once any of them can
    be read, the same call predicts the slide anew.

    Args:
        slide: the slide.
        model: the model.
        folder: of this slide alone; created if missing.
        tile_px: largest side of a tile.
        pace: speed and memory.
        only_tissue: predict tissue only; glass then costs nothing.
        force: replace the result of another model, threshold or slide.
        report: called with the progress after every batch.

    Raises:
        OutputError: the folder holds something else, or the disk is full.
    """
    start = time.perf_counter()
    folder = Path(folder)
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes, colors=model.colors)
    everywhere = TissueMask.everywhere(slide)
    finder = model.finder(frame, everywhere)
    identity = _identity(slide, model, finder, only_tissue=only_tissue)
    with locked(folder), _full_disk_is_output_error(folder):
        manifest = claim(
            folder,
            identity,
            finder.layout(tile_px),
            force=force,
            is_readable=lambda place: any_readable(slide, frame.grid, place.on(frame.grid)),
        )
        if manifest.finished:
            return replace(read_summary(folder, manifest), skipped=True)
        tissue = tissue_mask(slide) if only_tissue else everywhere
        bands = plan(
            frame.grid, tissue, manifest.layout, margin_px=model.margin_px, alignment_px=model.alignment_px
        )
        book = _ShardWriter(folder, replace(manifest, bands=len(bands)), frame)
        todo = bands[len(manifest.shards) :]
        if todo:
            engine = Engine(slide, model, model.finder(frame, tissue), pace, book.carried(), book.cells)
            engine.run(todo, book.close, report)
        summary = export(folder, book.manifest, frame, slide, tissue, quality=model.quality)
    tiles = sum(len(window.tiles) for band in todo for window in band.windows)
    return replace(summary, tiles=tiles, seconds=time.perf_counter() - start)


@contextmanager
def _full_disk_is_output_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise OutputError(
                folder, f"no room left ({error.strerror}); make room and run the same command again"
            ) from error
        raise


def _identity(slide: Slide, model: Model, finder: Finder, *, only_tissue: bool) -> dict[str, Any]:
    """Return everything that decides the result."""
    return {
        "slide": slide_identity(slide),
        "model": {
            "fingerprint": model.fingerprint,
            "task": model.task.name,
            "classes": list(model.classes),
            "mpp": model.mpp,
        },
        "threshold": model.threshold,
        "precision": model.precision,
        "only_tissue": only_tissue,
        "settings": finder.settings(),
    }


class _ShardWriter:
    """Writes shards; a shard counts once the manifest names it."""

    def __init__(self, folder: Path, manifest: Manifest, frame: SlideFrame) -> None:
        self.folder, self.manifest, self.frame = folder, manifest, frame

    @property
    def cells(self) -> int:
        """Cells in the shards that are done."""
        return sum(shard.cells for shard in self.manifest.shards)

    def carried(self) -> Cells:
        """Read the cells that the last finished band left undecided."""
        if not self.manifest.shards:
            return self.frame.no_cells()
        return read_cells(self.folder / self.manifest.shards[-1].carried.name)

    def close(self, band: Band, cells: Cells, carried: Cells, broken: dict[Box, str]) -> None:
        """Write the shard of a band."""
        shard = Shard(
            band=band.index,
            cells=len(cells),
            file=self._write(f"{SHARDS}/{band.index:05d}.parquet", cells),
            carried=self._write(f"{SHARDS}/{band.index:05d}.{UNDECIDED}.parquet", carried),
            broken=tuple(Broken.of(box, reason, self.frame.grid) for box, reason in _rows(broken).items()),
        )
        self.manifest = replace(self.manifest, shards=(*self.manifest.shards, shard))
        self.manifest.save(self.folder)

    def _write(self, name: str, cells: Cells) -> File:
        write_cells(cells, self.folder / name)
        return File.of(self.folder, name)


def _rows(broken: dict[Box, str]) -> dict[Box, str]:
    """Join places side by side; the first reason stays.

    >>> _rows({Box(0, 0, 64, 64): "a", Box(64, 0, 128, 64): "b", Box(0, 64, 64, 128): "c"})
    {Box(x0=0, y0=0, x1=128, y1=64): 'a', Box(x0=0, y0=64, x1=64, y1=128): 'c'}
    """
    rows: list[tuple[Box, str]] = []
    for box in sorted(broken, key=lambda box: (box.y0, box.y1, box.x0)):
        last = rows[-1][0] if rows else None
        if last is not None and (last.y0, last.y1, last.x1) == (box.y0, box.y1, box.x0):
            rows[-1] = (last._replace(x1=box.x1), rows[-1][1])
        else:
            rows.append((box, broken[box]))
    return dict(rows)
