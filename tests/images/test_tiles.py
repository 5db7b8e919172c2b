import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseshot.errors import InputError
from sparseshot.images.tiles import TileGrid

GRIDS = st.builds(
    TileGrid,
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    tile_px=st.integers(1, 40),
    margin_px=st.integers(0, 20),
)


@settings(deadline=None)
@given(GRIDS)
def test_cores_cover_each_pixel_once(tiles: TileGrid) -> None:
    seen = np.zeros((tiles.height, tiles.width), int)
    for tile in tiles:
        x0, y0, x1, y1 = tile.core
        assert x1 > x0
        assert y1 > y0
        seen[y0:y1, x0:x1] += 1
    assert (seen == 1).all()


@settings(deadline=None)
@given(GRIDS)
def test_what_is_read_holds_the_core_and_its_margin_and_is_of_one_size(tiles: TileGrid) -> None:
    m = tiles.margin_px
    for tile in tiles:
        assert (tile.padded.width, tile.padded.height) == (tiles.padded_px, tiles.padded_px)
        assert (tile.padded.x0, tile.padded.y0) == (tile.core.x0 - m, tile.core.y0 - m)
        assert tile.padded.x1 >= tile.core.x1 + m
        assert tile.padded.y1 >= tile.core.y1 + m


@settings(deadline=None)
@given(GRIDS)
def test_tiles_are_numbered_row_by_row(tiles: TileGrid) -> None:
    assert [tile.index for tile in tiles] == list(range(len(tiles)))
    corners = [(tile.core.y0, tile.core.x0) for tile in tiles]
    assert corners == sorted(corners)


def test_wrong_grids_are_refused() -> None:
    with pytest.raises(InputError, match="tiles over 0 × 5 pixels"):
        TileGrid(0, 5, tile_px=3)
    with pytest.raises(InputError, match="tiles of 0 pixels"):
        TileGrid(5, 5, tile_px=0)
    with pytest.raises(InputError, match="margin of -1"):
        TileGrid(5, 5, tile_px=3, margin_px=-1)
    with pytest.raises(IndexError):
        TileGrid(5, 5, tile_px=3)[4]
