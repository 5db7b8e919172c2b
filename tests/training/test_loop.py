"""The loop: it learns, it is repeatable, it goes on after a kill, it tells what it does."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
import torch
from tests.forked import process, side_by_side
from tests.training.blobs import blobs, marked_blobs, tiny_config
from torch import nn

from sparseshot.errors import CheckpointError, InputError, OutputError, TrainingWarning
from sparseshot.losses import LOSSES
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.device import make_fabric
from sparseshot.models.task import IGNORED
from sparseshot.training import loop
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache
from sparseshot.training.crops import CropSource
from sparseshot.training.evaluation import evaluate
from sparseshot.training.held_out import prepare
from sparseshot.training.logs import RunLog, numbers_of, read_log
from sparseshot.training.loop import train


def run(config: TrainSettings, folder: Path, network: nn.Module | None = None) -> Checkpoint:
    canvases, held_out = prepare([marked_blobs(0), marked_blobs(1)], [marked_blobs(2)], config)
    return train(config, canvases, held_out, folder, network=network)


def assert_same_weights(one: Checkpoint, other: Checkpoint) -> None:
    assert one.weights.keys() == other.weights.keys()
    for name, weight in one.weights.items():
        assert torch.equal(weight, other.weights[name]), name


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_a_seed_gives_the_same_weights(task: str, tmp_path: Path) -> None:
    config = tiny_config(task)
    one, other = run(config, tmp_path / "a"), run(config, tmp_path / "b")
    assert_same_weights(one, other)
    assert one.threshold == other.threshold
    changed = run(tiny_config(task, seed=1), tmp_path / "c")
    assert any(not torch.equal(changed.weights[name], weight) for name, weight in one.weights.items())


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_trains_in_the_loop(loss: str, tmp_path: Path) -> None:
    options = {"prior": 0.2} if loss == "nnpu" else {}
    checkpoint = run(tiny_config(loss=loss, loss_options=options, steps=4, validations=1), tmp_path)
    assert all(torch.isfinite(weight).all() for weight in checkpoint.weights.values())
    assert checkpoint.threshold is not None


def small_run(task: str, loss: str) -> TrainSettings:
    return tiny_config(task, loss=loss, loss_options={"teacher_from": 0.4} if loss == "adaptive" else {})


def run_slowly(task: str, loss: str, folder: Path, threads: int) -> None:
    """Train in a process that has time to be killed."""
    learn = loop._Run.learn

    def slowly(self: Any, batch: Any, *, watch: bool) -> Any:
        time.sleep(0.1)
        return learn(self, batch, watch=watch)

    loop._Run.learn = slowly  # type: ignore[method-assign]
    torch.set_num_threads(threads)
    run(small_run(task, loss), folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "loss"), [("segment", "ece-nki"), ("detect", "elr"), ("segment", "adaptive")]
)
def test_a_killed_run_goes_on_to_the_same_weights(task: str, loss: str, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    threads = torch.get_num_threads()  # the last bits of the weights depend on it
    child = process(run_slowly, task, loss, killed, threads)
    while not (killed / "last.pt").exists():
        assert child.is_alive(), "it ended before its first checkpoint"
        time.sleep(0.02)
    child.kill()
    child.join()
    assert not (killed / "model.pt").exists()
    config = small_run(task, loss)
    resumed = run(config, killed)
    whole = run(config, tmp_path / "whole")
    assert_same_weights(resumed, whole)
    assert resumed.threshold == whole.threshold
    steps = [row["step"] for row in read_log(killed / "log.csv")]
    assert steps == [row["step"] for row in read_log(tmp_path / "whole" / "log.csv")]


def recorded_run(folder: Path) -> None:
    """Train in one of several processes, and keep its crops and weights of each step."""
    learn, steps = loop._Run.learn, []

    def recorded(self: Any, batch: Any, *, watch: bool) -> Any:
        values = learn(self, batch, watch=watch)
        weights = {name: weight.detach().clone() for name, weight in self.module.named_parameters()}
        steps.append({"crops": batch.image.clone(), "weights": weights})
        return values

    loop._Run.learn = recorded  # type: ignore[method-assign]
    config = tiny_config()
    canvases, held_out = prepare([marked_blobs(0), marked_blobs(1)], [marked_blobs(2)], config)
    fabric = make_fabric("32", device="cpu")
    train(config, canvases, held_out, folder, fabric=fabric)
    torch.save(steps, folder / f"rank {fabric.global_rank} of {fabric.world_size}.pt")


@pytest.mark.slow
def test_two_processes_share_a_batch_and_learn_the_same(tmp_path: Path) -> None:
    side_by_side(recorded_run, tmp_path / "run")
    first, second = (torch.load(tmp_path / "run" / f"rank {rank} of 2.pt") for rank in (0, 1))
    config = tiny_config()
    assert len(first) == len(second) == config.steps
    canvases, _ = prepare([marked_blobs(0), marked_blobs(1)], [marked_blobs(2)], config)
    source = CropSource(canvases, config)
    for step, (one, other) in enumerate(zip(first, second, strict=True)):
        # Together the two halves are the batch of one process; gradients are averaged before each update.
        assert torch.equal(torch.cat([one["crops"], other["crops"]]), source.batch(step, range(4)).image)
        for name, weight in one["weights"].items():
            assert torch.equal(weight, other["weights"][name]), (step, name)
    assert not torch.equal(first[0]["weights"]["head.weight"], first[-1]["weights"]["head.weight"])
    model = Checkpoint.load(tmp_path / "run" / "model.pt")
    assert model.step == config.steps
    log, alone = read_log(tmp_path / "run" / "log.csv"), run(config, tmp_path / "alone")
    assert [row["step"] for row in log] == [row["step"] for row in read_log(tmp_path / "alone" / "log.csv")]
    assert alone.step == model.step


@pytest.mark.slow
@pytest.mark.parametrize("task", ["segment", "detect"])
def test_it_learns_and_tells_how(task: str, tmp_path: Path) -> None:
    config = tiny_config(task, loss="ece", steps=80, batch=8, validations=4, width=8, stride=8)
    checkpoint = run(config, tmp_path)
    rows = read_log(tmp_path / "log.csv")
    slide, truth = blobs(3)
    result = evaluate(checkpoint, [AnnotatedSlide(slide, truth)])
    assert result.calibrated is not None
    assert result.calibrated.pooled > 0.8
    assert result.best.pooled >= max(result.calibrated.pooled, result.half.pooled) - 0.01
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert 0 <= float(rows[-1]["excluded"]) < 1
    assert float(rows[-1]["exclusion_recall"]) > 0.5
    assert 0 < float(rows[-1]["exclusion_precision"]) <= 1
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert checkpoint.criterion is not None
    assert checkpoint.criterion > 2
    assert not (tmp_path / "last.pt").exists()


def test_a_finished_run_is_only_loaded(tmp_path: Path) -> None:
    first = run(tiny_config(steps=4), tmp_path)
    written = (tmp_path / "model.pt").stat().st_mtime_ns
    assert_same_weights(run(tiny_config(steps=4), tmp_path), first)
    assert (tmp_path / "model.pt").stat().st_mtime_ns == written


def test_another_configuration_does_not_overwrite(tmp_path: Path) -> None:
    run(tiny_config(steps=4), tmp_path)
    with pytest.raises(OutputError, match="loss 'adaptive' instead of 'ce'"):
        run(tiny_config(steps=4, loss="ce"), tmp_path)


@pytest.mark.parametrize("lost", ["weights", "state", "loss"])
def test_a_checkpoint_that_does_not_fit_is_told(lost: str, tmp_path: Path) -> None:
    config = tiny_config(steps=4)
    run(config, tmp_path / "whole")
    at_the_end = Checkpoint.load(tmp_path / "whole" / "model.pt")
    half = replace(at_the_end, step=2, weights={} if lost == "weights" else at_the_end.weights)
    if lost == "loss":
        network = config.make_task().network()
        optimizer = torch.optim.AdamW(network.parameters())
        half = replace(half, state={"optimizer": optimizer.state_dict(), "schedule": {}, "criterion": {}})
    (tmp_path / "half").mkdir()
    half.save(tmp_path / "half" / "last.pt")
    with pytest.raises(CheckpointError, match=r"last\.pt: does not fit .* \(0\.\d+\.\d+\), or begin anew"):
        run(config, tmp_path / "half")
    assert (tmp_path / "half" / "last.pt").exists()


def test_a_log_of_another_version_goes_on(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss,mood\n10,0.5,good\n20,0.25,better\n")
    log = RunLog(tmp_path, start=10)
    log.write(20, {"loss": 0.125})
    log.close()
    assert [(row["step"], row["loss"]) for row in read_log(tmp_path / "log.csv")] == [
        ("10", "0.5"),
        ("20", "0.125"),
    ]


def test_a_log_leaves_nothing_to_be_written_at_exit(tmp_path: Path) -> None:
    """On a full disk, a thread or a hook at exit would end in a traceback after the message."""
    threads = threading.active_count()
    log = RunLog(tmp_path, start=0)
    log.write(10, {"loss": 0.125, "alpha": None})
    assert threading.active_count() == threads
    (events,) = (tmp_path / "tensorboard").glob("events*")
    assert b"loss" in events.read_bytes()
    log.close()


def test_ones_own_network_trains_through_the_same_call(tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 1))
    checkpoint = run(tiny_config(steps=4), tmp_path, network=own)
    again = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 1))
    checkpoint.network(again)
    assert torch.equal(again.state_dict()["0.weight"], checkpoint.weights["0.weight"])


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_it_learns_from_exhaustive_regions_alone(task: str, tmp_path: Path) -> None:
    """Outside them every cell is unmarked, so that α falls to its minimum and only the regions teach."""
    slide, truth = blobs(0, count=60)
    region = shapely.box(0, 0, 96, 192)
    inside = shapely.contains_xy(region, truth.xy)
    marks = replace(truth[inside], regions=np.array([region]))
    item = AnnotatedSlide(slide, marks, truth)
    config = tiny_config(task, steps=80, batch=8, width=8, validations=1, log_every=80)
    canvases, held_out = prepare([item], [item], config)
    checkpoint = train(config, canvases, held_out, tmp_path)
    assert float(read_log(tmp_path / "log.csv")[-1]["alpha"]) < 0.05  # first 0.2
    unseen = blobs(1, count=60)
    assert evaluate(checkpoint, [AnnotatedSlide(*unseen)]).half.pooled > 0.8


def test_several_classes_and_certain_negatives(tmp_path: Path) -> None:
    slide, truth = blobs(0)
    marks = replace(
        truth, classes=("a", "b", "dust"), label=np.arange(len(truth), dtype=np.int16) % np.int16(3)
    )
    for task in ("segment", "detect"):
        config = tiny_config(task, steps=3, classes=("a", "b"), negative_classes=("dust",), validations=1)
        canvases, held_out = prepare([AnnotatedSlide(slide, marks)], [AnnotatedSlide(slide, marks)], config)
        checkpoint = train(config, canvases, held_out, tmp_path / task)
        assert checkpoint.classes == ("a", "b")
        assert checkpoint.network()(torch.zeros(1, 3, 32, 32)).shape[1] == (3 if task == "segment" else 5)


def test_without_validation_images_some_squares_are_held_out(tmp_path: Path) -> None:
    slide, truth = blobs(0, size=1024, count=300)
    config = tiny_config(steps=2, validations=1)
    canvases, held_out = prepare([AnnotatedSlide(slide, truth)], [], config)
    held = sum(len(part.xy) for part in held_out)
    assert 0.1 * len(truth) < held < 0.5 * len(truth)
    label = canvases[0].cut(canvases[0].grid.box, BlockCache()).label
    assert (label == IGNORED).mean() == pytest.approx(
        sum((p.label > IGNORED).sum() for p in held_out) / label.size
    )


def test_holding_out_leaves_half_of_each_class() -> None:
    slide, truth = blobs(0, size=1024, count=300)
    corner = np.all(truth.xy < 256, axis=1)  # a whole class in one square
    marks = replace(truth, classes=("common", "rare"), label=np.array(corner, np.int16))
    for seed in range(12):
        config = tiny_config(classes=("common", "rare"), seed=seed)
        _, held_out = prepare([AnnotatedSlide(slide, marks)], [], config)
        held = sum(marks.crop(*part.box).counts()["rare"] for part in held_out)
        assert held_out
        assert held <= corner.sum() / 2, seed


def test_only_marks_that_people_made_are_held_out() -> None:
    slide, truth = blobs(0, size=1024, count=300)
    marked, more = AnnotatedSlide(slide, truth[:60]), AnnotatedSlide(slide, truth)
    _, first = prepare([marked], [], tiny_config())
    canvases, second = prepare([more], [], tiny_config(), by_people=[marked])
    assert [part.box for part in second] == [part.box for part in first]
    assert all(np.array_equal(one.xy, other.xy) for one, other in zip(first, second, strict=True))
    assert all((canvases[0].cut(part.box, BlockCache(0)).label == IGNORED).all() for part in second)
    assert len(canvases[0].points.xy) == 300


def test_one_mark_is_enough_but_warns(tmp_path: Path) -> None:
    slide, truth = blobs(0)
    with pytest.warns(TrainingWarning, match="too few marks"):
        canvases, held_out = prepare([AnnotatedSlide(slide, truth[:1])], [], tiny_config(steps=2))
    assert train(tiny_config(steps=2), canvases, held_out, tmp_path).threshold is not None


def test_no_marks_and_unknown_classes_are_errors() -> None:
    slide, truth = blobs(0)
    with pytest.raises(InputError, match="mark at least a few"):
        prepare([AnnotatedSlide(slide, truth[:0])], [], tiny_config())
    with pytest.raises(InputError, match="no mark is of class 'tumour'; the marks have cell"):
        prepare([AnnotatedSlide(slide, truth)], [], tiny_config(classes=("tumour",)))


def test_a_full_disk_keeps_the_earlier_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = run(tiny_config(steps=2), tmp_path / "run")
    path = tmp_path / "a.pt"
    checkpoint.save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OutputError, match="make room"):
        checkpoint.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name != "run"] == ["a.pt"]


def test_what_is_not_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        Checkpoint.load(tmp_path / "no.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        Checkpoint.load(tmp_path / "text.pt")
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of sparseshot"):
        Checkpoint.load(tmp_path / "other.pt")
    torch.save({"format": "sparseshot checkpoint", "version": 99}, tmp_path / "later.pt")
    with pytest.raises(CheckpointError, match="version 99, this sparseshot reads 1"):
        Checkpoint.load(tmp_path / "later.pt")
    checkpoint = run(tiny_config(steps=2), tmp_path / "run")
    whole = (tmp_path / "run" / "model.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoint.load(tmp_path / "cut.pt")
    assert checkpoint.step == 2


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch hacked",))


def test_a_checkpoint_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "sparseshot checkpoint", "version": 1, "weights": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(CheckpointError):
        Checkpoint.load(tmp_path / "evil.pt")
    assert not (tmp_path / "hacked").exists()


def test_bad_settings_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="task is 'paint'; there are segment, detect"):
        tiny_config("paint")
    with pytest.raises(InputError, match="not a multiple of the stride 8; take 64"):
        tiny_config("detect", crop_px=70)
    with pytest.raises(InputError, match="steps is -1"):
        tiny_config(steps=-1)
    with pytest.raises(InputError, match="steps is 0"):
        tiny_config(steps=0)


@pytest.mark.filterwarnings("ignore:the estimated share")  # so short a training swings
def test_the_log_tells_the_last_estimate_of_the_marked_share(tmp_path: Path) -> None:
    config = tiny_config(steps=24, loss_options={"every": 4})
    run(config, tmp_path)
    rows = read_log(tmp_path / "log.csv")
    assert rows[0]["marked_share"] == ""
    share = numbers_of(rows, "marked_share")[-1]
    assert share == float(rows[-1]["marked_share"])
    assert 0 < share <= 1
    assert 0 < float(rows[-1]["true_marked_share"]) < 1
    assert numbers_of(read_log(tmp_path / "no.csv"), "marked_share") == []


def test_a_held_model_is_drawn_back_to_its_start_the_farther_the_fewer_marks(tmp_path: Path) -> None:
    start = run(tiny_config("detect"), tmp_path / "start")
    config = tiny_config("detect", loss="distil", loss_options={"threshold": 0.5}, steps=6, validations=1)
    ways = []
    for number in (1, 12):
        item = marked_blobs(0)
        few = AnnotatedSlide(item.slide, item.marks[:number])
        canvases, held_out = prepare([few], [marked_blobs(2)], config)
        tuned = train(config, canvases, held_out, tmp_path / f"{number}", start=start)
        ways.append(float((tuned.weights["head.weight"] - start.weights["head.weight"]).abs().sum()))
    assert 0 < ways[0] < ways[1] / 3
