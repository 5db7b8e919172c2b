"""Comparison of a folder with the catalogue: missing, unreadable and unexpected files."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sparseshot.datasets.catalogue import SPLITS, DatasetInfo
from sparseshot.datasets.layout import DatasetLayout, find_layout, template_glob, template_pattern
from sparseshot.datasets.loading import try_to_load
from sparseshot.errors import SparseshotError
from sparseshot.work import Event, Report, ignore

_DECODED_PX = 2**26


@dataclass(frozen=True)
class PartReport:
    """Images and cells of one published part, and what the catalogue expects; None where unknown.

    ``state`` is ``ok``, or what differs.
    """

    part: str
    images: int
    images_expected: int | None
    cells: int
    cells_expected: int | None
    state: str


@dataclass(frozen=True)
class CheckReport:
    """Result of :func:`check`.

    Attributes:
        name: name of the data set.
        folder: its folder.
        parts: one row per published part; and the total where only that of the cells is known.
        used: number of images of each split; unused ones are counted as ``left out``.
        problems: files that are missing, unreadable or inconsistent, one line each.
        mended: repairs made while reading, e.g. cells outside their image; not a failure.
        ok: whether everything is there and as expected.
    """

    name: str
    folder: Path
    parts: tuple[PartReport, ...]
    used: dict[str, int]
    problems: tuple[str, ...]
    mended: tuple[str, ...]
    ok: bool


def check(info: DatasetInfo, root: Path | str, *, report: Report = ignore) -> CheckReport:
    """Read every label, decode every image, and compare with the catalogue.

    Args:
        info: catalogue entry.
        root: folder of the data set, or its parent.
        report: receives progress events.
    """
    layout = find_layout(info, root)
    problems = [*layout.missing, *_labels_without_image(info, layout)]
    mended: list[str] = []
    images: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for number, entry in enumerate(layout.entries):
        report(Event(f"checking {info.title}", number, len(layout.entries)))
        images[entry.part] += 1
        try:
            sample, repairs = try_to_load(entry, info)
            mended += repairs
            if isinstance(sample, SparseshotError):
                raise sample
            cells[entry.part] += len(sample.cells)
            if sample.size[0] * sample.size[1] <= _DECODED_PX:  # a slide would take too long
                sample.read()
        except SparseshotError as error:
            problems.append(str(error))
    used: Counter[str] = Counter(entry.split or "left out" for entry in layout.entries)
    parts = []
    for part in dict.fromkeys([*info.expected, *images]):
        expected = info.expected.get(part)
        wanted = (None, None) if expected is None else (expected.images, expected.cells)
        parts.append(_compared(part, (images[part], wanted[0]), (cells[part], wanted[1])))
    published = None if info.published is None else info.published.cells
    if published is not None and any(count.cells is None for count in info.expected.values()):
        parts.append(_compared("published in all", (images.total(), None), (cells.total(), published)))
    ordered = {split: used[split] for split in (*SPLITS, "left out") if used[split]}
    ok = not problems and all(part.state == "ok" for part in parts)
    return CheckReport(info.name, layout.folder, (*parts,), ordered, (*problems,), (*mended,), ok)


def _compared(part: str, images: tuple[int, int | None], cells: tuple[int, int | None]) -> PartReport:
    """Compare numbers of images and of cells with those that are expected."""
    state = "ok"
    if images[1] is not None and images[0] != images[1]:
        less = images[1] - images[0]
        state = f"{less} images missing" if less > 0 else f"{-less} images more than published"
    elif images[0] and not cells[0]:
        state = "no cells"
    elif cells[1] is not None and cells[0] != cells[1]:
        state = f"{cells[0] - cells[1]:+,} cells"
    return PartReport(part, *images, *cells, state)


def _labels_without_image(info: DatasetInfo, layout: DatasetLayout) -> list[str]:
    images = {entry.name for entry in layout.entries}
    orphans: dict[str, Path] = {}
    for part in info.parts:
        for labels in part.labels:
            pattern = template_pattern(labels)
            for file in layout.folder.glob(template_glob(labels)):
                match = pattern.fullmatch(file.relative_to(layout.folder).as_posix())
                if match and part.prefix + match["name"] not in images and not file.name.startswith("."):
                    orphans.setdefault(match["name"], file)
    return [f"{file}: labels without their image" for file in orphans.values()]
