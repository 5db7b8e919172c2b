"""AnnData (.h5ad), for scanpy and squidpy: a row for each cell, a column for each measurement."""

import warnings
from typing import Any, BinaryIO

import numpy as np

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
