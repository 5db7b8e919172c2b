"""Images and slides at a target resolution, tiles, the tissue mask, reading ahead."""

from sparseshot.images.opening import open_slide
from sparseshot.images.plain_image import read_image
from sparseshot.images.slide import Box, Grid, Slide, read_region
from sparseshot.images.tiles import Tile, TileGrid, read_ahead
from sparseshot.images.tissue import TissueMask, tissue_mask

__all__ = [
    "Box",
    "Grid",
    "Slide",
    "Tile",
    "TileGrid",
    "TissueMask",
    "open_slide",
    "read_ahead",
    "read_image",
    "read_region",
    "tissue_mask",
]
