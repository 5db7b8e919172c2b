"""A small slide, a project around it, and a result without a network."""

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sparseshot.cells import Cells, write_cells
from sparseshot.files import write_json
from sparseshot.images import open_slide
from sparseshot.models.windows import WindowLayout
from sparseshot.prediction.manifest import SHARDS, Done, Manifest, Shard, slide_identity
from sparseshot.prediction.shards import keep
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import RunProgress, RunRecipe, Runs, save_progress
from sparseshot.studio.studio import Studio
from sparseshot.work import File, WorkFolder
from sparseshot.work.folder import OUTPUT, RECIPE, as_json

MPP = 0.5
_DONE = RunProgress("done")


def small_slide(folder: Path, *, width: int = 1000, height: int = 700) -> tuple[Path, NDArray[np.float64]]:
    """Write pink tissue with dark discs; return the file and the centres of the discs."""
    rng = np.random.default_rng(0)
    pixels = np.full((height, width, 3), (235, 190, 215), np.uint8)
    pixels += rng.integers(0, 12, pixels.shape, np.uint8)
    x, y = np.meshgrid(np.arange(30, width - 20, 40), np.arange(30, height - 20, 40))
    centres = np.stack([x.ravel(), y.ravel()], axis=1) + rng.uniform(-8, 8, (x.size, 2))
    rows, cols = np.mgrid[:height, :width]
    for cx, cy in centres:
        near = np.s_[int(cy) - 10 : int(cy) + 11, int(cx) - 10 : int(cx) + 11]
        disc = (rows[near] + 0.5 - cy) ** 2 + (cols[near] + 0.5 - cx) ** 2 < 49
        pixels[near][disc] = (90, 50, 130)
    path = folder / "small.png"
    Image.fromarray(pixels).save(path)
    return path, centres


def copies(slide: Path, *names: str) -> list[Path]:
    """Write the same slide beside itself under other names."""
    return [Path(shutil.copy(slide, slide.with_name(name))) for name in names]


def small_studio(folder: Path) -> tuple[Studio, NDArray[np.float64]]:
    """Open a studio on a small slide."""
    slide, centres = small_slide(folder)
    return Studio.of(Project.open([slide], folder=folder / "project", mpp=MPP)), centres


def made_result(
    folder: Path, slide: Path, cells: Cells, features: NDArray[np.floating] | None = None
) -> None:
    """Write cells as a finished prediction of two shards; with their features if there are any."""
    (folder / SHARDS).mkdir(parents=True)
    shards, kept = [], []
    half = len(cells) // 2
    for number, rows in enumerate((slice(half), slice(half, None))):
        part = cells[rows]
        if features is not None:
            kept.append(keep(folder, number, part, features[rows].astype(np.float16)))
        names = f"{SHARDS}/{number:05d}.parquet", f"{SHARDS}/{number:05d}.undecided.parquet"
        for name, table in zip(names, (part, part[:0]), strict=True):
            write_cells(table, folder / name)
        file, carried = (File.of(folder, name) for name in names)
        shards.append(Shard(number, len(part), file, carried))
    with open_slide(slide, mpp=MPP) as opened:
        identity = {"slide": slide_identity(opened), "threshold": 0.5, "kind": "predict"}
    layout = WindowLayout(tile_px=1024, window_px=1024, halo_px=0, band_windows=0)
    Manifest(identity, Done(layout, 2, tuple(shards), kept=tuple(kept)), finished=True).save(folder)


def past_run(runs: Runs, number: int, state: RunProgress | None = _DONE) -> Path:
    """Write the recipe and the state of a run, without a model; return its folder."""
    folder = runs.folder(number)
    folder.mkdir(parents=True, exist_ok=True)
    if state is not None:
        save_progress(WorkFolder(folder), state)
    write_json(folder / RECIPE, as_json(RunRecipe(number, "1", marks=20)))
    return folder


def worker_of(project: Path) -> int:
    """Return the process that trains for a project."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "sparseshot.studio.worker" in words and str(project) in words:
            return int(path.name)
    raise AssertionError(f"no process trains; the last one said: {(project / OUTPUT).read_text()}")
