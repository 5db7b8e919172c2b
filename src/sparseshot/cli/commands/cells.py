"""``convert``, ``subset`` and ``cells``: files of cells."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json, print_table
from sparseshot.errors import InputError, SparseshotWarning, counted

if TYPE_CHECKING:
    from sparseshot.cells import Cells

Source = Annotated[Path, Argument(help="File of cells, or a slide's folder written by `predict`.")]
Target = Annotated[Path, Argument(help="Its suffix decides the format.")]
ImageName = Annotated[str | None, Option("--image", help="File name or id of one of several images.")]
Size = Annotated[str | None, Option(help="Width and height of the slide in pixels, as 1000x1000.")]

_MOST_NAMED = 3


@app.command(rich_help_panel=options.FILES)
def convert(
    source: Source,
    target: Target,
    from_format: Annotated[
        str | None, Option("--from", help="Format of the source, if not recognised by its content.")
    ] = None,
    to_format: Annotated[
        str | None, Option("--to", help="Format of the target, instead of its suffix.")
    ] = None,
    mpp: options.Mpp = None,
    size: Size = None,
    image: ImageName = None,
) -> None:
    """Convert cells from one format to another.

    Example: `sparseshot convert export.geojson cells.parquet`
    """
    from sparseshot.cells import write_cells
    from sparseshot.cells.formats.registry import format_of
    from sparseshot.cells.summary import summary

    size_px = _parse_size(size)
    format_of(target, to_format)  # refused before anything is read
    cells = _read(source, format=from_format, mpp=mpp, size_px=size_px, image=image)
    write_cells(cells, target, format=to_format, size_px=size_px)
    print_json({"file": target, **summary(cells)})
    counts = ", ".join(f"{count:,} {name}" for name, count in cells.counts().items())
    echo(f"{target}: {counted(len(cells), 'cell')}: {counts}")


@app.command(rich_help_panel=options.FILES)
def subset(
    source: Source,
    target: Target,
    fraction: Annotated[float, Option(help="Share of the marks of each class to keep, as 0.3.")],
    seed: options.Seed = 0,
) -> None:
    """Keep a fraction of the marks. A smaller fraction is a subset of every larger one.

    Seed and ids alone decide which marks, so that the choice is the same on every machine.

    Example: `sparseshot subset marks.geojson sparse.geojson --fraction 0.3 --seed 0`
    """
    from sparseshot.cells import subset as chosen_subset
    from sparseshot.cells.formats.registry import format_of

    format_of(target)
    cells = _read(source)
    (kept,) = chosen_subset(cells, fraction, seed=seed)
    kept.write(target)
    print_json({"file": target, "marks": len(kept), "of": len(cells)})
    lost = len(cells.regions) - len(kept.regions)
    regions = f"; exhaustive regions left out with their marks: {lost}" if lost else ""
    echo(f"{target}: {len(kept):,} of {counted(len(cells), 'mark')}{regions}")


@app.command(rich_help_panel=options.FILES)
def cells(
    source: Source,
    mpp: options.Mpp = None,
    size: Size = None,
    image: ImageName = None,
) -> None:
    """Show what a file of cells holds: counts, classes, extent, and what was repaired on reading.

    Example: `sparseshot cells export.geojson`
    """
    from sparseshot.cells.summary import summary, without_large_outlines

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SparseshotWarning)
        table = _read(source, mpp=mpp, size_px=_parse_size(size), image=image)
        without_large_outlines(table, str(source))  # train will leave them out, with the same warning
        content = summary(table)
    ours = [each for each in caught if issubclass(each.category, SparseshotWarning)]
    content["warnings"] = [str(each.message) for each in ours]
    print_json(content)
    echo(source)
    print_table((), _rows(content))


def _read(
    source: Path,
    *,
    format: str | None = None,  # noqa: A002
    mpp: float | None = None,
    size_px: tuple[int, int] | None = None,
    image: str | None = None,
) -> "Cells":
    options.check_paths(source)
    if source.is_dir():
        from sparseshot.prediction import read_prediction

        return read_prediction(source)
    from sparseshot.cells import read_cells

    return read_cells(source, format=format, mpp=mpp, size_px=size_px, image=image)


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(f"--size is {text!r}; pass width and height in pixels, as 1000x1000")
    return int(width), int(height)


def _rows(content: dict[str, object]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for name, value in content.items():
        if isinstance(value, dict):
            rows += [(f"{name}: {key}", number) for key, number in value.items()]
        elif isinstance(value, list) and name == "measurements" and len(value) > _MOST_NAMED:
            rows.append((name, f"{len(value)}: {', '.join(value[:_MOST_NAMED])}, …"))
        elif value is not None:
            rows += [(name, each) for each in (value if isinstance(value, list) else [value])]
    return rows
