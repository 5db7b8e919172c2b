"""Tasks of a prediction on the nodes of a cluster: begin a slide, find a band, settle a slide."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sparseshot.errors import OutputError
from sparseshot.files import locked
from sparseshot.images import open_slide
from sparseshot.images.slide import Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.prediction.bands import find_band, found_band, keep_tissue, kept_tissue, settle_bands
from sparseshot.prediction.manifest import SHARDS, Manifest
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import full_disk_is_output_error, predict_rest
from sparseshot.prediction.slide_folder import SlideFolder, tiles_in
from sparseshot.prediction.slides import Outcome, PredictionOptions, failing_alone, slide_folder_inside
from sparseshot.prediction.summary import read_summary
from sparseshot.training.checkpoint import Checkpoint

WHOLE_TILES = 48
"""A slide with no more tiles is one task: about half a minute of two CPU cores."""

_LOCK_SECONDS = 60.0
"""For a task that Ray gave up, or one of a killed caller, which still holds the lock of a folder."""


@dataclass(frozen=True)
class ClusterWork:
    """What all tasks of a prediction need; stored once in Ray's object store.

    Attributes:
        key: unique to a prediction.
        checkpoint: of the model.
        load: further arguments of :meth:`~sparseshot.prediction.model.Model.load`.
        out: folder of all results.
        options: the same for all slides.
        threads: of PyTorch in each task.
        whole_tiles: a slide with more is divided into its bands.
    """

    key: str
    checkpoint: Checkpoint
    load: Mapping[str, Any]
    out: Path
    options: PredictionOptions
    threads: int
    whole_tiles: int = WHOLE_TILES


@dataclass(frozen=True)
class Begun:
    """A slide after its first task.

    Attributes:
        folder: of its result; None if the slide could not be opened.
        outcome: None if there are bands left.
        bands: still to be found, with their numbers of tiles.
    """

    folder: Path | None = None
    outcome: Outcome | None = None
    bands: Mapping[int, int] | None = None


@dataclass
class _Here:
    """What a process of a node keeps from one task to the next: the model, and the slide it works on."""

    key: str = ""
    work: ClusterWork | None = None
    model: Model | None = None
    opened: tuple[Path, SlideFolder] | None = None


_here = _Here()


def precision_of_nodes(key: str, work: list[Any]) -> str:
    """Return the precision that ``auto`` means on this node."""
    return _prepared(key, work)[1].precision


def begin_slide(key: str, work: list[Any], path: Path, taken: frozenset[Path]) -> Begun:
    """Predict a small slide; of a large one, claim the folder and find the tissue.

    Args:
        key: of the prediction.
        work: holds a reference to the :class:`ClusterWork`.
        path: of the slide.
        taken: folders of earlier slides with the same name.
    """
    folder: Path | None = None

    def begun() -> Begun:
        nonlocal folder
        asked, model = _prepared(key, work)
        with open_slide(path, mpp=asked.options.mpp) as slide:
            folder = slide_folder_inside(asked.out, slide, taken)
            with locked(folder, wait_s=_LOCK_SECONDS), full_disk_is_output_error(folder):
                own = SlideFolder.claim(
                    slide,
                    model,
                    folder,
                    tile_px=asked.options.tile_px,
                    measuring=asked.options.measuring,
                    only_tissue=asked.options.only_tissue,
                    force=asked.options.force,
                )
                if own.manifest.finished or tiles_in(own.todo) <= asked.whole_tiles:
                    return Begun(folder, Outcome(path, predict_rest(own, asked.options.pace)))
                if asked.options.only_tissue:
                    keep_tissue(own)
                left = {band.index: tiles_in((band,)) for band in own.todo if found_band(own, band) is None}
            return Begun(folder, bands=left)

    result = failing_alone(path, begun)
    return result if isinstance(result, Begun) else Begun(folder, result)


def find_in_band(key: str, work: list[Any], path: Path, folder: Path, index: int) -> Outcome | None:
    """Find the cells of a band, and write them to a file of the slide's folder."""

    def found() -> None:
        asked, model = _prepared(key, work)
        with full_disk_is_output_error(folder):
            own = _opened(asked, model, path, folder)
            if (
                found_band(own, own.bands[index]) is None
            ):  # else by a worker that was lost before it could say so
                find_band(own, own.bands[index], asked.options.pace)

    return failing_alone(path, found)


def settle_slide(key: str, work: list[Any], path: Path, folder: Path) -> Outcome:
    """Settle the bands of a slide in order, write shards and manifest, and export."""

    def settled() -> Outcome:
        asked, model = _prepared(key, work)
        with (
            locked(folder / SHARDS, wait_s=_LOCK_SECONDS),
            full_disk_is_output_error(folder),
            open_slide(path, mpp=asked.options.mpp) as slide,
        ):
            manifest = _claimed(folder, model)
            if manifest.finished:  # by a worker that was lost before it could say so
                return Outcome(path, read_summary(folder, manifest))
            own = _reopened(asked, model, slide, folder)
            own.manifest = own.manifest.sound(folder)
            settle_bands(own)
            return Outcome(path, own.export())

    return failing_alone(path, settled)


def _prepared(key: str, work: list[Any]) -> tuple[ClusterWork, Model]:
    """Return the work and the model, loaded by the first task of this process."""
    if _here.key != key or _here.work is None or _here.model is None:
        import ray  # noqa: PLC0415  an extra

        asked: ClusterWork = ray.get(work[0])
        torch.set_num_threads(asked.threads)
        _close()
        _here.model = Model.load(asked.checkpoint, **asked.load)
        _here.key, _here.work = key, asked
    return _here.work, _here.model


def _opened(asked: ClusterWork, model: Model, path: Path, folder: Path) -> SlideFolder:
    """Return a slide with its tissue and bands, which the next band of it will need again."""
    if _here.opened is None or _here.opened[0] != folder:
        _close()
        _here.opened = folder, _reopened(asked, model, open_slide(path, mpp=asked.options.mpp), folder)
    return _here.opened[1]


def _claimed(folder: Path, model: Model) -> Manifest:
    """Return the manifest of a folder; an OutputError if it is no longer this model's."""
    manifest = Manifest.load(folder)
    if manifest is None or not manifest.is_by(model.fingerprint):
        raise OutputError(folder, "was changed by another sparseshot; run the same command again")
    return manifest


def _reopened(asked: ClusterWork, model: Model, slide: Slide, folder: Path) -> SlideFolder:
    manifest = _claimed(folder, model)
    tissue = kept_tissue(folder, manifest) if asked.options.only_tissue else TissueMask.everywhere(slide)
    return SlideFolder(slide, model, folder, manifest, tissue, asked.options.measuring)


def _close() -> None:
    if _here.opened is not None:
        _here.opened[1].slide.close()
        _here.opened = None
