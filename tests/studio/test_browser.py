"""The page in a real browser, as a person uses it."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.studio.chromium import (
    COMPONENT,
    IN_BROWSER,
    StudioTab,
    dark_spots,
    running_studio,
    serving_studio,
    spread,
)
from tests.studio.small_project import MPP, copies, made_result, past_run, small_slide

from sparseshot.active import ReviewNote, Suggestion
from sparseshot.cells import Cells, read_cells
from sparseshot.cli import main
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.experiments.demo import QUICK
from sparseshot.files import write_json
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import SUGGESTIONS, NextRegions
from sparseshot.studio.studio import Studio

pytestmark = IN_BROWSER

FOUND_UM = 4.0
"""Radius of the circle of a found cell, inside which a click is on that cell."""


def slide_with_cells(name: str, tmp_path: Path) -> tuple[Path, float, float, NDArray[np.float64]]:
    """Return a slide, the middle of a view of it, and places of cells there."""
    if name == "synthetic":
        slide, x, y = tmp_path / "slide.tif", 800.0, 600.0
        tissue = QUICK.tissue()
        write_pyramid(tissue, slide)
        cells = tissue.cells().xy
        return slide, x, y, cells[(np.abs(cells - (x, y)) < (250, 200)).all(axis=1)]
    folder = Path(os.environ.get("SPARSESHOT_DATA") or Path(__file__).parents[3] / "shared" / "data")
    slide, x, y = folder / "slides" / name, 1000.0, 1300.0
    if not slide.exists():
        pytest.skip(f"there is no {slide}; set SPARSESHOT_DATA to where the data sets are")
    return slide, x, y, dark_spots(slide, x, y)


@pytest.mark.parametrize("name", ["synthetic", "CMU-1-Small-Region.svs"])
def test_from_twenty_clicks_to_an_export(tmp_path: Path, driver: webdriver.Chrome, name: str) -> None:
    """Click, train, review a suggested region, correct, train again, compare, export."""
    slide, x, y, spots = slide_with_cells(name, tmp_path)
    clicks = spread(spots, 20, 30)
    assert len(clicks) == 20
    project = tmp_path / "project"
    book = MarkBook(project / "marks.jsonl")
    with running_studio(slide, "--project", project, "--steps", 10) as (address, _):
        tab = StudioTab(driver, address)
        tab.open(x, y, 0)
        tab.until("cells without a click", lambda: re.search(r"[1-9]\d* in view", tab.text()))
        for place in clicks:
            tab.click(*place)
        tab.until("20 marks", lambda: tab.marks("cell") == 20)
        tab.until("all on disk", lambda: len(book.items("1")) == 20)
        # Under the pointer, or at the place of the found cell that the pointer was on.
        marked, known = book.cells("1").xy, np.array(tab.found_in_view())
        moved = np.abs(marked - np.array(clicks)).max(axis=1) >= 1
        apart = np.hypot(*(marked[moved, None] - known[None]).transpose(2, 0, 1))
        assert (apart.min(axis=1) < 1).all()
        assert np.hypot(*(marked - np.array(clicks)).T).max() < FOUND_UM / 0.499
        tab.train(1)
        tab.until("quality", lambda: re.search("of the cells are found|not known yet", tab.text()))

        tab.press("n")
        tab.until("a suggested region", lambda: "Region 1 of" in tab.text())
        tab.follow()
        tab.until("cells in the region", tab.found)
        wrong = spread(np.array(tab.found()), 5, 20)
        for place in wrong:
            tab.click(*place)
        tab.until("corrections", lambda: tab.marks("not a cell") == len(wrong))
        tab.press(Keys.ENTER)
        tab.until("the end of the review", lambda: "Region done" in tab.text())
        notes = book.cells("1").region_notes
        assert notes is not None
        assert ReviewNote.of(notes[0]) is not None
        assert book.cells("1").counts()["Rejected"] == len(wrong)

        tab.train(2)
        tab.tab("Runs")
        tab.until("runs", lambda: "Run 2" in tab.text())
        driver.find_element(By.CSS_SELECTOR, "[aria-label='compare with']").click()
        tab.until("a choice", lambda: driver.find_elements(By.CSS_SELECTOR, ".q-menu .q-item"))
        choices = driver.find_elements(By.CSS_SELECTOR, ".q-menu .q-item")
        next(each for each in choices if "Run 1" in each.text).click()
        tab.until("a comparison", lambda: "found by both" in tab.text() and "only by Run 1" in tab.text())
        assert not tab.errors()
        for what in ("marks", "r2"):
            export = tmp_path / f"{what}.geojson"
            path = f"/slides/1/export/{what}.geojson"
            export.write_text(
                driver.execute_async_script(f"fetch('{path}').then(r => r.text()).then(arguments[0])")
            )
            assert main(["cells", str(export)]) == 0
    assert len(read_cells(tmp_path / "marks.geojson")) > 20


def test_every_tool_works_by_mouse_and_key(  # noqa: PLR0915  one after the other
    tmp_path: Path, driver: webdriver.Chrome
) -> None:
    slide, centres = small_slide(tmp_path)
    found = tmp_path / "found"
    made_result(found, slide, Cells(centres, score=np.linspace(0.3, 0.99, len(centres)), mpp=MPP))
    project = tmp_path / "project"
    with serving_studio(slide, found, "--project", project, "--mpp", MPP) as (address, _):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        book = MarkBook(project / "marks.jsonl")

        def marks() -> dict[str, int]:
            return book.cells("1").counts()

        tab.press("x")
        tab.click(380, 220)
        tab.until("not a cell", lambda: tab.marks("not a cell") == 1)
        tab.press("z")
        tab.until("undo", lambda: tab.marks("not a cell") == 0)
        tab.press("y")
        tab.until("redo", lambda: tab.marks("not a cell") == 1)
        tab.press("e")
        tab.click(380, 220)
        tab.until("deletion", lambda: tab.marks("not a cell") == 0)
        tab.press("c")
        tab.press("lymphocyte" + Keys.ENTER)
        tab.until("a second class", lambda: tab.marks("lymphocyte") == 0)
        tab.press("2" + Keys.ENTER)
        tab.until("a mark in the middle", lambda: marks().get("lymphocyte") == 1)
        tab.press("o")
        tab.lasso([(300, 300), (330, 300), (330, 330), (300, 330)])
        tab.until("an outline", lambda: marks()["lymphocyte"] == 2)
        outlines = book.cells("1").outline
        assert outlines is not None
        assert outlines[1].area == pytest.approx(900, rel=0.2)
        tab.press("r")
        tab.drag(300, 200, 420, 300)
        tab.until("a question", lambda: "Is there really none?" in tab.text())
        assert not len(book.cells("1").regions)
        tab.button("Yes, none")
        tab.until("region", lambda: len(book.cells("1").regions) == 1)
        tab.press("jl")
        triangle = [(450, 200), (650, 200), (450, 400)]
        tab.lasso(triangle)
        wanted = shapely.contains_xy(shapely.Polygon(triangle), centres) & (
            np.linspace(0.3, 0.99, len(centres)) > 0.5
        )
        tab.until("rejected cells", lambda: marks().get("Rejected", 0) > 0)
        assert abs(marks()["Rejected"] - wanted.sum()) <= 2  # the hand that draws is not exact
        tab.press("alll")
        tab.drag(650, 450, 750, 550)
        tab.until("accepted cells", lambda: marks()["cell"] > 0)
        before = tab.script("return document.querySelector('.studio-number').innerText")
        slider = "document.querySelector('[aria-label=threshold]')"
        tab.script(f"({slider}.tabIndex < 0 ? {slider}.querySelector('[tabindex]') : {slider}).focus()")
        tab.press(Keys.ARROW_RIGHT * 5)
        tab.until(
            "fewer cells",
            lambda: tab.script("return document.querySelector('.studio-number').innerText") != before,
        )
        tab.press(Keys.ESCAPE + "?")
        tab.until("help", lambda: "choose a class" in tab.text())
        assert not tab.errors()


def test_areas_are_drawn_as_polygons_and_with_a_brush_and_marks_are_moved(
    tmp_path: Path, driver: webdriver.Chrome
) -> None:
    slide, _ = small_slide(tmp_path)
    project = tmp_path / "project"
    with serving_studio(slide, "--project", project, "--mpp", MPP) as (address, _):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        book = MarkBook(project / "marks.jsonl")

        def areas() -> list[float]:
            rings = [item["count"] for item in book.items("1") if "count" in item]
            return [shapely.Polygon(ring).area for ring in rings]

        tab.press("kll")  # a polygon
        for place in [(300, 250), (400, 250), (400, 350), (300, 350)]:
            tab.click(*place)
        tab.press(Keys.ENTER)
        tab.until("a polygon", lambda: len(areas()) == 1)
        assert areas()[0] == pytest.approx(10_000, rel=0.05)
        tab.press("l")  # a brush of 40 pixels
        tab.drag(500, 300, 600, 300)
        tab.until("a stroke", lambda: len(areas()) == 2)
        assert areas()[1] == pytest.approx(100 * 40 + np.pi * 20**2, rel=0.1)
        tab.drag(600, 300, 600, 400)
        tab.until("a longer one", lambda: areas()[-1] > 7000)
        assert len(areas()) == 2
        tab.press("m")
        tab.click(520, 500)
        tab.until("a mark", lambda: book.count(["1"]) == 1)
        before = book.cells("1").xy[0]
        x, y = before.tolist()
        tab.drag(x, y, x + 60, y + 30)
        tab.until("a moved mark", lambda: np.abs(book.cells("1").xy[0] - before - (60, 30)).max() < 3)
        assert book.count(["1"]) == 1
        before_turn = tab.script(f"return {COMPONENT}.area()")
        tab.press("q")
        tab.until("a turned view", lambda: tab.script(f"return {COMPONENT}.area()") != before_turn)
        tab.press("qqq")
        tab.until("the same view", lambda: tab.script(f"return {COMPONENT}.area()") == before_turn)
        tab.press("w")
        tab.drag(400, 450, 600, 450)
        tab.until("a length", lambda: "100.0 µm" in tab.text())
        assert not tab.errors()


def test_classes_are_renamed_and_merged_on_the_page(tmp_path: Path, driver: webdriver.Chrome) -> None:
    slide, _ = small_slide(tmp_path)
    project = tmp_path / "project"
    with serving_studio(slide, "--project", project, "--mpp", MPP) as (address, _):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        for name, x in (("T", 400), ("L", 600)):
            tab.press("c")
            tab.press(name + Keys.ENTER)
            tab.until(name, lambda: tab.marks(name) == 0)  # noqa: B023
            tab.until("its turn", lambda: tab.script(f"return {COMPONENT}.chosen") == name)  # noqa: B023
            tab.click(x, 350)
            tab.until("a mark", lambda: tab.marks(name) == 1)  # noqa: B023
        driver.find_element(By.CSS_SELECTOR, ".studio-classes .more").click()
        tab.until("a menu", lambda: "Merge into" in tab.text())
        tab.script("document.querySelector('.studio-class-menu input').select()")
        driver.find_element(By.CSS_SELECTOR, ".studio-class-menu input").send_keys("Lymphocyte" + Keys.ENTER)
        tab.until("a new name", lambda: tab.marks("Lymphocyte") == 1)
        tab.until("it is chosen", lambda: tab.script(f"return {COMPONENT}.chosen") == "Lymphocyte")
        driver.find_element(By.CSS_SELECTOR, ".studio-classes .more").click()
        tab.until("a menu", lambda: "Merge into" in tab.text())
        driver.find_element(By.XPATH, "//div[@class='studio-class-menu']/button[contains(., 'T')]").click()
        tab.until("one class", lambda: tab.marks("T") == 2)
        assert tab.marks("Lymphocyte") == -1
        assert not tab.errors()


def test_slides_are_added_from_the_page(
    tmp_path: Path, driver: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch
) -> None:
    slide, _ = small_slide(tmp_path)
    copies(slide, "other.png")
    monkeypatch.chdir(tmp_path)
    with serving_studio() as (address, _):
        tab = StudioTab(driver, address)
        driver.get(address)
        tab.until("files", lambda: "No slides yet" in tab.text() and "other.png" in tab.text())
        tab.button("other.png")
        tab.until("a card", lambda: driver.find_elements(By.CSS_SELECTOR, ".studio-card"))
        tab.button("Add slides")
        tab.button("small.png")
        tab.until("two cards", lambda: len(driver.find_elements(By.CSS_SELECTOR, ".studio-card")) == 2)
        assert not tab.errors()


def test_a_region_on_another_slide_is_reviewed_with_the_run_that_suggested_it(
    tmp_path: Path, driver: webdriver.Chrome
) -> None:
    slide, centres = small_slide(tmp_path)
    (other,) = copies(slide, "other.png")
    project = tmp_path / "project"
    runs = Studio.of(Project.open([slide, other], folder=project, mpp=MPP)).runs
    cells = Cells(centres, score=np.full(len(centres), 0.9), mpp=MPP)
    region = Suggestion("1", (400.0, 250.0, 600.0, 450.0), "uncertain", "why not")
    made_result(runs.result(1, "1").folder, slide, cells)
    write_json(past_run(runs, 1) / SUGGESTIONS, NextRegions((region,)))
    with serving_studio(project) as (address, _):
        tab = StudioTab(driver, f"{address}?slide=2")
        tab.open(500, 350, 0, slide="2")
        tab.press("n")
        tab.until("a suggested region", lambda: "Region 1 of 1" in tab.text())
        assert "slide=1" in driver.current_url
        newer = runs.result(2, "1")
        newer.add_view((0, 0, 100, 100), cells[:2])
        past_run(runs, 2)
        tab.tab("Runs")
        tab.until("the newer run", lambda: "Run 2" in tab.text())
        assert tab.result() == "r1"
        tab.button("All right here")
        tab.until("the end of the review", lambda: "Region done" in tab.text())
        accepted = (np.abs(centres - (500, 350)) < 100).all(axis=1).sum()
        assert MarkBook(project / "marks.jsonl").cells("1").counts()["cell"] == accepted
        tab.until("the newer run", lambda: tab.result() == "r2")


def test_slides_are_chosen_by_thumbnails_and_asked_for_their_pixel_size(
    tmp_path: Path, driver: webdriver.Chrome
) -> None:
    slide, _ = small_slide(tmp_path)
    (other,) = copies(slide, "other.png")
    with serving_studio(slide, other, "--project", tmp_path / "p") as (address, _):
        tab = StudioTab(driver, address)
        driver.get(address)
        tab.until("cards", lambda: "small.png" in tab.text() and "other.png" in tab.text())
        driver.find_element(By.CSS_SELECTOR, ".studio-card").click()
        tab.until("a question", lambda: "does not state the size" in tab.text())
        tab.button("20×")
        tab.button("Open the slide")
        tab.until("the slide", lambda: "0.5 µm/px" in tab.text())


def test_the_page_says_when_the_studio_is_gone_and_saves_when_it_returns(
    tmp_path: Path, driver: webdriver.Chrome
) -> None:
    slide, centres = small_slide(tmp_path)
    project = tmp_path / "project"
    first, second, third = spread(centres[(np.abs(centres - (500, 350)) < (250, 250)).all(axis=1)], 3, 60)
    with serving_studio(slide, "--project", project, "--mpp", MPP) as (address, process):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        tab.click(*first)
        tab.until("mark", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 1)
        process.kill()
        process.join()
        tab.click(*second)
        tab.until("notice", lambda: "Not saved yet" in tab.text())
        tab.click(*third)
    port = address.rstrip("/").rpartition(":")[2]
    with serving_studio(slide, "--project", project, "--mpp", MPP, "--port", port):
        tab.until("all marks", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 3)


def test_fifty_clicks_a_second_are_all_kept(tmp_path: Path, driver: webdriver.Chrome) -> None:
    slide, _ = small_slide(tmp_path)
    project = tmp_path / "project"
    with serving_studio(slide, "--project", project, "--mpp", MPP) as (address, _):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 1)
        tab.script("""
            const canvas = document.querySelector('.studio-canvas'), box = canvas.getBoundingClientRect();
            let i = 0;
            const timer = setInterval(() => {
                const x = box.left + 250 + (i % 20) * 32, y = box.top + 120 + Math.floor(i / 20) * 32;
                const at = {clientX: x, clientY: y, bubbles: true, button: 0};
                for (const type of ['mousedown', 'mouseup', 'click'])
                    canvas.dispatchEvent(new MouseEvent(type, at));
                if (++i === 200) clearInterval(timer);
            }, 20);
        """)
        tab.until("200 marks", lambda: tab.marks("cell") == 200)
        tab.until("all on disk", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 200, 30)
