"""Images and slides at a wished µm/px, tile grids, the tissue mask, reading ahead."""

from sparseshot.images.plain import read_image

__all__ = ["read_image"]
