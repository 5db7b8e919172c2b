"""The loss that finds out how much was marked: its estimate, its α, its state, several processes."""

import json
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.forked import side_by_side
from torch import Tensor, nn

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.losses import (
    AdaptiveExclusiveCrossEntropy,
    Hints,
    Locations,
    estimate_marked_share,
    exclusive_cross_entropy,
    make_loss,
)
from sparseshot.losses.adaptive import options_to_continue
from sparseshot.losses.logit_histograms import LogitHistograms, attainable_f1

N = 4000


def points(share: float, generator: torch.Generator, *, classes: int = 1) -> tuple[Tensor, Tensor]:
    """Draw locations of which a fifth are cells, a share of these marked; class c lies at 4 on axis c."""
    kind = torch.randint(1, classes + 1, (N,), generator=generator)
    truth = torch.where(torch.rand(N, generator=generator) < 0.2, kind, 0)
    x = torch.randn(N, classes, generator=generator)
    x += 4.0 * nn.functional.one_hot(truth, classes + 1)[:, 1:]
    chance = share / truth.clamp(min=1)  # class 2 is marked half as often as class 1
    marked = torch.rand(N, generator=generator) < chance
    return x, torch.where(marked, truth, 0)


def trained(
    loss: AdaptiveExclusiveCrossEntropy, share: float, *, classes: int = 1, steps: int = 200
) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    channels = 1 if classes == 1 else classes + 1
    model = nn.Linear(classes, channels)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for step in range(steps):
        x, target = points(share, generator, classes=classes)
        value = loss(model(x), target, progress=step / (steps - 1))
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def test_the_share_of_marks_above_the_best_threshold() -> None:
    marked = torch.tensor([[0.0, 2.0, 8.0], [0.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    everything = torch.tensor([[500.0, 60.0, 20.0], [100.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
    share = estimate_marked_share(marked, everything)
    assert share[0] == pytest.approx(8 / 20)
    assert share[1].isnan()
    assert share[2] == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.6, 1.0])
def test_the_marked_share_is_found_and_half_is_the_right_threshold(share: float) -> None:
    loss = AdaptiveExclusiveCrossEntropy()
    model = trained(loss, share)
    assert loss.log_values()["marked_share"] == pytest.approx(share, rel=0.25)
    found = (model(torch.tensor([[4.0], [3.0], [0.5], [0.0]])) > 0).flatten().tolist()
    assert found == [True, True, False, False]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 1.0])
def test_crowded_points_count_as_cells_each_with_its_own_mark(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = AdaptiveExclusiveCrossEntropy(warm_up=0.0, every=1)
    cells = torch.zeros(8, 60, 60, dtype=torch.bool)
    cells[:, ::2, ::3] = True  # the mark of a neighbour lies two places away at most
    blurred = F.avg_pool2d(cells[:, None].float(), 3, stride=1, padding=1)  # the model is not sure of places
    logits = 6.0 * (cells[:, None] + blurred) - 5.0 + 0.1 * torch.randn(8, 1, 60, 60, generator=generator)
    for _ in range(40):
        marked = cells & (torch.rand(cells.shape, generator=generator) < share)
        loss(logits, marked.long())
    assert loss.log_values()["marked_share"] == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_marks_in_exhaustive_regions_do_not_raise_the_marked_share(share: float, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    told = {}
    for hinted in (True, False):
        loss = AdaptiveExclusiveCrossEntropy(warm_up=0.0, every=1)
        cells = torch.zeros(8, 60, 60, dtype=torch.bool)
        cells[:, 2::5, 2::5] = True
        inside = torch.zeros_like(cells)
        inside[:, :30] = True  # half of the image is marked exhaustively
        for _ in range(40):
            marked = cells & (inside | (torch.rand(cells.shape, generator=generator) < share))
            noise = torch.randn(cells.shape, generator=generator)
            maps = [
                each.repeat_interleave(size, 1).repeat_interleave(size, 2)
                for each in (torch.where(cells, 4.0, -4.0) + 0.1 * noise, marked, inside)
            ]
            logits, target, exhaustive = maps
            hints = Hints(exhaustive=exhaustive) if hinted else None
            loss(logits.unsqueeze(1), target.long(), annotated=target | exhaustive, hints=hints)
        told[hinted] = loss.log_values()
    assert told[True]["marked_share"] == pytest.approx(share, abs=0.02)
    assert told[False]["marked_share"] > share + 0.2
    assert told[True]["alpha"] == pytest.approx(max(share / 2 / (1 - share / 2), 1e-3), rel=0.1)


def test_locations_without_a_mark_of_their_own_have_a_finite_f1() -> None:
    """The mark lies in an exhaustive region, and a location that also teaches it beside the region."""
    marked, everything = torch.tensor([0.0, 3.0, 0.0]), torch.tensor([900.0, 5.0, 0.0])
    assert attainable_f1(marked, everything, torch.tensor(0.0), torch.tensor(0.6)) == 1


@pytest.mark.parametrize(("size", "rho"), [(1, 0.9), (4, 0.75)])
def test_points_and_areas_have_their_own_threshold(size: int, rho: float) -> None:
    loss = AdaptiveExclusiveCrossEntropy(warm_up=0.0, every=1)
    cells = torch.zeros(1, 60, 60, dtype=torch.long)
    cells[:, 5:55:10, 5:55:10] = 1
    target = cells.repeat_interleave(size, 1).repeat_interleave(size, 2)
    unmarked = target.roll(5 * size, 1)
    logits = torch.where(target + unmarked > 0, 4.0, -4.0).unsqueeze(1)  # half of the cells are marked
    loss(logits, target)
    assert loss.log_values()["marked_share"] == pytest.approx(0.5)
    assert loss.log_values()["alpha"] == pytest.approx(0.25 / 0.75, rel=1e-4)
    for p, expected in ((rho - 0.01, False), (rho + 0.01, True)):
        logit = torch.logit(torch.tensor(p))
        sure = torch.where(unmarked > 0, logit, -4.0).unsqueeze(1)
        excluded = loss.exclusion_mask(sure, target)
        assert excluded is not None
        assert excluded[unmarked > 0].all() == expected
        assert not excluded[unmarked == 0].any()


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("placed", [0.5, 1.0])
def test_uncertain_positions_of_points_lower_the_break_even_probability(placed: float, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = AdaptiveExclusiveCrossEntropy(warm_up=0.0, every=1)
    cells = torch.zeros(16, 60, 60, dtype=torch.bool)
    cells[:, 2::5, 2::5] = True
    for _ in range(40):
        unsure = cells & (torch.rand(cells.shape, generator=generator) >= placed)  # found one place beside
        marked = cells & (torch.rand(cells.shape, generator=generator) < share)
        logits = torch.where(unsure.roll((1, -1), (1, 2)), 3.0, -4.0)
        loss(torch.where(cells & ~unsure, 5.0, logits).unsqueeze(1), marked.long())
    told = loss.log_values()
    assert told["marked_share"] == pytest.approx(share, rel=0.06)
    f1 = 2 * placed / (placed + 1)  # of the threshold that finds what is sure
    certain = f1 / 2 * told["marked_share"]
    assert told["alpha"] == pytest.approx(certain / (1 - certain), rel=0.06)


@pytest.mark.parametrize("together", [True, False])
def test_marks_of_several_classes_are_counted_together_or_each_for_itself(together: bool) -> None:
    label = torch.zeros(1, 60, 60).long()
    label[:, 2::5, 2::5] = 1
    label[:, 2:22:5, 2::5] = 2
    histograms = LogitHistograms(1 if together else 2, objects=True)
    logits = torch.randn(1, 3, 60, 60, generator=torch.Generator().manual_seed(0))
    histograms.observe(Locations(logits, label))
    assert histograms.points
    assert histograms.marks.tolist() == ([144.0] if together else [96.0, 48.0])


def test_extreme_logits_are_counted_in_the_outer_bins() -> None:
    logits = torch.tensor([torch.inf, 1e12, 3.0, -torch.inf, torch.nan]).unsqueeze(1)
    histograms = LogitHistograms()
    histograms.observe(Locations(logits, torch.ones(5).long()))
    assert histograms.counts[0][0, [0, -1]].tolist() == [2.0, 2.0]
    assert histograms.counts[0].sum() == histograms.counts[1].sum() == 5


def test_the_best_f1_of_many_thresholds() -> None:
    generator = torch.Generator().manual_seed(0)
    marked = torch.randint(0, 9, (3, 30), generator=generator).float()
    everything = marked + torch.randint(0, 50, (3, 30), generator=generator)
    marks, share = marked.sum(-1) + torch.tensor([0.0, 5.0, 50.0]), torch.tensor([1.0, 0.5, 0.2])
    for number, f1 in enumerate(attainable_f1(marked, everything, marks, share).tolist()):
        scores = []
        for threshold in range(30):
            found = float(marked[number, threshold:].sum() / share[number])
            precision = found / float(everything[number, threshold:].sum())
            recall = found / float(marks[number] / share[number])
            scores.append(2 * precision * recall / (precision + recall) if found else 0.0)
        assert f1 == pytest.approx(min(max(scores), 1.0))


@pytest.mark.parametrize("size", [1, 4])
def test_few_marks_in_a_batch_are_enough(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = AdaptiveExclusiveCrossEntropy(warm_up=0.0, every=1)
    for _ in range(60):
        marked, unmarked = torch.randint(0, 10, (2, 2), generator=generator) * size
        target, missed = torch.zeros(2, 1, 10 * size, 10 * size, dtype=torch.long)
        target[:, marked[0] : marked[0] + size, marked[1] : marked[1] + size] = 1
        missed[:, unmarked[0] : unmarked[0] + size, unmarked[1] : unmarked[1] + size] = 1
        loss(torch.where(target + missed > 0, 4.0, -4.0).unsqueeze(1), target)
    assert loss.log_values()["marked_share"] == pytest.approx(0.5, rel=0.1)


def test_each_class_has_its_own_share() -> None:
    loss = AdaptiveExclusiveCrossEntropy()
    trained(loss, 0.6, classes=2)
    told = loss.log_values()
    assert told["marked_share_1"] == pytest.approx(0.6, rel=0.25)
    assert told["marked_share_2"] == pytest.approx(0.3, rel=0.25)
    assert told["alpha_1"] > 1.5 * told["alpha_2"]


def test_a_marked_class_that_is_never_predicted_counts_as_marked_throughout() -> None:
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    target = torch.zeros(400, dtype=torch.long)
    target[:40], target[40:80] = 1, 2
    logits = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    logits[:, 2] -= 20.0
    loss(logits, target, progress=1.0)
    values = loss.log_values()
    assert values["marked_share_2"] <= 1.0
    assert values["alpha_2"] > 0.1


def test_unannotated_locations_weigh_as_the_class_the_model_gives_them() -> None:
    loss = AdaptiveExclusiveCrossEntropy(rho=1.0).eval()
    logits, target = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50).long()
    target[:10] = 2
    loss(logits, target)
    loss.alpha = torch.tensor([0.5, 0.1])
    losses = exclusive_cross_entropy(logits, target, rho=1.0, gamma=loss.gamma, reduction="none")
    weight = torch.where(logits[:, 1] > logits[:, 2], 0.5, 0.1)
    weight[:10] = 1.0
    assert float(loss(logits, target)) == pytest.approx(float((losses * weight).mean()), rel=1e-6)


def test_before_the_warm_up_and_without_marks_alpha_stays() -> None:
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.5)
    logits, target = torch.linspace(-3, 3, 200).unsqueeze(1), (torch.arange(200) > 100).long()
    loss(logits, target, progress=0.4)
    assert loss.log_values() == {"alpha": 0.2}
    loss(logits, torch.zeros_like(target), progress=0.6)
    assert "marked_share" in loss.log_values()  # the marks of the first batch
    fresh = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    fresh(logits, torch.zeros_like(target), progress=1.0)
    assert fresh.log_values() == {"alpha": 0.2}


def test_evaluation_leaves_the_estimate_alone() -> None:
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0).eval()
    loss(torch.zeros(100, 1), torch.ones(100).long())
    assert loss.log_values() == {"alpha": 0.2}
    assert loss.histograms.counts[1].sum() == 0


@pytest.mark.parametrize("classes", [1, 2])
def test_a_loss_that_goes_on_from_its_state_gives_the_same(classes: int, tmp_path: Path) -> None:
    loss = AdaptiveExclusiveCrossEntropy()
    trained(loss, 0.3, classes=classes, steps=90)
    torch.save(loss.state_dict(), tmp_path / "state.pt")
    other = AdaptiveExclusiveCrossEntropy()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    channels = 1 if classes == 1 else classes + 1
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        x, target = points(0.3, generator, classes=classes)
        logits = x.new_zeros(N, channels) + x[:, :1]
        assert torch.equal(loss(logits, target, progress=0.7), other(logits, target, progress=0.7))
    assert loss.log_values() == other.log_values()


def test_some_background_always_stays_in() -> None:
    loss = AdaptiveExclusiveCrossEntropy()
    logits, target = torch.linspace(5, 9, 1000).unsqueeze(1), torch.zeros(1000).long()
    excluded = loss.exclusion_mask(logits, target)
    assert excluded is not None
    assert 0.4 < float(excluded.float().mean()) <= 0.5


def test_an_estimate_that_swings_late_warns_once() -> None:
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    logits = torch.cat([torch.full((500,), -4.0), torch.full((500,), 4.0)]).unsqueeze(1)
    few, all_of_them = torch.zeros(1000).long(), torch.zeros(1000).long()
    few[500:600], all_of_them[500:] = 1, 1
    loss(logits, few, progress=0.6)
    with pytest.warns(TrainingWarning, match=r"went from 20% to \d\d%"):
        loss(logits, all_of_them, progress=0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss.histograms.counts[0].zero_()
        loss(logits, few, progress=0.8)  # swings back


def learned_by_heart(loss: AdaptiveExclusiveCrossEntropy, target: Tensor, steps: int = 100) -> None:
    """Train a "model" that is one logit for each location, so that it can only remember."""
    logits = torch.zeros(len(target), 1, *target.shape[1:], requires_grad=True)
    optimiser = torch.optim.Adam([logits], 0.1)
    for step in range(steps):
        value = loss(logits + 0.0, target, progress=step / (steps - 1))
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def test_marks_of_a_few_images_that_a_model_remembers_are_no_estimate() -> None:
    target = torch.zeros(4, 40, 40, dtype=torch.long)
    for image in range(4):
        target[image, 4 * image : 4 * image + 6, 10:16] = 1
    loss = AdaptiveExclusiveCrossEntropy()
    with pytest.warns(TrainingWarning, match=r"nearly all cells seem to be marked .*only 4 images") as issued:
        learned_by_heart(loss, target)
    assert len(issued) == 1
    assert loss.log_values() == {"alpha": 0.2}


def test_marks_of_many_images_are_an_estimate() -> None:
    target = (torch.arange(40 * 8 * 8).view(40, 8, 8) // 64 % 8 == torch.arange(8)[:, None]).long()
    target[:, 0, 0] = torch.arange(40) % 2
    many = torch.stack([image.roll(number, 1) for number, image in enumerate(target)])
    many[torch.arange(40), :, torch.arange(40) % 8] = 1
    many[torch.arange(40), torch.arange(40) // 8, 0] = 1
    assert len({str(image.tolist()) for image in many}) > 32
    loss = AdaptiveExclusiveCrossEntropy()
    learned_by_heart(loss, many)
    assert loss.log_values()["marked_share"] > 0.9


def test_an_estimate_that_jumps_to_nearly_all_warns_early_too() -> None:
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    logits = torch.cat([torch.full((500,), -4.0), torch.full((500,), 4.0)]).unsqueeze(1)
    few, every = torch.zeros(1000).long(), torch.zeros(1000).long()
    few[500:600], every[500:] = 1, 1
    loss(logits, few, progress=0.1)
    loss.histograms.counts.zero_()
    with pytest.warns(TrainingWarning, match=r"went from 20% to 100%, and α"):
        loss(logits, every, progress=0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"break_even_probability": 0.0},
        {"break_even_probability": 2.0},
        {"first_alpha": 0.0},
        {"warm_up": 2.0},
        {"every": 0},
        {"max_excluded": 0.0},
    ],
)
def test_bad_options(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        AdaptiveExclusiveCrossEntropy(**options)  # type: ignore[arg-type]


def _one_of_two(folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    loss = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    logits = torch.cat([torch.full((500,), -4.0), torch.full((500,), 4.0)]).unsqueeze(1)
    target = torch.zeros(1000).long()
    target[500 : 600 + 200 * rank] = 1  # 20 % are marked here, 60 % there
    loss(logits, target)
    of_points = AdaptiveExclusiveCrossEntropy(every=1, warm_up=0.0)
    marks = torch.zeros(1, 60, 60).long()
    marks[:, 2::5, 2::5] = 1
    peaks = marks.clone()
    if rank:
        peaks[:, 30:] = 0  # in this process, half of them are not found
    of_points(torch.where(peaks > 0, 4.0, -4.0).unsqueeze(1), marks)
    told = loss.log_values() | {"alpha of points": of_points.log_values()["alpha"]}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


def test_two_processes_have_one_estimate(tmp_path: Path) -> None:
    side_by_side(_one_of_two, tmp_path)
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0]["marked_share"] == pytest.approx(0.4)
    certain = 2 * 0.75 / 1.75 / 2  # of an F1 with all that is found right, and three quarters found
    assert told[0]["alpha of points"] == pytest.approx(certain / (1 - certain), rel=1e-4)


def taught(loss: AdaptiveExclusiveCrossEntropy, teacher: Tensor, *, progress: float = 0.9) -> Tensor:
    """Return the gradient of unannotated locations at a logit of 0, with the loss's last estimates."""
    histograms, estimates = loss.histograms.state_dict(), loss.get_extra_state()
    logits = torch.zeros_like(teacher, requires_grad=True)
    target = torch.zeros(len(teacher), teacher.shape[2], dtype=torch.long)
    loss(logits, target, progress=progress, hints=Hints(teacher_logits=teacher)).backward()  # type: ignore[no-untyped-call]
    loss.histograms.load_state_dict(histograms)
    loss.set_extra_state(estimates)
    assert logits.grad is not None
    return logits.grad


@pytest.fixture(scope="module")
def experienced() -> AdaptiveExclusiveCrossEntropy:
    """Return a loss that has seen a model which is right above a logit of 2 and unsure above −2."""
    loss = AdaptiveExclusiveCrossEntropy(every=1, teacher_from=0.4)
    generator = torch.Generator().manual_seed(0)
    logits = torch.linspace(-8, 8, N).reshape(1, 1, N)
    chance = torch.where(logits[:, 0] > 2, 1.0, torch.where(logits[:, 0] > -2, 0.5, 0.0))
    for _ in range(20):
        cell = torch.rand(1, N, generator=generator) < chance
        marked = cell & (torch.rand(1, N, generator=generator) < 0.2)
        loss(logits, marked.long(), progress=0.5)
    assert loss.log_values()["marked_share"] == pytest.approx(0.2, rel=0.1)
    return loss


def test_the_teacher_labels_what_it_is_sure_of(experienced: AdaptiveExclusiveCrossEntropy) -> None:
    cell, unsure, background = taught(experienced, torch.tensor([[[6.0, 0.0, -6.0]]])).flatten().tolist()
    assert cell == pytest.approx(-background)  # both with the full weight of a label
    assert cell < 0
    assert 0 < unsure < background / 2  # with the weight of the unannotated


def test_where_all_cells_are_marked_the_teacher_finds_none() -> None:
    loss = AdaptiveExclusiveCrossEntropy(teacher_from=0.4)
    loss.share = torch.tensor([1.0])
    loss.histograms.counts[:2, 0, -20:] = torch.tensor([[5.0], [6.0]])
    assert (taught(loss, torch.tensor([[[11.0, 0.0, -6.0]]])) > 0).all()


@pytest.mark.parametrize("progress", [0.1, 0.39])
def test_early_in_training_there_is_no_teacher(
    experienced: AdaptiveExclusiveCrossEntropy, progress: float
) -> None:
    without = taught(experienced, torch.tensor([[[6.0, 0.0, -6.0]]]), progress=progress).flatten()
    assert (without > 0).all()
    assert (without == without[0]).all()


def test_only_a_model_that_knows_cells_has_a_teacher() -> None:
    assert "teacher_logits" not in AdaptiveExclusiveCrossEntropy().wants
    assert "teacher_logits" in AdaptiveExclusiveCrossEntropy(teacher_from=0.4).wants


def test_a_model_that_learns_on_estimates_at_once() -> None:
    assert options_to_continue(0.05) == {"first_alpha": 0.02, "warm_up": 0.0, "every": 4}
    assert options_to_continue(0.9)["first_alpha"] == 0.2
    make_loss("adaptive", options_to_continue(None))


def test_without_an_estimate_the_teacher_says_nothing() -> None:
    gradient = taught(AdaptiveExclusiveCrossEntropy(teacher_from=0.4), torch.tensor([[[6.0, 0.0, -6.0]]]))
    assert (gradient > 0).all()


def test_the_teacher_says_which_class_it_is() -> None:
    loss = AdaptiveExclusiveCrossEntropy(teacher_from=0.4)
    trained(loss, 0.3, classes=2)
    gradient = taught(loss, torch.tensor([[[-6.0], [0.0], [6.0]]]))
    assert gradient[0, :, 0].sign().tolist() == [1, 1, -1]


def test_a_teacher_of_another_shape_is_refused(experienced: AdaptiveExclusiveCrossEntropy) -> None:
    with pytest.raises(InputError, match="run the teacher on the same input"):
        experienced(
            torch.zeros(1, 1, 3),
            torch.zeros(1, 3, dtype=torch.long),
            hints=Hints(teacher_logits=torch.zeros(1, 1, 4)),
        )
