"""Requests of the page: every value is bounded and checked before use."""

from typing import Annotated, Literal

import shapely
from fastapi import Path as InPath
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from sparseshot.errors import InputError
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import NEGATIVE, Coordinate, Item
from sparseshot.studio.slide_results import RESULT_ID

SlideId = Annotated[str, InPath(pattern="^[0-9]{1,9}$")]
ZoomLevel = Annotated[int, InPath(ge=0, le=24)]
Place = Annotated[int, InPath(ge=0, le=2**22)]
Point = tuple[Coordinate, Coordinate]
Ring = Annotated[list[Point], Field(min_length=3, max_length=10_000)]
"""A closed line, which may cross itself."""

Name = Annotated[str, Field(min_length=1, max_length=100)]
Key = Annotated[str, Field(pattern="^[0-9a-z]{8,40}$")]
"""Identifies a change; one that is sent twice counts once."""

_RESERVED = {
    REJECTED: "found cells that a person has rejected",
    "Exhaustive": "regions in which every cell is marked",
}
"""Classes with a meaning in files."""

ResultName = Annotated[str, Field(pattern=RESULT_ID)]
Threshold = Annotated[float, Field(ge=0, le=1)]


def _is_simple(ring: Ring) -> Ring:
    if not (shapely.Polygon(ring).is_valid and shapely.Polygon(ring).area > 0):
        raise ValueError("the outline crosses itself or has no area")
    return ring


Outline = Annotated[Ring, AfterValidator(_is_simple)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


def check_class(name: str) -> str:
    """Return the name of a class; raise ValueError if no class may have it."""
    if name in _RESERVED:
        raise ValueError(f"the class {name} is for {_RESERVED[name]}; give another name")
    if not name.isprintable() or name.strip() != name:
        raise ValueError(f"the class {name!r} has spaces around its name or odd characters in it; rename it")
    return name


ClassName = Annotated[Name, AfterValidator(check_class)]


class NewItem(_Strict):
    """A mark with a class and a point or an outline, a region, or a region to count in with its name."""

    class_: ClassName | None = Field(None, alias="class")
    at: Point | None = None
    outline: Outline | None = None
    region: Outline | None = None
    count: Outline | None = None
    name: Name | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> "NewItem":
        given = [each for each in (self.at, self.outline, self.region, self.count) if each is not None]
        is_mark, is_named = self.region is None and self.count is None, self.name is not None
        if len(given) != 1 or is_mark != (self.class_ is not None) or is_named != (self.count is not None):
            raise ValueError("give a class with a point or an outline, a region, or one to count in")
        return self


class Change(_Strict):
    """Marks to remove and to add, or an undo or redo."""

    key: Key
    remove: Annotated[list[Annotated[str, Field(max_length=60)]], Field(max_length=100_000)] = []
    add: Annotated[list[NewItem], Field(max_length=100_000)] = []
    undo: bool = False
    redo: bool = False


class NewClass(_Strict):
    """A class; without a colour, one that exists keeps its own."""

    name: ClassName
    color: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")] | None = None

    @field_validator("name")
    @classmethod
    def _is_new(cls, name: str) -> str:
        if name == NEGATIVE:
            raise ValueError(f"{name!r} is there already")
        return name


class OtherClass(_Strict):
    """A class to rename, to merge into one that there is, or to delete with its marks."""

    key: Key
    name: Name
    to: ClassName | None

    @model_validator(mode="after")
    def _is_other(self) -> "OtherClass":
        if self.to == self.name:
            raise ValueError("the class has this name already")
        return self


class Verdict(_Strict):
    """A judgement about all found cells in an area: inside a lasso, or the corners of a box."""

    key: Key
    result: ResultName
    area: Ring
    threshold: Threshold
    accept: bool

    @field_validator("area")
    @classmethod
    def _is_area(cls, ring: Ring) -> Ring:
        # A lasso may cross itself; what it encloses then is still clear enough.
        if not shapely.Polygon(ring).buffer(0).area > 0:
            raise ValueError("the area is empty")
        return ring


class Review(_Strict):
    """A region that a person has gone through: what is not marked as wrong is right."""

    key: Key
    result: ResultName
    region: Outline
    threshold: Threshold
    by: Annotated[str, Field(max_length=100)] = ""


class Seen(_Strict):
    """What is in view, what to find, and the run that a training continues."""

    view: tuple[Coordinate, Coordinate, Coordinate, Coordinate] | None = None
    find: Literal["slide", "all"] | None = None
    start: Annotated[int, Field(ge=0, lt=10**9)] | None = None


class ChosenFile(_Strict):
    """A slide to add: its place, as :class:`~sparseshot.studio.choosing.FileRoots` names it."""

    place: Annotated[str, Field(max_length=2000)]


class PixelSize(_Strict):
    """The size of a slide's pixels."""

    mpp: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


def area_of(text: str) -> Area:
    """Read the corners of an area, bounded."""
    try:
        x0, y0, x1, y1 = (min(1e7, max(-1e6, float(each))) for each in text.split(","))
    except ValueError:
        raise InputError(f"the area is {text!r}; give x0,y0,x1,y1 in level-0 pixels") from None
    return x0, y0, max(x0, x1), max(y0, y1)


def check_place(item: Item, size: tuple[int, int]) -> None:
    """Raise if a mark or a region, or a part of it, lies outside of its slide."""
    places = [item["at"]] if "at" in item else item.get("outline") or item.get("count") or item["region"]
    for x, y in places:
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            what = "mark" if "class" in item else "region"
            raise InputError(f"the {what} at ({x:g}, {y:g}) lies outside the slide")
