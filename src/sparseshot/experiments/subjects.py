"""What a run looks for: all cells or some classes, in a benchmark set or in the user's own images."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sparseshot.datasets import dataset_info, load_dataset
from sparseshot.datasets.layout import find_layout
from sparseshot.errors import DataNotFoundError, FormatError, InputError, SparseshotError
from sparseshot.training.annotated import AnnotatedSlide, TrainingData, open_pairs, open_samples
from sparseshot.training.pairs import pairs_in_csv


@dataclass(frozen=True)
class OwnData:
    """The user's own images.

    Attributes:
        title: shown in reports.
        train: path of a CSV file with the columns slide and marks.
        test: the same for exhaustively marked images.
        mpp: µm per pixel of images that do not record it.
        exhaustive_class: annotations of this class are regions where every cell is marked.
    """

    title: str
    train: str
    test: str
    mpp: float | None = None
    exhaustive_class: str = "Exhaustive"


@dataclass(frozen=True)
class Subject:
    """Data set and classes of a run.

    Attributes:
        dataset: a name in the catalogue, or the name of the user's own images.
        classes: those to look for; empty for every cell.
        negative_classes: those whose marks are certain negatives.
        own: the user's own images; None for a set of the catalogue.
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
        """Short name, valid in a path."""
        positive = "." + "+".join(map(_slug, self.classes)) if self.classes else ""
        negative = "".join(f"~{_slug(name)}" for name in self.negative_classes)
        return self.dataset + positive + negative + ("" if self.marking == "random" else f"@{self.marking}")

    @property
    def title(self) -> str:
        """Name shown in reports."""
        data = dataset_info(self.dataset).title if self.own is None else self.own.title
        classes = f", {' and '.join(self.classes)}" if self.classes else ""
        return data + classes + ("" if self.marking == "random" else f", marked by {self.marking}")

    @property
    def licence(self) -> str:
        """Licence of the images."""
        return dataset_info(self.dataset).licence if self.own is None else "your own"

    @property
    def credit(self) -> str:
        """Attribution shown below an image."""
        if self.own is not None:
            return self.own.title
        info = dataset_info(self.dataset)
        return f"{info.title}, {info.licence}; {info.citation}"

    def check_data(self, root: Path | None) -> None:
        """Raise if there are no images to train on, or none to test on."""
        if self.own is not None:
            for path in map(Path, (self.own.train, self.own.test)):
                if not pairs_in_csv(path):
                    raise FormatError(path, "names no images; add a row: slide,marks")
            return
        info = dataset_info(self.dataset)
        if root is None:
            raise InputError(f"{info.title} and the other data sets are missing; give --root DIR")
        if not root.is_dir():
            raise DataNotFoundError(root, "there is no such folder; give --root, the folder of the data sets")
        splits = {entry.split for entry in find_layout(info, root).entries}
        for split in ("train", "test"):
            if split not in splits:
                raise DataNotFoundError(
                    root, f"{info.title} has no {split} images here; complete the folder, or use --only"
                )

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of the user's own files that exist, by path; a published set has none."""
        if self.own is None:
            return {}
        pairs = [pair for path in (self.own.train, self.own.test) for pair in _pairs_there(Path(path))]
        return TrainingData(pairs=tuple(pairs)).fingerprint()

    def source(self, root: Path | None, *, fraction: float, seed: int) -> TrainingData:
        """Return what a run is trained on."""
        if self.own is None:
            return TrainingData(
                dataset=self.dataset, root=root, fraction=fraction, seed=seed, marking=self.marking
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
            assert root is not None, "check_data came first"
            return open_samples(load_dataset(self.dataset, root, split="test"))
        return open_pairs(
            pairs_in_csv(Path(self.own.test)),
            mpp=self.own.mpp,
            exhaustive_class=self.own.exhaustive_class,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the subject that ``dataclasses.asdict`` and JSON made ``values`` of."""
        own = values.get("own")
        return cls(
            values["dataset"],
            tuple(values["classes"]),
            tuple(values["negative_classes"]),
            None if own is None else OwnData(**own),
            values.get("marking", "random"),
        )


def _pairs_there(path: Path) -> list[tuple[Path, Path]]:
    try:
        return pairs_in_csv(path)
    except SparseshotError:  # a finished run does not need its data
        return []


def _slug(name: str) -> str:
    """Return a class name as a part of a folder name; names that differ have slugs that differ.

    >>> _slug("tumour cell"), _slug("CD3+"), _slug("CD3-")
    ('tumour_cell', 'CD3_5469', 'CD3_be36')
    """
    slug = re.sub(r"\W+", "_", name)
    if re.fullmatch(r"[\w ]*", name):
        return slug
    return f"{slug.strip('_')}_{hashlib.sha256(name.encode()).hexdigest()[:4]}"
