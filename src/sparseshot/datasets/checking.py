"""Hold a folder against the catalogue: what is there, what is missing, what is wrong."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseshot.datasets.catalogue import SPLITS, DatasetInfo
from sparseshot.datasets.layout import Layout, find_layout, template_glob, template_pattern
from sparseshot.datasets.loading import attempt
from sparseshot.datasets.sample import PLAIN_SUFFIXES, Sample
from sparseshot.errors import SlideError

_DECODED_PX = 2**26


@dataclass(frozen=True)
class PartReport:
    """One published part: what the catalogue expects of it and what is there; None where nobody counted."""

    part: str
    images: int
    images_expected: int | None
    cells: int
    cells_expected: int | None

    @property
    def state(self) -> str:
        """``ok``, or what is not."""
        if self.images_expected is not None and self.images != self.images_expected:
            less = self.images_expected - self.images
            return f"{less} images missing" if less > 0 else f"{-less} images more than published"
        if self.cells_expected is not None and self.cells != self.cells_expected:
            return f"{self.cells - self.cells_expected:+,} cells"
        return "ok"


@dataclass(frozen=True)
class Report:
    """What :func:`check` found.

    Attributes:
        name: of the data set.
        folder: where it lies.
        parts: a row for each published part.
        used: how many images each split uses; those that none uses stand under ``left out``.
        problems: files that are missing, unreadable or do not fit together, each in a line.
        mended: what is mended on reading, e.g. cells outside of their image; that is no reason to fail.
    """

    name: str
    folder: Path
    parts: tuple[PartReport, ...]
    used: dict[str, int]
    problems: tuple[str, ...]
    mended: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """All is there, and all is as it should be."""
        return not self.problems and all(part.state == "ok" for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for scripts."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "ok": self.ok,
            "parts": [{**vars(part), "state": part.state} for part in self.parts],
            "used": self.used,
            "problems": list(self.problems),
            "mended": list(self.mended),
        }


def check(
    info: DatasetInfo, root: Path | str, *, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Read every label and decode every image of a data set, and compare with the catalogue.

    Args:
        info: its entry in the catalogue.
        root: the folder of the data set, or the folder around it.
        progress: called with the images done and the images in all.
    """
    layout = find_layout(info, root)
    problems = [
        f"{layout.folder}: {name} is on a list for {split} and not there"
        for name, split in layout.missing.items()
    ]
    problems += _labels_without_image(info, layout)
    mended: list[str] = []
    images: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for number, entry in enumerate(layout.entries):
        if progress is not None:
            progress(number, len(layout.entries))
        images[entry.part] += 1
        tried = attempt(entry, info)
        mended += tried.mended
        if tried.sample is None:
            problems.append(str(tried.error))
        else:
            cells[entry.part] += len(tried.sample.cells)
            problems += _broken_image(tried.sample)
    used: Counter[str] = Counter(entry.split or "left out" for entry in layout.entries)
    parts = tuple(
        PartReport(
            part,
            images[part],
            expected.images if (expected := info.expected.get(part)) else None,
            cells[part],
            expected.cells if expected else None,
        )
        for part in dict.fromkeys([*info.expected, *images])
    )
    ordered = {split: used[split] for split in (*SPLITS, "left out") if used[split]}
    return Report(info.name, layout.folder, parts, ordered, tuple(problems), tuple(mended))


def _broken_image(sample: Sample) -> list[str]:
    """Decode an image to the end; of a slide that would take too long."""
    if sample.image.suffix.lower() in PLAIN_SUFFIXES and sample.size[0] * sample.size[1] <= _DECODED_PX:
        try:
            sample.read()
        except SlideError as error:
            return [str(error)]
    return []


def _labels_without_image(info: DatasetInfo, layout: Layout) -> list[str]:
    images = {entry.name for entry in layout.entries}
    lonely: dict[str, Path] = {}
    for part in info.parts:
        for labels in part.labels:
            pattern = template_pattern(labels)
            for file in layout.folder.glob(template_glob(labels)):
                match = pattern.fullmatch(file.relative_to(layout.folder).as_posix())
                if match and part.prefix + match["name"] not in images and not file.name.startswith("."):
                    lonely.setdefault(match["name"], file)
    return [f"{file}: labels without their image" for file in lonely.values()]
