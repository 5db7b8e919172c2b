"""Prediction of several slides: one that fails does not stop the others."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sparseshot.errors import DataNotFoundError, FormatError, InputError, SparseshotError, was_interrupted
from sparseshot.files import make_folder
from sparseshot.images import open_slide
from sparseshot.images.dicom_series import one_per_series
from sparseshot.images.ngff import is_ome_zarr
from sparseshot.images.opening import IMAGE_SUFFIXES
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.slide import Slide
from sparseshot.models.inference import TILE_PX
from sparseshot.prediction.engine import DEFAULT_PACE, Progress, Throughput
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.measuring import DEFAULT_MEASURING, Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.naming import folder_inside, slide_identity
from sparseshot.prediction.predict import predict_slide
from sparseshot.prediction.summary import PredictionSummary

T = TypeVar("T")


@dataclass(frozen=True)
class PredictionOptions:
    """Arguments of :func:`~sparseshot.prediction.predict.predict_slide` for many slides.

    Attributes:
        mpp: µm per level-0 pixel, for slides that state none.
        tile_px: largest side of a tile.
        pace: speed and memory.
        measuring: what is measured of each cell.
        only_tissue: predict tissue only.
        force: replace results of another model.
        force_mpp: use ``mpp`` for slides that state another, too.
    """

    mpp: float | None = None
    tile_px: int = TILE_PX
    pace: Throughput = DEFAULT_PACE
    measuring: Measuring = DEFAULT_MEASURING
    only_tissue: bool = True
    force: bool = False
    force_mpp: bool = False

    def open(self, path: Path) -> PyramidSlide:
        """Open a slide by its pixel size."""
        return open_slide(path, mpp=self.mpp, force_mpp=self.force_mpp)


DEFAULT_OPTIONS = PredictionOptions()


@dataclass(frozen=True)
class Outcome:
    """The result of a slide: a summary, or an error."""

    path: Path
    summary: PredictionSummary | None = None
    error: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of the slide could be read."""
        return self.summary is not None and not self.summary.broken


def find_slides(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and the slides and images in the folders, sorted by name, without duplicates.

    The first file of a DICOM series represents all of its files in the same folder.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir() or is_ome_zarr(path):
            found[path] = None
            continue
        inside = sorted(each for each in path.iterdir() if each.suffix.lower() in IMAGE_SUFFIXES)
        slides = [each for each in inside if not each.name.startswith(".")]
        if not slides:
            raise DataNotFoundError(path, f"holds no slide; known are {', '.join(sorted(IMAGE_SUFFIXES))}")
        found |= dict.fromkeys(slides)
    if not found:
        raise InputError("no slides; give at least one")
    return one_per_series(found)


def predict_slides(
    paths: Sequence[Path],
    model: Model,
    out: Path,
    *,
    options: PredictionOptions = DEFAULT_OPTIONS,
    wait_s: float = 0.0,
    begin: Callable[[Path], Callable[[Progress], None] | None] = lambda _: None,
) -> list[Outcome]:
    """Predict slides, each into its own folder inside ``out``.

    Args:
        paths: of the slides.
        model: the model.
        out: folder of all results; created if missing.
        options: the same for all slides.
        wait_s: how long to wait for another process that works on a slide.
        begin: called with each path before it is opened; what it returns receives the progress.
    """
    make_folder(out)
    taken: set[Path] = set()

    def predicted(path: Path) -> Outcome:
        report = begin(path)
        with options.open(path) as slide:
            folder = slide_folder_inside(out, slide, taken)
            taken.add(folder)
            summary = predict_slide(
                slide,
                model,
                folder,
                tile_px=options.tile_px,
                pace=options.pace,
                measuring=options.measuring,
                only_tissue=options.only_tissue,
                force=options.force,
                wait_s=wait_s,
                report=report,
            )
        return Outcome(path, summary)

    return [failing_alone(path, partial(predicted, path)) for path in paths]


def failing_alone(path: Path, work: Callable[[], T]) -> T | Outcome:
    """Return what work on a slide returns, or its error: a slide never stops the others."""
    try:
        return work()
    except (SparseshotError, OSError) as error:
        return Outcome(path, error=str(error))
    except Exception as error:
        if was_interrupted(error):
            raise
        return Outcome(path, error=_unforeseen(path, error))


def _unforeseen(path: Path, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"{path}: not enough memory ({error}); lower --tile-px or --batch"
    return f"{path}: {type(error).__name__}: {error} (not foreseen; please report it)"


def slide_folder_inside(out: Path, slide: Slide, taken: Collection[Path]) -> Path:
    """Return the folder of a slide: its name, with its fingerprint if the name is taken."""
    identity = slide_identity(slide)
    plain = folder_inside(out, slide.name)
    if plain in taken or _belongs_to_another(plain, identity):
        return folder_inside(out, slide.name, suffix=f"-{identity['fingerprint'][:12]}")
    return plain


def _belongs_to_another(folder: Path, slide: Mapping[str, Any]) -> bool:
    try:
        manifest = Manifest.load(folder)
    except FormatError:
        return False  # predict_slide will say what is wrong with it
    return manifest is not None and not manifest.is_of(slide)
