"""Names of the files in the folder of a run.

::

    recipe.json    what was asked for and what is done; config.json and source.json before version 0.3
    marks/         the marks as they were when the run began
    last.pt        checkpoint that a killed run resumes from
    best.pt        best weights so far
    model.pt       the finished model
    log.csv        values of the steps; tensorboard/ has the same for TensorBoard
    rounds/        earlier rounds of weak supervision, each a run
"""

CONFIG, SOURCE, MARKS = "config.json", "source.json", "marks"
LAST, BEST, MODEL = "last.pt", "best.pt", "model.pt"
LOG, BOARD, ROUNDS = "log.csv", "tensorboard", "rounds"
