"""Sweeps over data sets, losses and fractions of the marks, the paper's numbers, and the report on both.

>>> from sparseshot.experiments import paper_curve, shipped_experiments
>>> "tnbc-headline" in shipped_experiments()
True
>>> paper_curve("tnbc", "segment", "ece")[0.3]
0.8
"""

from sparseshot.experiments.experiment import Experiment, Method, OwnData, Run, Subject
from sparseshot.experiments.experiment_file import (
    PAPER,
    open_experiment,
    open_experiments,
    read_experiment,
    shipped_experiments,
)
from sparseshot.experiments.paper import TABLES, paper_curve, paper_source, paper_table
from sparseshot.experiments.results import Result, Results
from sparseshot.experiments.running import missing_data, run_experiment

__all__ = [
    "PAPER",
    "TABLES",
    "Experiment",
    "Method",
    "OwnData",
    "Result",
    "Results",
    "Run",
    "Subject",
    "missing_data",
    "open_experiment",
    "open_experiments",
    "paper_curve",
    "paper_source",
    "paper_table",
    "read_experiment",
    "run_experiment",
    "shipped_experiments",
]
