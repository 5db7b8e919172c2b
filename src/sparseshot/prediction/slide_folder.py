"""The output folder of a slide: its bands, shards and remaining work."""

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import OutputError, SparseshotWarning
from sparseshot.images.slide import Box, Slide
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.models.finder import Finder, SlideFrame
from sparseshot.models.windows import Band, plan
from sparseshot.prediction.export import export
from sparseshot.prediction.manifest import (
    UNDECIDED,
    UNFINISHED,
    Broken,
    File,
    Manifest,
    Shard,
    claim,
    recorded_engine,
    shard_name,
)
from sparseshot.prediction.measuring import DEFAULT_MEASURING, Measuring, add_neighbours
from sparseshot.prediction.model import Model
from sparseshot.prediction.naming import slide_identity
from sparseshot.prediction.reading import any_readable
from sparseshot.prediction.summary import PredictionSummary


@dataclass
class SlideFolder:
    """A slide with the folder of its result. A shard counts once the manifest names it.

    Attributes:
        slide: the slide.
        model: the model.
        folder: of this slide alone.
        manifest: what is done.
        tissue: where cells are searched; not of a finished slide.
        measuring: what is measured of each cell.
    """

    slide: Slide
    model: Model
    folder: Path
    manifest: Manifest
    tissue: TissueMask
    measuring: Measuring = DEFAULT_MEASURING
    frame: SlideFrame = field(init=False)
    finder: Finder = field(init=False)
    bands: tuple[Band, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.frame = _frame(self.slide, self.model)
        self.model = self.model.on(self.frame.grid, recorded=self.manifest.identity["engine"])
        self.finder = self.model.finder(self.frame, self.tissue)
        if self.manifest.finished:
            return
        self.measuring = self.measuring.on(self.slide, self.frame.grid, self.tissue)
        sizes = {"margin_px": self.model.margin_px, "alignment_px": self.model.alignment_px}
        self.bands = plan(self.frame.grid, self.tissue, self.manifest.layout, **sizes)
        digest = _digest(self.bands)
        if self.manifest.plan not in ("", digest):
            shown = "its tissue is not what it was when the prediction began, so it begins anew"
            warnings.warn(f"{self.folder}: {shown}", SparseshotWarning, stacklevel=2)
            self.manifest = replace(self.manifest, shards=())
        self.manifest = replace(self.manifest, bands=len(self.bands), plan=digest)

    @classmethod
    def claim(
        cls,
        slide: Slide,
        model: Model,
        folder: Path,
        *,
        tile_px: int,
        only_tissue: bool,
        force: bool,
        measuring: Measuring = DEFAULT_MEASURING,
    ) -> Self:
        """Begin the result of a slide, or resume the one that is there.

        The arguments are those of :func:`~sparseshot.prediction.predict.predict_slide`.
        """
        frame, everywhere = _frame(slide, model), TissueMask.everywhere(slide)
        model = model.on(frame.grid, recorded=recorded_engine(folder))
        finder = model.finder(frame, everywhere)
        manifest = claim(
            folder,
            _identity(slide, model, finder, measuring, only_tissue=only_tissue),
            finder.layout(tile_px),
            force=force,
            is_readable=lambda place: any_readable(slide, frame.grid, place.on(frame.grid)),
        )
        searched = everywhere if manifest.finished or not only_tissue else tissue_mask(slide)
        return cls(slide, model, folder, manifest, searched, measuring)

    @property
    def todo(self) -> tuple[Band, ...]:
        """The bands without a shard."""
        return self.bands[len(self.manifest.shards) :]

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
        """Write the shard of a band, after those of all bands before it."""
        if band.index != len(self.manifest.shards):  # an earlier one failed, and the caller does not know yet
            raise OutputError(
                self.folder, f"the shard before {band.index} is missing; run the same command again"
            )
        shard = Shard(
            band=band.index,
            cells=len(cells),
            file=self._write(shard_name(band.index, UNFINISHED if self._needs_neighbours else ""), cells),
            carried=self._write(shard_name(band.index, UNDECIDED), carried),
            broken=tuple(Broken.of(box, reason, self.frame.grid) for box, reason in _rows(broken).items()),
        )
        self.manifest = replace(self.manifest, shards=(*self.manifest.shards, shard))
        self.manifest.save(self.folder)

    def export(self) -> PredictionSummary:
        """Write everything that is made of all shards."""
        manifest = self.manifest
        return export(
            self.folder,
            add_neighbours(self.folder, manifest) if self._needs_neighbours else manifest,
            self.frame,
            self.slide,
            self.tissue,
            quality=self.model.quality,
            measured=self.measuring.settings(),
        )

    @property
    def _needs_neighbours(self) -> bool:
        return self.measuring.level == "all"

    def _write(self, name: str, cells: Cells) -> File:
        write_cells(cells, self.folder / name)
        return File.of(self.folder, name)


def _digest(bands: tuple[Band, ...]) -> str:
    """Return a hash of which windows make up which band: what a shard holds depends on it."""
    content = repr([(band.next_y0, [window.core for window in band.windows]) for band in bands])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def tiles_in(bands: tuple[Band, ...]) -> int:
    """Return the number of tiles of some bands."""
    return sum(len(window.tiles) for band in bands for window in band.windows)


def _frame(slide: Slide, model: Model) -> SlideFrame:
    return SlideFrame.over(slide, mpp=model.mpp, classes=model.classes, colors=model.colors)


def _identity(
    slide: Slide, model: Model, finder: Finder, measuring: Measuring, *, only_tissue: bool
) -> dict[str, Any]:
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
        "engine": model.engine,
        "only_tissue": only_tissue,
        "settings": finder.settings(),
        "measured": measuring.settings(),
    }


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
