"""Found cells over HTTP: overlay tiles, counts, shapes, suggestions, files."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath

from sparseshot.studio.derived import COMPARED
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import corners_of
from sparseshot.studio.overlay import Paint, overlay_png
from sparseshot.studio.payloads import Place, ResultName, SlideId, Threshold, ZoomLevel, area_of
from sparseshot.studio.slide_results import RESULT_ID, ResultId
from sparseshot.studio.studio import Studio

_MOST_VECTORS = 4_000
Result = Annotated[str, InPath(pattern=RESULT_ID)]
Against = Annotated[ResultName | None, Query()]
Shown = Paint | Literal["excluded", "likely"]
"""``excluded`` shows what the loss has excluded, ``likely`` the kinds that the starter believes in."""


def result_routes(studio: Studio) -> APIRouter:
    """Return the routes that show and write results."""
    routes = APIRouter()

    def shown(slide: str, result: str, against: str | None, paint: Shown) -> tuple[str, FoundCells]:
        if against is not None:
            return studio.compared(slide, result, against)
        show = {"excluded": studio.excluded, "likely": studio.likely}.get(paint, studio.kinded)
        return show(slide, result)

    @routes.get("/slides/{slide}/found/{result}/{z}/{x}/{y}.png")
    def overlay(  # noqa: PLR0917
        slide: SlideId,
        result: Result,
        z: ZoomLevel,
        x: Place,
        y: Place,
        threshold: Threshold = 0.5,
        paint: Shown = "class",
        against: Against = None,
    ) -> Response:
        version, cells = shown(slide, result, against, paint)
        threshold = 0.0 if against is not None else round(threshold, 3)  # each has its own
        colors: Paint = "class" if paint in {"excluded", "likely"} else paint  # type: ignore[assignment]
        content = studio.overlays.get(
            (slide, result, against, version, z, x, y, threshold, paint),
            lambda: overlay_png(cells, z, x, y, threshold=threshold, paint=colors),
        )
        return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})

    @routes.get("/slides/{slide}/found/{result}/cells")
    def cells_in_view(  # noqa: PLR0917
        slide: SlideId,
        result: Result,
        area: Annotated[str, Query(max_length=200)],
        threshold: Threshold = 0.5,
        vectors: bool = False,
        paint: Shown = "class",
        against: Against = None,
    ) -> dict[str, Any]:
        """Count the cells in an area; with ``vectors`` and few of them, return their places too."""
        box, is_plain = area_of(area), against is None and paint not in {"excluded", "likely"}
        version, found = shown(slide, result, against, paint)
        answer: dict[str, Any] = {
            "version": version,
            "classes": list(found.classes),
            "colors": ["#" + bytes(color).hex() for color in found.colors.tolist()],
            "cells": None,
            "quality": studio.quality(result, threshold) if is_plain and not vectors else None,
        }
        level = 0.0 if against is not None else threshold
        rows = found.rows_in(box, threshold=level)
        if vectors:
            return answer | (_vectors(found, rows) if len(rows) <= _MOST_VECTORS else {})
        if is_plain:
            return (
                answer | studio.counts(slide, result, box, threshold) | {"kinds": studio.recognised(result)}
            )
        totals = {"in_view": found.counts_of(rows), "in_slide": found.counts(threshold=level)}
        if against is None:
            return answer | totals
        answer["compared"] = list(totals["in_slide"].values())
        for counts in totals.values():
            counts.pop(COMPARED[-1])  # what is shown did not find them
        return answer | totals

    @routes.get("/suggestions")
    def suggestions() -> dict[str, Any]:
        """Return where to look next, by the latest run that knows; a region in an exhaustive one is done."""
        number, known = studio.next_regions()
        answer: dict[str, Any] = {"run": number, "ready": known is not None, "problem": "", "regions": []}
        if known is None:
            return answer
        regions = [
            {
                "slide": each.slide,
                "box": each.box,
                "kind": each.kind,
                "reason": each.reason,
                "result": str(ResultId(is_run=True, number=number or 0)),
                "done": studio.is_exhaustive(each.slide, each.box),
            }
            for each in known.regions
        ]
        return answer | {"problem": known.problem, "regions": regions}

    return routes


def _vectors(found: FoundCells, rows: Any) -> dict[str, Any]:
    """Return places, classes, scores and outlines of some found cells."""
    columns = found.xy[rows], found.label[rows], found.score[rows]
    return {
        "cells": [
            [round(float(x), 1), round(float(y), 1), int(label), round(float(score), 3)]
            for (x, y), label, score in zip(*columns, strict=True)
        ],
        "outlines": [
            None if shape is None else corners_of(shape, decimals=1) for shape in found.outlines(rows)
        ],
    }
