"""Images and slides at a wished µm/px, tile grids, the tissue mask, reading ahead."""

from sparseshot.images.opening import open_slide
from sparseshot.images.plain import read_image
from sparseshot.images.slide import Box, Grid, Slide

__all__ = ["Box", "Grid", "Slide", "open_slide", "read_image"]
