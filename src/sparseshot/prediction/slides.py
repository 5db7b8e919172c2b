"""Prediction of several slides; one that fails does not stop the others."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseshot.cells.stains import STAINS
from sparseshot.errors import (
    ClusterError,
    DataNotFoundError,
    FormatError,
    InputError,
    SparseshotError,
    utf8,
    was_interrupted,
)
from sparseshot.files import folder_inside, make_folder, safe_name
from sparseshot.images import open_slide
from sparseshot.images.fingerprint import is_ome_zarr, one_per_series
from sparseshot.images.opening import IMAGE_SUFFIXES
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.slide import Slide
from sparseshot.models.device import Precision
from sparseshot.models.inference import TILE_PX
from sparseshot.prediction.compiled_network import EngineName
from sparseshot.prediction.export import PredictionSummary, read_summary
from sparseshot.prediction.manifest import Manifest, slide_identity
from sparseshot.prediction.measuring import Level, Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import Throughput, predict_slide
from sparseshot.prediction.regions import parse_region
from sparseshot.work import Here, Job, Report, Runner, Update
from sparseshot.work.folder import MODEL
from sparseshot.work.runner import explain, is_out_of_memory

if TYPE_CHECKING:
    from sparseshot.work.ray_cluster import RayCluster

_THREADS = 2
"""Threads of a task. PyTorch's results differ between one thread and several, but not between two and more.
So two give the results of a process that has all cores of a machine."""

_LOCK_SECONDS = 60.0
"""Wait for the lock of a folder that a cancelled task, or one of a killed caller, still holds."""


@dataclass(frozen=True)
class PredictRequest:
    """What is asked for of all slides, in JSON values; a recipe is made of it for each slide.

    Attributes:
        model: folder of a run, its ``model.pt``, or the name of a starter.
        network: ``module:function`` of the network of one's own that it was trained with.
        threshold: None for the one calibrated in training.
        radius_um: distance within which a detector keeps one detection; None for that of the training.
        device: ``auto``, or a name that PyTorch knows.
        precision: of the network.
        engine: what runs the network.
        mpp: µm per level-0 pixel, for slides that state none.
        force_mpp: use ``mpp`` for slides that state another, too.
        everywhere: predict glass too.
        region: predict only a part of each slide; see :func:`~sparseshot.prediction.regions.parse_region`.
        features: keep all candidates and their features.
        measure: what is measured of each cell.
        stains: name of the stains.
        estimate_stains: adapt the stains to each slide.
        positive_od: optical density of DAB from which on a cell is positive; None: cells are not scored.
        tile_px: largest side of a tile.
        batch: tiles per forward pass; None to let the device decide.
        threads: number of threads that read ahead.
        force: replace results of another model.
    """

    model: str
    network: str | None = None
    threshold: float | None = None
    radius_um: float | None = None
    device: str = "auto"
    precision: Precision = "auto"
    engine: EngineName = "auto"
    mpp: float | None = None
    force_mpp: bool = False
    everywhere: bool = False
    region: str | None = None
    features: bool = False
    measure: Level = "all"
    stains: str = "he"
    estimate_stains: bool = False
    positive_od: float | None = None
    tile_px: int = TILE_PX
    batch: int | None = None
    threads: int = 2
    force: bool = False

    def load(self) -> Model:
        """Load the model; the last one is kept."""
        path = Path(self.model)
        file = path / MODEL if path.is_dir() else path
        return _load(self, file.stat().st_mtime_ns if file.is_file() else 0)

    def open(self, path: Path) -> PyramidSlide:
        """Open a slide by its pixel size."""
        return open_slide(path, mpp=self.mpp, force_mpp=self.force_mpp)

    @property
    def measuring(self) -> Measuring:
        """What is measured of each cell."""
        return Measuring(self.measure, STAINS[self.stains], self.estimate_stains, self.positive_od)

    @property
    def throughput(self) -> Throughput:
        """Speed and memory."""
        return Throughput(self.tile_px, self.batch, self.threads)


@lru_cache(maxsize=1)
def _load(asked: PredictRequest, _stamp: int) -> Model:
    names = ("network", "threshold", "radius_um", "device", "precision", "engine")
    return Model.load(asked.model, **{name: getattr(asked, name) for name in names})


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
    request: PredictRequest,
    out: Path,
    *,
    cluster: "RayCluster | None" = None,
    show: Callable[[Update], None] = lambda _: None,
) -> list[Outcome]:
    """Predict slides, each into its own folder inside ``out``; one that fails does not stop the others.

    Args:
        paths: of the slides.
        request: the same for all slides.
        out: folder of all results; created if missing.
        cluster: whose nodes predict them, and share their folders; a slide is a job, and one that starts
            again after its worker or node was lost resumes after the last shard. None for this process.
        show: receives the news of the jobs, which have the paths of their slides as names.
    """
    make_folder(out)
    path = Path(request.model)  # as other processes find it; the name of a starter stays
    request = replace(request, model=os.fspath(path.absolute()) if path.exists() else request.model)
    runner: Runner = Here()
    if cluster is not None:
        runner, request = _on_cluster(paths, request, out, cluster)
    same = {"out": os.fspath(out.absolute()), "request": asdict(request)}
    of_one_name: dict[str, list[Path]] = {}  # these would have the same folder
    for path in paths:
        of_one_name.setdefault(safe_name(utf8(path.name)), []).append(path)
    groups = {utf8(group[0]): group for group in of_one_name.values()}
    jobs = [
        Job(
            name,
            f"{__name__}:predict_group",
            same | {"paths": [os.fspath(path.absolute()) for path in group]},
            reuses_process=True,
        )
        for name, group in groups.items()
    ]
    outcomes: dict[Path, Outcome] = {}
    with closing(runner.run(jobs)) as updates:
        for update in updates:
            if update.is_end:
                group = groups[update.job.name]
                entries = update.value or [{"error": f"{path}: {update.error}"} for path in group]
                for path, entry in zip(group, entries, strict=True):
                    outcomes[path] = _outcome(path, out, **entry)
            show(update)
    return [outcomes[path] for path in paths]


def predict_group(
    paths: Sequence[str], out: str, request: Mapping[str, Any], *, report: Report
) -> list[dict[str, Any]]:
    """Predict slides of one name, mostly one; which folder the second gets depends on the first."""
    asked = PredictRequest(**request)
    taken: list[Path] = []
    entries = []
    for path in map(Path, paths):
        try:
            model = asked.load()
            with asked.open(path) as slide:
                summary = predict_slide(
                    slide,
                    model,
                    slide_folder_inside(Path(out), slide, taken),
                    throughput=asked.throughput,
                    measuring=asked.measuring,
                    only_tissue=not asked.everywhere,
                    region=None if asked.region is None else parse_region(asked.region, slide),
                    features=asked.features,
                    force=asked.force,
                    wait_s=_LOCK_SECONDS,
                    report=report,
                )
        except Exception as error:
            if was_interrupted(error):
                raise
            text = (
                explain(error)
                if isinstance(error, SparseshotError | OSError)
                else f"{path}: {explain(error)}"
            )
            if is_out_of_memory(error):
                text = f"{path}: not enough memory; lower --tile-px, --batch or --threads"
            entries.append({"error": text})
            continue
        taken.append(summary.folder)
        entry = {name: getattr(summary, name) for name in ("tiles", "seconds", "skipped")}
        entries.append({"folder": summary.folder.name, **entry})
    return entries


def precision_of_node(request: Mapping[str, Any], *, report: Report) -> str:  # noqa: ARG001
    """Return the precision that ``auto`` means where this runs."""
    return PredictRequest(**request).load().precision


def _on_cluster(
    paths: Sequence[Path], request: PredictRequest, out: Path, cluster: "RayCluster"
) -> tuple[Runner, PredictRequest]:
    """Check the nodes of a cluster, and decide once what they might decide differently."""
    from sparseshot.work.ray_runner import RayRunner  # noqa: PLC0415  an extra

    runner = RayRunner(cluster, cpus=min(_THREADS, os.cpu_count() or 1), memory_bytes=0, ahead=2)
    cluster.needs(cpus=runner.cpus)
    inputs = {path.absolute().parent for path in paths} | {Path(request.model)}
    cluster.check(out.absolute(), sorted(path for path in inputs if path.exists()))
    device = "cuda" if cluster.has_gpus else "cpu" if cluster.device == "auto" else cluster.device
    request = replace(request, device=device)
    if request.precision == "auto":
        asked = Job("precision", f"{__name__}:precision_of_node", {"request": asdict(request)})
        (end,) = [update for update in runner.run([asked]) if update.is_end]
        if end.error:
            raise ClusterError(f"the model cannot be loaded on a node: {end.error}")
        request = replace(request, precision=end.value)
    return runner, request


def _outcome(path: Path, out: Path, *, error: str | None = None, folder: str = "", **numbers: Any) -> Outcome:
    """Read the summary of a slide that was predicted."""
    if error is not None:
        return Outcome(path, error=error)
    manifest = Manifest.load(out / folder)
    assert manifest is not None
    return Outcome(path, replace(read_summary(out / folder, manifest), **numbers))


def slide_folder_inside(out: Path, slide: Slide, taken: Collection[Path]) -> Path:
    """Return the folder of a slide: its name, with its fingerprint if the name is taken."""
    identity, plain, there = slide_identity(slide), folder_inside(out, slide.name), None
    with suppress(FormatError):  # predict_slide will say what is wrong with it
        there = Manifest.load(plain)
    if plain in taken or (there is not None and not there.is_of(identity)):
        return folder_inside(out, slide.name, suffix=f"-{identity['fingerprint'][:12]}")
    return plain
