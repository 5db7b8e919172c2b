"""Targets of classes: positives, certain negatives, unused."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.errors import InputError

NEGATIVE = 0
UNUSED = -1

REJECTED = "Rejected"
"""Class of predictions that a person has rejected: certain negatives, without being named as such."""

SUGGESTED = "Suggested"
"""Class of a suggested region in QuPath; the person who has marked all of its cells makes it Exhaustive."""


@dataclass(frozen=True)
class Labelling:
    """Mapping from class names to targets.

    Attributes:
        classes: the classes to learn, in the order of the logits; empty: every mark is a "cell".
        negative: classes whose marks are certain negatives.

    Marks of class :data:`REJECTED` are certain negatives too, unless that is a class to learn. Marks of other
    classes are unused: their places count as unannotated.

    >>> cells = Cells([[1, 1], [2, 2], [3, 3]], classes=("tumour", "immune", "dust"), label=[0, 1, 2])
    >>> Labelling(classes=("immune",), negative=("dust",)).targets(cells)
    array([-1,  1,  0], dtype=int16)
    >>> Labelling(negative=("dust",)).targets(cells)
    array([1, 1, 0], dtype=int16)
    """

    classes: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        both = sorted(set(self.classes) & set(self.negative))
        if both:
            raise InputError(f"{both[0]!r} is both a class to learn and a negative; name it once")
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"classes {self.classes} repeat a name")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes that a model finds."""
        return self.classes or ("cell",)

    @property
    def out_channels(self) -> int:
        """Number of logits: 1 for one class, C + 1 for C classes and background."""
        return 1 if len(self.names) == 1 else len(self.names) + 1

    def is_negative(self, name: str) -> bool:
        """Return whether marks of a class are certain negatives."""
        return name in self.negative or (name == REJECTED and name not in self.classes)

    def targets(self, cells: Cells) -> NDArray[np.int16]:
        """Return the target of each cell: 1…C, :data:`NEGATIVE` or :data:`UNUSED`."""
        wanted = {name: index + 1 for index, name in enumerate(self.classes)}
        rest = UNUSED if self.classes else 1
        by_class = [NEGATIVE if self.is_negative(name) else wanted.get(name, rest) for name in cells.classes]
        return np.array([*by_class, rest], np.int16)[cells.label]  # the last one is for label -1: no class

    def check(self, known: set[str]) -> None:
        """Raise if a named class is in none of the marks."""
        for name in (*self.classes, *self.negative):
            if name not in known:
                raise InputError(
                    f"no mark is of class {name!r}; the marks have {', '.join(sorted(known)) or 'none'}"
                )

    def positives(self, cells: Cells) -> Cells:
        """Return the cells of the classes to learn, with the class names of the model."""
        targets = self.targets(cells)
        return replace(cells[targets > 0], classes=self.names, label=targets[targets > 0] - 1, colors=None)

    def negatives(self, cells: Cells) -> Cells:
        """Return the cells that are certain negatives, as one class."""
        chosen = cells[self.targets(cells) == NEGATIVE]
        return replace(chosen, classes=("negative",), label=np.zeros(len(chosen), np.int16), colors=None)
