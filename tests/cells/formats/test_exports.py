"""AnnData and SpatialData, opened by their own libraries."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.errors import FormatError, OutputError, SparseshotWarning


def made(*, outlines: bool) -> Cells:
    random = np.random.default_rng(1)
    xy = random.uniform(50, 900, (30, 2))
    return Cells(
        xy,
        classes=("tumour", "lymphocyte"),
        label=random.integers(-1, 2, 30),
        score=random.random(30),
        outline=shapely.buffer(shapely.points(xy), 6.0) if outlines else None,
        mpp=0.25,
        measurements={
            "Nucleus: Area µm^2": random.random(30).astype(np.float32),
            "Neighbors within 20 µm": np.where(np.arange(30) == 3, np.nan, 5.0),
        },
        colors=[(200, 0, 0), (0, 80, 255)],
    )


def check_table(table: Any, cells: Cells) -> None:
    names = [None if label < 0 else cells.classes[label] for label in cells.label]
    assert table.obs["class"].astype(object).where(table.obs["class"].notna(), None).tolist() == names
    assert cells.score is not None
    np.testing.assert_array_equal(table.obs["score"], cells.score)
    assert list(table.var_names) == list(cells.measurements)
    for name, column in cells.measurements.items():
        np.testing.assert_array_equal(table[:, name].X[:, 0], column.astype(np.float32))
    np.testing.assert_allclose(table.obsm["spatial"], cells.xy * 0.25)
    np.testing.assert_array_equal(table.obsm["spatial_px"], cells.xy)
    assert list(table.uns["class_colors"]) == ["#c80000", "#0050ff"]


def test_anndata_holds_a_row_for_each_cell(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    cells = made(outlines=False)
    write_cells(cells, tmp_path / "cells.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = anndata.read_h5ad(tmp_path / "cells.h5ad")
    check_table(table, cells)
    assert table.uns["mpp"] == 0.25
    with pytest.warns(SparseshotWarning, match="30 outlines left out"):
        write_cells(made(outlines=True), tmp_path / "cells.h5ad")
    with pytest.raises(FormatError, match="known format"):
        read_cells(tmp_path / "cells.h5ad")
    with pytest.raises(FormatError, match="not read"):
        read_cells(tmp_path / "cells.h5ad", format="anndata")


@pytest.mark.parametrize("count", [0, 1])
def test_few_cells_are_a_table_too(tmp_path: Path, count: int) -> None:
    anndata = pytest.importorskip("anndata")
    write_cells(made(outlines=False)[:count], tmp_path / "cells.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert anndata.read_h5ad(tmp_path / "cells.h5ad").n_obs == count


@pytest.fixture
def read_store() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spatialdata = pytest.importorskip("spatialdata")
        yield spatialdata.read_zarr


def test_spatialdata_holds_outlines_with_their_table(tmp_path: Path, read_store: Any) -> None:
    cells = made(outlines=True)
    path = tmp_path / "cells.zarr"
    write_cells(cells[:3], path)
    write_cells(cells, path)  # an earlier store is replaced
    assert [each.name for each in tmp_path.iterdir()] == ["cells.zarr"]
    store = read_store(path)
    assert set(store.coordinate_systems) == {"global", "um"}
    assert cells.outline is not None
    assert shapely.equals_exact(store["cells"].geometry.to_numpy(), cells.outline, 1e-9).all()
    check_table(store["table"], cells)
    assert store["table"].obs["instance_id"].tolist() == store["cells"].index.tolist()
    in_um = store.transform_to_coordinate_system("um")["cells"].geometry.to_numpy()
    np.testing.assert_allclose(shapely.area(in_um), shapely.area(cells.outline) / 16)


def test_spatialdata_holds_points_with_columns(tmp_path: Path, read_store: Any) -> None:
    cells = made(outlines=False)
    write_cells(cells, tmp_path / "cells.zarr")
    points = read_store(tmp_path / "cells.zarr")["points"].compute()
    np.testing.assert_allclose(points[["x", "y"]], cells.xy)
    np.testing.assert_array_equal(points["Nucleus: Area µm^2"], cells.measurements["Nucleus: Area µm^2"])
    assert points["class"].notna().tolist() == (cells.label >= 0).tolist()


def test_notes_of_regions_are_counted_as_lost(tmp_path: Path) -> None:
    pytest.importorskip("spatialdata")
    cells = Cells([[1, 1]], regions=[shapely.box(0, 0, 9, 9)], region_notes=[{"reviewer": "Anna"}])
    with pytest.warns(SparseshotWarning, match="1 note of regions left out"):
        write_cells(cells, tmp_path / "cells.zarr")


def test_another_folder_is_not_replaced(tmp_path: Path) -> None:
    pytest.importorskip("spatialdata")
    (tmp_path / "precious.zarr").mkdir()
    (tmp_path / "precious.zarr" / "thesis.txt").write_text("all of it")
    with pytest.raises(OutputError, match="something else"):
        write_cells(made(outlines=False), tmp_path / "precious.zarr")
    assert (tmp_path / "precious.zarr" / "thesis.txt").exists()
