"""Where to mark next: computed by the worker after a run, read by the page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sparseshot.active import Suggestion, suggest_regions
from sparseshot.errors import SparseshotError
from sparseshot.files import read_as, write_json
from sparseshot.images import Slide
from sparseshot.prediction.model import Model
from sparseshot.studio.slide_results import is_finished
from sparseshot.training.annotated import TrainingData
from sparseshot.work import Event

SUGGESTIONS = "suggestions.json"
_REGIONS = 12
_CANDIDATES = 120


@dataclass(frozen=True)
class NextRegions:
    """Regions to mark after a run.

    Attributes:
        regions: the most useful first; ``slide`` is the id of the slide.
        problem: why there are none.
    """

    regions: tuple[Suggestion, ...] = ()
    problem: str = ""


class Superseded(Exception):  # noqa: N818  nothing went wrong
    """A newer run began, so that this one is no longer wanted."""


def write_next(
    folder: Path,
    model: Model,
    slides: Mapping[str, Slide],
    learned: TrainingData | None,
    *,
    found: Mapping[str, Path],
    is_wanted: Callable[[], bool],
) -> None:
    """Suggest regions and write them into the folder of a run.

    Args:
        folder: of the run.
        model: of the run.
        slides: by id; the one in view first. Of two slides with one name only the first is looked at.
        learned: what the model was trained on; None for the starter.
        found: finished predictions of the model by id.
        is_wanted: asked now and then; False ends the search.
    """
    names = {slide.name: each for each, slide in reversed(list(slides.items()))}
    predicted = {
        name: found[each] for name, each in names.items() if each in found and is_finished(found[each])
    }

    def report(_: Event) -> None:
        if not is_wanted():
            raise Superseded

    try:
        marked = learned.load()[0] if learned else ()
        suggestions = suggest_regions(
            model,
            [slides[each] for each in names.values()],
            regions=_REGIONS,
            candidates=_CANDIDATES,
            learned=marked,
            found=predicted,
            report=report,
        )
        regions = tuple(replace(each, slide=names[each.slide]) for each in suggestions)
        write_json(folder / SUGGESTIONS, NextRegions(regions))
    except SparseshotError as error:
        write_json(folder / SUGGESTIONS, NextRegions(problem=str(error)))
    except Superseded:
        return


def read_next(folder: Path) -> NextRegions | None:
    """Return the suggestions of a run; None while they are not there."""
    path = folder / SUGGESTIONS
    return read_as(path, NextRegions) if path.is_file() else None
