"""The table and the page of several slides."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.prediction.networks import ArraySlide, darkness_model

from sparseshot.prediction import Measuring, PredictionSummary, predict_slide
from sparseshot.prediction.cohort import Cohort, CohortSlide, write_cohort
from sparseshot.prediction.slides import Outcome


def spotted(*, seed: int, spots: int) -> ArraySlide:
    """Make a small slide with dark discs."""
    random = np.random.default_rng(seed)
    pixels = np.full((300, 400, 3), (230, 190, 220), np.uint8)
    rows, columns = np.mgrid[:300, :400]
    for x, y in random.uniform(20, 280, (spots, 2)):
        pixels[np.hypot(rows - y, columns - x) < 7] = (70, 40, 120)
    return ArraySlide(pixels, name=f"<b>slide {seed}</b> [x](y)")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    out, model = tmp_path_factory.mktemp("cohort"), darkness_model(light=0.6)
    done = [
        Outcome(
            Path(f"{seed}.png"), predict_slide(spotted(seed=seed, spots=12), model, out / f"slide {seed}")
        )
        for seed in range(3)
    ]
    failed = [Outcome(Path(name), error="cannot be read") for name in ("=broken.svs", "caf\udce9.svs")]
    return [*done, *failed]


def test_the_table_has_a_line_for_each_slide(outcomes: list[Outcome]) -> None:
    assert outcomes[0].summary is not None
    out = outcomes[0].summary.folder.parent
    page = write_cohort(out, outcomes)
    assert page is not None
    with (out / "cohort.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["state"] for line in lines] == [*["done"] * 3, *["failed: cannot be read"] * 2]
    assert lines[3]["slide"] == "'=broken.svs"  # no formula for a spreadsheet
    assert lines[4]["slide"] == "caf�.svs"
    for line, outcome in zip(lines, outcomes[:3], strict=False):
        assert outcome.summary is not None
        assert int(line["cells"]) == outcome.summary.cells > 5
        assert float(line["cells per mm²"]) == pytest.approx(
            outcome.summary.cells / outcome.summary.tissue_mm2, rel=1e-4
        )
        assert 10 < float(line["median Nucleus: Area µm^2"]) < 80
    assert not any("Orientation" in name for name in lines[0])


def test_the_page_needs_no_other_file_and_shows_names_as_they_are(outcomes: list[Outcome]) -> None:
    assert outcomes[0].summary is not None
    page = write_cohort(outcomes[0].summary.folder.parent, outcomes)
    assert page is not None
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;slide 1&lt;/b&gt; [x](y)" in text
    assert "<b>slide" not in text
    assert 'href="slide%201/index.html"' in text
    assert text.count("data:image/jpeg") == 3
    assert "http" not in text.replace("http://www.w3.org", "")
    assert "cannot be read" in text


def test_slides_of_earlier_calls_belong_to_it_unless_another_model_found_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted(seed: int, threshold: float) -> Outcome:
        slide, folder = spotted(seed=seed, spots=9), tmp_path / str(seed)
        model = darkness_model(light=0.6, threshold=threshold)
        summary = predict_slide(slide, model, folder, force=True)
        return Outcome(Path(f"{seed}.png"), summary)

    for seed in range(3):
        write_cohort(tmp_path, [predicted(seed, 0.6)])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("no JSON")
    monkeypatch.chdir(tmp_path)  # the folders of results may be absolute, as on a cluster
    write_cohort(Path(), [predicted(0, 0.6)])
    with (tmp_path / "cohort.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert write_cohort(tmp_path, [predicted(1, 0.5)]) is None
    assert not (tmp_path / "cohort.csv").exists()
    assert not (tmp_path / "cohort.html").exists()


def test_one_slide_is_no_cohort(outcomes: list[Outcome], tmp_path: Path) -> None:
    assert write_cohort(tmp_path, outcomes[:1]) is None
    assert not list(tmp_path.iterdir())


def test_slides_without_measurements_are_a_cohort_too(tmp_path: Path) -> None:
    model = darkness_model(light=0.6)
    done = [
        Outcome(
            Path("a.png"),
            predict_slide(spotted(seed=k, spots=k), model, tmp_path / str(k), measuring=Measuring("none")),
        )
        for k in (0, 3)
    ]
    assert write_cohort(tmp_path, done) is not None


def test_what_is_far_from_the_others_is_unusual() -> None:
    random = np.random.default_rng(0)

    def slide(area: float) -> CohortSlide:
        summary = PredictionSummary("a", Path("a"), {"cell": 1000}, tissue_mm2=1.0, threshold=0.5)
        return CohortSlide(summary, {"Nucleus: Area µm^2": area})

    usual = [slide(40 + random.normal(0, 2)) for _ in range(20)]
    name = "median Nucleus: Area µm^2"
    assert list(Cohort([*usual, slide(80)]).unusual()) == [20]
    assert list(Cohort([*usual, slide(80)]).unusual()[20]) == [name]
    assert not Cohort(usual).unusual()
    assert not Cohort([slide(40), slide(40.1), slide(40), slide(40), slide(40)]).unusual()
    assert not Cohort([slide(40), slide(80)]).unusual()  # too few to tell
    many = [replace(each, medians={}) for each in usual]
    assert not Cohort(many).unusual()
