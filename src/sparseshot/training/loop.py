"""The one training loop, for both tasks and every loss."""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from sparseshot.errors import CheckpointError, InputError, OutputError, SparseshotError
from sparseshot.files import make_folder
from sparseshot.losses import EmaTeacher, Hints, make_loss, warn_of_runaway
from sparseshot.metrics.threshold import PRIOR_SPREAD
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.device import make_fabric
from sparseshot.models.inference import jittered_network_input
from sparseshot.models.model_files import load_start
from sparseshot.models.task import kind_loss
from sparseshot.training.canvas import Canvas
from sparseshot.training.crops import CropBatch, CropSource
from sparseshot.training.held_out import HeldOut, gather_evidence
from sparseshot.training.logs import RunLog, exclusion_values, progress_note
from sparseshot.work import Event, Report, ignore
from sparseshot.work.folder import BEST, LAST, MODEL, difference

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_LARGEST_GRADIENT = 5.0
_RUNAWAY = 0.9
"""Share of the unannotated locations above which exclusion reinforces itself."""
_KIND_WEIGHT = 0.5
_HOLD_WEIGHT = 0.1
_HALFWAY_MARKS = 60
"""Marks from which a model that its start holds ends halfway between the start's weights and its own."""


def train(
    config: TrainSettings,
    canvases: Sequence[Canvas],
    held_out: Sequence[HeldOut],
    folder: Path,
    *,
    start: Checkpoint | None = None,
    network: nn.Module | None = None,
    fabric: "Fabric | None" = None,
    report: Report = ignore,
) -> Checkpoint:
    """Train or resume the run in ``folder``, and return the finished model.

    Args:
        config: of the run.
        canvases: to learn from.
        held_out: marks that choose the threshold and the best checkpoint.
        folder: of the run; it resumes from its last checkpoint, a finished one is only loaded.
        start: a model to start from instead of the one that the configuration names.
        network: a custom one, ``(N, 3, H, W)`` to the task's channels; None for the task's.
        fabric: a custom one, for other machines and strategies.
        report: receives an event of the stage ``training`` with each line of the log.
    """
    fabric = fabric or make_fabric(config.precision)
    fabric.launch()
    if config.batch % fabric.world_size:
        raise InputError(
            f"a batch of {config.batch} cannot be shared by {fabric.world_size} processes; make it a multiple"
        )
    main = fabric.is_global_zero
    make_folder(folder)
    if (folder / MODEL).exists():
        return _of_this_run(folder / MODEL, config)
    last = _of_this_run(folder / LAST, config) if (folder / LAST).exists() else None
    if last is not None or network is not None:
        start = None
    elif start is None:
        start = load_start(config.start, config.task)
    run = _Run(config, start, network, fabric, marks=sum(len(canvas.points.xy) for canvas in canvases))
    if last is not None:
        run.resume(last)
    fabric.barrier()
    share = config.batch // fabric.world_size
    items = range(fabric.global_rank * share, (fabric.global_rank + 1) * share)
    source = CropSource(canvases, config)
    log = RunLog(folder, start=run.step) if main else None
    validation_steps = {round(config.steps * (k + 1) / config.validations) for k in range(config.validations)}
    clock, since = time.perf_counter(), run.step
    for batch in source.ahead(range(run.step, config.steps), items):
        logged = (run.step + 1) % config.log_every == 0 or run.step + 1 == config.steps
        values = run.learn(batch.to(fabric.device), watch=logged)
        if run.step in validation_steps:
            values |= run.validate(held_out, folder)
        if logged and log is not None:
            now = time.perf_counter()
            values["crops_per_second"] = (run.step - since) * config.batch / (now - clock)
            clock, since = now, run.step
            log.write(run.step, values)
            report(Event("training", run.step, config.steps, values, progress_note(values)))
        if main and (run.step in validation_steps or run.step % config.checkpoint_every == 0):
            run.checkpoint().save(folder / LAST)
    if log is not None:
        log.close()
        (folder / BEST).replace(folder / MODEL)
        (folder / LAST).unlink(missing_ok=True)  # only a resume needs it
    fabric.barrier()
    return Checkpoint.load(folder / MODEL)


class _Run:
    """The state of a run."""

    def __init__(
        self,
        config: TrainSettings,
        start: Checkpoint | None,
        network: nn.Module | None,
        fabric: "Fabric",
        *,
        marks: int,
    ) -> None:
        torch.manual_seed(config.seed)
        self.config, self.marks = config, marks
        self.task = config.make_task()
        self.step = 0
        self.best: float | None = None
        module = network or self.task.network()
        if start is not None:
            begin_from(start, module, config)
        rate = config.learning_rate or 3e-3  # an early version left it open
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in its stub
        optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=config.weight_decay)
        total = config.steps + 1
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            rate,
            total_steps=total,
            pct_start=max(0.25, 1.5 / total),  # with fewer than two steps to rise in, it divides by zero
        )
        self.criterion = make_loss(config.loss, config.loss_options).to(fabric.device)
        self.fabric = fabric
        self.network, self.optimizer = fabric.setup(module, optimizer)
        self.network.train()
        self.ran_away = False
        self.teacher: EmaTeacher | None = None
        if "teacher_logits" in self.criterion.wants:
            self.teacher = EmaTeacher(self.module, decay=self.criterion.teacher_decay)

    @property
    def module(self) -> nn.Module:
        """The bare network."""
        module: nn.Module = self.network.module
        return module

    def learn(self, batch: CropBatch, *, watch: bool) -> dict[str, float | None]:
        """Do one step; with ``watch``, return the values to log."""
        # Seeded by step, so that a loss with random draws repeats them after a resume.
        torch.manual_seed((self.config.seed << 32) + self.step)
        progress = self.step / max(1, self.config.steps - 1)
        image = jittered_network_input(batch.image, batch.jitter)
        output = self.network(image)
        logits = self.task.logits(output)
        advice = known = None
        if self.teacher is not None and progress >= self.criterion.teacher_from:
            known = self.teacher(image)
            advice = self.task.logits(known)
        hints = Hints(batch.truth, batch.centres, batch.exhaustive, teacher_logits=advice)
        loss = self.criterion(
            logits, batch.target, annotated=batch.annotated, progress=progress, hints=hints
        ) + self.task.place_loss(output, batch.target, batch.offset, batch.size, batch.height)
        others = logits.shape[1]
        if (
            self.teacher is not None
            and known is not None
            and self.teacher.frozen
            and output.shape[1] > others
        ):
            # Places and features stay those of the start too.
            loss = loss + _HOLD_WEIGHT * F.mse_loss(output[:, others:].float(), known[:, others:].float())
        if batch.kind is not None:
            loss = loss + _KIND_WEIGHT * kind_loss(self.task, self.module, output, batch.kind)
        self.optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        self.fabric.clip_gradients(self.network, self.optimizer, max_norm=_LARGEST_GRADIENT)
        self.optimizer.step()
        self.schedule.step()
        if self.teacher is not None:
            self.teacher.update(self.module)
        self.step += 1
        if not watch:
            return {}
        value = float(loss.detach())
        if math.isnan(value):
            raise SparseshotError(
                f"the loss is not a number at step {self.step}; "
                f"lower learning_rate, now at most {self.schedule.optimizer.param_groups[0]['max_lr']:g}"
            )
        excluded = self.criterion.exclusion_mask(
            logits.detach(), batch.target, annotated=batch.annotated, progress=progress
        )
        log_values: dict[str, float | None] = {
            "loss": value,
            "learning_rate": float(self.schedule.get_last_lr()[0]),
        }
        shares = exclusion_values(excluded, batch)
        if (shares.get("excluded") or 0.0) > _RUNAWAY and not self.ran_away:
            self.ran_away = True
            warn_of_runaway(shares["excluded"] or 0.0, limit=_RUNAWAY)
        return log_values | self.criterion.log_values() | shares

    def validate(self, held_out: Sequence[HeldOut], folder: Path) -> dict[str, float | None]:
        """Choose the threshold from held-out marks, and keep the weights unless earlier ones were better.

        Better by more than twice the standard error: few marks say little, and while the learning rate
        falls, later weights are better a priori.
        """
        if not self.fabric.is_global_zero:
            return {}
        # Held by a frozen start, scores mean what they meant to it.
        spread = PRIOR_SPREAD if self.teacher is not None and self.teacher.frozen else None
        prior, network = self.criterion.built_for, self.shrunk()
        gathered = gather_evidence(network, self.config, held_out, prior=prior, spread=spread)
        evidence, seen = gathered or (None, None)
        criterion, threshold = (None, None) if seen is None else (seen.criterion, seen.threshold)
        doubt = 0.0 if seen is None else 2 * seen.criterion_error
        if criterion is None or self.best is None or criterion + doubt >= self.best:
            self.best = criterion
            if evidence is not None:
                evidence = replace(evidence, marked_share=self.criterion.log_values().get("marked_share"))
            model = Checkpoint(
                self.config,
                network.state_dict(),
                self.step,
                threshold=threshold,
                criterion=criterion,
                evidence=evidence,
            )
            model.save(folder / BEST)
        return {"criterion": criterion, "threshold": threshold}

    def shrunk(self) -> nn.Module:
        """Return the network, drawn back to a start that holds it: the fewer marks, the farther."""
        if self.teacher is None or not self.teacher.frozen:
            return self.module
        network = copy.deepcopy(self.module)
        start = self.teacher.averaged.module.state_dict()
        share = _HALFWAY_MARKS / (self.marks + _HALFWAY_MARKS)
        with torch.no_grad():
            for name, weight in network.state_dict().items():
                if weight.is_floating_point():
                    weight.lerp_(start[name], share)
        return network

    def checkpoint(self) -> Checkpoint:
        """Return everything that a resume needs."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "criterion": self.criterion.state_dict(),
            "teacher": None if self.teacher is None else self.teacher.state_dict(),
            "best": self.best,
        }
        return Checkpoint(self.config, self.module.state_dict(), self.step, state=state)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint; a CheckpointError if it does not fit."""
        try:
            self.module.load_state_dict(checkpoint.weights)
            self.optimizer.load_state_dict(checkpoint.state["optimizer"])
            self.schedule.load_state_dict(checkpoint.state["schedule"])
            self.criterion.load_state_dict(checkpoint.state["criterion"])
            if self.teacher is not None:
                self.teacher.load_state_dict(checkpoint.state["teacher"])
            self.best = checkpoint.state["best"]
        except Exception as error:  # torch raises many kinds for a damaged state
            writer = checkpoint.versions.get("sparseshot", "unknown")
            raise CheckpointError(
                checkpoint.path,
                "does not fit this network and loss; resume with the network it was begun with and the "
                f"sparseshot that wrote it ({writer}), or begin anew in another folder",
            ) from error
        self.step = checkpoint.step


def begin_from(start: Checkpoint, network: nn.Module, config: TrainSettings) -> None:
    """Copy the weights of a model; a last layer of other classes stays random."""
    own, same_classes = network.state_dict(), start.has_classes(config.labelling.names)
    kept = {
        name: weight
        for name, weight in start.weights.items()
        if name in own and own[name].shape == weight.shape and (same_classes or not name.startswith("head."))
    }
    network.load_state_dict(own | kept)


def _of_this_run(path: Path, config: TrainSettings) -> Checkpoint:
    """Load a checkpoint; raise if another configuration made it."""
    checkpoint = Checkpoint.load(path)
    if checkpoint.config != config:
        changes = difference(vars(checkpoint.config), vars(config))
        raise OutputError(
            path.parent, f"holds a run with another configuration ({changes}); choose another folder"
        )
    return checkpoint
