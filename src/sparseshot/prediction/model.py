"""A trained network, ready to predict slides."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from sparseshot.errors import InputError, SparseshotError, counted
from sparseshot.images import Grid, Slide, TissueMask
from sparseshot.metrics import ExpectedQuality, expected_quality
from sparseshot.models.checkpoint import Checkpoint, fingerprint
from sparseshot.models.device import Precision, find_device, uses_bfloat16
from sparseshot.models.finder import Finder, SlideFrame
from sparseshot.models.inference import forward
from sparseshot.models.kind_head import KindHead
from sparseshot.models.model_files import load_model
from sparseshot.models.task import Task
from sparseshot.models.windows import Band, WindowLayout, plan
from sparseshot.prediction.compiled_network import (
    STREAMS,
    EngineName,
    NetworkPrecision,
    compiled_network,
    is_worthwhile,
)


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its task, threshold, device, precision and engine.

    Attributes:
        network: in evaluation mode, on its device, batch normalisation folded into the convolutions.
        task: what its output means.
        classes: names of the classes it finds.
        colors: of the classes, as ``#rrggbb``; empty for a palette.
        mpp: resolution it works at, µm/px.
        threshold: probability at which something is a cell.
        device: of the network.
        precision: ``32``, or ``bf16`` for convolutions in bfloat16.
        fingerprint: SHA-256 of weights and configuration.
        quality: what is expected of it at its threshold; None if that is unknown.
        kinds: tells the kinds of found cells apart; None where there are none.
        engine: what runs the network. ``auto`` decides for each slide; outside :func:`predict_slide` it is
            ``eager``.
    """

    network: nn.Module
    task: Task
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    mpp: float
    threshold: float
    device: torch.device
    precision: NetworkPrecision
    fingerprint: str
    quality: ExpectedQuality | None = None
    kinds: KindHead | None = None
    engine: EngineName = "auto"

    @classmethod
    def load(
        cls,
        run: Path | str | Checkpoint,
        *,
        network: nn.Module | str | None = None,
        threshold: float | None = None,
        radius_um: float | None = None,
        device: str = "auto",
        precision: Precision = "auto",
        engine: EngineName = "auto",
    ) -> Self:
        """Prepare the model of a finished run for prediction.

        Args:
            run: its folder, its ``model.pt``, or the checkpoint itself.
            network: a custom network, if it was trained with one, or its ``module:function``; it has
                ``margin_px``, how far an output looks, and ``alignment_px``, where tiles may begin.
            threshold: None for the one calibrated in training.
            radius_um: distance within which a detector keeps one detection; None for that of the training.
            device: ``auto``, or a name that PyTorch knows, such as ``cpu`` or ``cuda:1``.
            precision: ``auto`` takes bfloat16 where the hardware computes it.
            engine: ``auto`` takes OpenVINO for slides on a CPU, if it is installed.
        """
        checkpoint = run if isinstance(run, Checkpoint) else load_model(run)
        if isinstance(network, str):
            checkpoint, network = replace(checkpoint, own_network=network), None
        threshold = checkpoint.threshold if threshold is None else threshold
        if threshold is None:
            raise InputError("this model was trained without held-out marks and has no threshold; give one")
        if not 0 < threshold <= 1:
            raise InputError(f"threshold is {threshold}; give a probability above 0 and at most 1")
        module = checkpoint.network(network)
        for name in ("margin_px", "alignment_px"):
            if not isinstance(getattr(module, name, None), int):
                raise InputError(
                    f"{type(module).__name__} has no {name}, so its tiles cannot be made to fit; "
                    f"see sparseshot.models.UNet"
                )
        place = find_device(device)
        return cls(
            network=_folded(module).to(place, memory_format=torch.channels_last),  # type: ignore[call-overload]
            task=replace(checkpoint.config, radius_um=radius_um or checkpoint.config.radius_um).make_task(),
            classes=checkpoint.classes,
            colors=checkpoint.colors,
            kinds=checkpoint.kinds or checkpoint.own_kinds,
            mpp=checkpoint.mpp,
            threshold=float(threshold),
            device=place,
            precision="bf16" if uses_bfloat16(precision, place) else "32",
            fingerprint=fingerprint(checkpoint),
            quality=None if checkpoint.evidence is None else expected_quality(checkpoint.evidence, threshold),
            engine=engine,
        )

    def on(self, grid: Grid, *, recorded: str | None = None) -> Self:
        """Return the model with the engine for a slide.

        Args:
            grid: of the slide, at the resolution of the model; a small one does not repay a compilation.
            recorded: engine of an unfinished or finished result; ``auto`` keeps one that there still is.

        Raises:
            InputError: this machine does not have the engine, or the network cannot be compiled by it.
        """
        if self.engine != "auto":
            if self.engine == "openvino":
                compiled_network(self.network, precision=self.precision)
            return self
        is_compiled = recorded == "openvino"
        if recorded not in {"eager", "openvino"}:
            is_compiled = is_worthwhile(self.network, grid, precision=self.precision)
        return replace(self, engine="openvino" if is_compiled else "eager")

    @property
    def streams(self) -> int:
        """How many threads may call the model at a time."""
        return STREAMS if self.engine == "openvino" else 1

    @property
    def margin_px(self) -> int:
        """How many pixels beyond its own an output depends on."""
        margin: int = self.network.margin_px  # type: ignore[assignment]
        return margin

    @property
    def alignment_px(self) -> int:
        """Tiles begin at multiples of this."""
        alignment: int = self.network.alignment_px  # type: ignore[assignment]
        return alignment

    def frame(self, slide: Slide) -> SlideFrame:
        """Return the geometry of a slide at the resolution of the model, with its classes and kinds."""
        frame = SlideFrame.over(slide, mpp=self.mpp, classes=self.classes, colors=self.colors)
        return replace(frame, kinds=self.kinds)

    def finder(self, frame: SlideFrame, tissue: TissueMask) -> Finder:
        """Return what turns the outputs over a slide into cells."""
        return self.task.finder(frame, tissue, threshold=self.threshold, margin_px=self.margin_px)

    def bands(self, frame: SlideFrame, tissue: TissueMask, layout: WindowLayout) -> tuple[Band, ...]:
        """Lay windows and tiles over the tissue of a slide; a shard is made of each band."""
        sizes = {"margin_px": self.margin_px, "alignment_px": self.alignment_px}
        return plan(frame.grid, tissue, layout, **sizes)

    def __call__(self, images: NDArray[np.uint8]) -> Tensor:
        """Map images ``(N, H, W, 3)`` to outputs ``(N, channels, rows, cols)``, float32, on the device."""
        try:
            if self.engine == "openvino":
                output = compiled_network(self.network, precision=self.precision)(images)
            else:
                output = forward(self.network, images, bfloat16=self.precision == "bf16")
            is_number = bool(output.sum().isfinite())
        except torch.OutOfMemoryError as error:
            count, height, width, _ = images.shape
            raise SparseshotError(
                f"{self.device} has too little memory for {counted(count, 'tile')} of {width} × {height} "
                "pixels; give a smaller --batch or --tile-px"
            ) from error
        if not is_number:
            is_precise = self.precision == "32"
            cure = "train it again with a lower learning rate" if is_precise else "try --precision 32"
            raise SparseshotError(f"the network's output is not a number; {cure}")
        return output

    def release(self) -> None:
        """Free the memory that computing took; the next call takes it again."""
        if self.engine == "openvino":
            compiled_network(self.network, precision=self.precision).release()


def _folded(network: nn.Module) -> nn.Module:
    """Fold batch normalisation into the convolution before it: in evaluation both are linear."""
    for row in [module for module in network.modules() if isinstance(module, nn.Sequential)]:
        for index in range(len(row) - 1):
            first, second = row[index], row[index + 1]
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                row[index], row[index + 1] = fuse_conv_bn_eval(first, second), nn.Identity()
    return network
