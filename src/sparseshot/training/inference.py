"""A network over a whole image that fits in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.models.colour import network_input


@contextmanager
def predicting(network: nn.Module) -> Iterator[None]:
    """Switch a network to prediction for the block, and back to what it was."""
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train(was_training)


def whole_image_output(network: nn.Module, image: NDArray[np.uint8]) -> Tensor:
    """Return the output ``(channels, rows, cols)`` for one image ``(H, W, 3)``.

    The image is laid on white as wide as the network looks, as slides are surrounded by glass.
    """
    margin = int(getattr(network, "margin_px", 0))
    height, width = image.shape[:2]
    padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), constant_values=255)
    device = next(network.parameters()).device
    batch = torch.from_numpy(padded).to(device).permute(2, 0, 1)[None]
    with predicting(network):
        output: Tensor = network(network_input(batch).contiguous(memory_format=torch.channels_last))[
            0
        ].float()
    stride = round(padded.shape[0] / output.shape[1]) if output.shape[1] < padded.shape[0] else 1
    first = margin // stride
    return output[:, first : first + -(-height // stride), first : first + -(-width // stride)].cpu()
