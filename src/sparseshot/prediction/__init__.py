"""Prediction of whole slides: tiles, shards, resume, export."""

from sparseshot.prediction.export import PredictionSummary, read_prediction
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import Throughput, predict_slide

__all__ = [
    "Measuring",
    "Model",
    "PredictionSummary",
    "Throughput",
    "predict_slide",
    "read_prediction",
]
