"""Network inputs from uint8 pixels, with or without stain augmentation."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Optical density of pure haematoxylin, eosin and DAB in red, green and blue (Ruifrok & Johnston 2001).
_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
_UNMIX = np.linalg.inv(_STAINS)


def network_input(image: Tensor) -> Tensor:
    """Map uint8 ``(N, 3, H, W)`` to float32 about zero.

    >>> network_input(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
    tensor([1., 1., 1.])
    """
    return image.float().mul_(2 / 255).sub_(1)


def draw_stain_jitter(random: np.random.Generator, *, strength: float) -> NDArray[np.float32]:
    """Draw a 3 × 4 map of optical densities that scales each stain, and the light a little.

    The first three columns mix the channels, the last shifts them. Strength 0 is the identity.
    """
    scale = 1 + strength * random.uniform(-1, 1, 3)
    shift = 0.25 * strength * random.uniform(-1, 1, 3)
    mix = (_UNMIX @ np.diag(scale) @ _STAINS).T
    return np.concatenate([mix, shift[:, None]], axis=1).astype(np.float32)


def jittered_network_input(image: Tensor, jitter: Tensor) -> Tensor:
    """Change the stain of each image, then apply :func:`network_input`.

    Args:
        image: uint8 ``(N, 3, H, W)``.
        jitter: ``(N, 3, 4)``, one map of :func:`draw_stain_jitter` for each image.
    """
    density = image.float().add_(1).mul_(1 / 256).log_().neg_()
    mixed = torch.einsum("nij,njhw->nihw", jitter[:, :, :3], density) + jitter[:, :, 3, None, None]
    light = mixed.neg_().exp_().clamp_(max=1)
    return light.mul_(2).sub_(1).contiguous(memory_format=torch.channels_last)
