"""How many cells there are in a mm², as a map over the slide."""

import hashlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import tifffile
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from sparseshot.cells import Cells
from sparseshot.files import replacing
from sparseshot.prediction.slide_pictures import PNG_LEVEL

BIN_UM = 25.0
"""Side of a square of the map: some cells of dense tissue."""

_BLUR_BINS = 1.2


@dataclass(frozen=True, eq=False)
class Density:
    """Counts of cells in squares.

    Attributes:
        counts: ``(classes, rows, cols)``.
        classes: their names.
        bin_um: side of a square.
        mpp: µm of a level-0 pixel.
        size_um: width and height of the slide; the last squares may extend past it.
    """

    counts: NDArray[np.int64]
    classes: tuple[str, ...]
    bin_um: float
    mpp: float
    size_um: tuple[float, float]

    @classmethod
    def over(cls, size: tuple[int, int], mpp: float, classes: tuple[str, ...]) -> Self:
        """Make an empty map of a slide of ``size`` level-0 pixels."""
        width, height = (length * mpp for length in size)
        columns, rows = (max(1, int(np.ceil(length / BIN_UM - 1e-6))) for length in (width, height))
        counts = np.zeros((len(classes), rows, columns), np.int64)
        return cls(counts, classes, BIN_UM, mpp, (width, height))

    def add(self, cells: Cells) -> None:
        """Count some more cells."""
        column, row = (cells.xy * (self.mpp / self.bin_um)).astype(np.intp).T
        _, rows, columns = self.counts.shape
        place = np.minimum(row, rows - 1), np.minimum(column, columns - 1)
        np.add.at(self.counts, (cells.label, *place), 1)

    @property
    def per_mm2(self) -> NDArray[np.float32]:
        """Cells in a mm², ``(classes, rows, cols)``."""
        return (self.counts / (self.bin_um / 1000) ** 2).astype(np.float32)

    def _smoothed(self) -> NDArray[np.float32]:
        """Return the cells of all classes in a mm² of the slide, smoothed: single squares hold few cells."""
        _, rows, columns = self.counts.shape
        width, height = (
            np.clip(length / self.bin_um - np.arange(count), 0, 1)
            for length, count in zip(self.size_um, (columns, rows), strict=True)
        )
        covered = gaussian_filter(np.outer(height, width), _BLUR_BINS, mode="constant")
        per_mm2 = gaussian_filter(self.per_mm2.sum(axis=0), _BLUR_BINS, mode="constant")
        return np.asarray(per_mm2 / np.maximum(covered, 1e-3), np.float32)

    def write_ome_tiff(self, path: Path) -> None:
        """Write :attr:`per_mm2` as an OME-TIFF of one channel a class; its pixels know their size."""
        content = hashlib.sha256(self.counts.tobytes() + "|".join(self.classes).encode()).hexdigest()
        metadata = {
            "UUID": str(uuid.uuid5(uuid.NAMESPACE_OID, content)),  # else one of the hour it is written
            "axes": "CYX",
            "Channel": {"Name": [f"{name} per mm²" for name in self.classes]},
            "PhysicalSizeX": self.bin_um,
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": self.bin_um,
            "PhysicalSizeYUnit": "µm",
        }
        with replacing(path) as temporary:
            tifffile.imwrite(
                temporary,
                self.per_mm2,
                ome=True,
                photometric="minisblack",
                compression="zlib",
                metadata=metadata,
            )

    def write_picture(self, path: Path, *, overview: NDArray[np.uint8] | None = None) -> None:
        """Write a PNG of all classes together, beside the slide in small."""
        total = self._smoothed()
        height, width = total.shape
        panels = 1 if overview is None else 2
        wide, tall = 6.5 * panels, float(np.clip(6 * height / width, 2, 12)) + 0.8
        figure = Figure(figsize=(wide, tall), dpi=120)
        # Margins in inches; a layout that measures every label would double the time.
        figure.subplots_adjust(0.6 / wide, 0.5 / tall, 1 - 0.6 / wide, 1 - 0.35 / tall, wspace=0.12)
        *axes, scale = figure.subplots(1, panels + 1, width_ratios=[*(1.0,) * panels, 0.04])
        extent = (0.0, width * self.bin_um / 1000, height * self.bin_um / 1000, 0.0)
        right, bottom = (length / 1000 for length in self.size_um)
        if overview is not None:
            axes[0].imshow(overview, extent=(0.0, right, bottom, 0.0))
            axes[0].set(
                title="the slide, its tissue in green", xlabel="mm", ylabel="mm"
            )  # its name has any letters
        # Its top is not the one crowded square, so that the rest is not all dark.
        top = float(np.quantile(total[total > 0], 0.995)) if (total > 0).any() else 1.0
        drawn = axes[-1].imshow(
            total, extent=extent, cmap="inferno", vmin=0, vmax=top, interpolation="bilinear"
        )
        axes[-1].set(title="cells in a mm²", xlabel="mm", xlim=(0.0, right), ylim=(bottom, 0.0))
        figure.colorbar(drawn, cax=scale, extend="max")
        with replacing(path) as temporary:
            figure.savefig(
                temporary,
                format="png",
                metadata={"Software": "sparseshot"},
                pil_kwargs={"compress_level": PNG_LEVEL},
            )
