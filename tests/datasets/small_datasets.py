"""Small files in the layouts of the publishers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

SIZE = (40, 30)  # width, height: never a square, so that mixed-up axes are seen
BLOCKS = ((2, 3), (12, 4), (30, 20))  # x, y of the corners of three cells of 4 × 6 pixels
CENTRES = [(x + 2.0, y + 3.0) for x, y in BLOCKS]


def image(path: Path, size: tuple[int, int] = SIZE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 120, 180)).save(path)
    return path


def instances(size: tuple[int, int] = SIZE) -> NDArray[np.uint16]:
    width, height = size
    labels = np.zeros((height, width), np.uint16)
    for number, (x, y) in enumerate(BLOCKS, start=1):
        labels[y : y + 6, x : x + 4] = 300 + number  # values over 255, with a gap before
    return labels


def mask(path: Path, pixels: NDArray[Any] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(instances() if pixels is None else pixels).save(path)
    return path


def mat(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, arrays)
    return path


def hovernet(path: Path, types: tuple[int, ...] | None = None) -> Path:
    """Write what HoVer-Net's authors publish: instances from 1, types from 1."""
    inst_map = instances().astype(np.int32)
    inst_map[inst_map > 0] -= 300
    arrays: dict[str, Any] = {"inst_map": inst_map}
    if types is not None:
        arrays["type_map"] = np.array([0, *types])[inst_map]
        arrays["inst_type"] = np.array(types)[:, None]
        arrays["inst_centroid"] = np.array(CENTRES) - 0.5
    return mat(path, **arrays)


def aperio(path: Path, mpp: float = 0.2468) -> Path:
    """Write what ImageScope writes; its (0, 0) is the middle of the first pixel."""
    regions = ""
    for number, (x, y) in enumerate(BLOCKS, start=1):
        corners = ((x, y), (x + 4, y), (x + 4, y + 6), (x, y + 6))
        vertices = "".join(f'<Vertex X="{a - 0.5}" Y="{b - 0.5}" Z="0"/>' for a, b in corners)
        regions += f'<Region Id="{number}" Type="0"><Vertices>{vertices}</Vertices></Region>'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<Annotations MicronsPerPixel="{mpp}"><Annotation Id="1" Name="" Type="4"><Attributes/>'
        f"<Regions>{regions}</Regions></Annotation></Annotations>"
    )
    return path


def slide(path: Path, mpp: float = 0.5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = SIZE
    per_cm = 1e4 / mpp
    tifffile.imwrite(
        path,
        np.full((height, width, 3), 200, np.uint8),
        tile=(16, 16),
        photometric="rgb",
        resolution=(per_cm, per_cm),
        resolutionunit="CENTIMETER",
    )
    return path


def qupath(path: Path, names: tuple[str, ...]) -> Path:
    features = [
        {
            "type": "Feature",
            "id": f"00000000-0000-0000-0000-{number:012}",
            "geometry": {"type": "Point", "coordinates": [x, y]},
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": [1, 2, 3]}},
        }
        for number, ((x, y), name) in enumerate(zip(CENTRES, names, strict=False))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def cpm15(root: Path, count: int) -> None:
    """Write a whole small data set."""
    for number in range(count):
        image(root / "Images" / f"image_{number:02}.png")
        hovernet(root / "Labels" / f"image_{number:02}.mat")
