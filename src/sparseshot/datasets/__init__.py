"""The catalogue of benchmark sets, their reader, and synthetic tissue."""

from sparseshot.datasets.catalogue import CATALOGUE, DatasetInfo, Split, dataset_info
from sparseshot.datasets.checking import CheckReport, check
from sparseshot.datasets.fetching import Fetched, fetch
from sparseshot.datasets.loading import Dataset, Sample, load_dataset

__all__ = [
    "CATALOGUE",
    "CheckReport",
    "Dataset",
    "DatasetInfo",
    "Fetched",
    "Sample",
    "Split",
    "check",
    "dataset_info",
    "fetch",
    "load_dataset",
]
