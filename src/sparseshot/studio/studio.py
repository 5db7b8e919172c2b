"""A project with everything that its page needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.table import KINDS
from sparseshot.errors import DataNotFoundError, InputError, SparseshotError, counted
from sparseshot.images import TissueMask, tissue_mask
from sparseshot.metrics import ExpectedQuality, expected_quality
from sparseshot.metrics.quality import Evidence
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.kinds import KindHead
from sparseshot.models.model_files import load_model
from sparseshot.pages import to_html
from sparseshot.studio.choosing import FileRoots
from sparseshot.studio.counting import RegionCount, positive_cells
from sparseshot.studio.decided import Decisions, decided_cells, is_cell, region_evidence, with_neighbours
from sparseshot.studio.derived import compared, excluded, exclusion
from sparseshot.studio.found_cells import Area, FoundCells
from sparseshot.studio.kinds_of_found import (
    KindEvidence,
    assigned,
    faint,
    kinds_of,
    learned,
    says_kind,
    with_kinds,
)
from sparseshot.studio.marks import NEGATIVE, Item, MarkBook, polygon_of
from sparseshot.studio.project import Project, needs_mpp
from sparseshot.studio.project_runs import (
    FEW_MARKS_THRESHOLD,
    LOOK,
    MARKS,
    RUN,
    UNTRAINED,
    Runs,
    read_run_recipe,
)
from sparseshot.studio.report import make_cohort_report, make_report
from sparseshot.studio.slide_results import FoundIndexes, Kept, ResultId, SlideResult, is_finished
from sparseshot.studio.slide_tiles import ByteCache, SlideTiles, levels_of
from sparseshot.studio.suggesting import NextRegions, read_next
from sparseshot.work.folder import MODEL

_OVERLAY_BYTES = 32 * 2**20
_THUMBNAIL_BYTES = 8 * 2**20
_MOST_DERIVED = 2
_MOST_JUDGED = 20_000
_SLIVER = 0.01


@dataclass
class Studio:
    """State of the server.

    Attributes:
        project: slides.
        book: marks.
        runs: training and prediction.
        tiles: of slides.
        overlays: drawn tiles of found cells.
        thumbnails: of slides.
        files: where slides may be chosen.
    """

    project: Project
    book: MarkBook
    runs: Runs
    tiles: SlideTiles = field(default_factory=SlideTiles)
    overlays: ByteCache = field(default_factory=lambda: ByteCache(_OVERLAY_BYTES))
    thumbnails: ByteCache = field(default_factory=lambda: ByteCache(_THUMBNAIL_BYTES))
    files: FileRoots = field(default_factory=lambda: FileRoots(()))
    _indexes: FoundIndexes = field(default_factory=FoundIndexes)
    _derived: Kept[FoundCells] = field(default_factory=lambda: Kept(_MOST_DERIVED))
    _decisions: Kept[Decisions] = field(default_factory=lambda: Kept(_MOST_DERIVED))
    _heads: Kept[tuple[str, KindHead | None]] = field(default_factory=lambda: Kept(_MOST_DERIVED))
    _kinded: Kept[tuple[str, FoundCells]] = field(default_factory=lambda: Kept(_MOST_DERIVED))
    _expected: Kept[tuple[object, Evidence]] = field(default_factory=lambda: Kept(_MOST_DERIVED))
    _tissue: Kept[TissueMask] = field(default_factory=lambda: Kept(100))

    @classmethod
    def of(cls, project: Project, *, steps: int = 0, everywhere: bool = False) -> "Studio":
        """Open the marks and runs of a project."""
        book = MarkBook(project.journal)
        return cls(project, book, Runs(project, book, steps, everywhere))

    def begin(self) -> None:
        """Start the process that finds cells; it begins with the slide if there is but one."""
        (self.project.folder / LOOK).unlink(missing_ok=True)
        slides = list(self.project.slides)
        if len(slides) == 1 and "size" in self._card(slides[0]):
            self.runs.find(slides[0])
        self.runs.warm_up()

    # ---- slides

    def cards(self) -> list[dict[str, Any]]:
        """Return what there is to say about each slide, or why it cannot be shown."""
        return [self._card(slide) for slide in self.project.slides]

    def _card(self, slide: str) -> dict[str, Any]:
        path = self.project.path(slide)
        card: dict[str, Any] = {"id": slide, "name": path.name, "marks": self.book.count([slide])}
        try:
            if not path.exists():
                return card | {"problem": "The file is missing. Put it back, and nothing is lost."}
            if needs_mpp(self.project, slide):
                return card | {"problem": "The size of its pixels is not known yet.", "needs_mpp": True}
            opened = self.project.slide(slide)
        except (SparseshotError, OSError) as error:
            return card | {"problem": f"The slide cannot be opened: {getattr(error, 'problem', error)}"}
        return card | {"size": opened.size, "mpp": opened.mpp, "levels": levels_of(opened)}

    def correct_mpp(self, slide: str, mpp: float) -> None:
        """Store the size of a slide's pixels; what was found with another is found anew."""
        if not needs_mpp(self.project, slide) and self.project.slide(slide).mpp != mpp:
            self.runs.forget(slide)
        self.project.set_mpp(slide, mpp)
        for kept in (self._indexes, self._tissue, self._derived, self._decisions, self._kinded):
            kept.clear()

    def tissue(self, slide: str) -> TissueMask:
        """Return the tissue of a slide; all of it in a studio that looks everywhere."""
        opened = self.project.slide(slide)
        find = TissueMask.everywhere if self.runs.everywhere else tissue_mask
        return self._tissue.get(slide, lambda kept: kept or find(opened))

    # ---- what the page learns again and again

    def state(self, slide: str, since: str) -> dict[str, Any]:
        """Return marks that are new since a version, runs and results, as JSON holds them."""
        history = self.runs.history()
        runs = [
            {
                "number": recipe.number,
                "marks": recipe.marks,
                "stage": progress.stage,
                "message": progress.message,
                "share": progress.share,
                "begun": progress.begun,
                "notes": progress.notes,
                "loss": progress.loss if not place and not progress.has_ended else (),
            }
            for place, (recipe, progress) in enumerate(history)
        ]
        return self.marks_since(slide, since) | {
            "runs": runs,
            "results": self._results(slide, runs),
            "total_marks": self.book.count(self.project.slides),  # a run learns from all slides
            "regions": self.book.regions(self.project.slides),
        }

    def _results(self, slide: str, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what was found on a slide, the latest run first."""
        named = {ResultId(is_run=True, number=run["number"]): _name(run) for run in runs}
        opened = self.project.entry(slide).found
        named |= {ResultId(is_run=False, number=n): Path(path).name for n, path in enumerate(opened)}
        begun = {run["number"]: run["begun"] for run in runs}
        results = []
        for each, name in named.items():
            version = self.result(slide, str(each)).version
            if version:
                run = {"run": each.number, "begun": begun[each.number]} if each.is_run else {"run": None}
                is_whole = is_finished(self.result(slide, str(each)).folder)
                about = {"id": str(each), "name": name, "version": version, "whole": is_whole}
                results.append(about | run | {"threshold": self.threshold(slide, str(each))})
        return results

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

    # ---- results

    def result(self, slide: str, name: str) -> SlideResult:
        """Return a result by its id."""
        wanted = ResultId.of(name)
        if wanted.is_run:
            return self.runs.result(wanted.number, slide)
        opened = self.project.entry(slide).found
        if wanted.number >= len(opened):
            raise DataNotFoundError(self.project.folder, "there is no such result")
        return SlideResult(Path(opened[wanted.number]), self.project.slide(slide).mpp)

    def found(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return the version of a result and its cells by place."""
        return self._indexes.of(self.result(slide, name))

    def kinds(self, name: str) -> tuple[str, KindHead | None]:
        """Return the kinds that the marks of all slides teach for a result, and a version of them.

        Who asks while they are learned waits, and hears of the latest marks: of quick clicks, not every one
        is learned from alone.
        """
        return self._heads.get(name, lambda kept: self._learned(name, kept))

    def _learned(self, name: str, kept: tuple[str, KindHead | None] | None) -> tuple[str, KindHead | None]:
        items = {slide: self.book.items(slide) for slide in self.project.slides}
        kinds = kinds_of([item for own in items.values() for item in own])
        sources: list[tuple[FoundCells, list[Item], float]] = []
        versions = []
        for slide, own in items.items():
            marks = [item for item in own if says_kind(item)]
            if not any(item["class"] in kinds for item in marks):
                continue
            try:
                version, found = self.found(slide, name)
            except SparseshotError:
                continue  # nothing has been found there yet
            versions.append((slide, version, *((item["id"], item["class"]) for item in marks)))
            sources.append((found, marks, self.threshold(slide, name)))
        version = f"{hash((kinds, *versions)) & 0xFFFFFFFF:x}" if sources else ""
        if kept is not None and kept[0] == version:
            return kept
        evidence = [KindEvidence.of(found, marks, kinds, threshold=least) for found, marks, least in sources]
        return version, learned([each for each in evidence if each is not None], kinds)

    def recognised(self, name: str) -> dict[str, list[float]]:
        """Return which share of the cells of each kind is recognised, its interval, and the number of marks.

        It rests on marks that were left out when the kinds were learned once more.
        """
        _, head = self.kinds(name)
        if head is None or head.evidence is None:
            return {}
        marks = head.evidence.marks
        return {kind: [*share, marks[kind]] for kind, share in head.evidence.recall().items() if marks[kind]}

    def kinded(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return the version of a result, and its cells by place with the kinds that marks teach."""

        def tell(kept: tuple[str, FoundCells] | None) -> tuple[str, FoundCells]:
            version, found = self.found(slide, name)
            of_kinds, head = self.kinds(name)
            if head is None or found.features is None:
                return version, found
            colors = self.book.classes
            version += f"~{of_kinds}{hash(tuple(colors.items())) & 0xFFFF:x}"
            if kept is not None and kept[0] == version:
                return kept
            return version, with_kinds(found, head, colors, threshold=self.threshold(slide, name))

        return self._kinded.get((slide, name), tell)

    def _likely_kinds(self, name: str) -> KindHead | None:
        """Return the kinds that the starter tells apart by itself; None for another model."""
        number = ResultId.of(name)
        if not number.is_run or number.number != UNTRAINED:
            return None
        return _start(read_run_recipe(self.runs.folder(UNTRAINED)).start).own_kinds

    def likely(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return the cells of the starter with the kinds that it believes in, in faint colours."""
        version, found = self.found(slide, name)
        head = self._likely_kinds(name)
        if head is None or found.features is None:
            raise InputError("Only the starter tells likely kinds by itself; choose it on the page Runs.")
        key, threshold = (slide, name, "likely", version), self.threshold(slide, name)
        return version, self._derived.get(
            key, lambda kept: kept or with_kinds(found, head, faint(head.names), threshold=threshold)
        )

    def compared(self, slide: str, name: str, other: str) -> tuple[str, FoundCells]:
        """Return in what two results differ."""
        (one, a), (two, b) = self.found(slide, name), self.found(slide, other)
        thresholds = self.threshold(slide, name), self.threshold(slide, other)
        version = f"{one}/{two}"
        return version, self._derived.get(
            (slide, name, other, version), lambda kept: kept or compared(a, b, thresholds=thresholds)
        )

    def excluded(self, slide: str, name: str) -> tuple[str, FoundCells]:
        """Return what the loss of a run has excluded."""
        version, cells = self.found(slide, name)
        checkpoint = self.checkpoint(name)
        rho = None if checkpoint is None else exclusion(checkpoint)
        if rho is None:
            raise InputError("What the loss has left out is known of finished runs only.")
        file = self.runs.folder(ResultId.of(name).number) / MARKS / f"{slide}.parquet"
        marks = read_cells(file) if file.is_file() else Cells([])
        key = slide, name, "excluded", version
        return version, self._derived.get(key, lambda kept: kept or excluded(cells, marks, rho=rho))

    def threshold(self, slide: str, name: str) -> float:
        """Return the threshold that was calibrated for a result."""
        wanted = ResultId.of(name)
        if wanted.is_run:
            return self.runs.progress(wanted.number).threshold
        manifest = self.result(slide, name).manifest()
        known = FEW_MARKS_THRESHOLD if manifest is None else manifest.identity.get("threshold")
        return FEW_MARKS_THRESHOLD if known is None else float(known)

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Return the finished model of a result; None for one that is not finished or not ours."""
        version = self._model(name)
        return None if version is None else _loaded(*version)

    def _model(self, name: str) -> tuple[Path, int] | None:
        """Return the file of a run's model, and which version of it."""
        wanted = ResultId.of(name)
        file = self.runs.folder(wanted.number) / RUN / MODEL
        return (file, file.stat().st_mtime_ns) if wanted.is_run and file.is_file() else None

    def quality(self, name: str, threshold: float) -> dict[str, Any] | None:
        """Return the expected quality of a result at a threshold; None if it is unknown.

        It rests on the marks that a training held out, and on regions that were reviewed since.
        """
        quality = self.expected(name, threshold)
        if quality is None:
            return None
        return {
            "recall": quality.recall,
            "precision": quality.precision,
            "cells_per_found": quality.cells_per_found,
            "marks": quality.marks,
            "certain": quality.certain,
        }

    def expected(self, name: str, threshold: float) -> ExpectedQuality | None:
        """Return what is expected of a result at a threshold; None if it is unknown."""
        version, new = self._model(name), {}
        learned_from = self._learned_regions(name)
        for slide in self.project.slides:
            items = self.book.items(slide)
            regions = [
                item for item in items if "region" in item and not _is_known(item, learned_from.get(slide))
            ]
            if regions:
                new[slide] = [*regions, *(item for item in items if is_cell(item))]

        def gathered(kept: tuple[object, Evidence] | None) -> tuple[object, Evidence]:
            found = {slide: self.found(slide, name) for slide in new}
            key = (
                version,
                [(slide, found[slide][0], [item["id"] for item in own]) for slide, own in new.items()],
            )
            if kept is not None and kept[0] == key:
                return kept
            model = None if version is None else _loaded(*version)
            evidence = model.evidence if model is not None and model.evidence is not None else Evidence()
            for slide, own in new.items():
                evidence += region_evidence(found[slide][1], own)
            return key, evidence

        try:
            _, evidence = self._expected.get(name, gathered)
        except DataNotFoundError:
            return None  # a slide with reviewed regions on which nothing has been found
        return expected_quality(evidence, round(threshold, 2))

    def _learned_regions(self, name: str) -> dict[str, shapely.Geometry]:
        """Return the regions of each slide from which a run has learned."""
        wanted = ResultId.of(name)
        if not wanted.is_run:
            return {}
        files = sorted((self.runs.folder(wanted.number) / MARKS).glob("*.parquet"))
        return {file.stem: _regions_in(file, file.stat().st_mtime_ns) for file in files}

    def counts(self, slide: str, name: str, area: Area, threshold: float) -> dict[str, dict[str, int]]:
        """Return the cells of each class in an area and in the slide: found, and as people decided."""
        _, found = self.found(slide, name)
        _, kinds = self.kinded(slide, name)
        decisions = self._decisions.get((slide, name), lambda kept: _of(kept, found))
        items, rows = self.book.items(slide), found.rows_in(area, threshold=threshold)
        return {
            "in_view": decisions.counts(
                items, rows, threshold=threshold, area=shapely.box(*area), kinds=kinds
            ),
            "in_slide": decisions.counts(items, threshold=threshold, area=None, kinds=kinds),
        }

    def counted_regions(
        self, slide: str, name: str, threshold: float, positive_od: float | None = None
    ) -> list[RegionCount]:
        """Return what is counted in the slide and in each region to count in.

        With an optical density, the cells of each region that are positive by DAB, too.
        """
        _, found = self.found(slide, name)
        _, kinds = self.kinded(slide, name)
        decisions = self._decisions.get((slide, name), lambda kept: _of(kept, found))
        items = self.book.items(slide)
        whole = decisions.counts(items, threshold=threshold, area=None, kinds=kinds)
        regions = [RegionCount("", "Whole slide", self.tissue(slide).area_mm2, whole)]
        for item in items:
            if "count" not in item:
                continue
            area = polygon_of(item["count"])
            rows = found.rows_in(area.bounds, threshold=threshold)
            rows = rows[shapely.contains_xy(area, found.xy[rows].astype(np.float64))]
            counts = decisions.counts(items, rows, threshold=threshold, area=area, kinds=kinds)
            mm2 = area.area * (found.mpp / 1000) ** 2
            positive = (
                None if positive_od is None else self._positive(slide, name, area, threshold, positive_od)
            )
            regions.append(RegionCount(item["id"], item.get("name", "Region"), mm2, counts, positive))
        return regions

    def _positive(
        self, slide: str, name: str, area: shapely.Polygon, threshold: float, least_od: float
    ) -> int | None:
        """Return how many cells of an area are positive by DAB; None in one that is too large to measure."""
        manifest, opened = self.result(slide, name).manifest(), self.project.slide(slide)
        model = {} if manifest is None else manifest.identity.get("model", {})
        try:
            found = self.cells_in(slide, name, area, threshold=threshold)
            cells = decided_cells(found, self.book.cells(slide, mpp=found.mpp))
            cells = cells[shapely.contains_xy(area, cells.xy)]
            return positive_cells(opened, cells, area, mpp=model.get("mpp", opened.mpp), least_od=least_od)
        except InputError:
            return None

    def decided(self, slide: str, name: str, threshold: float) -> Cells:
        """Return the found cells of a slide as people corrected them."""
        cells, features = self.result(slide, name).cells()
        _, head = self.kinds(name)
        if features is not None and head is not None:
            mpp, least = self.project.slide(slide).mpp, self.threshold(slide, name)
            cells = assigned(cells, features, head, self.book.classes, mpp=mpp, threshold=least)
        elif features is not None and (guess := self._likely_kinds(name)) is not None:
            cells = guess.assign(cells, features)
        cells = cells if cells.score is None else cells[cells.score >= threshold]
        cells = decided_cells(cells, self.book.cells(slide, mpp=cells.mpp))
        return with_neighbours(cells, mpp=self.project.slide(slide).mpp)

    def marks_of(self, slide: str) -> Cells:
        """Return the marks of a slide as a table of annotations."""
        cells = self.book.cells(slide, mpp=self.project.slide(slide).mpp)
        return replace(cells, kind=np.full(len(cells), KINDS.index("annotation")))

    def report(self, slide: str, name: str, threshold: float) -> str:
        """Return the report of a slide as one HTML page."""
        opened = self.project.slide(slide)
        quality = self.expected(name, threshold)
        manifest = self.result(slide, name).manifest()
        model = {} if manifest is None else manifest.identity.get("model", {})
        shown = next((each["name"] for each in self.state(slide, "")["results"] if each["id"] == name), name)
        marks = self.book.cells(slide)
        counts = ", ".join(f"{count:,} {each}" for each, count in marks.counts().items() if count)
        facts = {
            "found by": shown,
            "model": f"{model.get('task', '')} at {model.get('mpp', 0):g} µm, "
            f"fingerprint {str(model.get('fingerprint', ''))[:12]}"
            if model
            else "",
            "threshold": f"{threshold:.2f}",
            "marks": f"{counts or 'none'}; {counted(len(marks.regions), 'region')} with every cell marked",
            "expected": "unknown: no region was reviewed, and no marks were held out"
            if quality is None
            else quality.sentence(),
            "unfinished": ""
            if is_finished(self.result(slide, name).folder)
            else "not all cells are found yet",
        }
        regions = self.counted_regions(slide, name, threshold)
        cells = self.decided(slide, name, threshold)
        return to_html(make_report(opened, cells, regions, tissue=self.tissue(slide), facts=facts))

    def cohort(self, name: str) -> list[dict[str, Any]]:
        """Return what a run has found on each slide."""
        rows = []
        for slide in self.project.slides:
            row: dict[str, Any] = {"id": slide, "name": self.project.path(slide).name}
            try:
                if not self.result(slide, name).version:
                    rows.append(row)
                    continue
                whole = self.counted_regions(slide, name, self.threshold(slide, name))[0]
                rows.append(
                    row | whole.as_json() | row | {"whole": is_finished(self.result(slide, name).folder)}
                )
            except (SparseshotError, OSError) as error:
                rows.append(row | {"problem": getattr(error, "problem", str(error))})
        return rows

    def cohort_counts(self, name: str) -> list[RegionCount]:
        """Return what a run has found on each slide that it has finished."""
        done = [slide for slide in self.project.slides if is_finished(self.result(slide, name).folder)]
        whole = {slide: self.counted_regions(slide, name, self.threshold(slide, name))[0] for slide in done}
        return [replace(each, name=self.project.path(slide).name) for slide, each in whole.items()]

    def cohort_report(self, name: str) -> str:
        """Return the report of all slides as one HTML page."""
        return to_html(make_cohort_report(self._shown(name), self.cohort_counts(name)))

    def _shown(self, name: str) -> str:
        """Return how the page calls a result."""
        wanted = ResultId.of(name)
        if not wanted.is_run or wanted.number == UNTRAINED:
            return "Starter, no marks" if wanted.is_run else name
        return f"Run {wanted.number}"

    def model_file(self, name: str) -> Checkpoint:
        """Return the model of a result, with the kinds that marks teach, to keep and use elsewhere."""
        number = ResultId.of(name).number
        checkpoint = self.checkpoint(name) if number else _start(read_run_recipe(self.runs.folder(0)).start)
        if checkpoint is None:
            raise DataNotFoundError(self.project.folder, "this run has no finished model")
        _, head = self.kinds(name)
        if head is None:
            return checkpoint
        colors = tuple(self.book.classes.get(each, "#808080") for each in head.names[1:])
        settings = replace(checkpoint.config, classes=head.names[1:], colors=colors)
        return replace(checkpoint, kinds=head, config=settings)

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

    # ---- where to look next

    def next_regions(self) -> tuple[int | None, NextRegions | None]:
        """Return the number of the latest finished run with suggestions, and these; None without one.

        None while the latest run looks for them. If no run has any, the problem says why.
        """
        latest, problem = None, ""
        for recipe, progress in self.runs.history():
            if progress.stage != "done":
                continue
            # Asked first: what the worker writes is there before it ends.
            is_active = self.runs.is_active(recipe.number)
            known = read_next(self.runs.folder(recipe.number))
            if known is None and is_active:
                return recipe.number, None
            if known is not None and not known.problem:
                return recipe.number, known
            latest = recipe.number if latest is None else latest
            problem = problem or (known.problem if known else self._interruption(recipe.number))
        return latest, None if latest is None else NextRegions(problem=problem)

    def _interruption(self, number: int) -> str:
        """Return why a finished run has no suggestions, and never will."""
        if self.runs.current():
            return f"a newer run began before run {number} had found any; wait until that one is finished"
        return f"run {number} was interrupted before it had found any; train again"

    def is_exhaustive(self, slide: str, box: Area) -> bool:
        """Return whether all cells in a box are marked, by a region that covers it."""
        regions = self.book.cells(slide).regions
        return len(regions) > 0 and bool(shapely.union_all(regions).covers(shapely.box(*box)))


def _name(run: dict[str, Any]) -> str:
    return f"Run {run['number']}, {counted(run['marks'], 'mark')}" if run["number"] else "Starter, no marks"


def _of(kept: Decisions | None, found: FoundCells) -> Decisions:
    return kept if kept is not None and kept.found is found else Decisions(found)


@lru_cache(maxsize=2)
def _start(name: str) -> Checkpoint:
    return load_model(name)


@lru_cache(maxsize=8)
def _loaded(file: Path, _: int) -> Checkpoint | None:
    """Load a model; the second argument distinguishes versions of the file."""
    try:
        return Checkpoint.load(file)
    except SparseshotError:
        return None


@lru_cache(maxsize=64)
def _regions_in(file: Path, _: int) -> shapely.Geometry:
    return shapely.union_all(read_cells(file).regions)


def _is_known(item: Item, learned_from: shapely.Geometry | None) -> bool:
    """Return whether a model has learned from a part of a region, which is more than to touch one."""
    region = polygon_of(item["region"])
    return learned_from is not None and learned_from.intersection(region).area > _SLIVER * region.area
