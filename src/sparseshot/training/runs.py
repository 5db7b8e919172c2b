"""Runs: configure, train, evaluate."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sparseshot.errors import DataNotFoundError, InputError, OutputError, unknown_name
from sparseshot.files import locked, make_folder, read_json, read_text, read_toml, write_json
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import PROFILES, SCRATCH, STARTER_NAMES, TrainConfig
from sparseshot.models.device import find_device, make_fabric
from sparseshot.models.model_files import load_model
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.evaluation import Evaluation, evaluate
from sparseshot.training.lineage import (
    Parent,
    changes_since_parent,
    check_parent,
    keep_marks,
    parents_of,
)
from sparseshot.training.loop import claim, train
from sparseshot.training.mark_checks import (
    check_marks,
    classes_of_marks,
    colors_of_marks,
    describe_classes,
    suppression_radius_um,
    task_of_marks,
    warn_of_contradictions,
)
from sparseshot.training.pictures import write_picture
from sparseshot.training.prepare import prepare
from sparseshot.training.pseudo_labels import (
    find_pseudo_labels,
    keep_pseudo_labels,
    kept_pseudo_labels,
    with_pseudo_labels,
)
from sparseshot.training.rounds import WeakSupervision, train_in_rounds
from sparseshot.training.starting import (
    at_resolution_of,
    continue_run,
    find_start,
    fine_tune,
    has_same_classes,
    rate_for,
    steps_for,
    steps_in,
    with_kinds_of,
)
from sparseshot.work import Event, Report, ignore
from sparseshot.work.run_files import CONFIG, MODEL, SOURCE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PREPARING = "preparing"
"""Stage of the events that say what the marks and the start decided."""

_CHOSEN = (
    "task",
    "start",
    "steps",
    "learning_rate",
    "validations",
    "loss_options",
    "kind_features",
    "kinds",
    "radius_um",
    "classes",
    "colors",
    "mpp",
)
"""Settings that the marks and the start decide where they are not given."""


def make_config(profile: str, file: Path | None, settings: Mapping[str, Any]) -> TrainConfig:
    """Return a configuration: settings override the TOML file, which overrides the profile."""
    if profile not in PROFILES:
        raise InputError(unknown_name("profile", profile, PROFILES))
    values = dict(PROFILES[profile])
    if file is not None:
        values |= read_toml(file)
    known = [item.name for item in fields(TrainConfig)]
    for name in values:
        if name not in known:
            raise InputError(f"{file or profile}: {unknown_name('setting', name, known)}")
    return TrainConfig(**{**values, **settings})


def train_run(
    config: TrainConfig,
    data: TrainingData,
    folder: Path,
    *,
    weak: WeakSupervision | None = None,
    minutes: float | None = None,
    fabric: "Fabric | None" = None,
    report: Report = ignore,
) -> Checkpoint:
    """Train on the data, or resume the run in ``folder``; a finished run is only loaded.

    Args:
        config: of the run; a task of ``auto`` is chosen by the marks.
        data: what to train on.
        folder: of the run.
        weak: rounds of weak supervision; None for none.
        minutes: about how long to train, where the configuration leaves the steps open; None: as long as the
            marks are worth.
        fabric: a custom one, for other machines and strategies.
        report: receives what is chosen here as messages of the stage ``preparing``, then the training.
    """
    weak = weak or WeakSupervision(1)
    check_parent(config, folder)
    if (folder / MODEL).exists():
        _claimed(
            config, data, [], folder, weak=weak, minutes=minutes, device=torch.device("cpu"), report=report
        )
        return Checkpoint.load(folder / MODEL)
    fabric = fabric or make_fabric(config.precision)
    fabric.launch()
    training, validation = data.load()
    start: Checkpoint | None = None
    main = fabric.is_global_zero
    if main:  # one process chooses and speaks for all
        config, start = _claimed(
            config, data, training, folder, weak=weak, minutes=minutes, device=fabric.device, report=report
        )
    fabric.barrier()
    if not main:
        config = TrainConfig.from_json(read_text(folder / CONFIG), source=folder / CONFIG)

    def trainer(slides: Sequence[AnnotatedSlide], where: Path) -> Checkpoint:
        slides = with_pseudo_labels(slides, kept_pseudo_labels(folder, slides), config)
        canvases, held_out = prepare(slides, validation, config, by_people=training)
        return train(config, canvases, held_out, where, start=start, fabric=fabric, report=report)

    with locked(folder) if main else nullcontext():
        if main and data.dataset is None:
            keep_marks(folder, training)
        return train_in_rounds(weak, config, training, folder, trainer=trainer)


def _claimed(
    config: TrainConfig,
    data: TrainingData,
    training: Sequence[AnnotatedSlide],
    folder: Path,
    *,
    weak: WeakSupervision,
    minutes: float | None,
    device: torch.device,
    report: Report,
) -> tuple[TrainConfig, Checkpoint | None]:
    """Choose what the configuration leaves open, and record it in the folder, or check it against the record.

    Return the configuration and the model that a new run starts from.
    """
    given = [name for name in _CHOSEN if getattr(config, name) != getattr(TrainConfig(), name)]
    config = with_choices_of(folder, config)
    if training:
        config = _announced(config, data, training, report)
    start: Checkpoint | None = None
    begins = not (folder / MODEL).exists() and not (folder / SOURCE).exists()
    if begins:
        start, sentence = find_start(config)
        if not (folder / CONFIG).exists():
            config = _with_start(
                config,
                start,
                data,
                training,
                sentence=sentence,
                minutes=minutes,
                device=device,
                report=report,
            )
    claim(folder, config)
    if start is not None and config.start not in STARTER_NAMES and has_same_classes(start, config):
        found = find_pseudo_labels(start, training, config)
        keep_pseudo_labels(folder, found)
        if count := sum(map(len, found)):
            _say(
                report, f"{count:,} confident predictions are learned as cells, because others were rejected"
            )
    parents = parents_of(start, config) if begins else []
    _claim_data(folder / SOURCE, data, weak, given, parents)
    return config, start


def _announced(
    config: TrainConfig, data: TrainingData, training: Sequence[AnnotatedSlide], report: Report
) -> TrainConfig:
    """Choose the task by the marks where it is not given, and say what is learned."""
    tables = [item.marks for item in training]
    check_marks(tables, config.labelling)  # before the folder is claimed, so that the marks can be corrected
    if config.task == "auto":
        task, reason = task_of_marks([config.labelling.positives(cells) for cells in tables])
        config = replace(config, task=task)
        _say(report, f"task {task}, because {reason}; --task overrides it")
    if not config.radius_um and config.task == "detect" and data.dataset is None:
        positives = [config.labelling.positives(cells) for cells in tables]
        config = replace(config, radius_um=suppression_radius_um(positives))
        _say(report, f"one detection within {config.radius_um:g} µm, by the marks; --radius-um overrides it")
    if data.dataset is None:
        for item in training:
            warn_of_contradictions(item.marks, config.labelling, item.slide.name)
        classes = classes_of_marks(config.labelling, tables)
        config = replace(config, classes=classes, colors=config.colors or colors_of_marks(classes, tables))
    _say(report, describe_classes(config.labelling, tables, own_marks=data.dataset is None))
    return config


def _with_start(
    config: TrainConfig,
    start: Checkpoint | None,
    data: TrainingData,
    training: Sequence[AnnotatedSlide],
    *,
    sentence: str,
    minutes: float | None,
    device: torch.device,
    report: Report,
) -> TrainConfig:
    """Choose the start, its resolution, the steps and the learning rate where not given, and say so."""
    if start is None:
        config = replace(config, start=SCRATCH)
    else:
        config = with_kinds_of(start, at_resolution_of(start, config))
    if minutes is not None and not config.steps:
        config = replace(config, steps=steps_in(minutes, config, device))
    changes = None
    if start is not None and data.dataset is None and (start.path.parent / SOURCE).is_file():
        changes = changes_since_parent(start.path.parent, training)
        _say(report, f"marks since then: {changes or 'unknown, because that run kept none'}")
    knows_cells = start is not None and has_same_classes(start, config)
    if start is not None and changes is not None and knows_cells:
        config = continue_run(config, start, changes.total)
    marks = sum(len(config.labelling.positives(item.marks)) for item in training)
    steps = config.steps or steps_for(marks, from_scratch=start is None)
    _say(report, f"{sentence}, {steps} steps")
    rate = config.learning_rate or rate_for(marks, from_scratch=start is None)
    return replace(fine_tune(config, knows_cells=knows_cells), steps=steps, learning_rate=rate)


def _say(report: Report, message: str) -> None:
    report(Event(PREPARING, message=message))


def with_choices_of(folder: Path, config: TrainConfig) -> TrainConfig:
    """Return the configuration with what the marks chose for the run in a folder."""
    path = folder / CONFIG
    if not path.exists():
        return config
    old = TrainConfig.from_json(read_text(path), source=path)
    source = read_json(folder / SOURCE) if (folder / SOURCE).exists() else None
    given = source.get("given") if isinstance(source, dict) else None
    if not isinstance(given, list):  # an earlier version wrote none
        given = ["classes"] if len(old.classes) > 1 else []
    default = TrainConfig()
    chosen = {
        name: getattr(old, name)
        for name in _CHOSEN
        if name not in given and getattr(config, name) == getattr(default, name)
    }
    if chosen.get("classes", config.classes) != old.classes:
        chosen.pop("colors", None)
    return replace(config, **chosen)


def _claim_data(
    path: Path, data: TrainingData, weak: WeakSupervision, given: Sequence[str], parents: Sequence[Parent]
) -> None:
    """Record what the run is trained on and which settings were given, or check that no data has changed."""
    record = json.loads(data.to_json()) | {"weak": asdict(weak), "fingerprint": data.fingerprint()}
    if not path.exists():
        write_json(path, record | {"given": given, "parents": [parent._asdict() for parent in parents]})
        return
    old = read_json(path) if TrainingData.read(path) == data else {}
    if old.get("weak", record["weak"]) != record["weak"] or not old:
        raise OutputError(path.parent, "holds a run on other images, marks or rounds; choose another folder")
    before = old.get("fingerprint", {})  # an earlier version wrote none
    changed = [file for file, digest in record["fingerprint"].items() if before.get(file, digest) != digest]
    if changed:
        raise OutputError(
            path.parent,
            f"holds a run that was begun with another content of {', '.join(changed)}; "
            "choose another folder, or restore the file",
        )


def run_data(run: Path) -> TrainingData:
    """Return what a run was trained on."""
    folder = run if run.is_dir() else run.parent
    if not (folder / SOURCE).is_file():
        raise DataNotFoundError(
            folder / SOURCE, "is missing, so say what to evaluate on: --dataset or --images"
        )
    return TrainingData.read(folder / SOURCE)


def evaluate_run(
    run: Path,
    images: Sequence[AnnotatedSlide],
    out: Path,
    *,
    shown: Sequence[AnnotatedSlide] = (),
    exhaustive: bool = True,
    device: str = "cpu",
) -> Evaluation:
    """Evaluate a run's model; write ``evaluation.json`` and ``evaluation.png`` to ``out``.

    Args:
        run: folder of the run, or its ``model.pt``.
        images: with their marks.
        out: folder for the results.
        shown: images for the picture, before three of ``images``.
        exhaustive: every cell of the images is marked; see :func:`~sparseshot.training.evaluation.evaluate`.
        device: a name that PyTorch knows, or ``auto``.
    """
    if not images:
        raise InputError("no images to evaluate on; choose another split or give --images")
    checkpoint = load_model(run)
    result = evaluate(checkpoint, images, exhaustive=exhaustive, device=find_device(device))
    make_folder(out)
    result.write(out / "evaluation.json")
    threshold = 0.5 if checkpoint.threshold is None else checkpoint.threshold
    spread = images[:: max(1, len(images) // 3)][:3]
    write_picture(out / "evaluation.png", checkpoint, [*shown, *spread], threshold=threshold)
    return result
