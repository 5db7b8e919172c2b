"""Score the starters without any marks on test images.

``python docs/results/starter_zero.py DATA LEFT_OUT``: a set that the shipped starter has learned from is
scored with ``LEFT_OUT/without_SET/TASK.safetensors``, which has not seen it; without that file the score of
an earlier run stays.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from record import HERE

from sparseshot.datasets import load_dataset
from sparseshot.metrics import Counts, counts_by_class, match_cells
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import STARTER_NAMES
from sparseshot.models.model_files import load_model
from sparseshot.training.annotated import AnnotatedSlide, open_samples
from sparseshot.training.evaluation import evaluate
from sparseshot.training.starter import REAL_SETS

SETS = {
    "detect": ("monuseg", "crchisto", "tnbc", "brca_m2c", "wbc_zheng"),
    "segment": ("monuseg", "tnbc", "wbc_zheng"),
}


def main(root: Path, left_out: Path) -> None:
    """Write ``starter-zero.json``."""
    page = HERE / "starter-zero.json"
    scores = json.loads(page.read_text())
    for name, task in STARTER_NAMES.items():
        for dataset in SETS[task]:
            file = left_out / f"without_{dataset}" / f"{task}.safetensors"
            if dataset in REAL_SETS and not file.exists():
                continue
            model = load_model(file if dataset in REAL_SETS else name)
            images = open_samples(load_dataset(dataset, root, split="test"))
            result = evaluate(model, images)
            assert result.calibrated is not None
            points = {"half": result.half, "calibrated": result.calibrated, "best": result.best}
            row: dict[str, object] = {point: round(each.pooled, 4) for point, each in points.items()}
            row["left_out"] = dataset in REAL_SETS
            if set(model.config.kinds) & set(images[0].cells.classes):
                row["kinds"] = kinds(model, images)
            scores[f"{dataset}-{task}"] = row
            print(dataset, task, row, flush=True)
    page.write_text(json.dumps(scores, indent=1) + "\n")


def kinds(model: Checkpoint, images: list[AnnotatedSlide]) -> dict[str, float]:
    """Return F1 of each kind by the starter's own head: a cell is right if place and kind are."""
    network, names = model.network(), model.config.kinds
    assert model.threshold is not None
    total = dict.fromkeys(names, Counts(0, 0, 0))
    for item in images:
        region = item.look_at(network, model.config, threshold=model.threshold)
        found, features = region.cells_and_features
        with torch.inference_mode():
            label = network.kind_head(torch.from_numpy(features)).argmax(1)  # type: ignore[operator]
        found = replace(found, classes=names, label=label.numpy().astype(np.int16), colors=None)
        counts = counts_by_class(match_cells(item.cells, found, by_class=True), item.cells, found)
        total = {name: total[name] + counts[name] for name in names}
    return {name: round(each.f1, 4) for name, each in total.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
