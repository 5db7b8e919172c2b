"""What the machine can do."""

import os
from typing import Literal

import torch
from lightning_fabric import Fabric


def fast_bfloat16(device: str) -> bool:
    """Tell whether the device computes bfloat16 faster than float32: by hardware, not by emulation."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device == "cpu":
        flags: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # since torch 2.10
        return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))
    return False


def make_fabric(
    precision: Literal["auto", "32", "bf16"] = "auto", *, device: str = "auto", nodes: int = 1
) -> Fabric:
    """Make the engine: one process, or as many as ``torchrun`` started, on whatever accelerator there is."""
    if device == "auto":
        device = (
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    half = precision == "bf16" or (precision == "auto" and fast_bfloat16(device))
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return Fabric(
        accelerator=device,
        devices=processes,
        num_nodes=nodes,
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto",
        precision="bf16-mixed" if half else "32-true",
    )
