"""Networks and tasks: a U-Net for outlines, a YOLLO-style detector for places."""

from sparseshot.models.detection_grid import decode, encode, foreground_probability
from sparseshot.models.unet import UNet
from sparseshot.models.yollo import YOLLO

__all__ = ["YOLLO", "UNet", "decode", "encode", "foreground_probability"]
