"""Where to mark next: regions that teach a model most, each with its reason."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sparseshot.active.scout import Look, RegionScout, decision_doubts
from sparseshot.cells import Cells
from sparseshot.cells.near import is_near
from sparseshot.errors import InputError, counted
from sparseshot.files import write_json
from sparseshot.images import Box, Grid, Slide, TileGrid, tissue_mask
from sparseshot.images.fingerprint import slide_fingerprint
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.kinds import OTHER, PROBABILITY
from sparseshot.models.labelling import SUGGESTED
from sparseshot.prediction.export import read_shards
from sparseshot.prediction.manifest import Manifest, slide_identity
from sparseshot.prediction.model import Model
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.work import Event, Report, ignore

SIDE_UM = 150.0
MOST_CANDIDATES = 2000

_MARKED_LOOKS = 64
_CONFIRMED = 0.1
"""Worth of confirming a confident cell, in corrections of a wrong one."""

_SLIVER = 0.01
"""Share of a square that may lie in an exhaustive region, because boxes are rounded."""

_MOSTLY = 0.75
"""Share of a square that has to be tissue, where any is so full: on glass nothing is learned."""

_FEW_MARKS = 0.1
"""A class is rarely seen if less than this share of the marks is of it."""

_LEAST_MARKED, _USUAL = 10, 0.95
"""Marked cells that are needed to tell what is unlike them, and the share of them that is not."""


@dataclass(frozen=True)
class Suggestion:
    """A region to mark next.

    Attributes:
        slide: name of the slide.
        box: x0, y0, x1, y1 in level-0 pixels.
        kind: ``uncertain``, ``undecided kinds``, ``cells unlike any mark``, ``unlike anything marked``,
            ``confident cells nobody marked``, ``rare class`` or ``nothing found``.
        reason: in words.
        gain: expected number of corrections, weighted by how much the region differs from others.
    """

    slide: str
    box: tuple[float, float, float, float]
    kind: str
    reason: str
    gain: float = 0.0

    @property
    def region(self) -> shapely.Polygon:
        """The region, as :func:`~sparseshot.active.review.review_region` takes it."""
        return shapely.box(*self.box)


class NothingLeftError(InputError):
    """No tissue is left to suggest regions in."""


class _Candidate(NamedTuple):
    slide: int
    box: Box
    look: Look
    confident: int
    rare: tuple[str, int]
    unlike: int = 0


def suggest_regions(
    model: Model,
    slides: Sequence[Slide],
    *,
    regions: int = 20,
    learned: Sequence[AnnotatedSlide] = (),
    found: Mapping[str, Path] | None = None,
    side_um: float = SIDE_UM,
    candidates: int = MOST_CANDIDATES,
    seed: int = 0,
    report: Report = ignore,
) -> list[Suggestion]:
    """Return regions to mark next, the most useful first.

    The network looks at a sample of squares in tissue, so that the time does not grow with the slide. The
    expected gain is the number of cells that it probably decides wrongly, whether there is one or of which
    kind it is, the number of those that are of a kind with few marks or unlike any marked cell, and a tenth
    of those that it is sure of. A region is chosen by its gain times its distance, in the features of the
    network, from what was marked and from the regions chosen before.

    Args:
        model: the model.
        slides: to choose from, each with a name of its own.
        regions: number of regions.
        learned: slides with the marks that the model has learned from, to know what is unlike them; inside
            their exhaustive regions nothing is suggested. A slide is recognised by its content.
        found: folders of finished predictions, by the name of the slide; of such a slide the network looks
            only at the squares in which most cells are uncertain, and at as many others.
        side_um: side of a region.
        candidates: most squares to look at.
        seed: of the sample.
        report: receives progress events, in squares.
    """
    if not slides:
        raise InputError("no slides to suggest regions on; give at least one")
    name, count = Counter(slide.name for slide in slides).most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} slides are named {name}; suggest regions on them one after the other")
    if regions < 1 or candidates < regions:
        raise InputError(f"{regions} regions of {candidates} candidates; give 1 or more, and more candidates")
    random = np.random.default_rng(seed)
    contents = [slide_fingerprint(item.slide) for item in learned]
    marks = [
        next((item.marks for item, own in zip(learned, contents, strict=True) if own == content), None)
        for content in map(slide_fingerprint, slides)
    ]
    scouts = [RegionScout(model, slide, side_um, tissue_mask(slide)) for slide in slides]
    squares = [
        _squares(scout, own, (found or {}).get(scout.slide.name), random, most=5 * regions)
        for scout, own in zip(scouts, marks, strict=True)
    ]
    total = sum(map(len, squares))
    if not total:
        raise NothingLeftError("no tissue is left to suggest regions in; choose other slides")
    shares = [own[: math.ceil(len(own) * min(1.0, candidates / total))] for own in squares]
    marked = [(item, xy) for item in learned for xy in item.marks.xy]
    places = [marked[k] for k in random.permutation(len(marked))[:_MARKED_LOOKS]]
    everything, done = sum(map(len, shares)) + len(places), 0
    known, near_marks = [], []
    for item, xy in places:
        scout = RegionScout(model, item.slide, side_um)
        look = scout.look(scout.around(xy))
        known.append(look.features)
        is_marked = is_near(look.found.xy, item.marks.xy, radius=MATCH_RADIUS_UM / item.slide.mpp)
        near_marks.append(look.cell_features[is_marked])
        done += 1
        report(Event("looking at regions", done, everything))
    seen: list[_Candidate] = []
    rare = _rare_classes(model.classes, [item.marks for item in learned])
    for index, (scout, own) in enumerate(zip(scouts, shares, strict=True)):
        for box in own:
            look = scout.look(box)
            seen.append(_candidate(index, box, look, marks[index], rare))
            done += 1
            report(Event("looking at regions", done, everything))
    if model.kinds is not None and not model.kinds.is_guess and near_marks:
        seen = _with_unlike_cells(seen, np.concatenate(near_marks))
    return _chosen(seen, known, slides, [scout.frame.grid for scout in scouts], regions)


def _squares(
    scout: RegionScout,
    marks: Cells | None,
    found: Path | None,
    random: np.random.Generator,
    *,
    most: int,
) -> list[Box]:
    """Return the squares of a slide in tissue and outside exhaustive regions, the first to look at first."""
    grid = scout.frame.grid
    tiles = TileGrid(grid.width, grid.height, scout.side_px)
    tissue = scout.tissue.shares(tiles, grid)
    least = max(1e-9, min(_MOSTLY, tissue.max(initial=0)))
    index = random.permutation(np.flatnonzero(tissue >= least))
    if marks is not None and len(marks.regions) and len(index):
        corners = np.array([grid.to_level0(tiles[k].core) for k in index])
        boxes = shapely.box(*corners.T)
        done = shapely.area(shapely.intersection(boxes, shapely.union_all(marks.regions)))
        index = index[done <= _SLIVER * shapely.area(boxes)]  # what only touches one is free
    if found is not None and len(index):
        doubt = _doubt_of_found(found, scout, tiles)
        likely = index[np.argsort(-doubt[index], kind="stable")][:most]
        others = index[~np.isin(index, likely)][:most]
        index = np.concatenate([likely, others])
    return [tiles[k].core for k in index]


def _doubt_of_found(folder: Path, scout: RegionScout, tiles: TileGrid) -> NDArray[np.float64]:
    """Return the expected number of wrong cells in each square, from the shards of a prediction."""
    manifest = Manifest.load(folder)
    if manifest is None or not manifest.finished:
        raise InputError(f"{folder} holds no finished prediction; predict the slide first, or leave it out")
    if manifest.identity["slide"] != slide_identity(scout.slide):
        raise InputError(f"{folder} is the prediction of another slide than {scout.slide.name}")
    if not manifest.is_by(scout.model.fingerprint):
        raise InputError(f"{folder} was predicted by another model; predict the slide again, or leave it out")
    doubt = np.zeros(len(tiles))
    for cells in read_shards(folder, manifest):
        if len(cells) and cells.score is not None:
            column, row = (scout.frame.grid.from_level0(cells.xy) // scout.side_px).astype(np.intp).T
            row, column = np.minimum(row, tiles.rows - 1), np.minimum(column, tiles.columns - 1)
            doubts = decision_doubts(cells.score, scout.model.threshold)
            doubts += 1 - cells.measurements.get(PROBABILITY, np.ones(len(cells)))  # of the kind
            np.add.at(doubt, row * tiles.columns + column, doubts)
    return doubt


def _with_unlike_cells(seen: Sequence[_Candidate], marked: NDArray[np.float32]) -> list[_Candidate]:
    """Count the cells that are farther from every marked cell, by their features, than marked ones are."""
    every = np.concatenate([each.look.cell_features for each in seen])
    if len(marked) < _LEAST_MARKED or not len(every):
        return list(seen)
    spread = every.std(axis=0) + 1e-6
    tree = cKDTree(marked / spread)
    usual = float(np.quantile(tree.query(marked / spread, k=[2])[0], _USUAL))
    far = tree.query(every / spread)[0] > usual
    ends = np.cumsum([len(each.look.cell_features) for each in seen])[:-1]
    return [each._replace(unlike=int(own.sum())) for each, own in zip(seen, np.split(far, ends), strict=True)]


def _rare_classes(classes: Sequence[str], tables: Sequence[Cells]) -> dict[int, int]:
    """Return the number of marks of each class that is rarely marked, by its label in the model."""
    if len(classes) < 2 or not tables:
        return {}
    counts = [sum(cells.counts().get(name, 0) for cells in tables) for name in classes]
    few = _FEW_MARKS * sum(counts)
    return {k: n for k, n in enumerate(counts) if n < few and classes[k] != OTHER}


def _candidate(slide: int, box: Box, look: Look, marks: Cells | None, rare: Mapping[int, int]) -> _Candidate:
    sure = look.sure
    if marks is not None:
        sure = sure[~is_near(sure.xy, marks.xy, radius=MATCH_RADIUS_UM / (sure.mpp or 1.0))]
    counts = {label: int((look.found.label == label).sum()) for label in rare}
    most = max(counts, key=lambda label: counts[label], default=None)
    text = "" if most is None else f"{look.found.classes[most]}, with {counted(rare[most], 'mark')}"
    return _Candidate(slide, box, look, len(sure), (text, 0 if most is None else counts[most]))


def _chosen(
    seen: Sequence[_Candidate],
    known: Sequence[NDArray[np.float64]],
    slides: Sequence[Slide],
    grids: Sequence[Grid],
    regions: int,
) -> list[Suggestion]:
    """Choose greedily by gain times distance, at most one and a half times its share from a slide."""
    features = np.stack([each.look.features for each in seen])
    spread = np.maximum(features.std(axis=0), 1e-6 + 1e-3 * np.abs(features).max())
    features = features / spread
    marked = np.stack(known) / spread if known else np.empty((0, features.shape[1]))
    novelty = cKDTree(marked).query(features)[0] if len(marked) else np.ones(len(seen))
    doubt = np.array([each.look.doubt for each in seen])
    confident = np.array([float(each.confident) for each in seen])
    rare = np.array([float(each.rare[1]) for each in seen])
    kinds = np.array([each.look.kind_doubt for each in seen])
    unlike = np.array([float(each.unlike) for each in seen])
    gain = doubt + kinds + _CONFIRMED * confident + rare + unlike
    gain += 0.05 * max(gain.max(), 1.0)  # where nothing is found at all, novelty alone decides
    scale = max(float(np.median(novelty)), 1e-9)
    distance, free = novelty / scale, np.ones(len(seen), bool)
    of_slide, boxes = np.array([each.slide for each in seen]), np.array([each.box for each in seen])
    most = math.ceil(1.5 * regions / len(slides))
    undecided = np.array([float(max(each.look.undecided.values(), default=0)) for each in seen])
    measures = {"doubt": doubt, "confident": confident, "rare": rare}
    measures |= {"undecided": undecided, "unlike": unlike}
    if len(marked):
        measures["novelty"] = novelty
    chosen: list[Suggestion] = []
    while len(chosen) < regions and free.any():
        worth = np.where(free, gain * distance, -1.0)
        k = int(np.argmax(worth))
        kind, reason = _reason(seen[k], k, measures)
        box = tuple(np.round(grids[seen[k].slide].to_level0(seen[k].box), 1).tolist())
        chosen.append(Suggestion(slides[seen[k].slide].name, box, kind, reason, round(float(worth[k]), 3)))
        apart = np.linalg.norm(features - features[k], axis=1) / scale
        distance = np.minimum(distance, apart) if len(marked) or len(chosen) > 1 else apart
        is_touching = (boxes[:, :2] <= boxes[k, 2:]) & (boxes[k, :2] <= boxes[:, 2:])
        free &= (of_slide != of_slide[k]) | ~is_touching.all(axis=1)
        if sum(each.slide == chosen[-1].slide for each in chosen) >= most:
            free &= of_slide != of_slide[k]
    return chosen


def _reason(own: _Candidate, k: int, measures: Mapping[str, NDArray[np.float64]]) -> tuple[str, str]:
    """Return kind and reason: the measure by which a region exceeds most others."""
    texts = {
        "rare": ("rare class", f"here may be more of a rare kind: {own.rare[0]}"),
        "undecided": ("undecided kinds", _undecided(own)),
        "unlike": ("cells unlike any mark", "many cells here are unlike any that was marked"),
        "doubt": ("uncertain", "the model is unsure about many cells here"),
        "novelty": ("unlike anything marked", "this place looks unlike all that was marked"),
        "confident": ("confident cells nobody marked", "many cells here that nobody has looked at"),
    }
    known = [name for name in texts if name in measures and measures[name][k] > 0]
    if not known:
        return "nothing found", "nothing was found here"
    return texts[max(known, key=lambda name: float((measures[name] < measures[name][k]).mean()))]


def _undecided(own: _Candidate) -> str:
    """Return in words between which kinds most cells are undecided."""
    if not own.look.undecided:
        return ""
    one, other = max(own.look.undecided, key=own.look.undecided.__getitem__)
    return f"many cells here may be {one} or {other}"


def write_suggestions(path: Path, suggestions: Sequence[Suggestion]) -> None:
    """Write the regions of one slide as annotations for QuPath, with name and description."""
    features = [
        {
            "type": "Feature",
            "geometry": shapely.geometry.mapping(each.region),
            "properties": {
                "objectType": "annotation",
                "name": f"{number}: {each.kind}",
                "classification": {"name": SUGGESTED, "color": [255, 170, 0]},
                "metadata": {"ANNOTATION_DESCRIPTION": each.reason},
            },
        }
        for number, each in enumerate(suggestions, 1)
    ]
    write_json(path, {"type": "FeatureCollection", "features": features})
