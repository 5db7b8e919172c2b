from pathlib import Path

import pytest
import torch

from sparseshot.errors import InputError
from sparseshot.losses import (
    LOSSES,
    ExclusiveCrossEntropy,
    FocalLoss,
    Linear,
    Logistic,
    Loss,
    make_loss,
)


def test_known_names() -> None:
    assert set(LOSSES) == {
        "ece",
        "ece-plain",
        "ece-nki",
        "adaptive",
        "ce",
        "focal",
        "huber",
        "recalibration",
        "nnpu",
        "elr",
        "distil",
        "annotated-only",
        "oracle",
    }
    assert all(isinstance(make_loss(name), Loss) for name in LOSSES)


@pytest.mark.parametrize(("name", "preset"), [("ece", "paper"), ("ece-plain", "plain"), ("ece-nki", "nki")])
def test_presets_by_short_name(name: str, preset: str) -> None:
    assert repr(make_loss(name)) == repr(ExclusiveCrossEntropy.preset(preset))


def test_options_are_those_of_the_constructor() -> None:
    focal = make_loss("focal", {"gamma": 1.0})
    assert isinstance(focal, FocalLoss)
    assert focal.gamma == 1.0
    exclusive = make_loss("ece-plain", {"rho": 0.5, "alpha": 0.1})
    assert isinstance(exclusive, ExclusiveCrossEntropy)
    assert (exclusive.rho, exclusive.alpha, exclusive.gamma) == (0.5, 0.1, 0.0)


@pytest.mark.parametrize(
    ("table", "schedule"),
    [
        ({"schedule": "linear"}, Linear()),
        ({"schedule": "logistic", "height": 0.5, "centre": 0.2, "width": 0.1}, Logistic(0.5, 0.2, 0.1)),
    ],
)
def test_a_schedule_may_be_a_table(table: dict[str, object], schedule: object) -> None:
    loss = make_loss("ece", {"rho": table})
    assert isinstance(loss, ExclusiveCrossEntropy)
    assert loss.rho == schedule


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("foacl", {}, r"'foacl'; did you mean 'focal'\? Known are ece, ece-plain,"),
        ("zzz", {}, r"no loss 'zzz'\. Known are ece"),
        ("focal", {"gama": 1}, "'focal'.* 'gama'; did you mean 'gamma'.* alpha, gamma"),
        ("ece", {"rho": {"schedule": "linaer"}}, "'linaer'; did you mean 'linear'"),
        ("ece", {"rho": {"top": 0.5}}, "names no schedule; add schedule = one of constant, linear"),
        (
            "ece",
            {"rho": {"schedule": "linear", "topp": 1}},
            "'linear'.* 'topp'; did you mean 'top'",
        ),
        ("ece", {"rho": {"schedule": "logistic"}}, "'logistic' cannot be made from"),
        ("ece", {"alpha": -1.0}, "alpha is -1"),
    ],
)
def test_unknown_names_list_the_known_ones(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_loss(name, options)


OWN = """
from dataclasses import dataclass
import torch
from sparseshot.losses import Loss, foreground_logit

@dataclass(eq=False, repr=False, kw_only=True)
class Brier(Loss):
    weight: float = 1.0

    def losses(self, locations):
        p = torch.sigmoid(foreground_logit(locations.logits))
        return self.weight * (p - locations.foreground.float()) ** 2

def not_a_class(**options):
    raise AssertionError("called")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_losses.py").write_text(OWN)
    (tmp_path / "broken_losses.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_loss_of_ones_own_is_named_by_module_and_class() -> None:
    loss = make_loss("own_losses:Brier", {"weight": 2.0})
    assert float(loss(torch.zeros(1, 1), torch.tensor([1]))) == 0.5


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_losses:Brier", {}, "no module 'no_such_losses'.*PYTHONPATH"),
        (":Brier", {}, "no module ''"),
        ("broken_losses:Brier", {}, "cannot be imported: ModuleNotFoundError.*no_such_package"),
        ("own_losses:Bier", {}, "'Bier' in own_losses is missing"),
        ("own_losses:not_a_class", {}, "no subclass"),
        ("subprocess:Popen", {"args": "true"}, "no subclass"),
        ("own_losses:Brier", {"wight": 1}, "did you mean 'weight'"),
    ],
)
def test_what_is_no_loss_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_loss(name, options)
