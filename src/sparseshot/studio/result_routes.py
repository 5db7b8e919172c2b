"""Results over HTTP: found cells as they are shown, counted and reported, and as files."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask

from sparseshot.cells import write_cells
from sparseshot.errors import DataNotFoundError
from sparseshot.files import safe_name
from sparseshot.studio.counting import regions_csv, regions_geojson
from sparseshot.studio.derived import COMPARED
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import corners_of
from sparseshot.studio.overlay import Paint, overlay_png
from sparseshot.studio.payloads import Place, ResultName, SlideId, Threshold, ZoomLevel, area_of
from sparseshot.studio.slide_results import RESULT_ID
from sparseshot.studio.studio import Studio
from sparseshot.studio.telling import told

_MOST_VECTORS = 4_000
Result = Annotated[str, InPath(pattern=RESULT_ID)]
Against = Annotated[ResultName | None, Query()]
PositiveOd = Annotated[float | None, Query(gt=0, le=5)]
"""Optical density of DAB from which on a cell is positive; without it, that is not measured."""

Shown = Paint | Literal["excluded", "likely"]
"""``excluded`` shows what the loss has excluded, ``likely`` the kinds that the starter believes in."""


def result_routes(studio: Studio) -> APIRouter:
    """Return the routes that show, count and write results."""
    routes = APIRouter()

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
        least = 0.0 if against is not None else threshold  # each has its own
        colors: Paint = "class" if paint in {"excluded", "likely"} else paint  # type: ignore[assignment]
        cells = studio.shown(slide, result, paint, against)
        content = overlay_png(cells, z, x, y, threshold=least, paint=colors)
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
        """Count the cells in an area; with ``vectors``, return their places instead if they are few."""
        box, found = area_of(area), studio.shown(slide, result, paint, against)
        least = 0.0 if against is not None else threshold
        answer: dict[str, Any] = {
            "version": found.version,
            "classes": found.cells.classes,
            "colors": ["#" + bytes(color).hex() for color in found.cells.colors or ()],
        }
        if vectors:
            rows = found.rows_in(box, threshold=least)
            return answer | (_vectors(found, rows) if len(rows) <= _MOST_VECTORS else {"cells": None})
        if against is None and paint not in {"excluded", "likely"}:
            found = studio.shown(slide, result, "counted")
            answer |= {"quality": studio.expected(result, threshold), "kinds": studio.recognised(result)}
        totals = {"in_view": found.counts(box, threshold=least), "in_slide": found.counts(threshold=least)}
        if against is not None:
            answer["compared"] = list(totals["in_slide"].values())
            for counts in totals.values():
                counts.pop(COMPARED[-1])  # what is shown did not find them
        return answer | totals

    @routes.get("/slides/{slide}/found/{result}/regions.{ending}")
    def regions(
        slide: SlideId,
        result: Result,
        ending: Literal["json", "csv", "geojson"],
        threshold: Threshold = 0.5,
        positive_od: PositiveOd = None,
    ) -> Any:
        """Count in the whole slide and in each region to count in."""
        counted = studio.counted_regions(slide, result, threshold, positive_od)
        if ending == "json":
            return [each.as_json() for each in counted]
        items = studio.book.items(slide)
        content = regions_csv(counted) if ending == "csv" else regions_geojson(counted, items)
        return Response(content, headers=_named(f"{slide_name(slide)}-regions.{ending}"))

    @routes.get("/slides/{slide}/found/{result}/report.html")
    def report(slide: SlideId, result: Result, threshold: Threshold = 0.5) -> HTMLResponse:
        """Return the report of a slide, which needs no other file."""
        return HTMLResponse(studio.report(slide, result, threshold))

    @routes.get("/slides/{slide}/found/{result}/page/{file}")
    def page(
        slide: SlideId, result: Result, file: Literal["index.html", "overview.png", "density.png"]
    ) -> Response:
        """Return the page that ``predict`` wrote, or a picture of it."""
        path = studio.result(slide, result).folder / file
        if not path.is_file():
            raise DataNotFoundError(path, "the page is written when all cells of the slide are found")
        return FileResponse(path)

    @routes.get("/cohort/{result}.{ending}")
    def cohort(result: Result, ending: Literal["json", "csv", "html"]) -> Any:
        """Count what a run has found on each slide."""
        if ending == "json":
            return studio.cohort(result)
        if ending == "html":
            return HTMLResponse(studio.cohort_report(result))
        return Response(regions_csv(studio.cohort_counts(result)), headers=_named("slides.csv"))

    @routes.get("/models/{result}.pt")
    def model(
        result: Result, name: Annotated[str, Query(pattern=r"^[\w .-]{1,100}$")] = "model"
    ) -> FileResponse:
        """Return the model of a run, under a name of one's own."""
        return _written(f"{safe_name(name)}.pt", studio.model_file(result).save)

    @routes.get("/slides/{slide}/export/{what}.{ending}")
    def give(
        slide: SlideId,
        what: Annotated[str, InPath(pattern=f"^marks$|{RESULT_ID}")],
        ending: Literal["geojson", "parquet", "csv"],
        threshold: Threshold = 0.0,
    ) -> FileResponse:
        is_marks = what == "marks"
        cells = studio.marks_of(slide) if is_marks else studio.decided(slide, what, threshold)
        name = f"{slide_name(slide)}-{'marks' if is_marks else 'found'}.{ending}"
        with told():  # a CSV holds no outlines
            return _written(name, lambda file: write_cells(cells, file))

    def slide_name(slide: str) -> str:
        return safe_name(studio.project.path(slide).stem)

    return routes


def _written(name: str, write: Callable[[Path], object]) -> FileResponse:
    """Return a file to keep, written to a temporary folder that goes when it has been sent."""
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "file").with_suffix(Path(name).suffix)
        write(file)
        return FileResponse(
            file,
            media_type="application/octet-stream",
            headers=_named(name),
            background=BackgroundTask(stack.pop_all().close),
        )


def _named(name: str) -> dict[str, str]:
    """Return the header that names a file."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


def _vectors(found: FoundCells, rows: Any) -> dict[str, Any]:
    """Return places, classes, scores and outlines of some found cells."""
    columns = found.cells.xy[rows], found.cells.label[rows], found.score[rows]
    return {
        "cells": [
            [round(float(x), 1), round(float(y), 1), int(label), round(float(score), 3)]
            for (x, y), label, score in zip(*columns, strict=True)
        ],
        "outlines": [
            None if shape is None else corners_of(shape, decimals=1) for shape in found.outlines(rows)
        ],
    }
