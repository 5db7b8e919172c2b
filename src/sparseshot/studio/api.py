"""HTTP interface of the studio: slides here, marks and results in their own modules."""

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    InputError,
    OutputError,
    SlideError,
    SparseshotError,
)
from sparseshot.studio.mark_routes import mark_routes
from sparseshot.studio.payloads import (
    ChosenFile,
    Opened,
    PixelSize,
    Place,
    Seen,
    SlideId,
    Training,
    ZoomLevel,
)
from sparseshot.studio.report_routes import report_routes
from sparseshot.studio.result_routes import result_routes
from sparseshot.studio.slide_tiles import TILE_PX, jpeg, label_jpeg, levels_of
from sparseshot.studio.studio import Studio

RunNumber = Annotated[int, InPath(ge=0, lt=10**9)]
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

    @app.exception_handler(HTTPException)
    def not_now(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code)

    @app.get("/slides/{slide}/tiles/{z}/{x}/{y}.jpg")
    def tile(slide: SlideId, z: ZoomLevel, x: Place, y: Place) -> Response:
        opened = studio.project.slide(slide)
        side = TILE_PX * 2**z
        if z > levels_of(opened) or x * side >= opened.size[0] or y * side >= opened.size[1]:
            raise DataNotFoundError(opened.path, "the slide has no such tile")
        if not opened.path.exists():
            raise SlideError(opened.path, f"{opened.name} has disappeared; put it back, and nothing is lost")
        content = studio.tiles.jpeg(slide, opened, z, x, y)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/slides")
    def slides() -> list[dict[str, Any]]:
        return studio.cards()

    @app.get("/files")
    def files(place: Annotated[str, Query(max_length=2000)] = "") -> dict[str, Any]:
        """List a folder in which slides may be chosen."""
        return studio.files.listed(place)

    @app.post("/slides")
    def add(chosen: ChosenFile) -> dict[str, str]:
        return {"slide": studio.project.add(studio.files.path(chosen.place))}

    @app.post("/slides/{slide}/mpp")
    def set_mpp(slide: SlideId, size: PixelSize) -> None:
        studio.correct_mpp(slide, size.mpp)

    @app.get("/slides/{slide}/label.jpg")
    def label(slide: SlideId) -> Response:
        return Response(label_jpeg(studio.project.path(slide)), media_type="image/jpeg")

    @app.get("/slides/{slide}/tissue")
    def tissue(slide: SlideId) -> dict[str, float]:
        return {"mm2": studio.tissue(slide).area_mm2}

    @app.get("/slides/{slide}/thumbnail.jpg")
    def thumbnail(slide: SlideId) -> Response:
        opened = studio.project.slide(slide)
        return Response(
            studio.thumbnails.get(slide, lambda: jpeg(opened.thumbnail(240))), media_type="image/jpeg"
        )

    @app.post("/slides/{slide}/train")
    def train(slide: SlideId, wanted: Training) -> dict[str, int]:
        """Begin a run; it continues from the one that is shown."""
        view = wanted.area_on(studio.project.slide(slide).size)
        return {"run": studio.runs.train(slide, view, start=wanted.start).number}

    @app.post("/slides/{slide}/find")
    def find(slide: SlideId, opened: Opened) -> None:
        """Find the cells of a slide that was opened, those in view first."""
        view = opened.area_on(studio.project.slide(slide).size)
        if view is not None:
            studio.runs.look(slide, view)
        studio.runs.find(slide, view, everything=opened.everything)

    @app.post("/slides/{slide}/look")
    def look(slide: SlideId, seen: Seen) -> None:
        """Find the cells in view before others, while not all are found."""
        view = seen.area_on(studio.project.slide(slide).size)
        if view is not None:
            studio.runs.look(slide, view)

    @app.post("/runs/{number}/{what}")
    def change_run(number: RunNumber, what: Literal["stop", "resume"]) -> None:
        (studio.runs.stop if what == "stop" else studio.runs.resume)(number)

    app.include_router(mark_routes(studio))
    app.include_router(result_routes(studio))
    app.include_router(report_routes(studio))
    return app


def _reason(error: RequestValidationError) -> str:
    """Return the first problem of a request, without the value, which may be large."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, ValueError):  # raised by our own validators
        return str(own)
    return f"{first['msg']} ({'.'.join(map(str, first['loc']))})"
