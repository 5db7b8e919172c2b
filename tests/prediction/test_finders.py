"""What is found does not depend on how the slide was cut."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from tests.models.test_windows import tissue_of
from tests.prediction.agreement import check_same_cells
from tests.prediction.networks import ArraySlide, darkness_model, random_detector

from sparseshot.cells import Cells
from sparseshot.cells.suppression import KEPT, settle
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import TissueMask
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.detection_grid import decode
from sparseshot.models.finder import Finder, SlideFrame, in_reading_order
from sparseshot.models.inference import look_at
from sparseshot.models.segment import Segmenter
from sparseshot.models.windows import Band, WindowLayout, plan
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.predict import Throughput, predict_bands


def found(
    slide: Slide, model: Model, finder: Finder, layout: WindowLayout, *, tissue: TissueMask, pace: Throughput
) -> Cells:
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes)
    bands = plan(frame.grid, tissue, layout, margin_px=model.margin_px, alignment_px=model.alignment_px)
    tables = [frame.no_cells()]

    left = frame.no_cells()

    def close(band: Band, cells: Cells, carried: Cells, broken: dict[Box, str]) -> None:
        nonlocal left
        tables.append(cells)
        left = carried

    count = predict_bands(
        slide,
        model,
        finder,
        bands,
        close,
        frame=frame,
        carried=left,
        measuring=Measuring("none"),
        throughput=pace,
    )
    assert not len(left)
    assert count == sum(map(len, tables))
    return in_reading_order(Cells.concatenate(tables))


def patches(slide: Slide, mpp: float) -> TissueMask:
    """Take some squares of the slide for tissue; their borders lie anywhere between pixels."""
    grid = SlideFrame.over(slide, mpp=mpp, classes=("cell",)).grid
    shape = (int(grid.height / 37.3) + 1, int(grid.width / 37.3) + 1)
    return tissue_of(np.random.default_rng(5).random(shape) < 0.6, 37.3, grid)


def detected(
    slide: Slide, model: Model, tile_px: int, *, tissue: TissueMask | None = None, batch: int = 1
) -> Cells:
    tissue = tissue or patches(slide, model.mpp)
    finder = model.finder(SlideFrame.over(slide, mpp=model.mpp, classes=model.classes), tissue)
    pace = Throughput(batch=batch, threads=1)
    return found(slide, model, finder, finder.layout(tile_px), tissue=tissue, pace=pace)


def segmented(
    slide: Slide, model: Model, tile_px: int, window_px: int, *, tissue: TissueMask | None = None
) -> Cells:
    tissue = tissue or TissueMask.everywhere(slide)
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes)
    finder = model.finder(frame, tissue)
    assert isinstance(finder, Segmenter)
    finder = replace(finder, window_px=window_px, reach_um=20.0)
    return found(slide, model, finder, finder.layout(tile_px), tissue=tissue, pace=Throughput(threads=1))


def assert_same(cells: Cells, others: Sequence[Cells]) -> None:
    for other in others:
        assert len(other) == len(cells)
        np.testing.assert_array_equal(other.xy, cells.xy)
        np.testing.assert_array_equal(other.score, cells.score)
        np.testing.assert_array_equal(other.label, cells.label)
        if cells.outline is not None:
            assert shapely.equals_exact(other.outline, cells.outline).all()


@pytest.fixture(scope="module")
def tissue_slide() -> SyntheticTissue:
    """Tissue and glass; 1,700 pixels across at 0.25 µm are 850 at the model's 0.5 µm."""
    return SyntheticTissue(seed=4, size_px=(1700, 1390), tissue_fraction=0.5)


@pytest.fixture(scope="module")
def detector() -> Model:
    return Model.load(random_detector(), device="cpu", precision="32")


def test_places_do_not_depend_on_tile_or_batch_size(tissue_slide: SyntheticTissue, detector: Model) -> None:
    cells = detected(tissue_slide, detector, 1024)
    assert len(cells) > 100
    others = [
        detected(tissue_slide, detector, tile, batch=batch) for tile, batch in ((64, 7), (200, 1), (333, 3))
    ]
    for other in others:
        check_same_cells(other, cells)


def test_tiles_find_what_the_whole_image_holds(tissue_slide: SyntheticTissue, detector: Model) -> None:
    frame = SlideFrame.over(tissue_slide, mpp=0.5, classes=detector.classes)
    width, height, margin = frame.grid.width, frame.grid.height, detector.margin_px
    around = Box(-margin, -margin, width + margin, height + margin)
    whole = tissue_slide.read(frame.grid, around)
    cut = np.s_[:, margin // 8 : (margin + height + 7) // 8, margin // 8 : (margin + width + 7) // 8]
    raw = decode(detector(whole[None])[0][cut], out_channels=1, stride=8, threshold=detector.threshold - 1e-4)
    score = np.round(raw.score.astype(np.float64), 4)
    sure = score >= detector.threshold
    everything = in_reading_order(frame.cells(raw.xy[sure] * 2, label=raw.label[sure] - 1, score=score[sure]))
    assert everything.score is not None
    radius = MATCH_RADIUS_UM / tissue_slide.mpp
    expected = everything[settle(everything.xy, everything.score, radius=radius, edge_y=np.inf) == KEPT]
    assert len(expected) < len(everything)
    everywhere = TissueMask.everywhere(tissue_slide)
    check_same_cells(detected(tissue_slide, detector, 128, batch=2, tissue=everywhere), expected)
    region = look_at(
        detector.network, detector.task, tissue_slide, frame, threshold=detector.threshold, tissue=everywhere
    )
    check_same_cells(region.cells, expected)


def test_what_is_written_is_what_was_decided_on(tissue_slide: SyntheticTissue, detector: Model) -> None:
    cells = detected(tissue_slide, detector, 256)
    assert cells.score is not None
    assert (np.round(cells.score.astype(np.float64), 4) >= detector.threshold).all()
    np.testing.assert_array_equal(cells.xy, np.round(cells.xy, 2))
    state = settle(cells.xy, cells.score, radius=MATCH_RADIUS_UM / tissue_slide.mpp, edge_y=np.inf)
    assert (state == KEPT).all()
    assert (cells.xy >= 0).all()
    assert (cells.xy <= tissue_slide.size).all()


def test_the_suppression_radius_is_a_setting_of_the_model(tissue_slide: SyntheticTissue) -> None:
    everywhere = TissueMask.everywhere(tissue_slide)
    nearest = {}
    for radius_um in (None, 6.0):
        model = Model.load(random_detector(), radius_um=radius_um, device="cpu", precision="32")
        xy = detected(tissue_slide, model, 512, tissue=everywhere).xy
        nearest[radius_um] = cKDTree(xy).query(xy, k=2)[0][:, 1].min() * tissue_slide.mpp
    assert MATCH_RADIUS_UM < nearest[None] < 6 < nearest[6.0]
    learned = Model.load(random_detector(radius_um=5.0), device="cpu", precision="32")
    assert learned.finder(
        SlideFrame.over(tissue_slide, mpp=0.5, classes=("cell",)), everywhere
    ).settings() == {"suppression_radius_um": 5.0}


def test_only_tissue_is_looked_at(tissue_slide: SyntheticTissue, detector: Model) -> None:
    tissue = patches(tissue_slide, 0.5)
    all_of_it = detected(tissue_slide, detector, 256, tissue=TissueMask.everywhere(tissue_slide))
    some = detected(tissue_slide, detector, 256, tissue=tissue)
    assert 0 < len(some) < 0.8 * len(all_of_it)
    grid = Grid.over(tissue_slide, 0.5)
    x, y = some.xy.T / 2
    reach = (-8, 0, 8)  # a grid cell counts by its middle, and its offset may reach half a cell beyond
    near = [[tissue.at(x[k] + reach, y[k] + reach, grid).any()] for k in range(len(some))]
    assert np.all(near)


def test_classes_and_sizes_come_along(tissue_slide: SyntheticTissue) -> None:
    checkpoint = random_detector(classes=("a", "b", "c"), sizes=True, threshold=0.9)
    model = Model.load(checkpoint, device="cpu", precision="32")
    cells = detected(tissue_slide, model, 200)
    check_same_cells(detected(tissue_slide, model, 512), cells)
    assert cells.classes == ("a", "b", "c")
    assert len(set(cells.label.tolist())) > 1
    assert sorted(cells.measurements) == ["Height µm", "Width µm"]
    assert (cells.measurements["Width µm"] >= 0).all()
    assert cells.measurements["Width µm"].max() > 1


def discs(seed: int, size: int, count: int, *, radius: tuple[float, float] = (5, 10)) -> NDArray[np.uint8]:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    image = np.full((size, size, 3), 235, np.uint8)
    for cx, cy, r in zip(*random.uniform(0, size, (2, count)), random.uniform(*radius, count), strict=True):
        color = (80, 40, 120) if random.random() < 0.5 else (40, 100, 120)
        image[(x - cx) ** 2 + (y - cy) ** 2 < r * r] = color
    return image


@pytest.mark.parametrize("seed", [0, 1])
def test_outlines_do_not_depend_on_tile_or_window_size(seed: int) -> None:
    slide = ArraySlide(discs(seed, 450, 300))
    model = darkness_model(classes=("red", "green"))
    cells = segmented(slide, model, 1024, 4096)
    assert len(cells) > 100
    assert set(cells.label.tolist()) == {0, 1}
    others = [segmented(slide, model, tile, window) for tile, window in ((100, 250), (1024, 311))]
    assert_same(cells, others)
    some = patches(slide, 0.5)
    on_some = segmented(slide, model, 1024, 4096, tissue=some)
    assert 0 < len(on_some) != len(cells)
    assert_same(on_some, [segmented(slide, model, 100, 270, tissue=some)])
    assert cells.outline is not None
    assert shapely.is_valid(cells.outline).all()
    assert (shapely.get_type_id(cells.outline) == shapely.GeometryType.POLYGON).all()


def test_outlines_are_those_of_the_objects() -> None:
    image = np.full((300, 400, 3), 235, np.uint8)
    y, x = np.mgrid[:300, :400]
    places = [(100, 100), (300, 60), (250, 250)]
    for cx, cy in places:
        image[(x - cx) ** 2 + (y - cy) ** 2 < 15**2] = (60, 30, 110)
    slide = ArraySlide(image, mpp=0.25)  # the model sees it at 0.5
    cells = segmented(slide, darkness_model(), 64, 170)
    assert cells.outline is not None
    np.testing.assert_allclose(np.sort(cells.xy[:, 0]), [100, 250, 300], atol=1)
    np.testing.assert_allclose(shapely.area(cells.outline), np.pi * 15**2, rtol=0.2)
    assert max(shapely.get_num_coordinates(cells.outline)) < 20  # no stairs of pixels
    assert cells.score is not None
    assert (cells.score > 0.8).all()


def test_specks_and_giants_are_left_out() -> None:
    image = np.full((500, 500, 3), 235, np.uint8)
    image[50:55, 50:55] = 40
    image[100:400, 100:400] = 40
    image[440:460, 440:460] = 40
    cells = segmented(ArraySlide(image), darkness_model(), 128, 300)
    np.testing.assert_allclose(cells.xy, [[450, 450]], atol=0.6)


def test_fractional_scale_gives_the_same_whatever_the_cut() -> None:
    slide = SyntheticTissue(seed=8, size_px=(900, 700), mpp=0.3125, tissue_fraction=1)
    model = darkness_model(light=0.2)
    cells = segmented(slide, model, 1024, 4096)
    assert len(cells) > 20
    assert_same(cells, [segmented(slide, model, 90, 260)])
