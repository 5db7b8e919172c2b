"""``sparseshot slide``: the properties of a slide and its tissue."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json


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
