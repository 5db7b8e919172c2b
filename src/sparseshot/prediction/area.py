"""Prediction of a part of a slide, at once and without a folder."""

from sparseshot.cells import Cells
from sparseshot.images.slide import Box, Slide
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import look_at
from sparseshot.prediction.model import Model


def predict_area(slide: Slide, model: Model, area: tuple[float, float, float, float]) -> Cells:
    """Find the cells in x0, y0, x1, y1 in level-0 pixels, on tissue and glass alike."""
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes, colors=model.colors)
    x0, y0, x1, y1 = (int(each) for each in frame.grid.from_level0(area))
    box = Box(x0, y0, x1 + 1, y1 + 1).meet(frame.grid.box)
    if not (box.width and box.height):
        return frame.no_cells()
    return look_at(model.network, model.task, slide, frame, threshold=model.threshold, box=box).cells
