"""Time and disk space of a prediction, estimated from a few tiles."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sparseshot.images.slide import Slide
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.models.windows import Band
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import DEFAULT_THROUGHPUT, Throughput, predict_bands, tiles_in
from sparseshot.work import Event

_PROBED_WINDOWS, _PROBED_TILES = 5, 2


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a slide.

    Attributes:
        slide: its name.
        tiles: number of tiles with tissue.
        glass_tiles: number of tiles without, which cost nothing.
        tissue_mm2: area to predict.
        tiles_per_second: measured on a few tiles.
        cells: extrapolated from these tiles.
        bytes: on disk, roughly.
        free_bytes: on the disk of the output folder.
    """

    slide: str
    tiles: int
    glass_tiles: int
    tissue_mm2: float
    tiles_per_second: float
    cells: int
    bytes: int
    free_bytes: int

    @property
    def seconds(self) -> float:
        """Time for all tiles."""
        return self.tiles / self.tiles_per_second if self.tiles else 0.0


def estimate_slide(
    slide: Slide,
    model: Model,
    out: Path,
    *,
    throughput: Throughput = DEFAULT_THROUGHPUT,
    only_tissue: bool = True,
) -> Estimate:
    """Estimate the cost of :func:`~sparseshot.prediction.predict.predict_slide`; writes nothing."""
    frame = model.frame(slide)
    model = model.on(frame.grid)
    everywhere = TissueMask.everywhere(slide)
    tissue = tissue_mask(slide) if only_tissue else everywhere
    finder = model.finder(frame, tissue)
    layout = finder.layout(throughput.tile_px)
    bands, every = (model.bands(frame, some, layout) for some in (tissue, everywhere))
    windows, tiles = [window for band in bands for window in band.windows], tiles_in(bands)

    # Spread over the slide; the first is predicted twice, because the first forward pass is slow.
    probed = [
        replace(window, tiles=window.tiles[:_PROBED_TILES])
        for window in windows[:: max(1, len(windows) // _PROBED_WINDOWS)][:_PROBED_WINDOWS]
    ]
    seen: list[Event] = []
    for part in (probed[:1], probed):
        found = predict_bands(
            slide,
            model,
            finder,
            [Band(0, tuple(part), float("inf"))],
            lambda *_: None,
            frame=frame,
            carried=frame.no_cells(),
            throughput=throughput,
            report=seen.append,
        )
    speed = seen[-1].done / seen[-1].values["seconds"] if seen else 1.0
    cells = round(found * tiles / seen[-1].done) if seen else 0
    existing = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    return Estimate(
        slide=slide.name,
        tiles=tiles,
        glass_tiles=tiles_in(every) - tiles,
        tissue_mm2=tissue.area_mm2,
        tiles_per_second=speed,
        cells=cells,
        bytes=cells * model.task.bytes_per_cell + 2**20,
        free_bytes=shutil.disk_usage(existing).free,
    )
