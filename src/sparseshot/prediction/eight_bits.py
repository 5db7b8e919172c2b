"""Networks in 8 bits.

The ranges of the activations are measured on synthetic tissue of many looks, so the network in 8 bits depends
on the model alone: not on a slide, and on no data that would have to be shipped.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import rich
from numpy.typing import NDArray

from sparseshot.datasets.synthetic import varied_tissue
from sparseshot.images import Grid
from sparseshot.prediction.offline_openvino import import_nncf

_CROPS, _CROP_PX, _SEED = 48, 256, 8


def tissue_crops(first: int, last: int, *, mpp: float, alignment_px: int) -> list[NDArray[np.uint8]]:
    """Return crops of synthetic tissue ``(1, side, side, 3)``, each of another stain, organ and scanner."""
    side = -(-_CROP_PX // alignment_px) * alignment_px
    slides = [varied_tissue(_SEED, number, size_px=side, mpp=mpp) for number in range(first, last)]
    return [slide.read(grid := Grid.over(slide, mpp), grid.box)[None] for slide in slides]


def unseen_crops(*, mpp: float, alignment_px: int) -> NDArray[np.uint8]:
    """Return crops ``(N, side, side, 3)`` like those of the calibration, but none of them."""
    return np.concatenate(tissue_crops(_CROPS, _CROPS + 4, mpp=mpp, alignment_px=alignment_px))


def quantised(model: Any, *, mpp: float, alignment_px: int) -> Any:
    """Return an OpenVINO model in 8 bits.

    Args:
        model: maps uint8 ``(N, H, W, 3)`` to outputs.
        mpp: resolution that it works at, µm/px.
        alignment_px: sides of its images are multiples of this.
    """
    nncf = import_nncf()
    crops = tissue_crops(0, _CROPS, mpp=mpp, alignment_px=alignment_px)
    convolutions = [
        operation.get_friendly_name()
        for operation in model.get_ordered_ops()
        if operation.get_type_name() == "Convolution"
    ]
    with _without_progress_bars():
        return nncf.quantize(
            model,
            nncf.Dataset(crops),
            subset_size=_CROPS,
            preset=nncf.QuantizationPreset.MIXED,  # activations are far from symmetric
            # In 8 bits, the first layer alone nearly doubles the error, and it is a small part of the time.
            ignored_scope=nncf.IgnoredScope(names=convolutions[:1]),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                # CPUs without VNNI add pairs of products in 16 bits, where weights of 8 bits overflow.
                overflow_fix=nncf.OverflowFix.ENABLE,
                # The fast one shifts probabilities by half a percent; the accurate one gains little.
                disable_bias_correction=True,
            ),
        )


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Silence the console of the process, which NNCF draws on and sparseshot does not."""
    console = rich.get_console()
    usual = vars(console)
    rich.reconfigure(file=io.StringIO(), force_terminal=False, force_jupyter=False)
    try:
        yield
    finally:
        console.__dict__ = usual
