"""The process of one loss: ``python -m sparseshot.demo.loss_worker LOSS``, in the folder of the demo.

Paths are relative to the folder, so that a demo can be moved and resumed.
"""

import sys
from pathlib import Path

from sparseshot.cells import write_cells
from sparseshot.cluster.executor import end_with_parent
from sparseshot.demo.demo_folder import DemoFolder
from sparseshot.errors import SparseshotError
from sparseshot.files import write_json
from sparseshot.images import open_slide
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.prediction import Measuring, Model, Progress, predict_slide, read_prediction
from sparseshot.training import TrainingData, train_run


def main(loss: str) -> int:
    """Train and predict; return 0, or 1 after printing the error as the last line."""
    end_with_parent()
    try:
        find_cells(DemoFolder.open(Path()), loss)
    except (SparseshotError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def find_cells(folder: DemoFolder, loss: str) -> None:
    """Train on the marks and predict the slide with one loss, or finish an interrupted run."""
    own = folder.of_loss(loss)
    data = TrainingData(pairs=((folder.slide, folder.marks),))
    checkpoint = train_run(folder.plan.config(loss), data, own.run, show=False)
    reports: list[Progress] = []
    with open_slide(folder.slide) as slide:
        everything = Model.load(checkpoint, threshold=LOWEST_SCORE)
        predict_slide(slide, everything, own.candidates, measuring=Measuring("none"))
        predict_slide(slide, Model.load(checkpoint), own.found, report=reports.append)
    write_cells(read_prediction(own.found), own.cells)
    speed = reports[-1].mm2 / reports[-1].seconds if reports else None
    write_json(own.speed, {"predicted_mm2_per_second": speed})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
