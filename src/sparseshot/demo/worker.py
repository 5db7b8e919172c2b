"""The process of one loss: ``python -m sparseshot.demo.worker LOSS``, in the folder of the demo.

It works inside the folder, so that a demo that was moved goes on where it is now.
"""

import sys
from pathlib import Path

from sparseshot.cells import write_cells
from sparseshot.demo.folder import DemoFolder
from sparseshot.errors import SparseshotError
from sparseshot.experiments.worker import end_with_the_starter
from sparseshot.files import write_json
from sparseshot.images import open_slide
from sparseshot.prediction import Model, Progress, predict_slide, read_prediction
from sparseshot.training import TrainingData, train_run
from sparseshot.training.held_out import LOWEST_SCORE


def main(loss: str) -> int:
    """Train and predict; give 0, or 1 after saying in the last line what went wrong."""
    end_with_the_starter()
    try:
        find_every_cell(DemoFolder.open(Path()), loss)
    except (SparseshotError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def find_every_cell(folder: DemoFolder, loss: str) -> None:
    """Go from the marks to every cell of the slide with one loss, or do what is left of it."""
    own = folder.of_loss(loss)
    data = TrainingData(pairs=((folder.slide, folder.marks),))
    checkpoint = train_run(folder.plan.config(loss), data, own.run, show=False)
    seen: list[Progress] = []
    with open_slide(folder.slide) as slide:
        predict_slide(slide, Model.of(checkpoint, threshold=LOWEST_SCORE), own.candidates)
        predict_slide(slide, Model.of(checkpoint), own.found, report=seen.append)
    write_cells(read_prediction(own.found), own.cells)
    speed = seen[-1].mm2 / seen[-1].seconds if seen else None
    write_json(own.speed, {"predicted_mm2_per_second": speed})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
