"""What is looked for: cells, or some classes of them, in a benchmark set or in one's own images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sparseshot.datasets import dataset_info, load_dataset
from sparseshot.errors import InputError
from sparseshot.training.annotated import AnnotatedSlide, TrainingData, open_pairs, open_samples
from sparseshot.training.pairs import pairs_in_csv


@dataclass(frozen=True)
class OwnData:
    """Images of one's own.

    Attributes:
        title: for people.
        train: path of a CSV file with the columns slide and marks.
        test: the same for images all of whose cells are marked.
        mpp: µm per pixel of images that do not tell.
        exhaustive_class: annotations of this class are regions where everything is marked.
    """

    title: str
    train: str
    test: str
    mpp: float | None = None
    exhaustive_class: str = "Exhaustive"


@dataclass(frozen=True)
class Subject:
    """What is looked for.

    Attributes:
        dataset: a name in the catalogue, or the name of one's own images.
        classes: those to look for; empty: every cell.
        negative_classes: those whose marks are certain negatives.
        own: where one's own images are; None for a set of the catalogue.
        marking: how marks are chosen, one of :data:`sparseshot.cells.MARKINGS`.

    >>> Subject("brca_m2c", ("lymphocyte",), ("tumour",)).name
    'brca_m2c.lymphocyte~tumour'
    >>> Subject("brca_m2c", ("lymphocyte",)).title
    'BRCA-M2C, lymphocyte'
    """

    dataset: str
    classes: tuple[str, ...] = ()
    negative_classes: tuple[str, ...] = ()
    own: OwnData | None = None
    marking: str = "random"

    @property
    def name(self) -> str:
        """Short and fit for a folder."""
        wanted = "." + "+".join(map(_slug, self.classes)) if self.classes else ""
        without = "".join(f"~{_slug(name)}" for name in self.negative_classes)
        return self.dataset + wanted + without + ("" if self.marking == "random" else f"@{self.marking}")

    @property
    def title(self) -> str:
        """For people."""
        data = dataset_info(self.dataset).title if self.own is None else self.own.title
        wanted = f", {' and '.join(self.classes)}" if self.classes else ""
        return data + wanted + ("" if self.marking == "random" else f", marked by {self.marking}")

    @property
    def licence(self) -> str:
        """Of its images."""
        return dataset_info(self.dataset).licence if self.own is None else "your own"

    @property
    def credit(self) -> str:
        """Whom to name under an image."""
        if self.own is not None:
            return self.own.title
        info = dataset_info(self.dataset)
        return f"{info.title}, {info.licence}; {info.citation}"

    def source(self, root: Path | None, *, fraction: float, seed: int) -> TrainingData:
        """Return what a run is trained on."""
        if self.own is None:
            return TrainingData(
                dataset=self.dataset, root=_needed(root), fraction=fraction, seed=seed, marking=self.marking
            )
        return TrainingData(
            pairs=tuple(pairs_in_csv(Path(self.own.train))),
            fraction=fraction,
            seed=seed,
            marking=self.marking,
            mpp=self.own.mpp,
            exhaustive_class=self.own.exhaustive_class,
        )

    def test_images(self, root: Path | None) -> list[AnnotatedSlide]:
        """Open the images a run is tested on."""
        if self.own is None:
            return open_samples(load_dataset(self.dataset, _needed(root), split="test"))
        return open_pairs(
            pairs_in_csv(Path(self.own.test)),
            mpp=self.own.mpp,
            exhaustive_class=self.own.exhaustive_class,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Make it from what JSON holds."""
        own = values.get("own")
        return cls(
            values["dataset"],
            tuple(values["classes"]),
            tuple(values["negative_classes"]),
            None if own is None else OwnData(**own),
            values.get("marking", "random"),
        )


def _needed(root: Path | None) -> Path:
    if root is None:
        raise InputError("say where the data sets are: --root DIR")
    return root


def _slug(name: str) -> str:
    return re.sub(r"[^\w]+", "_", name)
