"""An experiment: runs that differ in data set, task, method, fraction of the marks and seed."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from sparseshot.datasets import DatasetInfo, dataset_info, load_dataset
from sparseshot.datasets.catalogue import Splits
from sparseshot.datasets.layout import find_layout
from sparseshot.errors import DataNotFoundError, FormatError, InputError, SparseshotError
from sparseshot.models.config import TrainConfig, make_config
from sparseshot.training.annotated import AnnotatedSlide, TrainingData, open_samples
from sparseshot.training.pairs import pairs_in_csv
from sparseshot.training.recipe import TrainRequest, WeakSupervision

SYNTHETIC = "synthetic"
"""Name of the synthetic slide among the data sets; its halves are marked and tested."""
_SYNTHETIC_INFO = DatasetInfo(SYNTHETIC, "synthetic slide", (), Splits("its halves"), licence="public domain")

LOSS_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "ece": "exclusive cross-entropy",
        "ece-plain": "exclusive cross-entropy, no re-weighting",
        "ece-nki": "exclusive cross-entropy, the authors' package",
        "adaptive": "adaptive exclusive cross-entropy",
        "ce": "cross-entropy",
        "focal": "focal loss",
        "huber": "Huber loss",
        "recalibration": "background recalibration",
        "nnpu": "non-negative PU",
        "elr": "early-learning regularisation",
        "annotated-only": "annotated only",
        "oracle": "oracle, trained on every cell",
    }
)
"""Names of the losses in reports; others go by their own."""

AUTO = "auto"
"""Loss that a run chooses by its start, as ``sparseshot train`` does."""


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

    def open(self, file: str, **marks: Any) -> TrainingData:
        """Return the images and marks that a CSV file names."""
        return TrainingData(
            pairs=tuple(pairs_in_csv(Path(file))),
            mpp=self.mpp,
            exhaustive_class=self.exhaustive_class,
            **marks,
        )


@dataclass(frozen=True)
class Subject:
    """Data set and classes of a run.

    Attributes:
        dataset: a name in the catalogue, ``FILE:NAME`` of a catalogue file, or the name of own images.
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
        marking = "" if self.marking == "random" else f"@{self.marking}"
        return self.dataset.rpartition(":")[2] + positive + negative + marking

    @property
    def info(self) -> DatasetInfo:
        """Catalogue entry; for images that are in no catalogue, what a report shows of them."""
        if self.own is not None:
            return replace(_SYNTHETIC_INFO, title=self.own.title, licence="your own")
        return _SYNTHETIC_INFO if self.dataset == SYNTHETIC else dataset_info(self.dataset)

    @property
    def title(self) -> str:
        """Name shown in reports."""
        classes = f", {' and '.join(self.classes)}" if self.classes else ""
        return self.info.title + classes + ("" if self.marking == "random" else f", marked by {self.marking}")

    def check_data(self, root: Path | None) -> None:
        """Raise if there are no images to train on, or none to test on."""
        if self.own is not None:
            for path in map(Path, (self.own.train, self.own.test)):
                if not pairs_in_csv(path):
                    raise FormatError(path, "names no images; add a row: slide,marks")
            return
        if self.dataset == SYNTHETIC:
            return
        info = dataset_info(self.dataset)
        if root is None:
            raise InputError(f"{info.title} and the other data sets are missing; give --root DIR")
        splits = {entry.split for entry in find_layout(info, root).entries}
        for split in ("train", "test"):
            if split not in splits:
                raise DataNotFoundError(
                    root, f"{info.title} has no {split} images here; complete the folder, or use --only"
                )

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of the user's own files that exist, by path; a published set has none."""
        files: dict[str, str] = {}
        for path in (self.own.train, self.own.test) if self.own is not None else ():
            try:
                files |= TrainingData(pairs=tuple(pairs_in_csv(Path(path)))).fingerprint()
            except SparseshotError:  # a finished run does not need its data
                continue
        return files

    def source(self, root: Path | None, *, fraction: float, seed: int) -> TrainingData:
        """Return the training data of a run."""
        if self.dataset == SYNTHETIC and root is not None:  # of the demo, which has marked a part of it
            return TrainingData(pairs=((root / "slide.tif", root / "marks.geojson"),))
        marks: dict[str, Any] = {"fraction": fraction, "seed": seed, "marking": self.marking}
        if self.own is None:
            return TrainingData(dataset=self.dataset, root=root, **marks)
        return self.own.open(self.own.train, **marks)

    def test_images(self, root: Path | None) -> list[AnnotatedSlide]:
        """Open the images a run is tested on."""
        if self.own is not None:
            return self.own.open(self.own.test).load()[0]
        assert root is not None, "check_data came first"
        return open_samples(load_dataset(self.dataset, root, split="test"))


@dataclass(frozen=True)
class Method:
    """One row of a comparison: a loss with its options, and rounds of weak supervision if any.

    Attributes:
        name: short, for folders and figures.
        loss: a name of :data:`sparseshot.losses.LOSSES`, or :data:`AUTO`.
        title: shown in reports.
        options: arguments of the loss.
        rounds: trainings in a row; 1 is ordinary training.
        tau: probability from which a prediction becomes a mark of the next round.
        paper: its row in the paper's table, if the experiment reproduces one.
        settings: of :class:`~sparseshot.models.config.TrainConfig`; they override those of the experiment.
        policy: how a simulated annotator spends clicks, a name of
            :data:`sparseshot.active.annotator.POLICIES`; empty: marks are chosen once, at random.
    """

    name: str
    loss: str
    title: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1
    tau: float = 0.75
    paper: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    policy: str = ""

    @property
    def weak(self) -> WeakSupervision:
        """Rounds of weak supervision."""
        return WeakSupervision(self.rounds, self.tau)


@dataclass(frozen=True)
class Run:
    """One training and its evaluation.

    Attributes:
        subject: data set and classes.
        task: ``segment`` or ``detect``.
        method: the loss and its options.
        fraction: of the marks that are kept; above 1 their number; with a policy, the number of clicks.
        seed: of the choice of marks, the weights and everything else that is random.
        profile: a name of :data:`sparseshot.models.config.PROFILES`.
        settings: of :class:`~sparseshot.models.config.TrainConfig`; they override the profile.
    """

    subject: Subject
    task: str
    method: Method
    fraction: float
    seed: int
    profile: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.subject.name}-{self.task}-{self.method.name}-{self.fraction:g}-s{self.seed}"

    def config(self) -> TrainConfig:
        """Return the configuration it is trained with."""
        return make_config(
            self.profile,
            None,
            {
                **self.settings,
                **self.method.settings,
                "task": self.task,
                "loss": None if self.method.loss == AUTO else self.method.loss,
                "loss_options": self.method.options or None,
                "classes": self.subject.classes or None,
                "negative_classes": self.subject.negative_classes,
                "seed": self.seed,
            },
        )

    def request(self, root: Path | None) -> TrainRequest:
        """Return what its training is asked to do, on data sets in a folder."""
        data = self.subject.source(root, fraction=self.fraction, seed=self.seed)
        return TrainRequest(self.config(), data, self.method.weak)

    def recipe(self, files: Mapping[str, str]) -> "RunRecipe":
        """Return what decides its numbers; ``files`` are hashes of the user's own, also of missing ones."""
        own, method = self.subject.own, self.method
        return RunRecipe(
            settings={name: value for name, value in vars(self.config()).items() if value is not None},
            policy=method.policy,
            rounds=method.rounds,
            tau=method.tau if method.rounds > 1 else None,
            mpp=None if own is None else own.mpp,
            exhaustive_class=None if own is None else own.exhaustive_class,
            files={**files, **self.subject.fingerprint()},
        )


@dataclass(frozen=True)
class RunRecipe:
    """What decides the numbers of a run; titles and the place of published data do not.

    Attributes:
        settings: of its training.
        policy: how clicks are spent.
        rounds: of weak supervision.
        tau: of weak supervision.
        mpp: of the user's own images.
        exhaustive_class: of the user's own images.
        files: hashes of the user's own images and marks, by path.
        kind: of work.
    """

    settings: Mapping[str, Any]
    policy: str
    rounds: int
    tau: float | None
    mpp: float | None
    exhaustive_class: str | None
    files: Mapping[str, str]
    kind: Literal["run"] = "run"


@dataclass(frozen=True)
class Experiment:
    """Runs that belong together.

    Attributes:
        name: short, valid as a file name.
        title: shown in reports.
        about: its purpose, in a sentence or two.
        runs: in the order in which they run, the most informative first.
        paper_table: table of the paper it reproduces, a name of :data:`sparseshot.experiments.TABLES`.
        file: path of its TOML file; empty for an experiment of the package.
    """

    name: str
    title: str
    about: str
    runs: tuple[Run, ...]
    paper_table: str | None = None
    file: str = ""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, in order of appearance."""
        return tuple(dict.fromkeys(run.subject.dataset for run in self.runs))


def _slug(name: str) -> str:
    """Return a class name as a part of a folder name; names that differ in more than spaces stay different.

    >>> _slug("tumour cell"), _slug("CD3+"), _slug("CD3-")
    ('tumour_cell', 'CD3_5469', 'CD3_be36')
    """
    slug = re.sub(r"\W+", "_", name)
    if re.fullmatch(r"[\w ]*", name):
        return slug
    return f"{slug.strip('_')}_{hashlib.sha256(name.encode()).hexdigest()[:4]}"
