"""The order of tasks on a cluster, without a cluster."""

import random
from pathlib import Path

import pytest

from sparseshot.cluster.ray_tasks import Ended, RemoteCall
from sparseshot.files import locked
from sparseshot.prediction.cluster_tasks import Begun, begin_slide, find_in_band, settle_slide
from sparseshot.prediction.on_cluster import SlidesUnderWay
from sparseshot.prediction.slides import Outcome
from sparseshot.prediction.summary import PredictionSummary


class Simulated:
    """Nodes that do nothing, a few tasks at a time and in any order."""

    def __init__(self, out: Path, paths: list[Path], *, bands: int, seed: int = 0) -> None:
        self.slides = SlidesUnderWay(paths, ("key", []))
        self.out, self.bands, self.random = out, bands, random.Random(seed)
        self.running: list[RemoteCall] = []
        self.calls: list[RemoteCall] = []
        self.most_open = 0

    def run(self, most: int = 6) -> None:
        while True:
            while len(self.running) < most and (call := self.slides.take()) is not None:
                self.running.append(call)
                self.calls.append(call)
            if not self.running:
                return
            call = self.running.pop(self.random.randrange(len(self.running)))
            self.slides.note(Ended(call.key, self.answer(call)))
            self.most_open = max(self.most_open, len(self.slides._open))

    def answer(self, call: RemoteCall) -> object:
        path: Path = call.arguments[2]
        folder = self.out / path.name
        if call.function is begin_slide:
            if len(call.arguments[3]):
                folder = self.out / f"{path.name}-{path.parent.name}"
            if self.bands:
                return Begun(folder, bands=dict.fromkeys(range(self.bands), 3))
            return Begun(folder, Outcome(path, self.summary(path, folder, 2)))
        if call.function is find_in_band:
            with pytest.raises(Exception, match="another sparseshot"), locked(call.arguments[3]):
                pass
            return None
        return Outcome(path, self.summary(path, call.arguments[3], 0))

    @staticmethod
    def summary(path: Path, folder: Path, tiles: int) -> PredictionSummary:
        return PredictionSummary(path.name, folder, {"cell": 1}, 1.0, 0.5, tiles=tiles)


def test_every_slide_ends_and_few_are_under_way(tmp_path: Path) -> None:
    nodes = Simulated(tmp_path, [Path(f"/in/{number}.svs") for number in range(40)], bands=4)
    nodes.run()
    assert sorted(nodes.slides.outcomes) == list(range(40))
    assert nodes.slides.tiles == nodes.slides.of_tiles == 40 * 12
    assert nodes.most_open <= 6
    assert sum(call.function is settle_slide for call in nodes.calls) == 40
    assert len(nodes.calls) == 40 * 6
    assert not list(tmp_path.glob("*/.lock"))


def test_slides_of_one_name_come_one_after_another(tmp_path: Path) -> None:
    paths = [Path(f"/{folder}/{name}.svs") for folder in "abc" for name in ("x", "y")]
    nodes = Simulated(tmp_path, paths, bands=0)
    nodes.run()
    folders = [nodes.slides.outcomes[index].summary.folder.name for index in range(6)]  # type: ignore[union-attr]
    assert folders == ["x.svs", "y.svs", "x.svs-b", "y.svs-b", "x.svs-c", "y.svs-c"]


def test_a_failed_band_ends_its_slide_alone(tmp_path: Path) -> None:
    class Failing(Simulated):
        def answer(self, call: RemoteCall) -> object:
            if call.function is find_in_band and call.arguments[2].name == "1.svs":
                return Outcome(call.arguments[2], error="no tile")
            return super().answer(call)

    nodes = Failing(tmp_path, [Path(f"/in/{number}.svs") for number in range(5)], bands=6)
    nodes.run()
    errors = {index: outcome.error for index, outcome in nodes.slides.outcomes.items()}
    assert errors == {0: None, 1: "no tile", 2: None, 3: None, 4: None}
    assert nodes.slides.tiles == nodes.slides.of_tiles == 4 * 18
    assert not list(tmp_path.glob("*/.lock"))


def test_a_lost_task_is_an_error_of_its_slide(tmp_path: Path) -> None:
    slides = SlidesUnderWay([Path("/in/a.svs")], ("key", []))
    call = slides.take()
    assert call is not None
    slides.note(Ended(call.key, lost="its node has too little memory"))
    assert slides.outcomes[0].error == "/in/a.svs: its node has too little memory"
    assert slides.take() is None


def test_a_folder_at_which_another_is_at_work_is_left_alone(tmp_path: Path) -> None:
    nodes = Simulated(tmp_path, [Path("/in/a.svs")], bands=2)
    with locked(tmp_path / "a.svs"):
        nodes.run()
    assert "another sparseshot is at work here" in str(nodes.slides.outcomes[0].error)
