"""Prediction of whole slides: tiles, shards, resume, export."""

from sparseshot.prediction.export import PredictionSummary, read_prediction
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import Throughput, predict_slide
from sparseshot.prediction.shards import found_with_features

__all__ = [
    "Measuring",
    "Model",
    "PredictionSummary",
    "Throughput",
    "found_with_features",
    "predict_slide",
    "read_prediction",
]
