"""AnnData (.h5ad) and SpatialData (a Zarr folder), for scanpy and squidpy."""

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import shapely

from sparseshot.cells.formats.options import WriteOptions, optional
from sparseshot.cells.table import Cells


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write measurements as ``X``, class and score as ``obs``, places as ``obsm["spatial"]``.

    Places are in µm where the size of a pixel is known, and in level-0 pixels in ``obsm["spatial_px"]``.
    """
    options.count_lost(cells, "outline", "nucleus", "regions", "name")
    if cells.mpp is None:
        options.losses.count("places in pixels, because µm per pixel are unknown (--mpp)", len(cells))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the library
        io, h5py = optional("anndata.io", extra="anndata"), optional("h5py", extra="anndata")
        with h5py.File(file, "w") as root:
            io.write_elem(root, "/", table_of_cells(cells))


def table_of_cells(cells: Cells) -> Any:
    """Return cells as AnnData."""
    anndata, pandas = optional("anndata", extra="anndata"), optional("pandas", extra="anndata")
    names = np.arange(len(cells)) if cells.id is None else cells.id
    index = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
    observed = pandas.DataFrame(index=pandas.Index(index, dtype=str))
    observed["class"] = pandas.Categorical.from_codes(cells.label, categories=list(cells.classes))
    if cells.score is not None:
        observed["score"] = cells.score
    values = np.empty((len(cells), len(cells.measurements)), np.float32)
    for column, measured in enumerate(cells.measurements.values()):
        values[:, column] = measured
    table = anndata.AnnData(
        values,
        obs=observed,
        var=pandas.DataFrame(index=pandas.Index(list(cells.measurements), dtype=str)),
        obsm={"spatial": cells.xy * (cells.mpp or 1.0), "spatial_px": cells.xy.copy()},
        uns={"spatial_unit": "level-0 pixel" if cells.mpp is None else "µm"},
    )
    if cells.mpp is not None:
        table.uns["mpp"] = cells.mpp
    if cells.colors is not None:
        # The name that scanpy looks for.
        table.uns["class_colors"] = np.array(["#" + bytes(color).hex() for color in cells.colors], object)
    return table


CELLS, POINTS, REGIONS = "cells", "points", "exhaustive_regions"
"""Names of the elements: cells with outlines, cells without, and regions in which every cell is marked."""


def write_store(cells: Cells, folder: Path, options: WriteOptions) -> None:
    """Write a store with the coordinate systems ``global``, in level-0 pixels, and ``um`` if it is known."""
    options.count_lost(cells, "nucleus", "name", "region_notes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the library
        spatialdata = optional("spatialdata", extra="spatialdata")
        store_of_cells(cells, spatialdata).write(folder)


def store_of_cells(cells: Cells, spatialdata: Any) -> Any:
    """Return cells as SpatialData."""
    models, transformations = spatialdata.models, spatialdata.transformations
    systems = {"global": transformations.Identity()}
    if cells.mpp is not None:
        systems["um"] = transformations.Scale([cells.mpp, cells.mpp], axes=("x", "y"))
    has_outline = np.zeros(len(cells), bool)
    if cells.outline is not None:
        has_outline = ~shapely.is_missing(cells.outline)
    outlined, bare = cells[has_outline], cells[~has_outline]
    elements: dict[str, Any] = {}
    if len(outlined):
        elements[CELLS] = _shapes_element(outlined.outline, models, systems)
        elements["table"] = _table(outlined, models)
    if len(bare) or not len(outlined):
        elements[POINTS] = _points(bare, models, systems)
    if len(cells.regions):
        elements[REGIONS] = _shapes_element(cells.regions, models, systems)
    return spatialdata.SpatialData.init_from_elements(elements)


def _shapes_element(outlines: Any, models: Any, systems: dict[str, Any]) -> Any:
    geopandas = optional("geopandas", extra="spatialdata")
    frame = geopandas.GeoDataFrame({"geometry": list(outlines)}, index=np.arange(len(outlines)))
    return models.ShapesModel.parse(frame, transformations=dict(systems))


def _table(cells: Cells, models: Any) -> Any:
    table = table_of_cells(cells)
    pandas = optional("pandas", extra="spatialdata")
    table.obs["region"] = pandas.Categorical([CELLS] * len(cells))
    table.obs["instance_id"] = np.arange(len(cells))
    return models.TableModel.parse(table, region=CELLS, region_key="region", instance_key="instance_id")


def _points(cells: Cells, models: Any, systems: dict[str, Any]) -> Any:
    """Return points with their class, score and measurements as columns."""
    pandas = optional("pandas", extra="spatialdata")
    names = pandas.Categorical.from_codes(cells.label, categories=list(cells.classes))
    columns: dict[str, Any] = {"x": cells.xy[:, 0], "y": cells.xy[:, 1], "class": names}
    if cells.score is not None:
        columns["score"] = cells.score
    columns |= {name: column for name, column in cells.measurements.items() if name not in columns}
    return models.PointsModel.parse(pandas.DataFrame(columns), transformations=dict(systems))
