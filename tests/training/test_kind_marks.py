"""Marks with class names are learned as kinds of the cells that the start finds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
import torch
from tests.training.blobs import blobs, tiny_config, tiny_request

from sparseshot.cells import Cells
from sparseshot.models.checkpoint import Checkpoint, fingerprint
from sparseshot.models.config import TrainSettings
from sparseshot.models.kinds import OTHER
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.kind_marks import for_finding, with_kinds
from sparseshot.training.lineage import Start
from sparseshot.training.recipe import TrainRequest, resolve

pytestmark = pytest.mark.filterwarnings("ignore::sparseshot.errors.TrainingWarning")


def start(**changes: object) -> Checkpoint:
    """A model with features, whose every grid cell is a cell."""
    torch.manual_seed(0)
    settings = tiny_config("detect", kind_features=8, **changes)
    weights = settings.make_task().network().state_dict()
    weights["head.bias"][0] = 3.0
    return Checkpoint(settings, weights, 0, threshold=0.5)


def marks(*names: str) -> Cells:
    _, truth = blobs(0)
    return replace(
        truth, outline=None, classes=names, label=np.arange(len(truth), dtype=np.int16) % len(names)
    )


def resolved(cells: Cells, **settings: object) -> tuple[TrainSettings, str]:
    request = TrainRequest(tiny_request("detect", start="a-run", **settings), TrainingData())
    recipe, said = resolve(request, [cells], Start(start()))
    return recipe.settings, " ".join(said)


def test_named_classes_are_kinds_by_default() -> None:
    settings, said = resolved(marks("Lymphocyte", "Tumour"))
    assert settings.by_kind
    assert settings.classes == ("Lymphocyte", "Tumour")
    assert settings.labelling.out_channels == 1
    assert "the others become Other" in said


@pytest.mark.parametrize(
    ("names", "given", "kinds"),
    [
        (("Lymphocyte",), {}, ("Lymphocyte",)),
        (("Nucleus",), {}, None),
        (("a", "b"), {"classes": ()}, None),
        (("a", "b"), {"classes": ("b",)}, ("b",)),
        (("Tumour", "tumour"), {}, ("Tumour",)),
    ],
)
def test_what_is_learned_as_kinds(
    names: tuple[str, ...], given: dict[str, object], kinds: tuple[str, ...] | None
) -> None:
    settings, _ = resolved(marks(*names), **given)
    assert (settings.classes if settings.by_kind else None) == kinds


def test_rejected_cells_and_regions_do_not_teach_finding() -> None:
    cells = replace(marks("a", "Rejected"), regions=np.array([shapely.box(0, 0, 50, 50)]))
    settings = tiny_config("detect", classes=("a",), by_kind=True)
    item = for_finding(AnnotatedSlide(blobs(0)[0], cells), settings)
    assert item.marks.counts() == {"a": 15, "Rejected": 0}
    assert not len(item.marks.regions)


def test_a_model_with_kinds_assigns_them_and_survives_its_file(tmp_path: Path) -> None:
    slide, _ = blobs(0)
    model = start(classes=("a", "b"), by_kind=True)
    learned = with_kinds(model, [AnnotatedSlide(slide, marks("a", "b"))])
    assert learned.classes == (OTHER, "a", "b")
    assert learned.colors[0] == "#808080"
    assert fingerprint(learned) != fingerprint(model)
    learned.save(tmp_path / "model.pt")
    again = Checkpoint.load(tmp_path / "model.pt")
    assert fingerprint(again) == fingerprint(learned)
    item = AnnotatedSlide(slide, Cells(np.empty((0, 2))))
    features = item.look_at(again.network(), again.config, threshold=0.5).cells_and_features[1]
    assert again.kinds is not None
    assert learned.kinds is not None
    np.testing.assert_array_equal(again.kinds.logits(features), learned.kinds.logits(features))
