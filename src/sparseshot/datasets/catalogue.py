"""The catalogue: what each data set is, where to get it, and its files on disk.

The data is in ``catalogue.toml``, whose keys are the attributes of :class:`DatasetInfo`. A file of one's own
has the same keys, and its sets go by the name ``FILE:NAME``, as in ``sets.toml:mine``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from sparseshot.errors import FormatError, InputError, unknown_name
from sparseshot.files import read_toml, toml_as

Split = Literal["train", "validation", "test"]
"""Part of a data set."""
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Part:
    """One folder of images as published.

    Attributes:
        images: path template of the images.
        labels: path templates of the labels of an image; the first that exists is read.
        reader: a name in :data:`sparseshot.datasets.labels.READERS`, for labels that only this set has.
        name: the publisher's name of the part, where it is not the name of a split.
        split: the split of the whole part, or None where names or lists decide.
        prefix: prepended to the names of the images, where two parts share names.
    """

    images: str
    labels: Sequence[str]
    reader: str = "any"
    name: str | None = None
    split: Split | None = None
    prefix: str = ""


@dataclass(frozen=True)
class Splits:
    """How the images are split.

    Attributes:
        source: description for people.
        names: patterns of image names for each split.
        lists: for each split a file that names its images, one per line.
        without_test: used where the published test images are absent: patterns of names, or the name of a
            published split to use instead.
    """

    source: str
    names: Mapping[Split, Sequence[str]] = field(default_factory=dict)
    lists: Mapping[Split, str] = field(default_factory=dict)
    without_test: Mapping[Split, Sequence[str] | Split] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """Number of images, and of cells where known."""

    images: int
    cells: int | None = None


@dataclass(frozen=True)
class Archive:
    """A file that anyone may download.

    Attributes:
        address: URL.
        file: name of the local copy.
        md5: the publisher's checksum, if any.
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
        name: short name, as on the command line.
        title: full name.
        about: stain, tissue and annotation in one line.
        licence: licence of the data.
        citation: publication to cite.
        page: where to get it; empty for a private set.
        parts: the folders as published.
        splits: how the images are split.
        published: images and cells as the publisher counts them; None if nobody says.
        expected: images and cells of each published part, as this package counts them.
        classes: class names in order; empty where the files name them.
        archive: what ``sparseshot data fetch`` downloads; None where the set must be requested.
        folders: names that the folder of the set may have inside the root.
        patient: regular expression for the patient in an image's name; None: every image is a patient.
        mpp: µm per pixel where the files do not state it; None where they must.
        mpp_note: how certain that is.
        note: further remarks.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    splits: Splits
    about: str = ""
    licence: str = "unknown"
    citation: str = ""
    page: str = ""
    published: Count | None = None
    expected: Mapping[str, Count] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    archive: Archive | None = None
    folders: Sequence[str] = ()
    patient: str | None = None
    mpp: float | None = None
    mpp_note: str = ""
    note: str = ""

    def how_to_get(self, root: Path | str) -> str:
        """Return instructions: where to get it, where to put it."""
        source = f"get it from {self.page}" if self.page else "it is private: ask its owner"
        if self.archive is not None:
            source = f"run sparseshot data fetch {self.name}, or {source}"
        images, labels = self.parts[0].images, self.parts[0].labels[-1]
        return f"{source}, and put it so that {root}/{images} and {root}/{labels} exist"


def dataset_info(name: str) -> DatasetInfo:
    """Return the catalogue entry of a name; case and ``-`` or ``_`` do not matter.

    ``FILE:NAME`` is an entry of a catalogue file of one's own.

    >>> dataset_info("WBC-Zheng").name
    'wbc_zheng'
    """
    file, _, own = name.rpartition(":")
    if file.endswith(".toml"):
        entries = read_catalogue(Path(file))
        if own not in entries:
            raise InputError(f"{file}: {unknown_name('data set', own, entries)}")
        return entries[own]
    key = name.strip().casefold().replace("-", "_")
    if key not in CATALOGUE:
        raise InputError(unknown_name("data set", name, CATALOGUE))
    return CATALOGUE[key]


def catalogue_markdown() -> str:
    """Return the catalogue as a Markdown table, for the documentation."""
    rows = ["| name | what | images | cells | classes | µm/px | split | licence | get it |"]
    rows.append("|---|---|---:|---:|---|---|---|---|---|")
    for info in CATALOGUE.values():
        count = info.published or Count(0)
        cells = "" if count.cells is None else f"{count.cells:,}"
        mpp = "the slide's" if info.mpp is None else f"{info.mpp:g}"
        mpp += f"; {info.mpp_note}" if info.mpp_note else ""
        place = f"[page]({info.page})" if info.page else "private"
        fetch = f"`data fetch {info.name}`, or " if info.archive else ""
        columns = (
            f"`{info.name}`",
            f"{info.title}: {info.about}",
            f"{count.images:,}",
            cells,
            ", ".join(info.classes) or "those of the marks",
            mpp,
            info.splits.source,
            info.licence,
            fetch + place,
        )
        rows.append(f"| {' | '.join(columns)} |")
    return "\n".join(rows)


def read_catalogue(path: Path) -> Mapping[str, DatasetInfo]:
    """Read a catalogue file; the title of a set is its name unless it has another."""
    entries = read_toml(path)
    for name, entry in entries.items():
        if isinstance(entry, dict):
            entries[name] = {"title": name, **entry, "name": name}
    tables = {"parts": Part, "splits": Splits, "archive": Archive, "published": Count, "expected": Count}
    known = toml_as(dict[str, DatasetInfo], entries, path, {"": DatasetInfo, **tables})
    for name, info in known.items():
        if not info.parts:
            raise FormatError(path, f"[{name}] has no parts; add [[{name}.parts]] with images and labels")
    return MappingProxyType(known)


CATALOGUE: Mapping[str, DatasetInfo] = read_catalogue(
    Path(str(files(__package__).joinpath("catalogue.toml")))
)
"""Every data set that sparseshot knows, by name."""
