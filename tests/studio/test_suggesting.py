"""Regions to mark after a run, as the worker writes them."""

import json
from pathlib import Path

import pytest
import shapely
from tests.prediction.networks import random_detector
from tests.studio.small_project import MPP, small_slide

from sparseshot.cells import Cells
from sparseshot.images import open_slide
from sparseshot.prediction import Model
from sparseshot.studio import package_work
from sparseshot.studio.package_work import suggest
from sparseshot.studio.project_runs import RUN, SUGGESTIONS, read_next
from sparseshot.training.annotated import TrainingData


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(random_detector(threshold=0.5), device="cpu")


def learned_from(data: TrainingData, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run have learned from some marks."""
    (folder / RUN).mkdir()
    monkeypatch.setattr(package_work, "run_data", lambda _: data)


def test_the_file_of_suggestions_depends_on_these_alone(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, centres = small_slide(tmp_path, width=640, height=320)
    Cells(centres[:3], mpp=MPP).write(tmp_path / "marks.geojson")
    data = TrainingData(pairs=((path, tmp_path / "marks.geojson"),), mpp=MPP)
    learned_from(data, tmp_path, monkeypatch)
    slides = {"1": open_slide(path, mpp=MPP)}
    written = []
    for _ in range(2):
        suggest(tmp_path, model, slides)
        written.append((tmp_path / SUGGESTIONS).read_bytes())
    assert written[0] == written[1]
    assert json.loads(written[0]).keys() == {"regions", "problem"}
    known = read_next(tmp_path)
    assert known is not None
    assert known.regions
    assert {each.slide for each in known.regions} == {"1"}


def test_marks_are_those_of_the_slide_itself_where_two_have_one_name(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = []
    for folder, height, regions in (("a", 320, [shapely.box(0, 0, 640, 320)]), ("b", 360, [])):
        (tmp_path / folder).mkdir()
        path, centres = small_slide(tmp_path / folder, width=640, height=height)
        Cells(centres[:3], mpp=MPP, regions=regions).write(tmp_path / folder / "marks.parquet")
        pairs.append((path, tmp_path / folder / "marks.parquet"))
    done, bare = (open_slide(path, mpp=MPP) for path, _ in pairs)
    learned_from(TrainingData(pairs=tuple(pairs), mpp=MPP), tmp_path, monkeypatch)
    suggest(tmp_path, model, {"2": bare, "1": done})
    known = read_next(tmp_path)
    assert known is not None
    assert {each.slide for each in known.regions} == {"2"}
    suggest(tmp_path, model, {"1": done, "2": bare})
    known = read_next(tmp_path)
    assert known is not None
    assert "no tissue is left" in known.problem
