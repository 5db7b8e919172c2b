"""Reviewed regions as marks."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import shapely

from sparseshot.active.review import ReviewNote, add_review, is_proposed, is_rejected, review_region
from sparseshot.cells import Cells, read_cells
from sparseshot.errors import InputError, TrainingWarning
from sparseshot.models.labelling import REJECTED, Labelling
from sparseshot.training.mark_checks import warn_of_contradictions

REGION = shapely.box(0, 0, 100, 100)
WHEN = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


def proposed() -> Cells:
    return Cells(
        [[10, 10], [50, 50], [80, 80], [300, 10]],
        classes=("tumour", "immune"),
        label=[0, 1, 0, 0],
        score=[1.0, 0.7, 0.6, 0.9],
        mpp=0.5,
    )


def reviewed() -> Cells:
    added = Cells([[20, 80], [82, 80]], classes=("immune",), mpp=0.5)
    return review_region(REGION, proposed(), removed=[1, 2], added=added, by="Anna Ü", model="a1b2", at=WHEN)


def test_accepted_added_and_rejected_are_told_apart() -> None:
    marks = reviewed()
    # The third prediction lies 1 µm beside an added mark: it was moved, not rejected.
    assert marks.counts() == {"tumour": 1, "immune": 2, "Rejected": 1}
    assert is_proposed(marks).tolist() == [True, False, False, True]
    assert is_rejected(marks).tolist() == [False, False, False, True]
    assert marks.xy[is_rejected(marks)].tolist() == [[50.0, 50.0]]
    assert marks.score is not None
    assert marks.score[0] < 1  # although the model gave it 1


@pytest.mark.parametrize("name", ["marks.geojson", "marks.parquet"])
def test_a_review_survives_files(name: str, tmp_path: Path) -> None:
    marks = reviewed()
    drawn = Cells([], mpp=0.5, regions=[shapely.box(200, 0, 300, 50)], classes=())
    Cells.concatenate([marks, drawn]).write(tmp_path / name)
    back = read_cells(tmp_path / name)
    assert back.counts() == marks.counts()
    assert is_proposed(back).tolist() == is_proposed(marks).tolist()
    assert is_rejected(back).tolist() == is_rejected(marks).tolist()
    assert back.region_notes is not None
    assert ReviewNote.of(back.region_notes[0]) == ReviewNote("Anna Ü", "2026-05-04T12:30:00+00:00", "a1b2")
    assert back.region_notes[0]["name"] == "Reviewed by Anna Ü"
    assert back.region_notes[1] == {}
    assert ReviewNote.of(back.region_notes[1]) is None
    assert shapely.equals(back.regions[0], REGION)


def test_rejected_predictions_are_negatives_without_being_told() -> None:
    marks = reviewed()
    targets = Labelling().targets(marks)
    assert targets[is_rejected(marks)].tolist() == [0]
    assert (targets[~is_rejected(marks)] == 1).all()
    assert Labelling((REJECTED,)).targets(marks)[is_rejected(marks)].tolist() == [1]  # unless it is learned


def test_a_review_replaces_what_was_proposed_before() -> None:
    by_hand = Cells([[11, 10], [51, 50], [500, 500]], classes=("tumour",), mpp=0.5)
    once = add_review(by_hand, reviewed())
    # The mark beside the accepted prediction stays, the one on the rejected prediction goes.
    assert sorted(map(tuple, once.xy.tolist())) == [(11, 10), (20, 80), (50, 50), (82, 80), (500, 500)]
    assert len(once.regions) == 1
    twice = add_review(once, reviewed())
    assert sorted(map(tuple, twice.xy.tolist())) == sorted(map(tuple, once.xy.tolist()))
    assert len(twice.regions) == 1
    assert twice.counts() == once.counts()
    empty = add_review(Cells([], mpp=0.5), reviewed())
    assert empty.counts() == reviewed().counts()


def test_marks_without_a_resolution_take_that_of_the_review() -> None:
    marks = add_review(Cells([[11, 10], [500, 500]], classes=("tumour",)), reviewed())
    assert marks.mpp == 0.5
    assert len(marks) == 5  # the accepted prediction beside the first mark is the same cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"region": shapely.Polygon([(0, 0), (9, 9), (9, 0), (0, 9)])}, "one valid polygon"),
        ({"removed": [7]}, "names cell 7, but 4 were proposed"),
        ({"removed": [True]}, "removed has shape"),
        ({"proposed": replace(proposed(), score=None)}, "no scores"),
        ({"added": Cells([[1, 1]], mpp=0.25)}, "0.25 µm/px"),
    ],
)
def test_bad_reviews(change: dict[str, object], message: str) -> None:
    arguments = {"region": REGION, "proposed": proposed()} | change
    with pytest.raises(InputError, match=message):
        review_region(**arguments)


def test_notes_are_texts_one_for_each_region() -> None:
    with pytest.raises(InputError, match="2 notes for 1 regions"):
        Cells([], regions=[REGION], region_notes=[{}, {}])
    with pytest.raises(InputError, match="give a mapping of texts"):
        Cells([], regions=[REGION], region_notes=[{"a": 1}])  # type: ignore[dict-item]
    cells = Cells([], regions=[REGION, shapely.box(500, 0, 600, 9)], region_notes=[{"a": "b"}, {}])
    (note,) = cells.crop(0, 0, 200, 200).region_notes  # type: ignore[misc]
    assert note == {"a": "b"}


def test_contradictions_are_named() -> None:
    marks = Cells(
        [[10, 10], [11, 10], [50, 50], [70, 70]],
        classes=("tumour", REJECTED),
        label=[0, 1, 0, 1],
        mpp=0.5,
    )
    with pytest.warns(TrainingWarning, match=r"a: 1 cell is marked as .*: tumour and Rejected at \(10, 10\)"):
        warn_of_contradictions(marks, Labelling(), "a")
    outline = np.array([None, None, shapely.box(30, 30, 75, 75), None], object)
    with pytest.warns(TrainingWarning, match=r"2 cells are marked .*\(50, 50\)"):
        warn_of_contradictions(replace(marks, outline=outline), Labelling(), "a")
    warn_of_contradictions(marks[1:], Labelling(), "a")


def test_a_region_without_marks_is_named() -> None:
    empty = shapely.box(200, 200, 300, 300)
    marks = replace(reviewed(), regions=np.array([REGION, empty], object), region_notes=None)
    with pytest.warns(TrainingWarning, match=r"1 region is declared exhaustive .* around \(250, 250\)"):
        warn_of_contradictions(marks, Labelling(), "a")
    warn_of_contradictions(reviewed(), Labelling(), "a")
