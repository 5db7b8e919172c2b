"""The example notebook runs and shows a gain. Its cells are plain Python and need no kernel."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

NOTEBOOK = Path(__file__).parents[1] / "examples" / "loss_in_your_loop.ipynb"


@pytest.mark.slow
def test_it_runs_and_the_loss_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)
    names["plt"].close("all")
    if names["LightningModule"] is torch.nn.Module:  # Lightning is not installed; what it would set is
        module = names["Cells"](names["SmallUNet"]())
        module.trainer, module.global_step = SimpleNamespace(estimated_stepping_batches=10), 3
        module.log_dict = dict.copy
        assert module.training_step((torch.rand(1, 3, 32, 32), torch.ones(1, 32, 32).long()), 0).requires_grad
    (usual, best_of_usual), (exclusive, best_of_exclusive) = names["scores"].values()
    assert usual < 0.1
    assert exclusive > 0.5
    assert best_of_exclusive > best_of_usual


def test_it_is_small_and_has_its_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 100_000
    assert "image/png" in NOTEBOOK.read_text(encoding="utf-8")
