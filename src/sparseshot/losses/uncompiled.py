"""The part of a compiled loss that runs as it is written."""

from collections.abc import Callable

import torch
from torch import Tensor

from sparseshot.losses.locations import Call
from sparseshot.losses.signature import Loss

reduced: Callable[[Loss, Call], Tensor] = torch.compiler.disable(  # type: ignore[no-untyped-call]
    lambda loss, call: loss.reduced(call), reason="its estimate depends on values of the batch"
)
"""Compute the loss of a call without compiling it."""
