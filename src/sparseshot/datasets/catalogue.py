"""The catalogue: what each data set is, where to get it, how it lies on disk.

The data is in ``catalogue.toml``.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from sparseshot.errors import InputError

Split = Literal["train", "validation", "test"]
"""Part of a data set."""
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Part:
    """One folder of images as published.

    Attributes:
        images: path template of the images.
        labels: path templates of the labels of an image; the first that exists counts.
        reader: a name in :data:`sparseshot.datasets.labels.READERS`, for labels only this set has.
        name: what the publisher calls the part, where that is not the name of a split.
        split: the split all of it belongs to, or None where names or lists decide.
        prefix: set before the names of the images, where two parts number theirs alike.
    """

    images: str
    labels: tuple[str, ...]
    reader: str
    name: str | None
    split: Split | None
    prefix: str


@dataclass(frozen=True)
class Splits:
    """How the images are split.

    Attributes:
        source: in words, for people.
        names: patterns of image names for each split.
        lists: a file for each split that names its images, one a line.
        without_test: used where the publisher's test images are not there: patterns of names, or the name of
            a published split that takes the place.
    """

    source: str
    names: Mapping[Split, tuple[str, ...]]
    lists: Mapping[Split, str]
    without_test: Mapping[Split, tuple[str, ...] | Split]


@dataclass(frozen=True)
class Count:
    """Images, and cells where somebody counted them."""

    images: int
    cells: int | None = None


@dataclass(frozen=True)
class Archive:
    """A file the publisher lets everybody download.

    Attributes:
        address: where it is.
        file: the name to give it here.
        md5: the publisher's checksum, or None where there is none.
        login: the publisher may ask for a login first.
    """

    address: str
    file: str
    md5: str | None = None
    login: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue.

    Attributes:
        name: the short name, as on the command line.
        title: the name people know.
        about: stain, tissue, annotation, in a line.
        licence: of the data.
        citation: what to cite.
        page: where to get it; empty for a private set.
        archive: what ``sparseshot data fetch`` downloads, or None where one has to ask for it.
        folders: names that the folder of the set may have inside the root.
        parts: the folders as published.
        patient: regular expression for the patient in an image's name; None where every image is one.
        splits: how the images are split.
        classes: names of the classes, in order; empty where the files name them.
        mpp: µm per pixel where the files do not tell; None where they must.
        mpp_note: how sure that is.
        published: images and cells as the publisher counts them.
        expected: for each published part the images, and the cells as we count them.
        note: what else one should know.
    """

    name: str
    title: str
    about: str
    licence: str
    citation: str
    page: str
    archive: Archive | None
    folders: tuple[str, ...]
    parts: tuple[Part, ...]
    patient: str | None
    splits: Splits
    classes: tuple[str, ...]
    mpp: float | None
    mpp_note: str
    published: Count
    expected: Mapping[str, Count]
    note: str

    def how_to_get(self, root: Path | str) -> str:
        """Get it here, put it there."""
        source = f"get it from {self.page}" if self.page else "it is private: ask its owner"
        if self.archive is not None:
            source = f"run sparseshot data fetch {self.name}, or {source}"
        images, labels = self.parts[0].images, self.parts[0].labels[-1]
        return f"{source}, and put it so that {root}/{images} and {root}/{labels} exist"


def dataset_info(name: str) -> DatasetInfo:
    """Return the entry of a name, however it is spelt.

    >>> dataset_info("WBC-Zheng").name
    'wbc_zheng'
    """
    key = name.strip().casefold().replace("-", "_")
    if key not in CATALOGUE:
        near = difflib.get_close_matches(key, CATALOGUE, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"no data set named {name!r}; {hint}there are {', '.join(CATALOGUE)}")
    return CATALOGUE[key]


def catalogue_markdown() -> str:
    """Write the catalogue as a Markdown table, for the documentation."""
    rows = ["| name | what | images | cells | classes | µm/px | split | licence | get it |"]
    rows.append("|---|---|---:|---:|---|---|---|---|---|")
    for info in CATALOGUE.values():
        cells = "" if info.published.cells is None else f"{info.published.cells:,}"
        mpp = (
            "the slide's"
            if info.mpp is None
            else f"{info.mpp:g}" + (f"; {info.mpp_note}" if info.mpp_note else "")
        )
        place = f"[page]({info.page})" if info.page else "private"
        fetch = f"`data fetch {info.name}`, or " if info.archive else ""
        columns = (
            f"`{info.name}`",
            f"{info.title}: {info.about}",
            f"{info.published.images:,}",
            cells,
            ", ".join(info.classes) or "those of the marks",
            mpp,
            info.splits.source,
            info.licence,
            fetch + place,
        )
        rows.append(f"| {' | '.join(columns)} |")
    return "\n".join(rows)


def _info(name: str, entry: dict[str, Any]) -> DatasetInfo:
    splits = entry["splits"]
    return DatasetInfo(
        name=name,
        title=entry["title"],
        about=entry["about"],
        licence=entry["licence"],
        citation=entry["citation"],
        page=entry["page"],
        archive=Archive(**entry["archive"]) if "archive" in entry else None,
        folders=tuple(entry.get("folders", ())),
        parts=tuple(_part(part) for part in entry["parts"]),
        patient=entry.get("patient"),
        splits=Splits(
            source=splits["source"],
            names={split: tuple(splits[split]) for split in SPLITS if split in splits},
            lists=splits.get("lists", {}),
            without_test={
                split: value if value in SPLITS else tuple(value)
                for split, value in splits.get("without_test", {}).items()
            },
        ),
        classes=tuple(entry["classes"]),
        mpp=entry.get("mpp"),
        mpp_note=entry.get("mpp_note", ""),
        published=Count(**entry["published"]),
        expected={part: Count(**count) for part, count in entry["expected"].items()},
        note=entry.get("note", ""),
    )


def _part(entry: dict[str, Any]) -> Part:
    return Part(
        images=entry["images"],
        labels=tuple(entry["labels"]),
        reader=entry.get("reader", "any"),
        name=entry.get("name"),
        split=entry.get("split"),
        prefix=entry.get("prefix", ""),
    )


def _read() -> Mapping[str, DatasetInfo]:
    text = files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: _info(name, entry) for name, entry in tomllib.loads(text).items()})


CATALOGUE: Mapping[str, DatasetInfo] = _read()
"""Every data set that sparseshot can read, by name."""
