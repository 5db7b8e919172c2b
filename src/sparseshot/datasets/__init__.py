"""The catalogue of benchmark sets, their reader, and synthetic tissue."""

from sparseshot.datasets.catalogue import CATALOGUE, DatasetInfo, Split, dataset_info
from sparseshot.datasets.checking import Report, check
from sparseshot.datasets.fetching import Fetched, fetch
from sparseshot.datasets.loading import load_dataset
from sparseshot.datasets.sample import Dataset, Sample

__all__ = [
    "CATALOGUE",
    "Dataset",
    "DatasetInfo",
    "Fetched",
    "Report",
    "Sample",
    "Split",
    "check",
    "dataset_info",
    "fetch",
    "load_dataset",
]
