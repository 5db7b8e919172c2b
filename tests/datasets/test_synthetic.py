"""The synthetic tissue: one truth, whatever part of it is looked at, at whatever size."""

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import Mix, SyntheticTissue, synthetic_samples
from sparseshot.errors import InputError
from sparseshot.images import Grid, Slide, read_region, tissue_mask

FULL = SyntheticTissue(seed=5, size_px=(2000, 1600), tissue_fraction=1.0)
ISLANDS = SyntheticTissue(seed=6, size_px=(20_000, 16_000), tissue_fraction=0.4)
HUGE = SyntheticTissue(seed=7, size_px=(250_000, 250_000), tissue_fraction=1.0)


def rows(cells: Cells) -> set[tuple[object, ...]]:
    columns = (cells.id, cells.xy[:, 0], cells.xy[:, 1], cells.label)
    return set(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


def blueness(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Haematoxylin takes red light away, eosin and pigment hardly do."""
    return 255 - image[..., 0].astype(np.float64)


def test_is_a_slide() -> None:
    with FULL as tissue:
        slide: Slide = tissue
        assert (slide.name, slide.size, slide.mpp) == ("synthetic-5", (2000, 1600), 0.25)
        image = read_region(slide, 0, 0, 30, 20)
    assert image.shape == (20, 30, 3)
    assert image.dtype == np.uint8


IN_ANOTHER_PROCESS = """
import hashlib, json, resource
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import read_region
tissue = SyntheticTissue(seed=7, size_px=(250_000, 250_000), tissue_fraction=1.0)
read_region(tissue, 0, 0, 64, 64), tissue.cells((0, 0, 100, 100))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
image = read_region(tissue, 249_000, 249_000, 700, 700)
cells = tissue.cells((249_000, 249_000, 249_700, 249_700))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
digest = hashlib.sha256(image.tobytes() + cells.xy.tobytes()).hexdigest()
print(json.dumps({"digest": digest, "grown_kb": grown}))
"""


def test_far_corner_of_a_huge_slide_is_the_same_in_another_process_and_takes_little_memory() -> None:
    box = (249_000, 249_000, 249_700, 249_700)
    image, cells = read_region(HUGE, 249_000, 249_000, 700, 700), HUGE.cells(box)
    run = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True
    )
    answer = json.loads(run.stdout)
    assert answer["digest"] == hashlib.sha256(image.tobytes() + cells.xy.tobytes()).hexdigest()
    assert answer["grown_kb"] < 60_000
    assert len(cells) > 50
    assert (cells.xy >= 249_000).all()


def test_another_seed_is_another_slide() -> None:
    other = replace(FULL, seed=FULL.seed + 1)
    assert not np.array_equal(read_region(FULL, 0, 0, 100, 100), read_region(other, 0, 0, 100, 100))
    assert not rows(FULL.cells()) & rows(other.cells())
    means = [replace(FULL, seed=seed).thumbnail(64).mean(axis=(0, 1)) for seed in range(8)]
    assert np.std(means, axis=0).max() > 6, "stains vary from slide to slide"


@settings(max_examples=25, deadline=None)
@given(
    mpp=st.sampled_from([0.25, 0.4, 0.5, 1.0, 1.3, 5.0]),
    x=st.integers(-20, 120),
    y=st.integers(-20, 120),
    width=st.integers(1, 90),
    height=st.integers(1, 90),
)
def test_overlapping_regions_agree_exactly(mpp: float, x: int, y: int, width: int, height: int) -> None:
    tissue = replace(ISLANDS, size_px=(1200, 1000), seed=11)
    grid = Grid.over(tissue, mpp)
    whole = read_region(tissue, -20 * grid.downsample, -20 * grid.downsample, 230, 230, mpp=mpp)
    part = read_region(tissue, x * grid.downsample, y * grid.downsample, width, height, mpp=mpp)
    np.testing.assert_array_equal(part, whole[y + 20 : y + 20 + height, x + 20 : x + 20 + width])


def test_a_region_larger_than_a_strip_agrees_with_its_parts() -> None:
    whole = read_region(FULL, 0, 0, 1900, 600)
    np.testing.assert_array_equal(whole[250:350, 1500:], read_region(FULL, 1500, 250, 400, 100))


def test_outside_the_slide_is_white() -> None:
    image = read_region(FULL, 1990, -4, 20, 10)
    assert (image[:4] == 255).all()
    assert (image[:, 10:] == 255).all()
    assert (image[4:, :10].mean(axis=-1) < 254).all()


def test_threads_read_the_same() -> None:
    places = [(x, y) for x in range(0, 2000, 400) for y in range(0, 1600, 400)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda place: read_region(FULL, place[0], place[1], 200, 200), places))
    for place, image in zip(places, together, strict=True):
        np.testing.assert_array_equal(image, read_region(FULL, *place, 200, 200))


def test_cells_of_tiles_are_the_cells_of_the_whole() -> None:
    whole = ISLANDS.cells()
    cuts_x, cuts_y = [0, 1, 3_777.7, 9_999, 20_000], [0, 5_000.5, 12_321, 16_000]
    tiles = [ISLANDS.cells((x0, y0, x1, y1)) for x0, x1 in pairwise(cuts_x) for y0, y1 in pairwise(cuts_y)]
    assert sum(map(len, tiles)) == len(whole) > 10_000
    assert set.union(*map(rows, tiles)) == rows(whole)
    assert whole.id is not None
    assert len(np.unique(whole.id)) == len(whole)


def test_a_box_off_the_slide_is_empty() -> None:
    assert len(FULL.cells((5_000, 5_000, 6_000, 6_000))) == 0
    assert len(FULL.cells((100, 100, 100, 100))) == 0


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.0, 2.0])
def test_nuclei_are_painted_where_the_table_says(mpp: float) -> None:
    """Without the cells, the image changes inside their outlines and nowhere else."""
    tissue = replace(FULL, size_px=(1000, 1000), debris=0.0)
    cells = tissue.cells(outlines=True)
    grid = Grid.over(tissue, mpp)
    read = (0, 0, grid.width, grid.height)
    changed = np.abs(
        read_region(tissue, *read, mpp=mpp).astype(int)
        - read_region(replace(tissue, density_per_mm2=0), *read, mpp=mpp)
    )
    row, column = np.mgrid[: grid.height, : grid.width]
    x, y = (column.ravel() + 0.5) * grid.downsample, (row.ravel() + 0.5) * grid.downsample
    nuclei = shapely.union_all(cells.outline)
    shapely.prepare(nuclei)
    inside = shapely.contains_xy(nuclei, x, y).reshape(row.shape)
    near_um = 2.5 + mpp  # where a nucleus is out of focus its edge is as soft as this
    far = ~shapely.contains_xy(shapely.buffer(nuclei, near_um / tissue.mpp), x, y).reshape(row.shape)
    assert far.mean() > 0.1
    assert changed[far].max() == 0
    assert (changed.max(axis=-1)[inside] > 12).mean() > 0.85
    assert 0.1 < inside.mean() < 0.7


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.0, 2.0])
def test_centres_of_nuclei_are_bluer_than_the_rest(mpp: float) -> None:
    cells = FULL.cells()
    grid = Grid.over(FULL, mpp)
    blue = blueness(read_region(FULL, 0, 0, grid.width, grid.height, mpp=mpp))
    column, row = (cells.xy / grid.downsample).astype(int).T
    assert blue[row, column].mean() > blue.mean() + 35


def test_debris_is_not_in_the_table_but_in_the_image() -> None:
    clean, littered = replace(FULL, debris=0.0), replace(FULL, debris=3.0)
    assert rows(clean.cells()) == rows(littered.cells())
    darker = blueness(read_region(littered, 0, 0, 800, 800)) - blueness(read_region(clean, 0, 0, 800, 800))
    assert (darker > 40).mean() > 0.02


def test_tissue_covers_the_given_fraction_and_holds_the_cells() -> None:
    for seed, share in ((1, 0.2), (2, 0.5), (3, 0.8)):
        tissue = replace(ISLANDS, seed=seed, tissue_fraction=share)
        thumbnail = tissue.thumbnail(500)
        assert max(thumbnail.shape[:2]) == 500
        on_glass = thumbnail.min(axis=-1) > 230
        assert 1 - on_glass.mean() == pytest.approx(share, abs=0.08)
        cells = tissue.cells()
        column, row = (cells.xy / 40).astype(int).T
        assert on_glass[row, column].mean() < 0.05


def test_tissue_mask_finds_the_tissue() -> None:
    mask = tissue_mask(ISLANDS)
    column, row = (ISLANDS.cells().xy / mask.grid.downsample).astype(int).T
    assert mask.mask[row, column].mean() > 0.99
    assert mask.share == pytest.approx(ISLANDS.tissue_fraction, abs=0.1)


def test_density_and_mix_are_roughly_as_given() -> None:
    counts = dict.fromkeys(("tumour", "lymphocyte", "stromal"), 0)
    for seed in range(6):
        cells = SyntheticTissue(seed=seed, size_px=(6000, 6000), tissue_fraction=1.0).cells()
        counts = {name: counts[name] + number for name, number in cells.counts().items()}
    area_mm2 = 6 * 1.5**2
    assert sum(counts.values()) / area_mm2 == pytest.approx(5000, rel=0.1)
    assert counts["tumour"] / sum(counts.values()) == pytest.approx(0.5, abs=0.08)
    assert counts["lymphocyte"] / sum(counts.values()) == pytest.approx(0.25, abs=0.08)
    sparse = SyntheticTissue(seed=1, size_px=(6000, 6000), tissue_fraction=1.0, density_per_mm2=1000)
    assert len(sparse.cells()) / 1.5**2 == pytest.approx(1000, rel=0.25)
    only = replace(FULL, mix=Mix(tumour=0, lymphocyte=1, stromal=0)).cells()
    assert set(only.label.tolist()) == {1}


def test_cells_touch_but_do_not_sit_on_each_other() -> None:
    outlines = FULL.cells(outlines=True).outline
    assert outlines is not None
    assert shapely.is_valid(outlines).all()
    tree = shapely.STRtree(outlines)
    first, second = tree.query(outlines, predicate="intersects")
    pairs = first < second
    shared = shapely.area(shapely.intersection(outlines[first[pairs]], outlines[second[pairs]]))
    smaller = np.minimum(shapely.area(outlines[first[pairs]]), shapely.area(outlines[second[pairs]]))
    assert pairs.sum() > 30, "crowded"
    assert np.median(shared / smaller) < 0.35


def test_levels_look_alike() -> None:
    """A coarse pixel is the mean of the fine ones under it, although it is computed without them."""
    tissue = replace(ISLANDS, seed=2, size_px=(2048, 2048))
    for mpp, differ, drift in (
        (0.5, 2.0, 0.5),
        (1.0, 3.0, 0.5),
        (2.0, 4.0, 0.7),
        (4.0, 6.5, 1.5),
        (8.0, 12.0, 6.0),
    ):
        side = round(512 / mpp)
        fine = read_region(tissue, 0, 0, 2 * side, 2 * side, mpp=mpp / 2).astype(float)
        halved = fine.reshape(side, 2, side, 2, 3).mean(axis=(1, 3))
        coarse = read_region(tissue, 0, 0, side, side, mpp=mpp)
        assert np.abs(coarse - halved).mean() < differ
        assert np.abs((coarse - halved).mean(axis=(0, 1))).max() < drift


def test_whole_numbers_do_as_well_as_floats() -> None:
    whole = SyntheticTissue(
        seed=1, size_px=(64, 64), mpp=1, tissue_fraction=1, debris=1, density_per_mm2=4000
    )
    same = SyntheticTissue(1, (64, 64), 1.0, 4000.0, Mix(0.5, 0.25, 0.25), 1.0, 1.0)
    assert whole == same
    np.testing.assert_array_equal(read_region(whole, 0, 0, 64, 64), read_region(same, 0, 0, 64, 64))


def test_the_largest_seed_works() -> None:
    tissue = replace(FULL, seed=2**63 - 1)
    assert read_region(tissue, 0, 0, 50, 50).std() > 1
    assert len(tissue.cells()) > 100


def test_samples_carry_their_cells_and_seeds_share_none() -> None:
    samples = synthetic_samples(3, 128, mpp=0.5, seed=1, outlines=True)
    for image, cells in samples:
        assert image.shape == (128, 128, 3)
        assert cells.mpp == 0.5
        assert cells.outline is not None
        assert len(cells) > 3
        assert (cells.xy < 128).all()
    again = synthetic_samples(3, 128, mpp=0.5, seed=1)
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(samples, again, strict=True))
    others = synthetic_samples(6, 128, mpp=0.5, seed=2)
    assert not {image.tobytes() for image, _ in samples} & {image.tobytes() for image, _ in others}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"size_px": (0, 10)}, "size_px is"),
        ({"mpp": 0.0}, "mpp is 0"),
        ({"mpp": float("nan")}, "mpp is nan"),
        ({"density_per_mm2": 20_000}, "give 0 to 10,000"),
        ({"mix": Mix(0, 0, 0)}, "not all of them 0"),
        ({"mix": Mix(-1, 1, 1)}, "mix is"),
        ({"tissue_fraction": 0.0}, "tissue_fraction is"),
        ({"debris": -0.1}, "debris is"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(FULL, **change)  # type: ignore[arg-type]


def test_bad_regions() -> None:
    with pytest.raises(InputError, match="0 × 5 pixels"):
        read_region(FULL, 0, 0, 0, 5)
    with pytest.raises(InputError, match="mpp is -1"):
        read_region(FULL, 0, 0, 5, 5, mpp=-1)
    with pytest.raises(InputError, match="box is"):
        FULL.cells((0, 0, float("nan"), 10))
    with pytest.raises(InputError, match="max_px is 0"):
        FULL.thumbnail(0)
    with pytest.raises(InputError, match="count is -1"):
        synthetic_samples(-1, 64)
