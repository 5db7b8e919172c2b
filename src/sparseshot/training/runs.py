"""Runs: from a request to a model, and its evaluation."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from sparseshot.errors import InputError, OutputError
from sparseshot.files import make_folder, write_json
from sparseshot.losses import make_loss
from sparseshot.models.checkpoint import Checkpoint, versions
from sparseshot.models.config import (
    DEFAULT_LOSS,
    SCRATCH,
    STARTER,
    STARTER_NAMES,
    TrainConfig,
    TrainSettings,
)
from sparseshot.models.device import circumstances, find_device, make_fabric, uses_bfloat16
from sparseshot.models.model_files import check_start, load_model, load_start
from sparseshot.models.task import make_own_network
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.evaluation import Evaluation, evaluate
from sparseshot.training.held_out import certainty_of, prepare
from sparseshot.training.kind_marks import for_finding, with_kinds
from sparseshot.training.lineage import keep_marks, start_of
from sparseshot.training.loop import train
from sparseshot.training.mark_checks import warn_of_contradictions
from sparseshot.training.pictures import write_picture
from sparseshot.training.pseudo_labels import (
    find_pseudo_labels,
    keep_pseudo_labels,
    kept_pseudo_labels,
    promoted,
    with_pseudo_labels,
)
from sparseshot.training.recipe import (
    TrainRecipe,
    TrainRequest,
    WeakSupervision,
    read_run,
    resolve,
    task_of,
)
from sparseshot.work import Event, Report, WorkFolder, ignore
from sparseshot.work.folder import MODEL, ROUNDS, SOURCE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PREPARING = "preparing"
"""Stage of the events that say what the marks and the start decided."""

_SHARE_OF_STEPS = 0.8
"""Share of the time of a run that goes into steps; the rest is validation."""

Slides = tuple[list[AnnotatedSlide], list[AnnotatedSlide]]
"""To learn from, and to validate on."""


def train_run(
    config: TrainConfig,
    data: TrainingData,
    folder: Path,
    *,
    weak: WeakSupervision | None = None,
    minutes: float | None = None,
    most_minutes: float | None = None,
    network: nn.Module | None = None,
    fabric: "Fabric | None" = None,
    report: Report = ignore,
) -> Checkpoint:
    """Train on the data, or resume the run in ``folder``; a finished run is only loaded.

    Args:
        config: of the run; what is None is chosen by the marks and the start.
        data: what to train on.
        folder: of the run.
        weak: rounds of weak supervision; None for none.
        minutes: about how long to train, where the configuration leaves the steps open; None: as long as the
            marks are worth.
        most_minutes: about how long to train at most, in that case.
        network: a custom one, see :func:`~sparseshot.training.loop.train`; None: the one that the
            configuration names.
        fabric: a custom one, for other machines and strategies.
        report: receives what is chosen here as messages of the stage ``preparing``, then the training.
    """
    request = TrainRequest(config, data, weak or WeakSupervision(1), minutes, most_minutes)
    files, recipe = data.fingerprint(), read_run(folder)
    if recipe is not None and (difference := recipe.difference(request, files)):
        raise OutputError(folder, f"holds a run with {difference}; choose another folder")
    if recipe is not None and (folder / MODEL).exists():
        checkpoint = load_model(folder, network=config.network)
        if checkpoint.kinds is not None or not recipe.settings.by_kind:
            return checkpoint
    if recipe is None:  # errors come before anything is loaded
        check_start(config.start)
        make_loss(config.loss or DEFAULT_LOSS, config.loss_options or {})
    fabric = fabric or make_fabric(config.precision)
    fabric.launch()
    slides = data.load()
    if recipe is None and fabric.is_global_zero:  # one process decides and speaks for all
        recipe = _decide(request, slides[0], files, fabric.device, report)
    decided: TrainRecipe = fabric.broadcast(recipe)  # type: ignore[assignment]  # never None in the first
    if network is None and config.network:
        network = make_own_network(config.network, decided.settings.make_task())
    checkpoint = perform(decided, folder, report, slides=slides, network=network, fabric=fabric)
    return replace(checkpoint, own_network=config.network)


def _decide(
    request: TrainRequest,
    slides: Sequence[AnnotatedSlide],
    files: Mapping[str, str],
    device: torch.device,
    report: Report,
) -> TrainRecipe:
    """Load the model that a request starts from, and resolve the request."""
    config, own_marks = request.config, request.data.dataset is None
    for item in slides if own_marks else ():
        warn_of_contradictions(item.marks, config.labelling, item.slide.name)
    marks = [item.marks for item in slides]
    name = config.start or STARTER
    model = load_start(name, task_of(config, marks)[0])
    start = None if model is None else start_of(model, name, slides if own_marks else None)
    if start is not None and config.loss is None and not start.is_run:
        start = start._replace(certainty=certainty_of(start.model, config, slides))
    minutes = request.minutes or request.most_minutes

    def affordable(settings: TrainSettings) -> int:
        return steps_in(minutes or 0.0, settings, device)

    recipe, said = resolve(
        request, marks, start, files=files, affordable_steps=None if minutes is None else affordable
    )
    for message in said:
        report(Event(PREPARING, message=message))
    return recipe


def perform(
    recipe: TrainRecipe,
    folder: Path,
    report: Report = ignore,
    *,
    slides: Slides | None = None,
    network: nn.Module | None = None,
    fabric: "Fabric | None" = None,
) -> Checkpoint:
    """Train by a recipe in a folder that it claims, or resume.

    Args:
        recipe: decides everything.
        folder: of the run; with rounds of weak supervision the earlier ones are in ``folder/rounds``.
        report: receives progress events.
        slides: if they are open already.
        network: a custom one.
        fabric: a custom one.
    """
    settings, weak = recipe.settings, recipe.request.weak
    fabric = fabric or make_fabric(settings.precision)
    training, validation = slides or recipe.request.data.load()
    named = [*training, *validation]
    if settings.by_kind:
        training = [for_finding(item, settings) for item in training]
        validation = [for_finding(item, settings) for item in validation]
    gpus = [fabric.device] if fabric.device.type == "cuda" else []
    # Training seeds torch's generators, whose state belongs to the caller.
    with torch.random.fork_rng(devices=gpus), _claimed(recipe, folder, fabric) as work:
        if work is not None and not work.state.own.get("prepared"):
            _keep_for_resume(recipe, training, folder, report)
            work.save(own={"prepared": True})
        fabric.barrier()
        kept, marked = kept_pseudo_labels(folder, training), training
        for number in range(1, weak.rounds + 1):
            last = number == weak.rounds
            canvases, held_out = prepare(
                with_pseudo_labels(marked, kept, settings), validation, settings, by_people=training
            )
            place = folder if last else folder / ROUNDS / str(number)
            checkpoint = train(
                settings, canvases, held_out, place, network=network, fabric=fabric, report=report
            )
            if not last:
                module = checkpoint.network(network)
                marked = [promoted(item, module, settings, tau=weak.tau) for item in training]
        if work is not None and settings.by_kind and checkpoint.kinds is None:
            checkpoint = with_kinds(checkpoint, named, network=network)
            checkpoint.save(folder / MODEL)
        if work is not None:
            facts = circumstances(settings.precision, fabric.device) | {"versions": versions()}
            work.finish(MODEL, own={**work.state.own, "circumstances": facts})
    return checkpoint


@contextmanager
def _claimed(recipe: TrainRecipe, folder: Path, fabric: "Fabric") -> Iterator[WorkFolder | None]:
    """Claim the folder of a run; None in the processes that help another one."""
    if not fabric.is_global_zero:
        yield None
        return
    with WorkFolder.claimed(folder, recipe, may_replace=lambda there: not there) as work:
        yield work


def _keep_for_resume(
    recipe: TrainRecipe, slides: Sequence[AnnotatedSlide], folder: Path, report: Report
) -> None:
    """Write marks, and pseudo-labels of the model that the run continues, which may be gone later."""
    settings = recipe.settings
    if recipe.request.data.dataset is None:
        keep_marks(folder, slides)
    if settings.start in {SCRATCH, *STARTER_NAMES} or (folder / SOURCE).is_file():  # version 0.2 wrote them
        return
    parent = load_model(settings.start, network=settings.network)
    if parent.has_classes(settings.labelling.names):
        found = find_pseudo_labels(parent, slides, settings)
        keep_pseudo_labels(folder, found)
        if count := sum(map(len, found)):
            message = f"{count:,} confident predictions are learned as cells, because others were rejected"
            report(Event(PREPARING, message=message))


def steps_in(minutes: float, config: TrainSettings, device: torch.device | None = None) -> int:
    """Return the optimiser steps that fit into a time on a device, by a trial of a few."""
    device = device or torch.device("cpu")
    task = config.make_task()
    network = make_own_network(config.network, task) if config.network else task.network()
    network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = torch.rand(config.batch, 3, config.crop_px, config.crop_px, device=device)
    image = image.contiguous(memory_format=torch.channels_last)
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=uses_bfloat16(config.precision, device)):
            output = network(image)
        output.float().square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return max(20, int(_SHARE_OF_STEPS * 60 * minutes / min(seconds)))


def evaluate_run(
    run: Path,
    images: Sequence[AnnotatedSlide],
    out: Path,
    *,
    shown: Sequence[AnnotatedSlide] = (),
    exhaustive: bool = True,
    device: str = "cpu",
    network: str | None = None,
) -> Evaluation:
    """Evaluate a run's model; write ``evaluation.json`` and ``evaluation.png`` to ``out``.

    Args:
        run: folder of the run, or its ``model.pt``.
        images: with their marks.
        out: folder for the results.
        shown: images for the picture, before three of ``images``.
        exhaustive: every cell of the images is marked; see :func:`~sparseshot.training.evaluation.evaluate`.
        device: a name that PyTorch knows, or ``auto``.
        network: ``module:function`` of the network of one's own that it was trained with.
    """
    if not images:
        raise InputError("no images to evaluate on; choose another split or give --images")
    checkpoint = load_model(run, network=network)
    result = evaluate(checkpoint, images, exhaustive=exhaustive, device=find_device(device))
    make_folder(out)
    write_json(out / "evaluation.json", result)
    threshold = 0.5 if checkpoint.threshold is None else checkpoint.threshold
    spread = images[:: max(1, len(images) // 3)][:3]
    write_picture(out / "evaluation.png", checkpoint, [*shown, *spread], threshold=threshold)
    return result
