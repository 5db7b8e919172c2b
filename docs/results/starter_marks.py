"""Train from the starters with few random marks, and score the models on test images.

``python docs/results/starter_marks.py DATA LEFT_OUT RUNS [SEEDS]``: a set that the shipped starter has
learned from starts from ``LEFT_OUT/without_SET/TASK.safetensors``, which has not seen it, or is left out.
Finished runs are not repeated.
"""

import json
import sys
from pathlib import Path

from record import HERE

from sparseshot.datasets import load_dataset
from sparseshot.models.config import STARTER_NAMES, TrainConfig
from sparseshot.models.model_files import load_model
from sparseshot.training import TrainingData, train_run
from sparseshot.training.annotated import open_samples
from sparseshot.training.evaluation import evaluate
from sparseshot.training.starter import REAL_SETS

PLACES = (
    ("crchisto", "detect"),
    ("monuseg", "detect"),
    ("brca_m2c", "detect"),
    ("monuseg", "segment"),
    ("tnbc", "detect"),
    ("wbc_zheng", "detect"),
    ("wbc_zheng", "segment"),
)
AMOUNTS = (100, 20, 0.1, 0.03)
FILE = HERE / "starter-marks.json"


def main(root: Path, left_out: Path, runs: Path, seeds: int) -> None:
    """Write ``starter-marks.json``."""
    names = {task: name for name, task in STARTER_NAMES.items()}
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    done = {(row["set"], row["task"], row["marks"], row["seed"]) for row in rows}
    for seed in range(seeds):
        for dataset, task in PLACES:
            file = left_out / f"without_{dataset}" / f"{task}.safetensors"
            start = str(file) if dataset in REAL_SETS else names[task]
            if dataset in REAL_SETS and not file.exists():
                continue
            test = open_samples(load_dataset(dataset, root, split="test"))
            for amount in (0, *AMOUNTS):
                if (dataset, task, amount, seed) in done or (amount == 0 and seed):
                    continue
                model = load_model(start)
                if amount:
                    data = TrainingData(dataset=dataset, root=root, fraction=amount, seed=seed)
                    config = TrainConfig(task=task, start=start, seed=seed)
                    model = train_run(config, data, runs / f"{dataset}-{task}-{amount}-{seed}")
                result = evaluate(model, test)
                assert result.calibrated is not None
                row = {"set": dataset, "task": task, "marks": amount, "seed": seed, "loss": model.config.loss}
                scores = {"score": round(result.calibrated.pooled, 4), "best": round(result.best.pooled, 4)}
                rows.append(row | scores | {"threshold": model.threshold})
                FILE.write_text(json.dumps(rows, indent=1) + "\n")
                print(rows[-1], flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), seeds=int((*sys.argv, "3")[4]))
