"""Marks over HTTP: changes, decisions about found cells, files."""

import time
from typing import Annotated, Any

import shapely
from fastapi import APIRouter, HTTPException, Query, UploadFile
from pydantic import Field

from sparseshot.studio.decided import judged, reviewed
from sparseshot.studio.exchange import new_items, read_marks
from sparseshot.studio.guard import MOST_BYTES
from sparseshot.studio.journal import Event
from sparseshot.studio.marks import NEGATIVE
from sparseshot.studio.payloads import (
    Change,
    Key,
    NewClass,
    OtherClass,
    Review,
    SlideId,
    Verdict,
    check_place,
)
from sparseshot.studio.studio import Studio


def mark_routes(studio: Studio) -> APIRouter:
    """Return the routes that read and change marks."""
    routes = APIRouter()

    @routes.get("/slides/{slide}/state")
    def state(slide: SlideId, since: Annotated[str, Query(max_length=40)] = "") -> dict[str, Any]:
        """Return all that changes by itself: marks, runs and results."""
        studio.project.entry(slide)
        return studio.state(slide, since)

    @routes.post("/slides/{slide}/marks")
    def mark(
        slide: SlideId,
        changes: Annotated[list[Change], Field(max_length=1000)],
        since: Annotated[str, Query(max_length=40)] = "",
        project: Annotated[str, Query(max_length=40)] = "",
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
        manifest = result.manifest()
        model = "" if manifest is None else str(manifest.identity.get("model", {}).get("fingerprint", ""))
        event = reviewed(studio.book, slide, region, found, by=done.by, model=model)
        studio.book.record([{"key": done.key, **event}])
        kinds = [item.get("class") for item in event["add"]]
        wrong = kinds.count(NEGATIVE)
        return {"accepted": len(kinds) - wrong - kinds.count(None), "rejected": wrong}

    @routes.post("/slides/{slide}/import")
    def take(slide: SlideId, file: UploadFile, key: Key) -> Any:
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
