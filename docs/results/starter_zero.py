"""Score the starters without any marks on test images: ``python docs/results/starter_zero.py DATA``."""

import json
import sys
from pathlib import Path

from tables import HERE

from sparseshot.datasets import load_dataset
from sparseshot.models.config import STARTER_NAMES
from sparseshot.models.model_files import load_model
from sparseshot.training.annotated import open_samples
from sparseshot.training.evaluation import evaluate

SETS = {"detect": ("tnbc", "monuseg", "brca_m2c", "wbc_zheng"), "segment": ("tnbc", "monuseg", "wbc_zheng")}


def main(root: Path) -> None:
    """Write ``starter-zero.json``."""
    scores = {}
    for name, task in STARTER_NAMES.items():
        model = load_model(name)
        for dataset in SETS[task]:
            result = evaluate(model, open_samples(load_dataset(dataset, root, split="test")))
            assert result.calibrated is not None
            points = {"half": result.half, "calibrated": result.calibrated, "best": result.best}
            scores[f"{dataset}-{task}"] = {point: round(each.pooled, 4) for point, each in points.items()}
    (HERE / "starter-zero.json").write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
