"""HTTP interface of the studio: slides, runs and marks here, results in their own module."""

import time
from typing import Annotated, Any, Literal

import shapely
from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response, UploadFile
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException as AnyHTTPException

from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    InputError,
    OutputError,
    SlideError,
    SparseshotError,
)
from sparseshot.studio.decided import judged, reviewed
from sparseshot.studio.exchange import new_items, read_marks
from sparseshot.studio.guard import MOST_BYTES
from sparseshot.studio.journal import Event
from sparseshot.studio.marks import NEGATIVE
from sparseshot.studio.payloads import (
    Change,
    ChosenFile,
    Key,
    NewClass,
    OtherClass,
    PixelSize,
    Place,
    Review,
    Seen,
    SlideId,
    Verdict,
    ZoomLevel,
    check_place,
)
from sparseshot.studio.result_routes import result_routes
from sparseshot.studio.slide_tiles import TILE_PX, jpeg, label_jpeg, levels_of, tile_jpeg
from sparseshot.studio.studio import Studio

RunNumber = Annotated[int, InPath(ge=0, lt=10**9)]
Version = Annotated[str, Query(max_length=40)]
_STATUS = {InputError: 422, FormatError: 422, DataNotFoundError: 404, SlideError: 410, OutputError: 507}


def make_api(studio: Studio) -> FastAPI:
    """Return the HTTP interface of a studio."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.exception_handler(SparseshotError)
    def refused(_: Request, error: SparseshotError) -> JSONResponse:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        problem = getattr(error, "problem", str(error))  # without the path, which the page need not know
        return JSONResponse({"error": problem}, status)

    @app.exception_handler(OSError)
    def failed(_: Request, error: OSError) -> JSONResponse:
        return JSONResponse({"error": error.strerror or str(error)}, 500)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": _reason(error)}, 422)

    @app.exception_handler(AnyHTTPException)
    def not_now(_: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code)

    for routes in (_slide_routes, _mark_routes, result_routes):
        app.include_router(routes(studio))
    return app


def _slide_routes(studio: Studio) -> APIRouter:
    """Return the routes of slides, and of the runs that look at them."""
    routes = APIRouter()

    @routes.get("/slides")
    def slides() -> list[dict[str, Any]]:
        return [studio.card(slide) for slide in studio.project.slides]

    @routes.get("/files")
    def files(place: Annotated[str, Query(max_length=2000)] = "") -> dict[str, Any]:
        """List a folder in which slides may be chosen."""
        return studio.files.listed(place)

    @routes.post("/slides")
    def add(chosen: ChosenFile) -> dict[str, str]:
        return {"slide": studio.project.add(studio.files.path(chosen.place))}

    @routes.post("/slides/{slide}/mpp")
    def set_mpp(slide: SlideId, size: PixelSize) -> None:
        studio.correct_mpp(slide, size.mpp)

    @routes.get("/slides/{slide}/tiles/{z}/{x}/{y}.jpg")
    def tile(slide: SlideId, z: ZoomLevel, x: Place, y: Place) -> Response:
        opened = studio.project.slide(slide)
        side = TILE_PX * 2**z
        if z > levels_of(opened) or x * side >= opened.size[0] or y * side >= opened.size[1]:
            raise DataNotFoundError(opened.path, "the slide has no such tile")
        if not opened.path.exists():
            raise SlideError(opened.path, f"{opened.name} has disappeared; put it back, and nothing is lost")
        content = studio.pictures.get((slide, z, x, y), lambda: tile_jpeg(opened, z, x, y))
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @routes.get("/slides/{slide}/{what}.jpg")
    def picture(slide: SlideId, what: Literal["label", "thumbnail"]) -> Response:
        if what == "label":
            content = label_jpeg(studio.project.path(slide))
        else:
            opened = studio.project.slide(slide)
            content = studio.pictures.get(slide, lambda: jpeg(opened.thumbnail(240)))
        return Response(content, media_type="image/jpeg")

    @routes.get("/slides/{slide}/tissue")
    def tissue(slide: SlideId) -> dict[str, float]:
        return {"mm2": studio.tissue(slide).area_mm2}

    @routes.get("/slides/{slide}/state")
    def state(slide: SlideId, since: Version = "") -> dict[str, Any]:
        """Return all that changes by itself: marks, runs and results."""
        studio.project.entry(slide)
        return studio.state(slide, since)

    @routes.post("/slides/{slide}/train")
    def train(slide: SlideId, seen: Seen) -> dict[str, int]:
        """Begin a run; it continues from the one that is shown."""
        studio.project.entry(slide)
        return {"run": studio.runs.train(slide, seen.view, start=seen.start).number}

    @routes.post("/slides/{slide}/look")
    def look(slide: SlideId, seen: Seen) -> None:
        """Find the cells in view before others, while not all are found; begin with that if asked to."""
        studio.project.entry(slide)
        if seen.view is not None:
            studio.runs.look(slide, seen.view)
        if seen.find is not None:
            studio.runs.find(slide, seen.view, everything=seen.find == "all")

    @routes.post("/runs/{number}/{what}")
    def change_run(number: RunNumber, what: Literal["stop", "resume"]) -> None:
        (studio.runs.stop if what == "stop" else studio.runs.resume)(number)

    @routes.get("/suggestions")
    def suggestions() -> dict[str, Any]:
        return studio.suggestions()

    return routes


def _mark_routes(studio: Studio) -> APIRouter:
    """Return the routes that change marks."""
    routes = APIRouter()

    @routes.post("/slides/{slide}/marks")
    def mark(
        slide: SlideId,
        changes: Annotated[list[Change], Field(max_length=1000)],
        since: Version = "",
        project: Version = "",
    ) -> dict[str, Any]:
        if project not in {"", studio.project.identity}:
            # A tab that was left open sends its marks to whatever studio has its address now.
            raise HTTPException(409, "another project is open at this address")
        size = studio.project.slide(slide).size
        events = []
        for change in changes:
            items = [each.model_dump(by_alias=True, exclude_none=True) for each in change.add]
            for item in items:
                check_place(item, size)
            what: Event = {"remove": change.remove, "add": items}
            if change.undo or change.redo:
                what = {"undo" if change.undo else "redo": True}
            events.append({"key": change.key, "slide": slide} | what)
        studio.book.record(events)
        return studio.marks_since(slide, since)

    @routes.post("/classes")
    def add_class(new: NewClass) -> dict[str, str]:
        if new.color is None:
            studio.book.record([], classes=[new.name])
        else:
            key = f"class {new.name} {time.time_ns()}"
            studio.book.record([{"key": key, "class": new.name, "color": new.color}])
        return studio.book.classes

    @routes.post("/classes/change")
    def change_class(change: OtherClass) -> dict[str, str]:
        studio.book.rename(change.key, change.name, change.to)
        return studio.book.classes

    @routes.post("/slides/{slide}/judge")
    def judge(slide: SlideId, verdict: Verdict) -> dict[str, Any]:
        """Mark the found cells of an area as cells, or as no cells; marked ones keep their marks."""
        area = shapely.Polygon(verdict.area).buffer(0)
        found = studio.cells_in(slide, verdict.result, area, threshold=verdict.threshold)
        items = judged(studio.book, slide, found, accept=verdict.accept)
        if items:
            studio.book.record([{"key": verdict.key, "slide": slide, "add": items}])
        return {"marked": len(items)}

    @routes.post("/slides/{slide}/review")
    def review(slide: SlideId, done: Review) -> dict[str, Any]:
        """Make a region exhaustive: its found cells are accepted, except where a mark says otherwise."""
        region, result = shapely.Polygon(done.region), studio.result(slide, done.result)
        if not result.has_predicted(region):
            # Every cell that is not found yet would become a certain negative.
            raise HTTPException(409, "the model has not predicted all of this region yet; wait until it has")
        found = studio.cells_in(slide, done.result, region, threshold=done.threshold)
        model = str(result.model.get("fingerprint", ""))
        event = reviewed(studio.book, slide, region, found, by=done.by, model=model)
        studio.book.record([{"key": done.key, **event}])
        kinds = [item.get("class") for item in event["add"]]
        wrong = kinds.count(NEGATIVE)
        return {"accepted": len(kinds) - wrong - kinds.count(None), "rejected": wrong}

    @routes.post("/slides/{slide}/import")
    def take(slide: SlideId, file: UploadFile, key: Key) -> dict[str, Any]:
        return _imported(studio, slide, file, key)

    return routes


def _imported(studio: Studio, slide: str, file: UploadFile, key: str) -> dict[str, Any]:
    """Add the marks of a file that are not there yet; return how many, and what is to say about them."""
    content = file.file.read(MOST_BYTES + 1)
    opened = studio.project.slide(slide)
    cells, said = read_marks(content, file.filename or "marks", opened, studio.tissue(slide))
    items = new_items(cells, studio.book.items(slide), mpp=opened.mpp)
    if items:
        hexes = ["#" + bytes(color).hex() for color in cells.colors or ()]
        colors = dict(zip(cells.classes, hexes, strict=False))
        studio.book.record([{"key": key, "slide": slide, "add": items}], colors=colors)
    marks = sum("class" in item for item in items)
    if marks < len(cells):
        said.append(f"{len(cells) - marks:,} of them are there already")
    return {"marks": marks, "regions": len(items) - marks, "said": said}


def _reason(error: RequestValidationError) -> str:
    """Return the first problem of a request, without the value, which may be large."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, ValueError):  # raised by our own validators
        return str(own)
    return f"{first['msg']} ({'.'.join(map(str, first['loc']))})"
