"""Outlines of crowded nuclei: ``python -m docs.pictures.outlines DATA BEFORE NOW OUT``.

``BEFORE`` and ``NOW`` are segmenters (``.safetensors``) that have not learned from TNBC.
"""

import sys
from pathlib import Path

import numpy as np
import shapely
from benchmarks.peers import instanseg, ours
from PIL import Image, ImageDraw

from sparseshot.datasets import load_dataset
from sparseshot.images import Box, Grid
from sparseshot.models.model_files import load_starter
from sparseshot.training.annotated import AnnotatedSlide, open_samples

SIDE_PX, GAP_PX, HEAD_PX = 256, 4, 16
COLORS = {"truth": "white", "before": "cyan", "now": "cyan", "instanseg": "cyan"}
TITLES = {"truth": "truth", "before": "version 0.2", "now": "now", "instanseg": "InstanSeg"}


def crowded(item: AnnotatedSlide) -> tuple[int, Box]:
    """Return the square of an image with the most nuclei."""
    width, height = item.slide.size
    boxes = [
        Box(x, y, x + SIDE_PX, y + SIDE_PX)
        for y in range(0, height - SIDE_PX + 1, 64)
        for x in range(0, width - SIDE_PX + 1, 64)
    ]
    counts = [
        int(((item.cells.xy >= box[:2]) & (item.cells.xy < box[2:])).all(axis=1).sum()) for box in boxes
    ]
    return max(zip(counts, boxes, strict=True))


def main(data: Path, before: Path, now: Path, out: Path) -> None:
    """Draw the three most crowded squares of different patients' images."""
    items = open_samples(load_dataset("tnbc", data, split="test"))
    find = {
        "truth": lambda item: item.cells,
        "before": ours(load_starter("segment", path=before)),
        "now": ours(load_starter("segment", path=now)),
        "instanseg": instanseg(),
    }
    chosen: dict[str, tuple[int, Box, AnnotatedSlide]] = {}
    for item in items:
        count, box = crowded(item)
        patient = Path(item.slide.name).stem.split("_")[0]
        chosen[patient] = max(
            chosen.get(patient, (0, box, item)), (count, box, item), key=lambda each: each[0]
        )
    step, rows = SIDE_PX + GAP_PX, sorted(chosen.values(), key=lambda each: -each[0])[:3]
    sheet = Image.new("RGB", (len(TITLES) * step - GAP_PX, HEAD_PX + len(rows) * step - GAP_PX), "white")
    pen = ImageDraw.Draw(sheet)
    for column, title in enumerate(TITLES.values()):
        pen.text((column * step + 2, 2), title, fill="black")
    for row, (_, box, item) in enumerate(rows):
        pixels = item.slide.read(Grid.over(item.slide), box)
        for column, name in enumerate(TITLES):
            square = Image.fromarray(pixels)
            draw = ImageDraw.Draw(square)
            for part in shapely.get_parts(find[name](item).outline):
                line = np.asarray(part.exterior.coords) - box[:2]
                draw.line([(x, y) for x, y in line.tolist()], fill=COLORS[name], width=1)
            sheet.paste(square, (column * step, HEAD_PX + row * step))
    sheet.save(out, "WEBP", quality=80, method=6)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
