"""The benchmark sets as data, one reader for their layouts, and the synthetic tissue."""

from sparseshot.datasets.catalogue import CATALOGUE, DatasetInfo, dataset_info
from sparseshot.datasets.fetching import Fetched, fetch

__all__ = ["CATALOGUE", "DatasetInfo", "Fetched", "dataset_info", "fetch"]
