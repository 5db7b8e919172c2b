"""What the page asks for over HTTP: tiles, marks, found cells, files."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import shapely
from fastapi import FastAPI, Query, Request, Response, UploadFile
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sparseshot.cells import Cells
from sparseshot.errors import DataNotFoundError, InputError, OutputError, SlideError, SparseshotError
from sparseshot.prediction.naming import safe_name
from sparseshot.studio.exchange import MOST_BYTES, read_marks, written
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import NEGATIVE, Item, items_of, place_of
from sparseshot.studio.overlay import Paint, overlay_png
from sparseshot.studio.slide_tiles import jpeg, levels_of
from sparseshot.studio.studio import Studio

_MOST_VECTORS = 4_000
_MOST_JUDGED = 20_000
_SAME_UM = 3.0
"""A found cell this near to a mark is the marked one."""

_STATUS = {InputError: 422, DataNotFoundError: 404, SlideError: 410, OutputError: 507}

_Slide = Annotated[str, InPath(pattern="^[0-9]{1,9}$")]
_Result = Annotated[str, InPath(pattern="^[rf][0-9]{1,9}$")]
_Level = Annotated[int, InPath(ge=0, le=24)]
_Place = Annotated[int, InPath(ge=0, le=2**22)]
_Share = Annotated[float, Query(ge=0, le=1)]
_Coordinate = Annotated[float, Field(ge=-1e6, le=1e7, allow_inf_nan=False)]
_Point = tuple[_Coordinate, _Coordinate]
_Ring = Annotated[list[_Point], Field(min_length=3, max_length=10_000)]
_Name = Annotated[str, Field(min_length=1, max_length=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewItem(_Strict):
    """A mark with a class and a point or an outline, or a region."""

    class_: _Name | None = Field(None, alias="class")
    at: _Point | None = None
    outline: _Ring | None = None
    region: _Ring | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> "NewItem":
        given = [each for each in (self.at, self.outline, self.region) if each is not None]
        if len(given) != 1 or (self.region is None) != (self.class_ is not None):
            raise ValueError("give a class with a point or an outline, or a region")
        ring = self.outline or self.region
        if ring and not (shapely.Polygon(ring).is_valid and shapely.Polygon(ring).area > 0):
            raise ValueError("the outline crosses itself or has no area")
        return self


class Change(_Strict):
    """Marks that go and marks that come, or an undo or redo."""

    key: Annotated[str, Field(pattern="^[0-9a-z]{8,40}$")]
    remove: Annotated[list[Annotated[str, Field(max_length=60)]], Field(max_length=100_000)] = []
    add: Annotated[list[NewItem], Field(max_length=100_000)] = []
    undo: bool = False
    redo: bool = False


class NewClass(_Strict):
    """A class with its colour."""

    name: _Name
    color: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]

    @field_validator("name")
    @classmethod
    def _is_plain(cls, name: str) -> str:
        if not name.isprintable() or name.strip() != name or name == NEGATIVE:
            raise ValueError("give a name of printable characters")
        return name


class Verdict(_Strict):
    """A judgement about all found cells in an area."""

    key: Annotated[str, Field(pattern="^[0-9a-z]{8,40}$")]
    result: Annotated[str, Field(pattern="^[rf][0-9]{1,9}$")]
    area: tuple[_Coordinate, _Coordinate, _Coordinate, _Coordinate]
    threshold: Annotated[float, Field(ge=0, le=1)]
    accept: bool


def make_api(studio: Studio) -> FastAPI:  # noqa: PLR0915  one short function a route
    """Return the HTTP interface of a studio."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.exception_handler(SparseshotError)
    def refused(_: Request, error: SparseshotError) -> JSONResponse:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        problem = getattr(error, "problem", str(error))  # without the path, which is nobody's business
        return JSONResponse({"error": problem}, status)

    @app.middleware("http")
    async def bounded(request: Request, call_next: Any) -> Any:
        length = request.headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MOST_BYTES + 2**20:
            return JSONResponse({"error": f"at most {MOST_BYTES // 2**20} MB are taken"}, 413)
        return await call_next(request)

    @app.get("/slides/{slide}")
    def about(slide: _Slide) -> dict[str, Any]:
        opened = studio.project.slide(slide)
        return {
            "id": slide,
            "name": opened.name,
            "size": opened.size,
            "mpp": opened.mpp,
            "levels": levels_of(opened),
        }

    @app.get("/slides/{slide}/tiles/{z}/{x}/{y}.jpg")
    def tile(slide: _Slide, z: _Level, x: _Place, y: _Place) -> Response:
        opened = studio.project.slide(slide)
        side = 256 * 2**z
        if z > levels_of(opened) or x * side >= opened.size[0] or y * side >= opened.size[1]:
            raise DataNotFoundError(opened.path, "the slide has no such tile")
        if not opened.path.exists():
            raise SlideError(opened.path, f"{opened.name} has disappeared; put it back, and nothing is lost")
        content = studio.tiles.jpeg(slide, opened, z, x, y)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/slides/{slide}/thumbnail.jpg")
    def thumbnail(slide: _Slide) -> Response:
        opened = studio.project.slide(slide)
        return Response(
            studio.thumbnails.get(slide, lambda: jpeg(opened.thumbnail(240))), media_type="image/jpeg"
        )

    @app.get("/slides/{slide}/marks")
    def marks(slide: _Slide, since: Annotated[str, Query(max_length=40)] = "") -> dict[str, Any]:
        studio.project.entry(slide)
        return studio.marks_since(slide, since)

    @app.post("/slides/{slide}/marks")
    def mark(
        slide: _Slide, changes: Annotated[list[Change], Field(max_length=1000)], since: str = ""
    ) -> dict[str, Any]:
        size = studio.project.slide(slide).size
        events = []
        for change in changes:
            items: list[Item] = [each.model_dump(by_alias=True, exclude_none=True) for each in change.add]
            for item in items:
                _check_place(item, size)
            events.append(
                {"key": change.key, "slide": slide, "undo": True}
                if change.undo
                else {"key": change.key, "slide": slide, "redo": True}
                if change.redo
                else {"key": change.key, "slide": slide, "remove": change.remove, "add": items}
            )
        names = [item["class"] for event in events for item in event.get("add", []) if "class" in item]  # type: ignore[attr-defined]
        studio.book.record([*studio.book.missing_classes(names), *events])
        return studio.marks_since(slide, since)

    @app.post("/classes")
    def add_class(new: NewClass) -> dict[str, str]:
        studio.book.record([{"key": f"class {new.name} {new.color}", "class": new.name, "color": new.color}])
        return studio.book.classes

    @app.get("/slides/{slide}/found/{result}/{z}/{x}/{y}.png")
    def overlay(  # noqa: PLR0917
        slide: _Slide,
        result: _Result,
        z: _Level,
        x: _Place,
        y: _Place,
        threshold: _Share = 0.5,
        paint: Paint = "class",
    ) -> Response:
        version, cells = studio.found(slide, result)
        key = (slide, result, version, z, x, y, round(threshold, 3), paint)
        content = studio.overlays.get(
            key, lambda: overlay_png(cells, z, x, y, threshold=threshold, paint=paint)
        )
        return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})

    @app.get("/slides/{slide}/found/{result}/cells")
    def cells_in_view(
        slide: _Slide,
        result: _Result,
        area: Annotated[str, Query(max_length=200)],
        threshold: _Share = 0.5,
        vectors: bool = False,
    ) -> dict[str, Any]:
        """Count the cells in an area; with ``vectors`` and few of them, tell where they are too."""
        place = _area(area)
        _, found = studio.found(slide, result)
        rows = found.rows_in(place, threshold=threshold)
        counts = found.counts(threshold=threshold, area=place)
        everywhere = found.counts(threshold=threshold)
        answer: dict[str, Any] = {"in_view": counts, "in_slide": everywhere, "cells": None}
        if vectors and len(rows) <= _MOST_VECTORS:
            outlines = studio.result(slide, result).outlines(found.source[rows])
            answer["cells"] = [
                [round(float(x), 1), round(float(y), 1), int(label), round(float(score), 3)]
                for (x, y), label, score in zip(
                    found.xy[rows], found.label[rows], found.score[rows], strict=True
                )
            ]
            answer["classes"] = list(found.classes)
            answer["colors"] = ["#" + bytes(color).hex() for color in found.colors.tolist()]
            answer["outlines"] = [_ring(shape) for shape in outlines]
        return answer

    @app.post("/slides/{slide}/judge")
    def judge(slide: _Slide, verdict: Verdict) -> dict[str, Any]:
        """Mark the found cells of an area as cells, or as no cells; marked ones keep their marks."""
        _, found = studio.found(slide, verdict.result)
        rows = found.rows_in(verdict.area, threshold=verdict.threshold)
        if len(rows) > _MOST_JUDGED:
            raise InputError(f"{len(rows):,} cells in the box; choose one with at most {_MOST_JUDGED:,}")
        places = [place_of(item) for item in studio.book.items(slide) if "class" in item]
        known = shapely.STRtree(shapely.points(places) if places else [])
        near = known.query(shapely.points(found.xy[rows]), "dwithin", _SAME_UM / found.mpp)[0]
        new = [rows[i] for i in range(len(rows)) if i not in set(near.tolist())]
        add = [
            {
                "class": found.classes[found.label[row]] if verdict.accept else NEGATIVE,
                "at": [round(float(each), 1) for each in found.xy[row]],
            }
            for row in new
        ]
        if add:
            event = {"key": verdict.key, "slide": slide, "add": add}
            names = [str(item["class"]) for item in add]
            studio.book.record([*studio.book.missing_classes(names), event])
        return {"marked": len(add)}

    @app.post("/slides/{slide}/import")
    def take(slide: _Slide, file: UploadFile, key: Annotated[str, Query(pattern="^[0-9a-z]{8,40}$")]) -> Any:
        content = file.file.read(MOST_BYTES + 1)
        cells, said = read_marks(content, file.filename or "marks", studio.project.slide(slide).size)
        items = items_of(cells)
        names = [item["class"] for item in items if "class" in item]
        if items:
            event = {"key": key, "slide": slide, "add": items}
            studio.book.record([*studio.book.missing_classes(names), event])
        return {"marks": len(cells), "regions": len(cells.regions), "said": said}

    @app.get("/slides/{slide}/export/{what}.{ending}")
    def give(
        slide: _Slide,
        what: Annotated[str, InPath(pattern="^(marks|[rf][0-9]{1,9})$")],
        ending: Literal["geojson", "parquet", "csv"],
        threshold: _Share = 0.0,
    ) -> StreamingResponse:
        opened = studio.project.slide(slide)
        if what == "marks":
            cells = studio.book.cells(slide, mpp=opened.mpp)
        else:
            cells = studio.result(slide, what).cells()
            cells = cells if cells.score is None else cells[cells.score >= threshold]
        name = f"{safe_name(opened.path.stem)}-{'marks' if what == 'marks' else 'found'}.{ending}"
        disposition = f"attachment; filename*=UTF-8''{_quoted(name)}"
        return StreamingResponse(
            _file_of(cells, ending),
            media_type="application/octet-stream",
            headers={"Content-Disposition": disposition},
        )

    return app


def _file_of(cells: Cells, ending: str) -> Iterator[bytes]:
    with written(cells, ending) as path, path.open("rb") as file:
        while piece := file.read(2**20):
            yield piece


def _quoted(name: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415

    return quote(name, safe="")


def _area(text: str) -> Area:
    try:
        x0, y0, x1, y1 = (min(1e7, max(-1e6, float(each))) for each in text.split(","))
    except ValueError:
        raise InputError(f"the area is {text!r}; give x0,y0,x1,y1 in level-0 pixels") from None
    return x0, y0, max(x0, x1), max(y0, y1)


def _check_place(item: Item, size: tuple[int, int]) -> None:
    if "at" in item and not (0 <= item["at"][0] <= size[0] and 0 <= item["at"][1] <= size[1]):
        raise InputError(f"the mark at {item['at']} lies outside the slide")


def _ring(shape: Any) -> list[list[float]] | None:
    if shape is None or shape.geom_type == "Point":
        return None
    largest = max(shapely.get_parts(shape), key=shapely.area)
    ring = shapely.get_coordinates(shapely.get_exterior_ring(largest))
    return [[round(x, 1), round(y, 1)] for x, y in ring.tolist()]
