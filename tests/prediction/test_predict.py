"""Folders of results: whole, the same after any interruption, and nobody else's."""

import json
import os
import re
import shutil
import signal
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import shapely
import tifffile
from PIL import Image
from tests.forked import process
from tests.images import slide_files
from tests.prediction.agreement import check_same_cells, content
from tests.prediction.networks import ArraySlide, darkness_model, random_detector
from tests.prediction.victim import SLIDE, TILE_PX, make_run, predict_here

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cells.formats import qupath_write as exporting
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    OutputError,
    SparseshotError,
    SparseshotWarning,
)
from sparseshot.files import write_json
from sparseshot.images.fingerprint import slide_fingerprint
from sparseshot.images.slide import Box, Slide, read_region
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.prediction import (
    Model,
    Throughput,
    manifest,
    predict,
    predict_slide,
    read_prediction,
    shards,
)
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slides import PredictRequest, predict_slides
from sparseshot.work import Event


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return Model.load(run, device="cpu", precision="32")


@pytest.fixture(scope="module")
def reference(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a prediction that nothing disturbed."""
    folder = tmp_path_factory.mktemp("reference") / "slide"
    predict_slide(SLIDE, model, folder, throughput=Throughput(TILE_PX))
    return folder


def shards_done(folder: Path) -> int:
    manifest = Manifest.load(folder)
    return 0 if manifest is None else len(manifest.shards)


def test_killed_at_ten_moments_it_ends_with_the_same_bytes(
    run: Path, reference: Path, tmp_path: Path
) -> None:
    bands = shards_done(reference)
    assert bands >= 10
    random = np.random.default_rng(0)
    moments = [*sorted(random.integers(0, bands + 1, 9).tolist()), bands]
    folder = tmp_path / "slide"
    killed = 0
    for moment in moments:
        child = process(predict_here, run, folder)
        while child.is_alive() and shards_done(folder) < moment:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.05))
        assert child.pid is not None
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
            killed += 1
        child.join()
    assert killed >= 9, f"killed only {killed} times at {moments}"
    predict_here(run, folder)
    assert content(folder) == content(reference), moments


def test_a_finished_slide_is_skipped(model: Model, reference: Path) -> None:
    before = content(reference)
    summary = predict_slide(SLIDE, model, reference, throughput=Throughput(999))  # the layout changes nothing
    assert summary.skipped
    assert summary.cells == len(read_prediction(reference)) > 100
    assert content(reference) == before


def test_what_was_damaged_since_is_done_again(model: Model, reference: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slide"
    for name, data in content(reference).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "qupath.zip").unlink()
    summary = predict_slide(SLIDE, model, folder)
    assert not summary.skipped
    assert summary.tiles == 0  # the shards were still good
    assert content(folder) == content(reference)
    (folder / "cells" / "00003.parquet").write_bytes(b"not a table")
    assert predict_slide(SLIDE, model, folder).tiles > 0
    assert content(folder) == content(reference)


def test_other_tiles_give_other_shards_with_the_same_cells(
    model: Model, reference: Path, tmp_path: Path
) -> None:
    predict_slide(SLIDE, model, tmp_path, throughput=Throughput(500, batch=2, threads=1))
    assert shards_done(tmp_path) < shards_done(reference)
    check_same_cells(read_prediction(tmp_path), read_prediction(reference))


def features_of(path: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            assert re.fullmatch(r"cells-\d{5}\.geojson", name)
            collection = json.loads(archive.read(name))
            assert collection["type"] == "FeatureCollection"
            yield from collection["features"]


def check_qupath_rules(features: list[dict[str, Any]]) -> None:
    """Hold features against what QuPath asks of GeoJSON that it imports."""
    assert len({feature["id"] for feature in features}) == len(features)
    for feature in features:
        assert feature["type"] == "Feature"
        assert uuid.UUID(feature["id"]).version == 5
        properties = feature["properties"]
        assert properties["objectType"] == "detection"
        assert isinstance(properties["classification"]["name"], str)
        color = properties["classification"]["color"]
        assert len(color) == 3
        assert all(isinstance(value, int) and 0 <= value <= 255 for value in color)
        assert isinstance(properties["measurements"], dict)
        assert all(isinstance(value, int | float) for value in properties["measurements"].values())
        assert 0 <= properties["measurements"]["Detection probability"] <= 1
        geometry = feature["geometry"]
        if geometry["type"] == "Polygon":
            assert all(ring[0] == ring[-1] and len(ring) >= 4 for ring in geometry["coordinates"])
        else:
            assert geometry["type"] == "Point"
            assert len(geometry["coordinates"]) == 2


def check_equal(cells: Cells, expected: Cells) -> None:
    assert len(cells) == len(expected)
    np.testing.assert_allclose(cells.xy, expected.xy, atol=1e-6)
    np.testing.assert_array_equal(cells.score, expected.score)
    assert [cells.classes[k] for k in cells.label] == [expected.classes[k] for k in expected.label]
    assert cells.mpp == expected.mpp
    assert cells.colors == expected.colors
    np.testing.assert_array_equal(cells.kind, expected.kind)
    if expected.outline is not None:
        assert cells.outline is not None
        assert shapely.equals_exact(cells.outline, expected.outline).all()


def test_qupath_opens_the_places(reference: Path) -> None:
    check_qupath_rules(list(features_of(reference / "qupath.zip")))
    check_equal(read_cells(reference / "qupath.zip"), read_prediction(reference))


def test_qupath_opens_the_outlines_in_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PART_CELLS", 40)
    slide = SyntheticTissue(seed=8, size_px=(900, 700), tissue_fraction=1)
    predict_slide(
        slide, darkness_model(light=0.2, classes=("red", "green")), tmp_path, throughput=Throughput(100)
    )
    features = list(features_of(tmp_path / "qupath.zip"))
    check_qupath_rules(features)
    assert {feature["geometry"]["type"] for feature in features} == {"Polygon"}
    cells = read_prediction(tmp_path)
    check_equal(read_cells(tmp_path / "qupath.zip"), cells)
    with zipfile.ZipFile(tmp_path / "qupath.zip") as archive:
        assert len(archive.namelist()) == -(-len(cells) // 40) > 1
        entry = archive.infolist()[0]
        fast = zlib.compressobj(4, wbits=-zlib.MAX_WBITS)
        assert entry.compress_size == len(fast.compress(archive.read(entry)) + fast.flush())


def test_counts_and_maps_add_up(reference: Path) -> None:
    cells = read_prediction(reference)
    summary = json.loads((reference / "summary.json").read_text())
    assert summary["cells"] == len(cells)
    assert {name: each["cells"] for name, each in summary["classes"].items()} == cells.counts()
    assert 0 < summary["tissue_mm2"] <= 800 * 1660 * 0.25e-3**2 * 1.0001
    assert summary["cells_per_mm2"] == pytest.approx(len(cells) / summary["tissue_mm2"], rel=1e-3)
    with tifffile.TiffFile(reference / "density.ome.tif") as file:
        density = file.asarray()
        assert file.ome_metadata is not None
        assert 'PhysicalSizeX="25.0"' in file.ome_metadata
    assert density.shape == (2, 17, 8)
    assert density.sum() * 0.025**2 == pytest.approx(len(cells))
    with Image.open(reference / "density.png") as picture:
        assert picture.size[0] > 500
    with Image.open(reference / "overview.png") as picture:
        assert picture.size == (800, 1660), "the slide is smaller than 2,000 pixels"


def test_recipe_and_state_tell_what_was_done(reference: Path, model: Model) -> None:
    recipe = json.loads((reference / "recipe.json").read_text())
    assert recipe["model"]["fingerprint"] == model.fingerprint
    assert recipe["threshold"] == 0.8
    assert recipe["slide"]["size_px"] == [800, 1660]
    done = json.loads((reference / "state.json").read_text())["own"]
    assert len(done["shards"]) == done["bands"]
    assert sum(shard["cells"] for shard in done["shards"]) == len(read_prediction(reference))
    assert not list((reference / "cells").glob("*undecided*"))


def test_another_models_result_is_not_overwritten(reference: Path, model: Model, tmp_path: Path) -> None:
    before = content(reference)
    with pytest.raises(OutputError, match=r"threshold 0\.8 instead of 0\.7.*--force"):
        predict_slide(SLIDE, replace(model, threshold=0.7), reference)
    other = Model.load(random_detector(seed=9, classes=("tumour", "other"), threshold=0.8), device="cpu")
    with pytest.raises(OutputError, match=r"model fingerprint .* instead of"):
        predict_slide(SLIDE, other, reference)
    assert content(reference) == before


def test_force_replaces_it(model: Model, tmp_path: Path) -> None:
    slide = SyntheticTissue(seed=4, size_px=(500, 500), tissue_fraction=1)
    predict_slide(slide, replace(model, threshold=0.7), tmp_path / "a", throughput=Throughput(64))
    predict_slide(slide, model, tmp_path / "a", throughput=Throughput(200), force=True)
    predict_slide(slide, model, tmp_path / "b", throughput=Throughput(200))
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize("step", ["work.folder.write_json", "prediction.manifest.sweep"])
def test_killed_while_it_replaces_another(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    slide = SyntheticTissue(seed=4, size_px=(500, 500), tissue_fraction=1)
    predict_slide(slide, replace(model, threshold=0.7), tmp_path / "a", throughput=Throughput(64))
    with monkeypatch.context() as killed:
        killed.setattr(f"sparseshot.{step}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            predict_slide(slide, model, tmp_path / "a", throughput=Throughput(200), force=True)
    predict_slide(slide, model, tmp_path / "a", throughput=Throughput(200), force=step.endswith("write_json"))
    predict_slide(slide, model, tmp_path / "b", throughput=Throughput(200))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_killed_before_there_is_a_shard(model: Model, reference: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict_slide(
            SLIDE, model, tmp_path, throughput=Throughput(TILE_PX), report=Mock(side_effect=KeyboardInterrupt)
        )
    for path in (tmp_path / "cells").iterdir():
        path.unlink()
    (tmp_path / "cells").rmdir()
    assert {each.name for each in tmp_path.iterdir() if not each.name.startswith(".")} == {
        "recipe.json",
        "state.json",
    }
    predict_slide(SLIDE, model, tmp_path, throughput=Throughput(TILE_PX))
    assert content(tmp_path) == content(reference)


def as_of_0_2_0(folder: Path) -> None:
    """Write the records of a prediction as sparseshot 0.2.0 did."""
    recipe, state = (json.loads((folder / f"{name}.json").read_text()) for name in ("recipe", "state"))
    identity = {name: value for name, value in recipe.items() if name != "kind"}
    old = {"identity": identity, **state["own"], "files": state["files"], "finished": state["finished"]}
    del old["kept"]  # it kept no features
    old |= {"format": "sparseshot prediction", "version": 1, "sparseshot": "0.2.0"}
    (folder / "manifest.json").write_text(json.dumps(old))
    for name in ("recipe", "state"):
        (folder / f"{name}.json").unlink()


def test_a_result_of_0_2_0_opens_and_is_not_repeated(model: Model, reference: Path, tmp_path: Path) -> None:
    shutil.copytree(reference, tmp_path / "a")
    as_of_0_2_0(tmp_path / "a")
    assert len(read_prediction(tmp_path / "a")) == len(read_prediction(reference))
    assert predict_slide(SLIDE, model, tmp_path / "a").skipped
    assert content(tmp_path / "a") == content(reference)


def test_a_result_of_0_1_0_has_one_cure(model: Model, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"identity": {"slide": "a.svs"}, "tile_px": 512, "shards": []}')
    with pytest.raises(FormatError) as told:
        predict_slide(SLIDE, model, tmp_path)
    assert told.value.problem == (
        "is not a prediction that this version can read; predict the slide again with --force"
    )


def test_seconds_cover_all_starts(model: Model, tmp_path: Path) -> None:
    slide = SyntheticTissue(seed=4, size_px=(300, 500), tissue_fraction=1)

    def stop(event: Event) -> None:
        if shards_done(tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_slide(slide, model, tmp_path, throughput=Throughput(32), report=stop)
    state = json.loads((tmp_path / "state.json").read_text())
    write_json(tmp_path / "state.json", state | {"seconds": 1000.0})
    summary = predict_slide(slide, model, tmp_path, throughput=Throughput(32))
    assert 1000 < summary.seconds < 1100
    assert predict_slide(slide, model, tmp_path).seconds == pytest.approx(summary.seconds, abs=5)


def test_lonely_cells_have_the_neighbours_that_they_have_on_the_whole_slide(tmp_path: Path) -> None:
    image = np.full((1600, 1600, 3), 235, np.uint8)
    y, x = np.mgrid[:1600, :1600]
    centres = [(40, 40), (60, 40), (900, 700), (300, 1560), (1500, 90), (1500, 820), (1540, 1000)]
    for cx, cy in centres:
        image[(x - cx) ** 2 + (y - cy) ** 2 < 64] = (60, 30, 110)
    whole, banded = (
        predict_slide(
            ArraySlide(image), darkness_model(), tmp_path / name, throughput=tiles, only_tissue=False
        )
        for name, tiles in (("whole", Throughput(1600)), ("banded", Throughput(64)))
    )
    assert whole.cells == banded.cells == len(centres)
    tables = [read_prediction(tmp_path / name) for name in ("whole", "banded")]
    for name in tables[0].measurements:
        one, other = (each.measurements[name][np.lexsort(each.xy.T)] for each in tables)
        np.testing.assert_allclose(one, other, atol=0.02, err_msg=name)


def test_a_region_has_the_cells_of_the_whole_slide(model: Model, reference: Path, tmp_path: Path) -> None:
    region = shapely.Point(400, 800).buffer(300)
    summary = predict_slide(SLIDE, model, tmp_path, throughput=Throughput(TILE_PX), region=region)
    assert 0 < summary.tiles < 500
    assert summary.tissue_mm2 == pytest.approx(region.area * 0.25e-3**2, rel=0.4)
    cells = read_prediction(reference)
    check_same_cells(read_prediction(tmp_path), cells[shapely.contains_xy(region, cells.xy)])
    with pytest.raises(OutputError, match="region"):
        predict_slide(SLIDE, model, tmp_path)


def test_somebodys_files_are_left_alone(model: Model, tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(OutputError, match="is not empty"):
        predict_slide(SLIDE, model, tmp_path)
    assert content(tmp_path) == {"thesis.docx": b"years of work"}


def test_a_broken_manifest_is_an_error_that_tells_the_cure(model: Model, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "sparseshot prediction", "version": 99}')
    with pytest.raises(FormatError, match=r"manifest\.json: .*--force"):
        predict_slide(SLIDE, model, tmp_path)
    with pytest.raises(DataNotFoundError, match="holds no prediction"):
        read_prediction(tmp_path / "nowhere")


def test_a_manifest_that_points_elsewhere_is_refused(model: Model, reference: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.parquet"
    precious.write_text("mine")
    state = json.loads((reference / "state.json").read_text())
    state["own"]["shards"][-1]["carried"]["name"] = "../precious.parquet"
    (tmp_path / "out").mkdir()
    shutil.copy(reference / "recipe.json", tmp_path / "out")
    (tmp_path / "out" / "state.json").write_text(json.dumps(state))
    with pytest.raises(FormatError, match="not a prediction that this version can read"):
        predict_slide(SLIDE, model, tmp_path / "out")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "cells").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="leads elsewhere"):
        predict_slide(SLIDE, model, tmp_path / "linked", force=True)
    assert precious.read_text() == "mine"


def test_what_is_no_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparseshotError, match="not a number"):
        predict_slide(SLIDE, darkness_model(light=float("nan")), tmp_path)


@pytest.mark.parametrize("width", [100, 900], ids=["few windows in a band", "many"])
def test_a_full_disk_says_so_and_the_rest_goes_on_later(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    slide = SyntheticTissue(seed=4, size_px=(width, 900), tissue_fraction=1)
    written = []

    def fails_at_the_third(cells: Cells, path: Path) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        whole(cells, path)

    whole = write_cells
    monkeypatch.setattr(shards, "write_cells", fails_at_the_third)
    with pytest.raises(OutputError, match=r"no room left .* same command again"):
        predict_slide(slide, model, tmp_path / "a", throughput=Throughput(64))
    assert shards_done(tmp_path / "a") == 2
    predict_slide(slide, model, tmp_path / "a", throughput=Throughput(64))
    predict_slide(slide, model, tmp_path / "b", throughput=Throughput(64))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_band_after_a_missing_one_is_not_trusted(model: Model, reference: Path, tmp_path: Path) -> None:
    shutil.copytree(reference, tmp_path / "a")
    manifest = Manifest.load(tmp_path / "a")
    assert manifest is not None
    done = replace(manifest.done, shards=(*manifest.shards[:3], *manifest.shards[4:]))
    replace(manifest, done=done, finished=False).save(tmp_path / "a")
    predict_slide(SLIDE, model, tmp_path / "a", throughput=Throughput(TILE_PX))
    assert content(tmp_path / "a") == content(reference)


def test_other_tissue_than_at_the_start_begins_anew(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slide = SyntheticTissue(seed=4, size_px=(400, 560), mpp=0.5, tissue_fraction=1)

    def without_its_left(slide: Slide) -> TissueMask:
        found = tissue_mask(slide)
        return replace(found, mask=found.mask & (np.arange(found.mask.shape[1]) > found.mask.shape[1] / 2))

    def stop_after_three(progress: Event) -> None:
        if shards_done(tmp_path / "a") >= 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(predict, "tissue_mask", without_its_left)
        with pytest.raises(KeyboardInterrupt):
            predict_slide(slide, model, tmp_path / "a", throughput=Throughput(64), report=stop_after_three)
    with pytest.warns(SparseshotWarning, match="begins anew"):
        predict_slide(slide, model, tmp_path / "a", throughput=Throughput(64))
    predict_slide(slide, model, tmp_path / "b", throughput=Throughput(64))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_an_unfinished_prediction_is_read_with_a_warning(model: Model, tmp_path: Path) -> None:
    def stop(progress: Event) -> None:
        if shards_done(tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_slide(SLIDE, model, tmp_path, throughput=Throughput(TILE_PX), report=stop)
    with pytest.warns(SparseshotWarning, match=r"of \d+ parts are done"):
        read_prediction(tmp_path)


def test_broken_places_are_listed_and_the_rest_is_predicted(tmp_path: Path) -> None:
    image = np.full((700, 700, 3), 235, np.uint8)
    y, x = np.mgrid[:700, :700]
    centres = [(cx, cy) for cx in range(50, 700, 100) for cy in range(50, 700, 100)]
    for cx, cy in centres:
        image[(x - cx) ** 2 + (y - cy) ** 2 < 64] = (60, 30, 110)
    slide = ArraySlide(image, broken=(Box(330, 330, 370, 370),))
    one, other = (
        predict_slide(
            slide, darkness_model(), tmp_path / name, throughput=Throughput(tile), only_tissue=False
        )
        for name, tile in (("a", 128), ("b", 1024))
    )
    assert one.cells == other.cells == len(centres) - 1
    np.testing.assert_array_equal(read_prediction(tmp_path / "a").xy, read_prediction(tmp_path / "b").xy)
    assert all("x 330, y 330 cannot be decoded" in place.reason for place in one.broken)
    assert sum((place.x1 - place.x0) * (place.y1 - place.y0) for place in one.broken) == 64 * 64 * 4 / 4
    again = predict_slide(slide, darkness_model(), tmp_path / "a", only_tissue=False)
    assert again.skipped
    assert again.broken == one.broken


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_noticed", [False, True], ids=["same fingerprint", "other fingerprint"])
def test_a_mended_slide_is_predicted_anew(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_noticed: bool, force: bool
) -> None:
    whole = ArraySlide(read_region(SLIDE, 0, 0, 400, 480, mpp=0.5))
    bad = replace(whole, broken=(Box(200, 330, 210, 340), Box(300, 90, 320, 100)))
    if not is_noticed:
        monkeypatch.setattr(manifest, "slide_fingerprint", lambda slide: f"of {slide.name}")
    predict_slide(whole, model, tmp_path / "whole", throughput=Throughput(64))
    first = predict_slide(bad, model, tmp_path / "a", throughput=Throughput(64), force=force)
    assert first.broken
    assert first.cells != len(read_prediction(tmp_path / "whole"))
    partly = replace(bad, broken=bad.broken[:1])
    second = predict_slide(partly, model, tmp_path / "a", throughput=Throughput(64), force=force)
    assert 0 < len(second.broken) < len(first.broken)
    assert not predict_slide(whole, model, tmp_path / "a", throughput=Throughput(64), force=force).broken
    assert content(tmp_path / "a") == content(tmp_path / "whole")


def test_a_file_copied_again_gets_its_whole_result_in_the_same_folder(run: Path, tmp_path: Path) -> None:
    pixels = read_region(SLIDE, 0, 0, 400, 480, mpp=0.5)
    path = slide_files.write_pyramid(tmp_path / "a.tif", pixels, codec="jpeg-rgb", levels=(1,), mpp=0.5)
    intact = path.read_bytes()
    request = PredictRequest(str(run), device="cpu", precision="32")
    predict_slides([path], request, tmp_path / "whole")
    slide_files.corrupt_tile(path, column=3, row=2)
    (bad,) = predict_slides([path], request, tmp_path / "out")
    assert not bad.is_whole
    path.write_bytes(intact)
    (mended,) = predict_slides([path], request, tmp_path / "out")
    assert mended.is_whole
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_slide_far_coarser_than_the_model_is_a_warning(model: Model, tmp_path: Path) -> None:
    slide = SyntheticTissue(seed=4, size_px=(300, 300), mpp=2.0, tissue_fraction=1)
    with pytest.warns(SparseshotWarning, match=r"2 µm per pixel, and the model works at .*cannot be seen"):
        predict_slide(slide, model, tmp_path)


def test_a_slide_without_tissue_is_a_result_too(model: Model, tmp_path: Path) -> None:
    slide = ArraySlide(np.full((2500, 2500, 3), 240, np.uint8))
    with pytest.warns(SparseshotWarning, match=r"no tissue was found.*--everywhere"):
        summary = predict_slide(slide, model, tmp_path)
    assert summary.cells == summary.tiles == 0
    assert len(read_cells(tmp_path / "qupath.zip")) == 0
    assert predict_slide(slide, model, tmp_path).skipped


def test_progress_ends_at_the_last_tile(model: Model, tmp_path: Path) -> None:
    seen: list[Event] = []
    slide = SyntheticTissue(seed=4, size_px=(900, 900), tissue_fraction=1)
    summary = predict_slide(slide, model, tmp_path, throughput=Throughput(100), report=seen.append)
    assert [each.done for each in seen] == list(range(1, summary.tiles + 1))
    assert seen[-1].done == seen[-1].total == 25
    assert seen[-1].values["mm2"] == pytest.approx(0.225**2, rel=0.15)  # whole tiles


def test_two_slides_are_told_apart_by_their_content(tmp_path: Path) -> None:
    one, other = (SyntheticTissue(seed=seed, size_px=(500, 500)) for seed in (1, 2))
    assert slide_fingerprint(one) == slide_fingerprint(replace(one)) != slide_fingerprint(other)
