"""Reading slides against OpenSlide and dlup, resampling against Pillow, several threads against one."""

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openslide
from numpy.typing import NDArray
from PIL import Image

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.images import Box, Grid, TileGrid, open_slide, read_ahead
from sparseshot.images.opening import OpenSlideFile
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.resample import resample

TILE = 512
Sweep = Callable[[], object]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        synthetic = Path(folder) / "synthetic.tif"
        write_pyramid(SyntheticTissue(size_px=(4096, 4096), tissue_fraction=0.9), synthetic, tile_px=256)
        slides = {"synthetic, JPEG 4:2:0, 4096²": synthetic}
        data = Path(os.environ.get("SPARSESHOT_DATA", "../shared/data"))
        real = data / "slides" / "CMU-1-Small-Region.svs"
        jpeg2000 = data / "monusac" / "TCGA-MH-A560-01Z-00-DX2" / "TCGA-MH-A560-01Z-00-DX2_2.svs"
        slides |= {"CMU-1-Small-Region, JPEG RGB": real} if real.exists() else {}
        slides |= {"MoNuSAC, JPEG 2000": jpeg2000} if jpeg2000.exists() else {}
        _reading(slides)
        _threads(synthetic)
    _resampling()


def _reading(slides: dict[str, Path]) -> None:
    """Read every tile of a slide in turn; opening the file is included, so that no cache is warm."""
    has_dlup = importlib.util.find_spec("dlup") is not None
    if not has_dlup:
        print("dlup is not installed, so its rows are missing: pip install dlup[openslide]\n")
    rows = []
    for name, path in slides.items():
        for margin, ratio in ((0, 1.0), (64, 1.0), (0, 2.0), (0, 1.7)):
            candidates: dict[str, Sweep] = {
                "OpenSlide": partial(_by_openslide, path, margin, ratio),
                "ours": partial(_by_ours, open_slide, path, margin, ratio),
                "ours over OpenSlide": partial(_by_ours, _over_openslide, path, margin, ratio),
            }
            if has_dlup:
                for backend in ("OPENSLIDE", "FASTSLIDE"):
                    candidates[f"dlup, {backend.title()}"] = partial(_by_dlup, path, margin, ratio, backend)
            times = seconds_in_turns(candidates, rounds=3)
            what = f"{name}; margin {margin}; {ratio:g} : 1"
            pixels = sum(
                box[2] * box[3] for box in _boxes(openslide.OpenSlide(path).dimensions, margin, ratio)
            )
            rows.append(
                [
                    what,
                    *(
                        f"{times[c] / pixels * 1e9:.1f} ({times[c] / times['OpenSlide']:.2f})"
                        for c in candidates
                    ),
                ]
            )
    print("ns per output pixel (and relative to OpenSlide)\n")
    print_table(["512² tiles of", *candidates], rows)


def _boxes(size: tuple[int, int], margin: int, ratio: float) -> Iterator[tuple[int, int, int, int]]:
    """Return column, row, width and height of the tiles that are inside the slide with their margin."""
    width, height = (int(length / ratio) for length in size)
    for row in range(margin, height - TILE - margin + 1, TILE):
        for column in range(margin, width - TILE - margin + 1, TILE):
            yield column - margin, row - margin, TILE + 2 * margin, TILE + 2 * margin


def _by_openslide(path: Path, margin: int, ratio: float) -> None:
    """What one writes by hand: read the best level, to RGB, reduced by Pillow, to an array."""
    with openslide.OpenSlide(path) as slide:
        level = slide.get_best_level_for_downsample(ratio * 1.01)
        rest = ratio / round(slide.level_downsamples[level])
        for column, row, width, height in _boxes(slide.dimensions, margin, ratio):
            corner = (round(column * ratio), round(row * ratio))
            size = (round(width * rest), round(height * rest))
            region = slide.read_region(corner, level, size).convert("RGB")
            if rest != 1:
                region = region.resize((width, height), Image.Resampling.BOX)
            np.array(region)


def _over_openslide(path: Path) -> PyramidSlide:
    slide = OpenSlideFile(path)
    slide.mpp = slide.stated_mpp or 0.25
    return slide


def _by_ours(opened: Callable[[Path], PyramidSlide], path: Path, margin: int, ratio: float) -> None:
    with opened(path) as slide:
        grid = Grid.over(slide, slide.mpp * ratio)
        for column, row, width, height in _boxes(slide.size, margin, ratio):
            slide.read(grid, Box(column, row, column + width, row + height))


def _by_dlup(path: Path, margin: int, ratio: float, backend: str) -> None:
    from dlup import SlideImage

    slide: Any = SlideImage.from_file_path(path, backend=backend)
    with slide:
        for column, row, width, height in _boxes(slide.size, margin, ratio):
            np.asarray(slide.read_region((column, row), 1 / ratio, (width, height)))


def _threads(path: Path) -> None:
    """The same tiles with a margin, by more threads."""

    def run(make: Callable[[Path], PyramidSlide], threads: int) -> None:
        with make(path) as slide:
            grid = Grid.over(slide)
            tiles = TileGrid(grid.width, grid.height, tile_px=TILE, margin_px=64)
            for _ in read_ahead(slide, grid, (tile.padded for tile in tiles), threads=threads):
                pass

    counts = (1, 2, 4)
    rows = []
    for name, make in {"ours": open_slide, "ours over OpenSlide": _over_openslide}.items():
        sweeps: dict[str, Sweep] = {str(n): partial(run, make, n) for n in counts}
        times = seconds_in_turns(sweeps, rounds=5)
        rows.append([name, *(f"{times['1'] / times[str(n)]:.2f}" for n in counts)])
    print(f"\nread_ahead, times as fast as one thread, {os.cpu_count()} cores\n")
    print_table(["", *(f"{n} threads" for n in counts)], rows)


def _resampling() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2048, 2048, 3), dtype=np.uint8)
    rows = []
    for ratio in (2.0, 4.0, 1.7):
        side = int(2048 / ratio)

        candidates: dict[str, Sweep] = {
            "ours, area mean": partial(resample, pixels, ratio, size=(side, side)),
            "Pillow BOX": partial(_by_pillow, pixels, side, Image.Resampling.BOX),
            "Pillow LANCZOS": partial(_by_pillow, pixels, side, Image.Resampling.LANCZOS),
        }
        times = seconds_in_turns(candidates, rounds=7)
        rows.append([f"{ratio:g} : 1", *(f"{1e9 * times[c] / pixels.size * 3:.2f}" for c in candidates)])
    print("\nns for a pixel of input\n")
    print_table(["", *candidates], rows)


def _by_pillow(pixels: NDArray[np.uint8], side: int, method: Image.Resampling) -> object:
    return np.asarray(Image.fromarray(pixels).resize((side, side), method))


if __name__ == "__main__":
    main()
