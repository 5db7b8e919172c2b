"""``convert``, ``subset``, ``cells``, ``slide`` and ``qupath-script``: files of cells and slides."""

import json
import warnings
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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


@app.command("slide", rich_help_panel=options.FILES)
def show_slide(
    file: Annotated[Path, Argument(help="Whole slide, OME-TIFF or plain image.")],
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    picture: Annotated[Path | None, Option(help="Write a PNG of the slide with its tissue outlined.")] = None,
) -> None:
    """Show the size, resolution and levels of a slide, and how much of it is tissue.

    Example: `sparseshot slide biopsy.svs --picture tissue.png`
    """
    from sparseshot.images import open_slide, tissue_mask

    with open_slide(file, mpp=mpp, force_mpp=force_mpp) as slide:
        tissue = tissue_mask(slide)
        width, height = slide.size
        levels = [
            {"width": w, "height": h, "mpp": slide.mpp * downsample}
            for (w, h), downsample in zip(slide.levels, slide.downsamples, strict=True)
        ]
    if picture is not None:
        tissue.write_picture(picture)
    properties = {
        "file": file,
        "vendor": slide.vendor,
        "width": width,
        "height": height,
        "mpp": slide.mpp,
        "levels": levels,
        "tissue_share": tissue.share,
        "tissue_mm2": tissue.area_mm2,
    }
    print_json(properties)
    mm = slide.mpp / 1000
    echo(f"{slide.name}  {slide.vendor}")
    echo(f"size    {width:,} × {height:,} px, {width * mm:.2f} × {height * mm:.2f} mm at {slide.mpp:g} µm/px")
    for number, level in enumerate(levels):
        echo(f"level {number} {level['width']:,} × {level['height']:,} px at {level['mpp']:g} µm/px")
    echo(f"tissue  {tissue.share:.1%} of the slide, {tissue.area_mm2:.2f} mm²")
    if picture is not None:
        echo(f"picture {picture}")


@app.command("qupath-script", rich_help_panel=options.FILES)
def qupath_script(
    action: Annotated[
        Literal["export", "train", "predict"],
        Option(help="Export the annotations, learn from all that were exported, or find all cells."),
    ] = "predict",
    model: Annotated[
        str, Option(help="Folder of the run, which train writes and predict reads; or starter.")
    ] = "starter",
    command: Annotated[
        str | None, Option(help="How QuPath starts sparseshot; default: the program that runs now.")
    ] = None,
) -> None:
    """Print a Groovy script that runs sparseshot on the image open in QuPath, or on all of a project.

    Example: `sparseshot qupath-script --action predict --model run`

    Save it to a file, such as predict.groovy. In QuPath: Automate, Script editor, open the file, then Run or
    Run for project. The script exports the annotations, runs `train` or `predict`, and imports the cells. It
    has not been tested in QuPath itself.
    """
    import shutil
    import sys

    if action == "train" and model in options.STARTERS:
        raise InputError("--action train needs --model, the folder that it writes")
    if model not in options.STARTERS:
        model = str(Path(model).absolute())
    beside = shutil.which("sparseshot", path=str(Path(sys.executable).parent))
    command = command or beside or "sparseshot"
    script = files("sparseshot.cli").joinpath("qupath.groovy").read_text(encoding="utf-8")
    for name, value in (("COMMAND", command), ("ACTION", action), ("MODEL", model)):
        script = script.replace(f"%{name}%", _groovy(value))
    print_json({"script": script})
    for line in script.splitlines():
        echo(line)


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


def _groovy(text: str) -> str:
    r"""Return text as a string of Groovy, in which a dollar sign would begin a variable.

    >>> print(_groovy("C:\\a$b"))
    "C:\\a\$b"
    """
    return json.dumps(text).replace("$", "\\$")
