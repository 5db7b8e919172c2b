"""Found cells over HTTP: overlay tiles, counts, shapes, suggestions, files."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask

from sparseshot.files import safe_name
from sparseshot.studio.counting import regions_csv, regions_geojson
from sparseshot.studio.derived import COMPARED
from sparseshot.studio.exchange import file_of
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import corners_of
from sparseshot.studio.overlay import Paint, overlay_png
from sparseshot.studio.payloads import Place, ResultName, SlideId, Threshold, ZoomLevel, area_of
from sparseshot.studio.slide_results import RESULT_ID, ResultId
from sparseshot.studio.studio import Studio

_MOST_VECTORS = 4_000
Result = Annotated[str, InPath(pattern=RESULT_ID)]
Against = Annotated[ResultName | None, Query()]
Shown = Paint | Literal["excluded"]
"""How cells are coloured; ``excluded`` shows what the loss has excluded."""


def result_routes(studio: Studio) -> APIRouter:
    """Return the routes that show and write results."""
    routes = APIRouter()

    def shown(slide: str, result: str, against: str | None, paint: Shown) -> tuple[str, FoundCells]:
        if against is not None:
            return studio.compared(slide, result, against)
        return studio.excluded(slide, result) if paint == "excluded" else studio.kinded(slide, result)

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
        colors: Paint = "class" if paint == "excluded" else paint
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
        box, is_plain = area_of(area), against is None and paint != "excluded"
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
            return answer | studio.counts(slide, result, box, threshold)
        totals = {"in_view": found.counts_of(rows), "in_slide": found.counts(threshold=level)}
        if against is None:
            return answer | totals
        answer["compared"] = list(totals["in_slide"].values())
        for counts in totals.values():
            counts.pop(COMPARED[-1])  # what is shown did not find them
        return answer | totals

    @routes.get("/slides/{slide}/found/{result}/regions")
    def regions(slide: SlideId, result: Result, threshold: Threshold = 0.5) -> list[dict[str, Any]]:
        """Count in the whole slide and in each region to count in."""
        return [each.as_json() for each in studio.counted_regions(slide, result, threshold)]

    @routes.get("/slides/{slide}/found/{result}/regions.{ending}")
    def regions_file(
        slide: SlideId, result: Result, ending: Literal["csv", "geojson"], threshold: Threshold = 0.5
    ) -> Response:
        counted = studio.counted_regions(slide, result, threshold)
        items = studio.book.items(slide)
        content = regions_csv(counted) if ending == "csv" else regions_geojson(counted, items)
        return Response(content, headers=_attachment(studio, slide, f"regions.{ending}"))

    @routes.get("/slides/{slide}/found/{result}/report.html")
    def report(slide: SlideId, result: Result, threshold: Threshold = 0.5) -> HTMLResponse:
        """Return the report of a slide, which needs no other file."""
        return HTMLResponse(studio.report(slide, result, threshold))

    @routes.get("/cohort/{result}")
    def cohort(result: Result) -> list[dict[str, Any]]:
        """Count what a run has found on each slide."""
        return studio.cohort(result)

    @routes.get("/models/{result}.pt")
    def model(
        result: Result, name: Annotated[str, Query(pattern=r"^[\w .-]{1,100}$")] = "model"
    ) -> FileResponse:
        """Return the model of a run, under a name of one's own."""
        with ExitStack() as stack:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "model.pt")
            studio.model_file(result).save(file)
            header = f"attachment; filename*=UTF-8''{quote(safe_name(name) + '.pt', safe='')}"
            return FileResponse(
                file,
                media_type="application/octet-stream",
                headers={"Content-Disposition": header},
                background=BackgroundTask(stack.pop_all().close),
            )

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

    @routes.get("/slides/{slide}/export/{what}.{ending}")
    def give(
        slide: SlideId,
        what: Annotated[str, InPath(pattern=f"^marks$|{RESULT_ID}")],
        ending: Literal["geojson", "parquet", "csv"],
        threshold: Threshold = 0.0,
    ) -> FileResponse:
        opened, is_marks = studio.project.slide(slide), what == "marks"
        cells = (
            studio.book.cells(slide, mpp=opened.mpp) if is_marks else studio.decided(slide, what, threshold)
        )
        name = f"{'marks' if is_marks else 'found'}.{ending}"
        file, remove = file_of(cells, ending)
        return FileResponse(
            file,
            media_type="application/octet-stream",
            headers=_attachment(studio, slide, name),
            background=BackgroundTask(remove),
        )

    return routes


def _attachment(studio: Studio, slide: str, name: str) -> dict[str, str]:
    """Return the header that names a file for a slide."""
    whole = f"{safe_name(studio.project.path(slide).stem)}-{name}"
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(whole, safe='')}"}


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
