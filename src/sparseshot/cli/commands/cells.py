"""``convert``, ``subset`` and ``cells``: files of cells from the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from sparseshot.cli.app import app
from sparseshot.cli.options import FILES, Json, Mpp, Seed
from sparseshot.cli.output import print_json, print_table

Source = Annotated[Path, typer.Argument(help="A file of cells in any format.", show_default=False)]
Target = Annotated[Path, typer.Argument(help="The end of its name decides the format.", show_default=False)]
Size = Annotated[str | None, typer.Option(help="Width and height of the slide in pixels, e.g. 1000x1000.")]


@app.command(rich_help_panel=FILES)
def convert(
    source: Source,
    target: Target,
    from_format: Annotated[
        str | None, typer.Option("--from", help="Format of the source, if not by content.")
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="Format of the target, if not by name.")
    ] = None,
    mpp: Mpp = None,
    size: Size = None,
    as_json: Json = False,
) -> None:
    """Convert cells from one format to another.

    Example: `sparseshot convert export.geojson cells.parquet`
    """
    from sparseshot.cells import read_cells, write_cells
    from sparseshot.cells.summary import summary

    size_px = _size(size)
    cells = read_cells(source, format=from_format, mpp=mpp, size_px=size_px)
    write_cells(cells, target, format=to_format, size_px=size_px)
    if as_json:
        print_json({"file": target, **summary(cells)})
        return
    typer.echo(f"{target}: {cells!r}")


def _size(text: str | None) -> tuple[int, int] | None:
    from sparseshot.errors import InputError

    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise InputError(f"--size is {text!r}; give width and height in pixels, e.g. 1000x1000")
    return int(width), int(height)


@app.command(rich_help_panel=FILES)
def subset(
    source: Source,
    target: Target,
    fraction: Annotated[float | None, typer.Option(help="Of the marks of each class, e.g. 0.3.")] = None,
    seed: Seed = 0,
    variant: Annotated[
        Path | None, typer.Option(help="Write which marks were chosen to this file, to share it.")
    ] = None,
    apply: Annotated[Path | None, typer.Option(help="Take the marks of such a file instead.")] = None,
    as_json: Json = False,
) -> None:
    """Keep a fraction of the marks: every smaller fraction lies inside every larger one.

    Example: `sparseshot subset marks.geojson sparse.geojson --fraction 0.3 --seed 0`
    """
    from sparseshot.cells import Variant, read_cells
    from sparseshot.errors import InputError

    if (fraction is None) == (apply is None):
        raise InputError(
            "give either --fraction, to choose marks, or --apply, to take those of a variant file"
        )
    cells = read_cells(source)
    chosen = Variant.choose(cells, fraction or 0.0, seed=seed) if apply is None else Variant.read(apply)
    (kept,) = chosen.apply(cells)
    kept.write(target)
    if variant is not None:
        chosen.write(variant)
    if as_json:
        print_json({"file": target, "marks": len(kept), "of": len(cells), "variant": variant})
        return
    typer.echo(f"{target}: {len(kept):,} of {len(cells):,} marks")


@app.command(rich_help_panel=FILES)
def cells(
    file: Source,
    mpp: Mpp = None,
    size: Size = None,
    as_json: Json = False,
) -> None:
    """Tell what a file of cells holds: counts, classes, extent, and what was mended.

    Example: `sparseshot cells export.geojson`
    """
    import warnings

    from sparseshot.cells import read_cells
    from sparseshot.cells.summary import summary
    from sparseshot.errors import SparseshotWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SparseshotWarning)
        told = summary(read_cells(file, mpp=mpp, size_px=_size(size)))
    told["warnings"] = [str(each.message) for each in caught if issubclass(each.category, SparseshotWarning)]
    if as_json:
        print_json(told)
        return
    _print_table(file, told)


def _print_table(file: Path, told: dict[str, object]) -> None:
    from rich.table import Table

    table = Table(title=str(file), show_header=False, title_justify="left")
    for name, value in told.items():
        if isinstance(value, dict):
            for key, number in value.items():
                table.add_row(f"{name}: {key}", f"{number:,}")
        elif isinstance(value, list):
            for each in value:
                table.add_row(name, str(each))
        elif isinstance(value, bool):
            table.add_row(name, "yes" if value else "no")
        elif value is not None:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    print_table(table)
