"""The report of a slide: one HTML page with counts, density, and what they rest on."""

import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from sparseshot import __version__
from sparseshot.cells import Cells
from sparseshot.images import Slide, TissueMask
from sparseshot.pages import Parts, Picture, escape, table
from sparseshot.prediction.slide_pictures import Density, Overview, jpeg
from sparseshot.studio.counting import RegionCount


def make_report(
    slide: Slide,
    cells: Cells,
    regions: list[RegionCount],
    *,
    tissue: TissueMask,
    facts: dict[str, Any],
) -> Parts:
    """Return the report of a slide.

    Args:
        slide: the slide.
        cells: as they were found and decided.
        regions: what was counted, the whole slide first.
        tissue: of the slide.
        facts: further rows of the table of facts; those without a value are left out.
    """
    overview = Overview(slide)
    overview.add(cells)
    width, height = slide.size
    rows = {
        "slide": f"{width:,} × {height:,} pixels of {slide.mpp:g} µm, {tissue.area_mm2:,.3f} mm² of tissue",
        **facts,
        "written": f"{date.today()}, sparseshot {__version__}",
    }
    return [
        f"# {escape(slide.name)}",
        *_counts(regions),
        "## What it rests on",
        table(["", ""], [[name, escape(value)] for name, value in rows.items() if value], text_columns=2),
        "## Cells",
        Picture(
            "overview.jpg",
            "The slide in grey; each dot is a cell in the colour of its kind.",
            jpeg(overview.image.convert("RGB")),
        ),
        "## Density",
        Picture("density.png", "The slide, and its cells per mm².", _density_picture(slide, cells, tissue)),
    ]


def make_cohort_report(model: str, slides: list[RegionCount]) -> Parts:
    """Return the report of several slides.

    Args:
        model: what found the cells.
        slides: what was counted on each, named by it.
    """
    return [
        f"# {len(slides)} slides",
        *_counts(slides),
        f"Found by: {escape(model)}. Written {date.today()}, sparseshot {__version__}.",
    ]


def _counts(regions: list[RegionCount]) -> Parts:
    kinds = list(dict.fromkeys(name for each in regions for name in each.counts))
    parts: Parts = [
        table(["", "cells", "mm²", "cells per mm² (95 %)"], [_density_row(each) for each in regions])
    ]
    if len(kinds) > 1:
        shares = [[escape(each.name), *(_share(each, kind) for kind in kinds)] for each in regions]
        parts += ["## Kinds", table(["", *map(escape, kinds)], shares)]
    return [
        *parts,
        "Ranges are 95 % intervals of counting alone; they do not hold what is missed or invented.",
    ]


def _density_row(region: RegionCount) -> list[str]:
    density, (low, high) = region.per_mm2
    shown = f"{density:,.0f} ({low:,.0f}–{high:,.0f})" if region.mm2 else ""
    return [escape(region.name), f"{region.cells:,}", f"{region.mm2:.3f}", shown]


def _share(region: RegionCount, kind: str) -> str:
    count = region.counts.get(kind, 0)
    share, (low, high) = region.share(count)
    return f"{count:,}, {share:.1%} ({low:.1%}–{high:.1%})"


def _density_picture(slide: Slide, cells: Cells, tissue: TissueMask) -> bytes:
    density = Density.over(slide.size, slide.mpp, cells.classes)
    density.add(cells)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "density.png")
        density.write_picture(path, overview=None if tissue.overview is None else tissue.picture())
        return path.read_bytes()
