"""What is kept or sent on: counts, reports, files and models over HTTP."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask

from sparseshot.errors import DataNotFoundError
from sparseshot.files import safe_name
from sparseshot.studio.counting import regions_csv, regions_geojson
from sparseshot.studio.exchange import file_of
from sparseshot.studio.payloads import SlideId, Threshold
from sparseshot.studio.slide_results import RESULT_ID
from sparseshot.studio.studio import Studio

Result = Annotated[str, InPath(pattern=RESULT_ID)]
PositiveOd = Annotated[float | None, Query(gt=0, le=5)]
"""Optical density of DAB from which on a cell is positive; without it, that is not measured."""


def report_routes(studio: Studio) -> APIRouter:
    """Return the routes that count, report and write files."""
    routes = APIRouter()

    @routes.get("/slides/{slide}/found/{result}/regions")
    def regions(
        slide: SlideId, result: Result, threshold: Threshold = 0.5, positive_od: PositiveOd = None
    ) -> list[dict[str, Any]]:
        """Count in the whole slide and in each region to count in."""
        counted = studio.counted_regions(slide, result, threshold, positive_od)
        return [each.as_json() for each in counted]

    @routes.get("/slides/{slide}/found/{result}/regions.{ending}")
    def regions_file(
        slide: SlideId,
        result: Result,
        ending: Literal["csv", "geojson"],
        threshold: Threshold = 0.5,
        positive_od: PositiveOd = None,
    ) -> Response:
        counted = studio.counted_regions(slide, result, threshold, positive_od)
        items = studio.book.items(slide)
        content = regions_csv(counted) if ending == "csv" else regions_geojson(counted, items)
        return Response(content, headers=_attachment(studio, slide, f"regions.{ending}"))

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

    @routes.get("/cohort/{result}.html")
    def cohort_page(result: Result) -> HTMLResponse:
        """Return the report of all slides."""
        return HTMLResponse(studio.cohort_report(result))

    @routes.get("/cohort/{result}.csv")
    def cohort_file(result: Result) -> Response:
        """Return a table of all slides."""
        header = {"Content-Disposition": "attachment; filename*=UTF-8''slides.csv"}
        return Response(regions_csv(studio.cohort_counts(result)), headers=header)

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

    @routes.get("/slides/{slide}/export/{what}.{ending}")
    def give(
        slide: SlideId,
        what: Annotated[str, InPath(pattern=f"^marks$|{RESULT_ID}")],
        ending: Literal["geojson", "parquet", "csv"],
        threshold: Threshold = 0.0,
    ) -> FileResponse:
        is_marks = what == "marks"
        cells = studio.marks_of(slide) if is_marks else studio.decided(slide, what, threshold)
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
