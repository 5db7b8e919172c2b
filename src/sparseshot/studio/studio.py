"""A project with everything that its page needs."""

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import shapely

from sparseshot.active import Suggestion
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
from sparseshot.studio.decided import counted_cells, decided_cells, region_evidence, with_neighbours
from sparseshot.studio.derived import compared, excluded, exclusion
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.kinds_of_found import (
    faint,
    index_with_kinds,
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
    read_next,
    read_run_recipe,
)
from sparseshot.studio.report import make_cohort_report, make_report
from sparseshot.studio.slide_results import Kept, SlideResult, is_finished, run_of
from sparseshot.studio.slide_tiles import levels_of
from sparseshot.work.folder import MODEL

_MOST_PICTURES = 3000
_MOST_VIEWS = 6
_MOST_LEARNED = 2
_MOST_JUDGED = 20_000
_SLIVER = 0.01
_GREY = "#808080"


@dataclass
class Studio:
    """State of the server.

    Attributes:
        project: slides.
        book: marks.
        runs: training and prediction.
        pictures: tiles and thumbnails of slides.
        files: where slides may be chosen.
    """

    project: Project
    book: MarkBook
    runs: Runs
    pictures: Kept[bytes] = field(default_factory=lambda: Kept(_MOST_PICTURES))
    files: FileRoots = field(default_factory=lambda: FileRoots(()))
    _views: Kept[FoundCells] = field(default_factory=lambda: Kept(_MOST_VIEWS))
    _heads: Kept[tuple[str, KindHead | None]] = field(default_factory=lambda: Kept(_MOST_LEARNED))
    _learning: Lock = field(default_factory=Lock)
    _evidence: Kept[tuple[object, Evidence]] = field(default_factory=lambda: Kept(_MOST_LEARNED))
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
        if len(slides) == 1 and "size" in self.card(slides[0]):
            self.runs.find(slides[0])
        self.runs.warm_up()

    # ---- slides

    def card(self, slide: str) -> dict[str, Any]:
        """Return what there is to say about a slide, or why it cannot be shown."""
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
        self._views.clear()
        self._tissue.clear()

    def tissue(self, slide: str) -> TissueMask:
        """Return the tissue of a slide; all of it in a studio that looks everywhere."""
        opened = self.project.slide(slide)
        find = TissueMask.everywhere if self.runs.everywhere else tissue_mask
        return self._tissue.get(slide, lambda: find(opened))

    # ---- what the page learns again and again

    def state(self, slide: str, since: str) -> dict[str, Any]:
        """Return marks that are new since a version, runs and results, as JSON holds them."""
        history = self.runs.history()
        runs = [
            {"number": recipe.number, "marks": recipe.marks, **asdict(progress)}
            | ({} if not place and not progress.has_ended else {"loss": ()})
            for place, (recipe, progress) in enumerate(history)
        ]
        begun = {f"r{run['number']}": run["begun"] for run in runs}
        opened = dict.fromkeys(f"f{n}" for n in range(len(self.project.entry(slide).found)))
        return self.marks_since(slide, since) | {
            "runs": runs,
            "results": [
                {
                    "id": name,
                    "name": self._title(slide, name),
                    "version": self.result(slide, name).version,
                    "whole": is_finished(self.result(slide, name).folder),
                    "run": run_of(name),
                    "begun": time,
                    "threshold": self.threshold(slide, name),
                }
                for name, time in (begun | opened).items()
                if self.result(slide, name).version
            ],
            "total_marks": self.book.count(self.project.slides),  # a run learns from all slides
            "regions": self.book.count(self.project.slides, "region"),
        }

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
        if (number := run_of(name)) is not None:
            return self.runs.result(number, slide)
        opened = dict(enumerate(self.project.entry(slide).found))
        if int(name[1:]) not in opened:
            raise DataNotFoundError(self.project.folder, "there is no such result")
        return SlideResult(Path(opened[int(name[1:])]), self.project.slide(slide).mpp)

    def _title(self, slide: str, name: str) -> str:
        """Return how the page calls a result."""
        if (number := run_of(name)) is None:
            return self.result(slide, name).folder.name
        marks = read_run_recipe(self.runs.folder(number)).marks
        return f"Run {number}, {counted(marks, 'mark')}" if number else "Starter, no marks"

    def found(self, slide: str, name: str) -> FoundCells:
        """Return the cells of a result by place."""
        result = self.result(slide, name)
        return self._views.get(result.folder, result.index, result.is_shown_by)

    def kinds(self, name: str) -> tuple[str, KindHead | None]:
        """Return the kinds that the marks of all slides teach for a result, and a version of them.

        Who asks while they are learned waits, and hears of the latest marks: of quick clicks, not every one
        is learned from alone.
        """
        with self._learning:
            return self._learned(name)

    def _learned(self, name: str) -> tuple[str, KindHead | None]:
        items = {slide: self.book.items(slide) for slide in self.project.slides}
        kinds = kinds_of([item for own in items.values() for item in own])
        sources: list[tuple[FoundCells, list[Item], float]] = []
        versions = []
        for slide, own in items.items():
            marks = [item for item in own if says_kind(item)]
            if not any(item["class"] in kinds for item in marks):
                continue
            try:
                found = self.found(slide, name)
            except SparseshotError:
                continue  # nothing has been found there yet
            versions.append((slide, found.version, *((item["id"], item["class"]) for item in marks)))
            sources.append((found, marks, self.threshold(slide, name)))
        colors = self.book.classes
        version = f"{hash((*colors.items(), kinds, *versions)) & 0xFFFFFFFF:x}" if sources else ""

        def learn() -> tuple[str, KindHead | None]:
            head = learned(sources, kinds)
            if head is None:
                return version, None
            return version, replace(head, colors=tuple(colors.get(each, _GREY) for each in head.names))

        return self._heads.get(name, learn, lambda kept: kept[0] == version)

    def recognised(self, name: str) -> dict[str, list[float]]:
        """Return which share of the cells of each kind is recognised, its interval, and the number of marks.

        It rests on marks that were left out when the kinds were learned once more.
        """
        _, head = self.kinds(name)
        if head is None or head.evidence is None:
            return {}
        marks = head.evidence.marks
        return {kind: [*share, marks[kind]] for kind, share in head.evidence.recall().items() if marks[kind]}

    def shown(self, slide: str, name: str, what: str = "kinds", against: str | None = None) -> FoundCells:
        """Return the cells of a result as they are shown.

        Args:
            slide: id of the slide.
            name: id of the result.
            what: ``kinds`` that marks teach; ``likely`` kinds that the starter believes in; what the loss
                ``excluded``; or what is ``counted``, as people decided.
            against: another result, to show in what the two differ.
        """
        found, threshold = self.found(slide, name), self.threshold(slide, name)
        version = found.version
        if against is not None:
            other, thresholds = self.found(slide, against), (threshold, self.threshold(slide, against))
            version += f"/{other.version}"
            make = partial(compared, found, other, thresholds=thresholds)
        elif what == "counted":
            kinded = self.shown(slide, name)
            version = f"{kinded.version}+{self.book.version(slide)}"
            make = partial(self._counted, kinded, slide)
        elif what == "likely":
            make = partial(self._likely, found, name, threshold)
        elif what == "excluded":
            make = partial(self._excluded, found, slide, name)
        else:
            of_kinds, head = self.kinds(name)
            if head is None or found.features is None:
                return found
            what, version = "kinds", f"{version}~{of_kinds}"
            make = partial(index_with_kinds, found, head, threshold=threshold)
        return self._views.get(
            (slide, name, against or what),
            lambda: replace(make(), version=version),
            lambda kept: kept.version == version,
        )

    def _counted(self, kinded: FoundCells, slide: str) -> FoundCells:
        return counted_cells(kinded, self.book.cells(slide, mpp=kinded.mpp))

    def _likely(self, found: FoundCells, name: str, threshold: float) -> FoundCells:
        """Return the cells of the starter with the kinds that it believes in, in faint colours."""
        head = self._likely_kinds(name)
        if head is None or found.features is None:
            raise InputError("Only the starter tells likely kinds by itself; choose it on the page Runs.")
        return index_with_kinds(found, faint(head), threshold=threshold)

    def _likely_kinds(self, name: str) -> KindHead | None:
        """Return the kinds that the starter tells apart by itself; None for another model."""
        return self._start().own_kinds if run_of(name) == UNTRAINED else None

    def _start(self) -> Checkpoint:
        return load_model(read_run_recipe(self.runs.folder(UNTRAINED)).start)

    def _excluded(self, found: FoundCells, slide: str, name: str) -> FoundCells:
        """Return what the loss of a run has excluded."""
        checkpoint = self.checkpoint(name)
        rho = None if checkpoint is None else exclusion(checkpoint)
        if rho is None:
            raise InputError("What the loss has left out is known of finished runs only.")
        return excluded(found, self._learned_from(slide, name), rho=rho)

    def _learned_from(self, slide: str, name: str) -> Cells:
        """Return the marks of a slide from which a run has learned."""
        number = run_of(name)
        file = self.runs.folder(number or 0) / MARKS / f"{slide}.parquet"
        return read_cells(file) if number is not None and file.is_file() else Cells([])

    def threshold(self, slide: str, name: str) -> float:
        """Return the threshold that was calibrated for a result."""
        if (number := run_of(name)) is not None:
            return self.runs.progress(number).threshold
        manifest = self.result(slide, name).manifest()
        known = None if manifest is None else manifest.identity.get("threshold")
        return FEW_MARKS_THRESHOLD if known is None else float(known)

    def _model(self, name: str) -> Path | None:
        """Return the file of a run's finished model; None for a result that is not finished or not ours."""
        number = run_of(name)
        file = self.runs.folder(number or 0) / RUN / MODEL
        return file if number is not None and file.is_file() else None

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Return the finished model of a result; None for one that is damaged, not finished or not ours."""
        try:
            return None if (file := self._model(name)) is None else Checkpoint.load(file)
        except SparseshotError:
            return None

    def expected(self, name: str, threshold: float) -> ExpectedQuality | None:
        """Return the expected quality of a result at a threshold; None if it is unknown.

        It rests on the marks that a training held out, and on regions that were reviewed since.
        """
        file = self._model(name)
        reviewed = [slide for slide in self.project.slides if self.book.count([slide], "region")]
        try:
            of_slides = [(self.book.version(each), self.result(each, name).version) for each in reviewed]
            version = (file and file.stat().st_mtime_ns, reviewed, of_slides)
            _, evidence = self._evidence.get(
                name, lambda: (version, self._gathered(name, reviewed)), lambda kept: kept[0] == version
            )
        except SparseshotError:
            return None  # a slide with reviewed regions is gone, or nothing has been found on it
        return expected_quality(evidence, round(threshold, 2))

    def _gathered(self, name: str, reviewed: list[str]) -> Evidence:
        """Return what a training held out, and what regions say from which it has not learned."""
        model = self.checkpoint(name)
        evidence = model.evidence if model is not None and model.evidence is not None else Evidence()
        for slide in reviewed:
            marks = self.book.cells(slide, mpp=self.project.slide(slide).mpp)
            known = shapely.union_all(self._learned_from(slide, name).regions)
            # More than to touch a region from which it has learned.
            new = [each for each in marks.regions if known.intersection(each).area <= _SLIVER * each.area]
            if new:
                evidence += region_evidence(self.found(slide, name), marks, new)
        return evidence

    def counted_regions(
        self, slide: str, name: str, threshold: float, positive_od: float | None = None
    ) -> list[RegionCount]:
        """Return what is counted in the slide and in each region to count in.

        With an optical density, the cells of each region that are positive by DAB, too.
        """
        cells = self.shown(slide, name, "counted")
        whole = cells.counts(threshold=threshold)
        regions = [RegionCount("", "Whole slide", self.tissue(slide).area_mm2, whole)]
        for item in self.book.items(slide):
            if "count" not in item:
                continue
            area = polygon_of(item["count"])
            counts = cells.counts(area, threshold=threshold)
            mm2 = area.area * (cells.mpp / 1000) ** 2
            positive = (
                None if positive_od is None else self._positive(slide, name, area, threshold, positive_od)
            )
            regions.append(RegionCount(item["id"], item.get("name", "Region"), mm2, counts, positive))
        return regions

    def _positive(
        self, slide: str, name: str, area: shapely.Polygon, threshold: float, least_od: float
    ) -> int | None:
        """Return how many cells of an area are positive by DAB; None in one that is too large to measure."""
        opened = self.project.slide(slide)
        try:
            found = self.cells_in(slide, name, area, threshold=threshold)
            cells = decided_cells(found, self.book.cells(slide, mpp=found.mpp))
            cells = cells[shapely.contains_xy(area, cells.xy)]
            mpp = self.result(slide, name).model.get("mpp", opened.mpp)
            return positive_cells(opened, cells, area, mpp=mpp, least_od=least_od)
        except InputError:
            return None

    def decided(self, slide: str, name: str, threshold: float) -> Cells:
        """Return the found cells of a slide as people corrected them."""
        cells, features = self.result(slide, name).cells()
        _, head = self.kinds(name)
        mpp = self.project.slide(slide).mpp
        if features is not None and head is not None:
            least = self.threshold(slide, name)
            cells = with_kinds(replace(cells, mpp=mpp), features, head, threshold=least)
        elif features is not None and (guess := self._likely_kinds(name)) is not None:
            cells = guess.assign(cells, features)
        cells = cells if cells.score is None else cells[cells.score >= threshold]
        return with_neighbours(decided_cells(cells, self.book.cells(slide, mpp=cells.mpp)), mpp=mpp)

    def marks_of(self, slide: str) -> Cells:
        """Return the marks of a slide as a table of annotations."""
        cells = self.book.cells(slide, mpp=self.project.slide(slide).mpp)
        return replace(cells, kind=np.full(len(cells), KINDS.index("annotation")))

    def report(self, slide: str, name: str, threshold: float) -> str:
        """Return the report of a slide as one HTML page."""
        result, quality = self.result(slide, name), self.expected(name, threshold)
        marks, model = self.book.cells(slide), result.model
        counts = ", ".join(f"{count:,} {each}" for each, count in marks.counts().items() if count)
        facts = {
            "found by": self._title(slide, name),
            "model": f"{model.get('task', '')} at {model.get('mpp', 0):g} µm, "
            f"fingerprint {str(model.get('fingerprint', ''))[:12]}"
            if model
            else "",
            "threshold": f"{threshold:.2f}",
            "marks": f"{counts or 'none'}; {counted(len(marks.regions), 'region')} with every cell marked",
            "expected": "unknown: no region was reviewed, and no marks were held out"
            if quality is None
            else quality.sentence(),
            "unfinished": "" if is_finished(result.folder) else "not all cells are found yet",
        }
        regions = self.counted_regions(slide, name, threshold)
        cells, opened = self.decided(slide, name, threshold), self.project.slide(slide)
        return to_html(make_report(opened, cells, regions, tissue=self.tissue(slide), facts=facts))

    def cohort(self, name: str) -> list[dict[str, Any]]:
        """Return what a run has found on each slide."""
        rows = []
        for slide in self.project.slides:
            row: dict[str, Any] = {"id": slide, "name": self.project.path(slide).name}
            try:
                if self.result(slide, name).version:
                    is_whole = is_finished(self.result(slide, name).folder)
                    whole = self.counted_regions(slide, name, self.threshold(slide, name))[0]
                    row = whole.as_json() | row | {"whole": is_whole}
            except (SparseshotError, OSError) as error:
                row["problem"] = getattr(error, "problem", str(error))
            rows.append(row)
        return rows

    def cohort_counts(self, name: str) -> list[RegionCount]:
        """Return what a run has found on each slide that it has finished."""
        counts = []
        for slide in self.project.slides:
            if is_finished(self.result(slide, name).folder):
                whole = self.counted_regions(slide, name, self.threshold(slide, name))[0]
                counts.append(replace(whole, name=self.project.path(slide).name))
        return counts

    def cohort_report(self, name: str) -> str:
        """Return the report of all slides as one HTML page."""
        title = self._title(next(iter(self.project.slides), ""), name)
        return to_html(make_cohort_report(title, self.cohort_counts(name)))

    def model_file(self, name: str) -> Checkpoint:
        """Return the model of a result, with the kinds that marks teach, to keep and use elsewhere."""
        checkpoint = self._start() if run_of(name) == UNTRAINED else self.checkpoint(name)
        if checkpoint is None:
            raise DataNotFoundError(self.project.folder, "this run has no finished model")
        _, head = self.kinds(name)
        if head is None:
            return checkpoint
        settings = replace(checkpoint.config, classes=head.names[1:], colors=head.colors[1:])
        return replace(checkpoint, kinds=head, config=settings)

    def cells_in(self, slide: str, name: str, region: shapely.Geometry, *, threshold: float) -> Cells:
        """Return the found cells in a region as a table, outlines included.

        Raises:
            InputError: there are so many that nobody can have looked at them.
        """
        found = self.found(slide, name)
        rows = found.rows_in(region, threshold=threshold)
        if len(rows) > _MOST_JUDGED:
            raise InputError(f"{len(rows):,} cells in the area; choose one with at most {_MOST_JUDGED:,}")
        shapes = found.outlines(rows)
        return replace(found.cells[rows], outline=shapes if any(shapes) else None)

    # ---- where to look next

    def suggestions(self) -> dict[str, Any]:
        """Return where to look next, by the latest run that knows; a region in an exhaustive one is done.

        Nothing is ready while the latest run looks for them. If no run has any, the problem says why.
        """
        answer: dict[str, Any] = {"run": None, "ready": False, "problem": "", "regions": []}
        for recipe, progress in self.runs.history():
            if progress.stage != "done":
                continue
            number = recipe.number
            # Asked first: what the worker writes is there before it ends.
            is_active = self.runs.is_active(number)
            known = read_next(self.runs.folder(number))
            if known is None and is_active:
                return {"run": number, "ready": False, "problem": "", "regions": []}
            if known is not None and not known.problem:
                regions = [
                    {**asdict(each), "result": f"r{number}", "done": self._is_exhaustive(each)}
                    for each in known.regions
                ]
                return {"run": number, "ready": True, "problem": "", "regions": regions}
            if not answer["ready"]:
                problem = known.problem if known else self._interruption(number)
                answer |= {"run": number, "ready": True, "problem": problem}
        return answer

    def _interruption(self, number: int) -> str:
        """Return why a finished run has no suggestions, and never will."""
        if self.runs.current():
            return f"a newer run began before run {number} had found any; wait until that one is finished"
        return f"run {number} was interrupted before it had found any; train again"

    def _is_exhaustive(self, suggestion: Suggestion) -> bool:
        """Return whether regions in which all cells are marked cover a suggested one."""
        regions = self.book.cells(suggestion.slide).regions
        return len(regions) > 0 and bool(shapely.union_all(regions).covers(suggestion.region))
