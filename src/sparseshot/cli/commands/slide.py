"""``sparseshot slide``: what a slide is, and where its tissue lies."""

from pathlib import Path
from typing import Annotated

import typer

from sparseshot.cli.app import app
from sparseshot.cli.options import FILES, Json, Mpp
from sparseshot.cli.output import print_json


@app.command("slide", rich_help_panel=FILES)
def show_slide(
    file: Annotated[
        Path, typer.Argument(help="A whole slide, an OME-TIFF or a plain image.", show_default=False)
    ],
    mpp: Mpp = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write a PNG of the slide with its tissue outlined.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show size, µm/px and levels of a slide, and how much of it is tissue.

    Example: `sparseshot slide biopsy.svs --picture tissue.png`
    """
    from sparseshot.images import open_slide, tissue_mask

    with open_slide(file, mpp=mpp) as slide:
        tissue = tissue_mask(slide)
        width, height = slide.size
        levels = [
            {"width": w, "height": h, "mpp": slide.mpp * downsample}
            for (w, h), downsample in zip(slide.levels, slide.downsamples, strict=True)
        ]
    if picture is not None:
        tissue.write_picture(picture)
    if as_json:
        known = {
            "file": file,
            "vendor": slide.vendor,
            "width": width,
            "height": height,
            "mpp": slide.mpp,
            "levels": levels,
            "tissue_share": tissue.share,
            "tissue_mm2": tissue.area_mm2,
        }
        print_json(known)
        return
    typer.echo(f"{slide.name}  {slide.vendor}")
    mm = slide.mpp / 1000
    typer.echo(
        f"size    {width:,} × {height:,} px, {width * mm:.2f} × {height * mm:.2f} mm at {slide.mpp:g} µm/px"
    )
    for number, level in enumerate(levels):
        typer.echo(f"level {number} {level['width']:,} × {level['height']:,} px at {level['mpp']:g} µm/px")
    typer.echo(f"tissue  {tissue.share:.1%} of it, {tissue.area_mm2:.2f} mm²")
    if picture is not None:
        typer.echo(f"picture {picture}")
