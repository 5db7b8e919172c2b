"""The images of a data set on disk, their labels and their splits, found as the catalogue says.

Splits are as published, and no patient is in two of them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from sparseshot.datasets.catalogue import SPLITS, DatasetInfo, Part, Split, Splits
from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.files import read_text
from sparseshot.images.fingerprint import is_ome_zarr
from sparseshot.images.opening import IMAGE_SUFFIXES


@dataclass(frozen=True)
class Entry:
    """One image on disk.

    Attributes:
        name: unique in its data set.
        image: image file.
        labels: label file, or folder of masks; where it is missing, its expected path.
        reader: reader of the labels, a name in :data:`sparseshot.datasets.labels.READERS`.
        group: the patient.
        part: published part.
        split: the split that uses it, or None.
    """

    name: str
    image: Path
    labels: Path
    reader: str
    group: str
    part: str
    split: Split | None


@dataclass(frozen=True)
class DatasetLayout:
    """A data set on disk.

    Attributes:
        folder: the folder that the templates are relative to.
        entries: the images found.
        missing: a line for each image that the publisher lists but is missing, with its split.
    """

    folder: Path
    entries: tuple[Entry, ...]
    missing: Mapping[str, Split | None]


def find_layout(info: DatasetInfo, root: Path | str) -> DatasetLayout:
    """Find a data set in ``root``, which is its folder or the parent of it."""
    root = Path(root)
    if not root.is_dir():
        raise DataNotFoundError(root, f"no such folder; for {info.title}, {info.how_to_get(root)}")
    for folder in _candidates(info, root):
        found = {entry.name: entry for part in reversed(info.parts) for entry in _entries(info, part, folder)}
        labels = {entry.labels for entry in found.values()}  # beside the images, they match the template too
        entries = [found[name] for name in sorted(found) if found[name].image not in labels]
        if entries:
            return _with_splits(info, folder, entries)
    templates = " or ".join(part.images for part in info.parts)
    raise DataNotFoundError(
        root, f"contains no image of {info.title}; none is named {templates}; {info.how_to_get(root)}"
    )


def _candidates(info: DatasetInfo, root: Path) -> Iterator[Path]:
    yield root
    names = {info.name, info.title.casefold()}
    named = [path for path in root.iterdir() if path.name.casefold() in names]
    matching = [path for pattern in info.folders for path in root.glob(pattern)]
    yield from sorted(path for path in {*named, *matching} if path.is_dir())


def _entries(info: DatasetInfo, part: Part, folder: Path) -> Iterator[Entry]:
    pattern = template_pattern(part.images)
    for image in folder.glob(template_glob(part.images)):
        match = pattern.fullmatch(image.relative_to(folder).as_posix())
        if match is None or image.name.startswith(".") or not _is_image(image):
            continue  # e.g. the ._name files of macOS
        fields = match.groupdict()
        name = part.prefix + fields["name"]
        places = [folder / labels.format_map(fields) for labels in part.labels]
        labels = next((place for place in places if place.exists()), places[-1])
        group = fields.get("patient", name)
        if info.patient is not None and (found := re.match(info.patient, name)):
            group = found.group()
        yield Entry(
            name, image, labels, part.reader, group, part=part.name or part.split or "", split=part.split
        )


def _is_image(path: Path) -> bool:
    return is_ome_zarr(path) or (path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES)


def template_glob(template: str) -> str:
    """Convert a path template to a pattern for :meth:`pathlib.Path.glob`.

    >>> template_glob("GT_{patient}/{name}.png")
    'GT_*/*.png'
    """
    return re.sub(r"\{\w+\}", "*", template)


def template_pattern(template: str) -> re.Pattern[str]:
    """Convert a path template to a regular expression with a group for each placeholder.

    >>> template_pattern("GT_{patient}/{name}.png").fullmatch("GT_01/01_2.png").groupdict()
    {'patient': '01', 'name': '01_2'}
    """
    pattern = ""
    known: set[str] = set()
    for literal, word in re.findall(r"([^{]*)(?:\{(\w+)\})?", template):
        pattern += re.escape(literal)
        if word:
            pattern += f"(?P={word})" if word in known else f"(?P<{word}>[^/]+)"
            known.add(word)
    return re.compile(pattern)


def _with_splits(info: DatasetInfo, folder: Path, entries: list[Entry]) -> DatasetLayout:
    listed, missing = read_lists(info.splits, folder, {entry.name for entry in entries})
    published = {
        entry.name: entry.split or listed.get(entry.name) or split_by_name(entry.name, info.splits.names)
        for entry in entries
    }
    used = published | missing
    if "test" not in published.values():
        used = with_a_test(used, info.splits)
    kept = by_patient(used, {name: name for name in missing} | {entry.name: entry.group for entry in entries})
    placed = tuple(
        replace(entry, part=entry.part or published[entry.name] or "other", split=kept[entry.name])
        for entry in entries
    )
    lines = {f"{folder}: {name} is listed for {used[name]} but missing": used[name] for name in missing}
    return DatasetLayout(folder, placed, lines)


def read_lists(
    splits: Splits, folder: Path, names: Collection[str]
) -> tuple[dict[str, Split], dict[str, Split]]:
    """Read the files that list the images of each split; return the splits of images, and of missing ones.

    A name may be listed with or without the suffix of its file.
    """
    listed: dict[str, Split] = {}
    for split, file in splits.lists.items():
        path = folder / file
        for number, line in enumerate(read_text(path).splitlines() if path.exists() else (), start=1):
            name = line.strip()
            name = next((known for known in (name, Path(name).stem) if known in names), name)
            if name and listed.setdefault(name, split) != split:
                raise FormatError(
                    path,
                    f"line {number}: {name} is in {splits.lists[listed[name]]} too; leave it in one of them",
                )
    missing = {name: split for name, split in listed.items() if name not in names}
    return {name: listed[name] for name in listed if name in names}, missing


def split_by_name(name: str, patterns: Mapping[Split, Sequence[str]]) -> Split | None:
    """Return the first split with a pattern that matches the name.

    >>> split_by_name("09_2", {"train": ("0[1-6]_*",), "test": ("09_*", "10_*")})
    'test'
    """
    for split in SPLITS:
        if any(fnmatchcase(name, pattern) for pattern in patterns.get(split, ())):
            return split
    return None


def with_a_test(published: Mapping[str, Split | None], splits: Splits) -> dict[str, Split | None]:
    """Apply the catalogue's substitute splits, for use where the published test images are absent."""
    used = dict(published)
    for split, rule in splits.without_test.items():
        for name, given in published.items():
            if isinstance(rule, str):
                taken = given == rule
            else:
                taken = given == "train" and any(fnmatchcase(name, pattern) for pattern in rule)
            if taken:
                used[name] = split
    return used


def by_patient(
    split_of: Mapping[str, Split | None], patient_of: Mapping[str, str]
) -> dict[str, Split | None]:
    """Leave out images that would put a patient into two splits; the test set takes precedence.

    >>> by_patient({"a1": "train", "a2": "test", "b1": "train"}, {"a1": "a", "a2": "a", "b1": "b"})
    {'a1': None, 'a2': 'test', 'b1': 'train'}
    """
    kept: dict[str, Split] = {}
    for split in SPLITS:  # test is last, so it replaces the others
        kept |= {patient_of[name]: split for name, own in split_of.items() if own == split}
    return {name: own if own == kept.get(patient_of[name]) else None for name, own in split_of.items()}
