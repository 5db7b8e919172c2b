"""The pictures and the page of a predicted slide."""

import base64
import io
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.prediction.networks import ArraySlide, darkness_model

from sparseshot import __version__
from sparseshot.cells import Cells
from sparseshot.images import Box
from sparseshot.metrics import Evidence, expected_quality
from sparseshot.metrics.threshold import ScoreHistogram
from sparseshot.prediction import predict_slide, read_prediction, slide_pictures
from sparseshot.prediction.slide_pictures import OVERVIEW_PX, Density, Overview, close_boxes

NAME = "<b>slide</b> ![x](http://example.org/x.png).tif"


def discs(width: int, height: int) -> ArraySlide:
    image = np.full((height, width, 3), 235, np.uint8)
    y, x = np.mgrid[:height, :width]
    dark = ((x % 100 - 50) ** 2 + (y % 100 - 50) ** 2 < 64) & (x < width - 300)
    image[dark] = (60, 30, 110)
    return ArraySlide(image, name=NAME)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "slide"
    predict_slide(discs(900, 700), darkness_model(), folder, only_tissue=False)
    return folder


def test_the_overview_is_large_and_shows_every_cell(folder: Path) -> None:
    cells = read_prediction(folder)
    assert len(cells) == 42
    assert cells.colors is not None
    with Image.open(folder / "overview.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert pixels.shape == (700, 900, 3)
    x, y = cells.xy.astype(int).T
    assert (np.abs(pixels[y, x] - cells.colors[0]).max(axis=1) < 40).all()
    background = pixels[:, -200:]
    assert np.ptp(background) < 10, "nothing is drawn where no cell is"


def test_a_large_slide_is_drawn_with_2000_pixels() -> None:
    slide = ArraySlide(np.full((3000, 6000, 3), 235, np.uint8))
    overview = Overview(slide)
    assert overview.image.size == (OVERVIEW_PX, 1000)
    overview.add(Cells([[0, 0], [5999, 2999], [3000, 1500]], colors=[(255, 0, 0)]))
    red = (np.asarray(overview.image.convert("RGB")) == (255, 0, 0)).all(axis=2)
    assert red[0, 0]
    assert red[-1, -1]
    assert red[500, 1000]


def test_the_page_needs_nothing_else_and_shows_names_literally(folder: Path) -> None:
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<h1>&lt;b&gt;slide&lt;/b&gt; ![x](http://example.org/x.png).tif</h1>" in page
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 2 + 2 * 3, "overview, density, close-ups without and with cells"
    assert all(source.startswith("data:image/") for source in sources)
    assert "<script" not in page
    for link in re.findall(r'href="([^#"]+)"', page):
        assert (folder / link).is_file()
    assert re.search(r"<td>cell</td>\s*<td[^>]*>42</td>", page)


def test_the_page_says_how_good_it_is_and_where_it_comes_from(tmp_path: Path) -> None:
    scores = ScoreHistogram.of_logits(np.linspace(-1, 5, 40))
    quality = expected_quality(Evidence(hits=scores, own_hits=scores), 0.5)
    assert quality is not None
    model = replace(darkness_model(), quality=quality)
    summary = predict_slide(discs(900, 700), model, tmp_path, only_tissue=False)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    for text in (
        quality.sentence(),
        f"{summary.per_mm2(42):,.0f}</td>",
        f"{summary.tissue_mm2:.4f} mm²",
        model.fingerprint[:12],
        f"{date.today()}, sparseshot {__version__}",
    ):
        assert text in page
    assert not re.search(r">[\d,]+\.\d</td>", page)


def test_close_ups_differ_where_cells_are(folder: Path) -> None:
    page = (folder / "index.html").read_text(encoding="utf-8")
    plain, drawn = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), int)
        for data in re.findall(r'src="data:image/jpeg;base64,([^"]*)"', page)[1:3]
    )
    assert plain.shape == drawn.shape == (620, 620, 3)
    assert (np.abs(plain - drawn).max(axis=2) > 60).mean() > 0.005


@pytest.mark.parametrize("mpp", [0.2465, 0.25, 0.3])
def test_close_ups_show_cells_where_they_are(mpp: float) -> None:
    """The pixels of a close-up may be read at a slightly other resolution than asked for."""
    slide = replace(discs(900, 700), mpp=mpp)
    box, side_px = Box(300, 100, 900, 700), 296
    large, corner, scale = slide_pictures._square(slide, box, side_px)
    dark = np.argwhere(np.asarray(large.convert("L"), int)[:-40, :-40] < 100)[:, ::-1] + 0.5
    seen = dark / scale + corner
    pixels = np.asarray(slide.pixels).min(axis=2)
    shown = pixels[seen[:, 1].astype(int), seen[:, 0].astype(int)] < 150
    assert len(seen) > 1000
    assert shown.mean() > 0.95


def test_close_ups_are_chosen_by_count_inside_the_slide() -> None:
    slide = discs(900, 700)
    density = Density.over(slide.size, slide.mpp, ("cell",))
    assert close_boxes(density, slide) == []
    xy = np.array([[10.0, 10.0], [890.0, 690.0], [880.0, 690.0]])
    density.add(Cells(xy, mpp=slide.mpp))
    boxes = close_boxes(density, slide)
    assert boxes[-1] == Box(600, 400, 900, 700)
    assert all(box.x0 >= 0 and box.x1 <= 900 and box.y1 <= 700 for box in boxes)


def test_an_unreadable_place_costs_no_more_than_itself(tmp_path: Path) -> None:
    slide = replace(discs(900, 700), broken=(Box(0, 0, 900, 500),))
    summary = predict_slide(slide, darkness_model(), tmp_path, only_tissue=False)
    assert summary.broken
    assert "Overview" in (tmp_path / "index.html").read_text(encoding="utf-8")
