"""Devices, precision, and the circumstances that a result is recorded with."""

import logging
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from sparseshot.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Precision = Literal["auto", "32", "bf16"]


def find_device(name: str = "auto") -> torch.device:
    """Return the device of a name that PyTorch knows; ``auto`` is an accelerator, if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in {"cpu", "cuda", "mps", "xpu"}:
            raise InputError(f"device is {name!r}; choose auto, cpu, cuda, cuda:1 or mps")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise InputError(f"device is {name!r}, which this machine does not have ({error}); try cpu") from None
    return device


def uses_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return whether to compute in bfloat16: ``auto`` does where the hardware has it, not by emulation."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        flags: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # since torch 2.10
        return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))
    return False


def make_fabric(precision: Precision = "auto", *, device: str = "auto") -> "Fabric":
    """Return the engine: one process, or as many as ``torchrun`` started on one machine or several."""
    from lightning_fabric import Fabric  # noqa: PLC0415  it loads torch.compile, which prediction does not need

    logger = logging.getLogger("lightning_fabric.utilities.rank_zero")
    logger.setLevel(logging.WARNING)  # it names the precision
    place = find_device(device)
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    everywhere = int(os.environ.get("WORLD_SIZE", "1"))
    return Fabric(
        accelerator=place.type,
        devices=processes if place.index is None else [place.index],
        num_nodes=max(1, everywhere // processes),
        strategy="ddp" if everywhere > 1 else "auto",
        precision="bf16-mixed" if uses_bfloat16(precision, place) else "32-true",
    )


def circumstances(precision: Precision, device: torch.device | None = None) -> dict[str, Any]:
    """Return what a result may depend on besides its recipe: processor, threads, precision, commit.

    Args:
        precision: that was asked for; recorded is the one that it means here.
        device: that computed; None: the one that ``auto`` chooses.
    """
    device = device or find_device()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "precision": "bf16" if uses_bfloat16(precision, device) else "32",
        "commit": source_commit(),
    }


def source_commit() -> str | None:
    """Return the commit of the checkout that this package is run from, with + if files differ from it."""
    root = Path(__file__).parents[3]
    if not ((root / ".git").exists() and (root / "pyproject.toml").is_file()):
        return None
    git = ["git", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True, timeout=10)
        changes = subprocess.run(
            [*git, "status", "--porcelain", "src"], capture_output=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.decode().strip() + ("+" if changes.stdout.strip() else "")


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
