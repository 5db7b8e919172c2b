"""Found cells over HTTP: overlay tiles, counts, shapes, files."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from sparseshot.prediction.recipe import safe_name
from sparseshot.studio.exchange import file_of
from sparseshot.studio.marks import corners_of
from sparseshot.studio.overlay import Paint, overlay_png
from sparseshot.studio.payloads import Place, ResultId, SlideId, Threshold, ZoomLevel, area_of
from sparseshot.studio.studio import Studio

_MOST_VECTORS = 4_000


def result_routes(studio: Studio) -> APIRouter:
    """Return the routes that show and write results."""
    routes = APIRouter()

    @routes.get("/slides/{slide}/found/{result}/{z}/{x}/{y}.png")
    def overlay(  # noqa: PLR0917
        slide: SlideId,
        result: ResultId,
        z: ZoomLevel,
        x: Place,
        y: Place,
        threshold: Threshold = 0.5,
        paint: Paint = "class",
    ) -> Response:
        version, cells = studio.found(slide, result)
        key = (slide, result, version, z, x, y, round(threshold, 3), paint)
        content = studio.overlays.get(
            key, lambda: overlay_png(cells, z, x, y, threshold=threshold, paint=paint)
        )
        return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})

    @routes.get("/slides/{slide}/found/{result}/cells")
    def cells_in_view(
        slide: SlideId,
        result: ResultId,
        area: Annotated[str, Query(max_length=200)],
        threshold: Threshold = 0.5,
        vectors: bool = False,
    ) -> dict[str, Any]:
        """Count the cells in an area; with ``vectors`` and few of them, return their places too."""
        _, found = studio.found(slide, result)
        rows = found.rows_in(area_of(area), threshold=threshold)
        answer: dict[str, Any] = {
            "in_view": found.counts_of(rows),
            "in_slide": found.counts(threshold=threshold),
            "classes": list(found.classes),
            "colors": ["#" + bytes(color).hex() for color in found.colors.tolist()],
            "cells": None,
        }
        if vectors and len(rows) <= _MOST_VECTORS:
            answer["cells"] = [
                [round(float(x), 1), round(float(y), 1), int(label), round(float(score), 3)]
                for (x, y), label, score in zip(
                    found.xy[rows], found.label[rows], found.score[rows], strict=True
                )
            ]
            answer["outlines"] = [
                None if shape is None else corners_of(shape, decimals=1) for shape in found.outlines(rows)
            ]
        return answer

    @routes.get("/suggestions")
    def suggestions() -> dict[str, Any]:
        """Return where to look next, by the latest run that knows; a region in an exhaustive one is done."""
        number, known = studio.next_regions()
        if known is None:
            return {"run": number, "ready": False, "problem": "", "regions": []}
        regions = [
            {
                "slide": each.slide,
                "box": each.box,
                "kind": each.kind,
                "reason": each.reason,
                "done": studio.is_exhaustive(each.slide, each.box),
            }
            for each in known.regions
        ]
        return {"run": number, "ready": True, "problem": known.problem, "regions": regions}

    @routes.get("/slides/{slide}/export/{what}.{ending}")
    def give(
        slide: SlideId,
        what: Annotated[str, InPath(pattern="^(marks|[rf][0-9]{1,9})$")],
        ending: Literal["geojson", "parquet", "csv"],
        threshold: Threshold = 0.0,
    ) -> FileResponse:
        opened = studio.project.slide(slide)
        if what == "marks":
            cells = studio.book.cells(slide, mpp=opened.mpp)
        else:
            cells = studio.result(slide, what).cells()
            cells = cells if cells.score is None else cells[cells.score >= threshold]
        name = f"{safe_name(opened.path.stem)}-{'marks' if what == 'marks' else 'found'}.{ending}"
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        file, remove = file_of(cells, ending)
        return FileResponse(
            file,
            media_type="application/octet-stream",
            headers={"Content-Disposition": disposition},
            background=BackgroundTask(remove),
        )

    return routes
