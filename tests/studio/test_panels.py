"""What the panels say, and the suggestions that the page asks for."""

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.studio.small_project import MPP, copies, past_run, small_studio

from sparseshot.active import Suggestion
from sparseshot.files import locked, write_json
from sparseshot.metrics import Evidence, ScoreHistogram, expected_quality
from sparseshot.studio.api import make_api
from sparseshot.studio.jobs import JOB, Job
from sparseshot.studio.page import StudioPage
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio
from sparseshot.studio.suggesting import SUGGESTIONS, NextRegions
from sparseshot.studio.svg import meter
from sparseshot.studio.work_panel import advice, plain_sentence


@pytest.mark.parametrize(
    ("marks", "learned", "stage", "said"),
    [
        (0, 0, "", "Click some cells"),
        (1, 0, "", "1 mark. 19 more, then train."),
        (20, 0, "", "20 marks. Train now."),
        (20, 20, "training", "Learning from 20 marks. You can go on marking."),
        (21, 20, "done", "1 mark since the last run"),
        (20, 20, "done", "press N"),
    ],
)
def test_the_page_says_what_to_do_next(marks: int, learned: int, stage: str, said: str) -> None:
    assert said in advice(marks, learned, stage)


def test_quality_is_told_with_what_it_rests_on() -> None:
    scores = ScoreHistogram.of_logits(np.random.default_rng(0).normal(1, 1.2, 200))
    evidence = Evidence(hits=scores, own_hits=scores)
    quality = expected_quality(evidence, 0.5)
    assert quality is not None
    said = plain_sentence(quality)
    assert f"About {100 * quality.recall.value:.0f} % of the cells are found, from 200 held-out marks" in said
    assert said.endswith("finish a region to learn how many of the found ones are cells.")
    assert "say little" in plain_sentence(replace(quality, marks=5))
    assert "cannot be told" in plain_sentence(None)
    assert meter(quality).count("studio-meter") == 1
    known = expected_quality(
        replace(evidence, region_hits=scores, region_found=scores, region_cells=200), 0.5
    )
    assert known is not None
    assert known.precision is not None
    assert f"{100 * known.precision.value:.0f} % of what is found are cells" in plain_sentence(known)
    assert f"{100 * known.precision.value:.0f} %" in meter(known)


def test_marks_of_all_slides_decide_about_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studio, _ = small_studio(tmp_path)
    others = copies(studio.project.path("1"), "other.png")
    studio = Studio.of(Project.open(others, folder=studio.project.folder, mpp=MPP))
    marks = [{"class": "cell", "at": [x, 5]} for x in range(15)]
    region = {"region": [[0, 0], [9, 0], [9, 9]]}
    studio.book.record([{"key": each, "slide": each, "add": [*marks, region]} for each in "12"])
    past_run(studio.jobs, 1)  # it has learned from 20 marks
    monkeypatch.setattr(studio.jobs, "warm_up", lambda: None)
    page = StudioPage.__new__(StudioPage)
    page.studio, page.slide, page.shown, page.against = studio, "2", "", ""
    page.client = Mock(has_socket_connection=True)
    page.learn, page.runs, page.found, page.next_button = Mock(), Mock(), Mock(judge=AsyncMock()), Mock()
    page.learn.wants_training.return_value = False
    asyncio.run(page.refresh())
    assert page.learn.update.call_args.args[1] == 30
    page.learn.wants_training.assert_called_once_with(30, 20)


def test_suggestions_are_those_of_the_latest_run_and_end_with_a_region(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    with TestClient(make_api(studio)) as client:
        assert client.get("/suggestions").json() == {"run": 0, "ready": False, "problem": "", "regions": []}
        regions = tuple(
            Suggestion("1", (x, 10.0, x + 50, 60.0), "uncertain", "why not") for x in (10.0, 200.0)
        )
        write_json(past_run(studio.jobs, 1) / SUGGESTIONS, NextRegions(regions))
        answer = client.get("/suggestions").json()
        assert (answer["run"], answer["ready"]) == (1, True)
        assert [each["done"] for each in answer["regions"]] == [False, False]
        ring = [[0, 0], [70, 0], [70, 70], [0, 70]]
        client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": [{"region": ring}]}])
        assert [each["done"] for each in client.get("/suggestions").json()["regions"]] == [True, False]
        with locked(past_run(studio.jobs, 2)):  # its worker looks for them
            assert client.get("/suggestions").json() == {
                "run": 2,
                "ready": False,
                "problem": "",
                "regions": [],
            }
        assert client.get("/suggestions").json()["run"] == 1  # run 2 was interrupted


def test_the_page_hears_that_there_will_be_no_suggestions(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    with TestClient(make_api(studio)) as client:
        past_run(studio.jobs, 1)
        answer = client.get("/suggestions").json()
        assert (answer["run"], answer["ready"], answer["regions"]) == (1, True, [])
        assert answer["problem"] == "run 1 was interrupted before it had found any; train again"
        studio.jobs.folder(2).mkdir()
        write_json(studio.jobs.folder(2) / JOB, Job(2, "1", None, "starter", 20))
        assert "a newer run began" in client.get("/suggestions").json()["problem"]
        write_json(past_run(studio.jobs, 3) / SUGGESTIONS, NextRegions(problem="the slide is gone"))
        assert client.get("/suggestions").json()["problem"] == "the slide is gone"
