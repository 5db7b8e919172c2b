"""A project with everything that its page needs."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import shapely

from sparseshot.cells import Cells, read_cells
from sparseshot.errors import DataNotFoundError, InputError, SparseshotError, counted
from sparseshot.images import TissueMask, tissue_mask
from sparseshot.metrics import ExpectedQuality, expected_quality
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.studio.derived import compared, excluded, exclusion
from sparseshot.studio.found_cells import Area, FoundCells
from sparseshot.studio.jobs import FEW_MARKS_THRESHOLD, MARKS, RUN, Jobs
from sparseshot.studio.marks import NEGATIVE, MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.slide_results import FoundIndexes, SlideResult
from sparseshot.studio.slide_tiles import ByteCache, SlideTiles
from sparseshot.studio.suggesting import NextRegions, read_next
from sparseshot.work.run_files import MODEL

_OVERLAY_BYTES = 32 * 2**20
_THUMBNAIL_BYTES = 8 * 2**20
_MOST_DERIVED = 2
_MOST_JUDGED = 20_000


@dataclass
class Studio:
    """State of the server.

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
    _derived: "OrderedDict[Hashable, FoundCells]" = field(default_factory=OrderedDict)
    _tissue: dict[str, TissueMask] = field(default_factory=dict)
    _mutex: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, project: Project, *, steps: int = 0) -> "Studio":
        """Open the marks and runs of a project."""
        book = MarkBook(project.journal)
        return cls(project, book, Jobs(project, book, steps))

    def results(self, slide: str) -> dict[str, str]:
        """Return the ids and names of what was found on a slide, the latest run first."""
        runs = {
            f"r{job.number}": f"run {job.number}, {counted(job.marks, 'mark')}"
            for job, _ in self.jobs.history()
            if self.jobs.result(job.number, slide).version
        }
        opened = self.project.entry(slide).found
        return runs | {f"f{number}": Path(path).name for number, path in enumerate(opened)}

    def result(self, slide: str, name: str) -> SlideResult:
        """Return a result by its id: ``r`` and the number of a run, or ``f`` and that of an opened folder."""
        number = int(name[1:])
        if name.startswith("r"):
            return self.jobs.result(number, slide)
        opened = self.project.entry(slide).found
        if number >= len(opened):
            raise DataNotFoundError(self.project.folder, "there is no such result")
        return SlideResult(Path(opened[number]), self.project.slide(slide).mpp)

    def found(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return the version of a result and its cells by place.

        ``r3-r2`` compares two results, and ``r3x`` shows what the loss of a run has excluded.
        """
        first, _, second = name.partition("-")
        if second:
            (one, a), (two, b) = self.found(slide, first), self.found(slide, second)
            thresholds = self.threshold(slide, first), self.threshold(slide, second)
            version = f"{one}/{two}"
            return version, self._cached(
                (slide, name, version), lambda: compared(a, b, thresholds=thresholds)
            )
        if name.endswith("x"):
            version, cells = self.found(slide, name[:-1])
            return version, self._cached(
                (slide, name, version), lambda: self._excluded(slide, name[:-1], cells)
            )
        return self._indexes.of(self.result(slide, name))

    def _cached(self, key: Hashable, make: Callable[[], FoundCells]) -> FoundCells:
        with self._mutex:
            if key not in self._derived:
                self._derived[key] = make()
            self._derived.move_to_end(key)
            while len(self._derived) > _MOST_DERIVED:
                self._derived.popitem(last=False)
            return self._derived[key]

    def _excluded(self, slide: str, name: str, cells: FoundCells) -> FoundCells:
        rho = self.exclusion(name)
        if rho is None:
            raise DataNotFoundError(
                self.project.folder, "what the loss has excluded is not known of this result"
            )
        file = self.jobs.folder(int(name[1:])) / MARKS / f"{slide}.parquet"
        return excluded(cells, read_cells(file) if file.is_file() else Cells([]), rho=rho)

    def exclusion(self, name: str) -> float | None:
        """Return the probability from which on the loss of a run excluded unmarked places, if known."""
        checkpoint = self.checkpoint(name)
        return None if checkpoint is None else exclusion(checkpoint)

    def threshold(self, slide: str, name: str) -> float:
        """Return the threshold that was calibrated for a result."""
        if name.startswith("r"):
            return self.jobs.state(int(name[1:])).threshold
        manifest = self.result(slide, name).manifest()
        known = FEW_MARKS_THRESHOLD if manifest is None else manifest.identity.get("threshold")
        return FEW_MARKS_THRESHOLD if known is None else float(known)

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Return the finished model of a result; None for one that is not finished or not ours."""
        file = self.jobs.folder(int(name[1:])) / RUN / MODEL
        return _loaded(file, file.stat().st_mtime_ns) if name.startswith("r") and file.is_file() else None

    def quality(self, name: str, threshold: float) -> ExpectedQuality | None:
        """Return the expected quality of a result at a threshold; None if it is unknown."""
        checkpoint = self.checkpoint(name)
        if checkpoint is None or checkpoint.evidence is None:
            return None
        return expected_quality(checkpoint.evidence, threshold)

    def cells_in(self, slide: str, name: str, region: shapely.Polygon, *, threshold: float) -> Cells:
        """Return the found cells in a region as a table, outlines included.

        Raises:
            InputError: there are so many that nobody can have looked at them.
        """
        _, found = self.found(slide, name)
        x0, y0, x1, y1 = region.bounds
        rows = found.rows_in((x0, y0, x1, y1), threshold=threshold)
        rows = rows[shapely.contains_xy(region, found.xy[rows].astype(np.float64))]
        if len(rows) > _MOST_JUDGED:
            raise InputError(f"{len(rows):,} cells in the area; choose one with at most {_MOST_JUDGED:,}")
        shapes = found.outlines(rows)
        return Cells(
            found.xy[rows],
            classes=found.classes,
            label=found.label[rows],
            score=found.score[rows],
            outline=shapes if any(shapes) else None,
            mpp=self.project.slide(slide).mpp,
        )

    def next_regions(self) -> tuple[int, NextRegions | None]:
        """Return the number of the latest finished run with suggestions, and these; 0 without a finished run.

        None while the latest run looks for them. If no run has any, the problem says why.
        """
        latest, problem = 0, ""
        for job, state in self.jobs.history():
            if state.stage != "done":
                continue
            # Asked first: what the worker writes is there before it ends.
            is_at_work = self.jobs.is_at_work(job.number)
            known = read_next(self.jobs.folder(job.number))
            if known is None and is_at_work:
                return job.number, None
            if known is not None and not known.problem:
                return job.number, known
            latest = latest or job.number
            problem = problem or (known.problem if known else self._interruption(job.number))
        return latest, NextRegions(problem=problem) if latest else None

    def _interruption(self, number: int) -> str:
        """Return why a finished run has no suggestions, and never will."""
        if self.jobs.current():
            return f"a newer run began before run {number} had found any; wait until that one is finished"
        return f"run {number} was interrupted before it had found any; train again"

    def is_exhaustive(self, slide: str, box: Area) -> bool:
        """Return whether all cells in a box are marked, by a region that covers it."""
        rings = [item["region"] for item in self.book.items(slide) if "region" in item]
        return bool(rings) and shapely.union_all([*map(shapely.Polygon, rings)]).covers(shapely.box(*box))

    def tissue(self, slide: str) -> TissueMask:
        """Return the tissue of a slide; all of it in a studio that looks everywhere."""
        if slide not in self._tissue:
            opened = self.project.slide(slide)
            self._tissue[slide] = (
                TissueMask.everywhere(opened) if self.jobs.everywhere else tissue_mask(opened)
            )
        return self._tissue[slide]

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


@lru_cache(maxsize=8)
def _loaded(file: Path, _: int) -> Checkpoint | None:
    """Load a model; the second argument distinguishes versions of the file."""
    try:
        return Checkpoint.load(file)
    except SparseshotError:
        return None
