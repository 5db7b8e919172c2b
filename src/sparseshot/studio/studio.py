"""A project with everything that its page needs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparseshot.errors import DataNotFoundError
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.jobs import Jobs
from sparseshot.studio.marks import NEGATIVE, MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.results import FoundIndexes, Result
from sparseshot.studio.slide_tiles import ByteCache, SlideTiles

_OVERLAY_BYTES = 32 * 2**20
_THUMBNAIL_BYTES = 8 * 2**20


@dataclass
class Studio:
    """What the server keeps.

    Attributes:
        project: slides.
        book: marks.
        jobs: training and prediction.
        tiles: of slides.
        overlays: drawn tiles of found cells.
        thumbnails: of slides.
    """

    project: Project
    book: MarkBook
    jobs: Jobs
    tiles: SlideTiles = field(default_factory=SlideTiles)
    overlays: ByteCache = field(default_factory=lambda: ByteCache(_OVERLAY_BYTES))
    thumbnails: ByteCache = field(default_factory=lambda: ByteCache(_THUMBNAIL_BYTES))
    _indexes: FoundIndexes = field(default_factory=FoundIndexes)

    @classmethod
    def of(cls, project: Project, *, steps: int = 0) -> "Studio":
        """Open the marks and runs of a project."""
        book = MarkBook(project.folder / "marks.jsonl")
        return cls(project, book, Jobs(project, book, steps))

    def results(self, slide: str) -> dict[str, str]:
        """Return the ids and names of what was found on a slide, the latest run first."""
        runs = {
            f"r{job.number}": f"run {job.number}, {job.marks:,} marks"
            for job, _ in self.jobs.history()
            if self.jobs.result(job.number, slide).version
        }
        opened = self.project.entry(slide).found
        return runs | {f"f{number}": Path(path).name for number, path in enumerate(opened)}

    def result(self, slide: str, name: str) -> Result:
        """Return a result by its id: ``r`` and the number of a run, or ``f`` and that of an opened folder."""
        number = int(name[1:])
        if name.startswith("r"):
            return self.jobs.result(number, slide)
        opened = self.project.entry(slide).found
        if number >= len(opened):
            raise DataNotFoundError(self.project.folder, "there is no such result")
        return Result(Path(opened[number]), self.project.slide(slide).mpp)

    def found(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return the version of a result and its cells by place."""
        return self._indexes.of(self.result(slide, name))

    def marks_since(self, slide: str, version: str) -> dict[str, Any]:
        """Return what changed after a version of the marks, or all of them, as JSON holds it."""
        # The version is taken first: a mark that comes in between is then sent twice, never left out.
        present, deltas = self.book.since(slide, version)
        answer: dict[str, Any] = {"version": present, "classes": self.book.classes | {NEGATIVE: "#000000"}}
        if deltas is None:
            return answer | {"all": self.book.items(slide)}
        changes = [
            {"removed": [item["id"] for item in delta.removed], "added": list(delta.added)}
            for delta in deltas
        ]
        return answer | {"changes": changes}
