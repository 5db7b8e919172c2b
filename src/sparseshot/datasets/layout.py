"""The images of a data set on disk and their labels, found by the path templates of the catalogue."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from sparseshot.datasets.catalogue import DatasetInfo, Part, Split
from sparseshot.datasets.splits import by_patient, listed_names, read_lists, split_by_name, with_a_test
from sparseshot.errors import DataNotFoundError


@dataclass(frozen=True)
class Entry:
    """One image on disk.

    Attributes:
        name: unique in its data set.
        image: image file.
        labels: label file; where it is missing, its expected path.
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
        missing: images that the publisher lists but are missing, with their split.
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
        if found:
            entries = [found[name] for name in sorted(found)]
            return _with_splits(info, folder, entries)
    templates = " or ".join(part.images for part in info.parts)
    raise DataNotFoundError(
        root, f"contains no image of {info.title}; none is named {templates}; {info.how_to_get(root)}"
    )


def _candidates(info: DatasetInfo, root: Path) -> Iterator[Path]:
    yield root
    names = {info.name, info.title.casefold()}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if folder.name.casefold() in names or any(fnmatch(folder.name, name) for name in info.folders):
            yield folder


def _entries(info: DatasetInfo, part: Part, folder: Path) -> Iterator[Entry]:
    pattern = template_pattern(part.images)
    for image in folder.glob(template_glob(part.images)):
        match = pattern.fullmatch(image.relative_to(folder).as_posix())
        if match is None or image.name.startswith(".") or not image.is_file():
            continue  # e.g. the ._name files of macOS
        fields = match.groupdict()
        name = part.prefix + fields["name"]
        places = [folder / labels.format_map(fields) for labels in part.labels]
        labels = next((place for place in places if place.is_file()), places[-1])
        group = fields.get("patient", name)
        if info.patient is not None and (found := re.match(info.patient, name)):
            group = found.group()
        yield Entry(
            name, image, labels, part.reader, group, part=part.name or part.split or "", split=part.split
        )


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
    lists = read_lists(info.splits, folder)
    listed, missing = listed_names((entry.name for entry in entries), lists)
    published = {
        entry.name: entry.split or listed.get(entry.name) or split_by_name(entry.name, info.splits.names)
        for entry in entries
    }
    used = published | {name: lists[name] for name in missing}
    if "test" not in published.values():
        used = with_a_test(used, info.splits)
    kept = by_patient(used, {name: name for name in missing} | {entry.name: entry.group for entry in entries})
    placed = tuple(
        replace(entry, part=entry.part or published[entry.name] or "other", split=kept[entry.name])
        for entry in entries
    )
    return DatasetLayout(folder, placed, {name: used[name] for name in missing})
