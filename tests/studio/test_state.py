"""What the page asks for: cards, the state of a slide, suggestions; and what it says in words."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.studio.page_scripts import MISSING, run_page
from tests.studio.small_project import MPP, copies, past_run, small_slide, small_studio

from sparseshot.active import Suggestion
from sparseshot.files import locked, write_json
from sparseshot.studio.api import make_api
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import SUGGESTIONS, NextRegions
from sparseshot.studio.studio import Studio

in_node = pytest.mark.skipif(MISSING, reason="node is not installed (Debian's package nodejs)")
_PANEL = 'const { advice, sentence } = await import("sparseshot-studio/work_panel.js");'


@in_node
def test_the_page_says_what_to_do_next(tmp_path: Path) -> None:
    asked = '[[0, 0, ""], [1, 0, ""], [20, 0, ""], [20, 20, "training"], [21, 20, "done"], [20, 20, "done"]]'
    said = run_page(tmp_path, f"{_PANEL} answer({asked}.map((each) => advice(...each)));")
    wanted = ["Cells are found without a click", "1 mark so far", "If cells are missed or invented",
              "Learning from 20 marks. You can go on", "1 mark since the last run", "press N"]  # fmt: skip
    assert all(part in whole for part, whole in zip(wanted, said, strict=True))


@in_node
def test_quality_is_told_with_what_it_rests_on(tmp_path: Path) -> None:
    quality = "recall: [0.9, 0.8, 0.95], precision: null, marks: 200, certain: 0"
    cases = [f"{{{quality}}}", f"{{{quality}, marks: 5}}",
             f"{{{quality}, precision: [0.84, 0.7, 0.9], certain: 105}}", "null"]  # fmt: skip
    said = run_page(tmp_path, f"{_PANEL} answer([{', '.join(cases)}].map(sentence));")
    assert "About 90 % of the cells are found, from 200 cells that it has not learned from." in said[0]
    assert "known once 20 of them are reviewed" in said[0]  # and no precision before that
    assert "say little" in said[1]
    assert "Counted in reviewed regions (105 cells): about 84 % of what is found are cells." in said[2]
    assert "not known yet" in said[3]


def test_a_bad_slide_has_a_card_that_says_so_and_others_are_shown(tmp_path: Path) -> None:
    first, _ = small_slide(tmp_path)
    damaged, missing, new = copies(first, "damaged.png", "missing.png", "new.png")
    project = Project.open([first, damaged, missing, new], folder=tmp_path / "study")
    for slide in "12":
        project.set_mpp(slide, 0.5)
    damaged.write_bytes(first.read_bytes()[:20])
    missing.unlink()
    with TestClient(make_api(Studio.of(Project.open([project.folder])))) as client:
        healthy, *bad = client.get("/slides").json()
        assert (healthy["size"], healthy["mpp"], "problem" in healthy) == ([1000, 700], 0.5, False)
        told = ("cannot be opened", "file is missing", "pixels is not known yet")
        assert all(part in card["problem"] for part, card in zip(told, bad, strict=True))
        assert client.post("/slides/4/mpp", json={"mpp": -1}).status_code == 422
        assert client.post("/slides/4/mpp", json={"mpp": 0.25}).status_code == 200
        assert client.get("/slides").json()[3]["mpp"] == 0.25


def test_marks_of_all_slides_decide_about_training(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    others = copies(studio.project.path("1"), "other.png")
    studio = Studio.of(Project.open(others, folder=studio.project.folder, mpp=MPP))
    marks = [{"class": "cell", "at": [x, 5]} for x in range(15)]
    region = {"region": [[0, 0], [9, 0], [9, 9]]}
    studio.book.record([{"key": each, "slide": each, "add": [*marks, region]} for each in "12"])
    past_run(studio.runs, 1)  # it has learned from 20 marks
    state: Any = studio.state("2", "")
    assert (state["total_marks"], state["runs"][0]["marks"], state["results"]) == (30, 20, [])


def test_suggestions_are_those_of_the_latest_run_and_end_with_a_region(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    with TestClient(make_api(studio)) as client:
        assert client.get("/suggestions").json() == {
            "run": None,
            "ready": False,
            "problem": "",
            "regions": [],
        }
        regions = tuple(
            Suggestion("1", (x, 10.0, x + 50, 60.0), "uncertain", "why not") for x in (10.0, 200.0)
        )
        write_json(past_run(studio.runs, 1) / SUGGESTIONS, NextRegions(regions))
        answer = client.get("/suggestions").json()
        assert (answer["run"], answer["ready"]) == (1, True)
        assert [each["done"] for each in answer["regions"]] == [False, False]
        ring = [[0, 0], [70, 0], [70, 70], [0, 70]]
        client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": [{"region": ring}]}])
        assert [each["done"] for each in client.get("/suggestions").json()["regions"]] == [True, False]
        with locked(past_run(studio.runs, 2)):  # its worker looks for them
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
        past_run(studio.runs, 1)
        answer = client.get("/suggestions").json()
        assert (answer["run"], answer["ready"], answer["regions"]) == (1, True, [])
        assert answer["problem"] == "run 1 was interrupted before it had found any; train again"
        past_run(studio.runs, 2, None)
        assert "a newer run began" in client.get("/suggestions").json()["problem"]
        write_json(past_run(studio.runs, 3) / SUGGESTIONS, NextRegions(problem="the slide is gone"))
        assert client.get("/suggestions").json()["problem"] == "the slide is gone"
