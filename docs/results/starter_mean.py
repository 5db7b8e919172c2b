"""Write the mean of the weights of two detectors: ``python docs/results/starter_mean.py ONE OTHER OUT DATA``.

The threshold of the mean is chosen on the validation images of the sets that the second has learned from:
``DATA``, and after it the names of those that were left out.
"""

import sys
from dataclasses import replace
from pathlib import Path

from sparseshot.models.model_files import load_starter, save_starter
from sparseshot.training.starter import best_threshold, validation_images


def main(one: str, other: str, out: str, data: str, *without: str) -> None:
    """Write the file."""
    first, second = (load_starter("detect", path=Path(path)) for path in (one, other))
    weights = {
        name: (weight + second.weights[name]) / 2 if weight.is_floating_point() else weight
        for name, weight in first.weights.items()
    }
    mean = replace(second, weights=weights)
    threshold = best_threshold(mean, validation_images("detect", Path(data), without=without))
    save_starter(replace(mean, threshold=threshold), Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
