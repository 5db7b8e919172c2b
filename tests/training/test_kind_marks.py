"""Marks with class names are learned as kinds of the cells that the start finds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
import torch
from PIL import Image
from tests.training.blobs import ArraySlide, blobs, tiny_config, tiny_request

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.models.checkpoint import Checkpoint, fingerprint
from sparseshot.models.config import TrainSettings
from sparseshot.models.inference import look_at
from sparseshot.models.kinds import OTHER
from sparseshot.models.model_files import load_model
from sparseshot.prediction import Model
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.kind_marks import classify_cells, for_finding, with_kinds
from sparseshot.training.lineage import Start
from sparseshot.training.recipe import TrainRequest, resolve
from sparseshot.training.runs import train_run

pytestmark = pytest.mark.filterwarnings("ignore::sparseshot.errors.TrainingWarning")


def test_kinds_with_colors_of_their_own_are_found_as_cells() -> None:
    slide, truth = blobs(0)
    model = start(classes=("a", "b"), colors=("#ff0000", "#00ff00"), by_kind=True)
    item = AnnotatedSlide(slide, truth)
    assert item.look_at(model.network(), model.config, threshold=0.5).cells.classes == ("cell",)
    assert model.colors == ()


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


def test_kinds_never_disturb_finding(tmp_path: Path) -> None:
    slide, _ = blobs(0)
    Image.fromarray(slide.pixels).save(tmp_path / "a.png")
    replace(marks("a", "b")[:24], mpp=0.5).write(tmp_path / "a.geojson")
    (tmp_path / "before").mkdir()
    start().save(tmp_path / "before" / "model.pt")
    data = TrainingData(pairs=((tmp_path / "a.png", tmp_path / "a.geojson"),), mpp=0.5)
    trained = [
        train_run(
            tiny_request("detect", start=str(tmp_path / "before" / "model.pt"), classes=classes),
            data,
            tmp_path / str(number),
        )
        for number, classes in enumerate((None, ()))
    ]
    assert [each.kinds is None for each in trained] == [False, True]
    assert trained[0].threshold == trained[1].threshold
    for name, weight in trained[0].weights.items():
        assert torch.equal(weight, trained[1].weights[name]), name


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
    found = item.look_at(again.network(), again.config, threshold=0.5).cells_and_features
    assert again.kinds is not None
    assert learned.kinds is not None
    assert again.kinds.looks_around
    np.testing.assert_array_equal(again.kinds.assign(*found).label, learned.kinds.assign(*found).label)
    loaded = Model.load(again, threshold=0.5, device="cpu")
    seen = look_at(loaded.network, loaded.task, slide, loaded.frame(slide), threshold=0.5).cells
    assert "Probability a" in seen.measurements


def two_kinds() -> tuple[ArraySlide, Cells, Cells]:
    """Make dark discs and reddish ones; return the slide, cells that another program found, and the truth."""
    slide, found = blobs(3, size=320, count=120)
    pixels, red = slide.pixels.astype(int), np.arange(120) % 3 == 0
    row, col = np.mgrid[:320, :320] + 0.5
    for x, y in found.xy[red]:
        pixels[(col - x) ** 2 + (row - y) ** 2 < 25] += (70, 0, -40)
    found = replace(
        found,
        classes=("Nucleus",),
        score=np.linspace(0.2, 1, 120, dtype=np.float32),
        id=np.arange(120) + 7,
        measurements={"Area": np.arange(120.0)},
    )
    truth = Cells(found.xy, classes=("dark", "red"), label=red.astype(int), colors=((9, 9, 9), (200, 0, 0)))
    return ArraySlide(pixels.clip(0, 255).astype(np.uint8)), found, truth


def test_cells_that_others_found_get_kinds_and_nothing_else_changes() -> None:
    slide, found, truth = two_kinds()
    kinds = classify_cells(slide, found, truth[:40], load_model("starter"), device="cpu")
    assert kinds.classes == (OTHER, "dark", "red")
    assert kinds.colors == ((128, 128, 128), (9, 9, 9), (200, 0, 0))
    # Unmarked dark cells may remain Other, but kinds are not mistaken for each other.
    assert ((kinds.label == 2) == (truth.label == 1)).mean() > 0.95
    assert (kinds.label == 1)[truth.label == 0].mean() > 0.4
    for column in ("xy", "outline", "id", "score"):
        np.testing.assert_array_equal(getattr(kinds, column), getattr(found, column))
    np.testing.assert_array_equal(kinds.measurements["Area"], found.measurements["Area"])
    p = sum(kinds.measurements[f"Probability {name}"] for name in kinds.classes)
    np.testing.assert_allclose(p, 1, atol=1e-3)


def test_with_one_marked_class_the_others_become_other() -> None:
    slide, found, truth = two_kinds()
    marks = truth[truth.label == 1][:15]
    points = replace(found, outline=None, mpp=None)
    kinds = classify_cells(slide, points, marks, load_model("starter"), device="cpu")
    assert kinds.classes == (OTHER, "red")
    assert (kinds.label == truth.label).mean() > 0.9
    assert kinds.outline is None


def test_what_cannot_be_classified_is_told() -> None:
    slide, found, truth = two_kinds()
    model = load_model("starter")
    beside = replace(found, xy=found.xy + np.where(np.arange(120) < 2, 400, 0)[:, None])
    with pytest.raises(
        InputError, match=r"2 of 120 cells lie outside array, which has 320 × 320 pixels; the"
    ):
        classify_cells(slide, beside, truth, model)
    with pytest.raises(InputError, match=r"0.25 µm per pixel, and array has 0.5"):
        classify_cells(slide, replace(found, mpp=0.25), truth, model)
    with pytest.raises(InputError, match="none of 120 cells lies near a mark of dark, red"):
        classify_cells(slide, found, Cells([[0, 0], [319, 0]], classes=truth.classes, label=[0, 1]), model)
    with pytest.raises(InputError, match="none of 0 cells lies near"):
        classify_cells(slide, found[:0], truth, model)
    with pytest.raises(InputError, match="name no kind of cell"):
        classify_cells(slide, found, found, model)
    with pytest.raises(InputError, match="no features to tell kinds apart"):
        classify_cells(slide, found, truth, replace(start(), config=tiny_config("detect")))
