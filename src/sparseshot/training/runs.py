"""A run from its source to its model: what the command line and experiments call."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from lightning_fabric import Fabric

from sparseshot.cells import MARKINGS
from sparseshot.datasets import Split, load_dataset
from sparseshot.errors import DataNotFoundError, FormatError, InputError, OutputError
from sparseshot.files import replacing
from sparseshot.images import open_slide
from sparseshot.training.checkpoint import Checkpoint
from sparseshot.training.config import PROFILES, TrainConfig
from sparseshot.training.evaluation import Evaluation, Known, evaluate
from sparseshot.training.inputs import (
    TrainingData,
    find_pairs,
    training_data_of_dataset,
    training_data_of_pairs,
)
from sparseshot.training.loop import MODEL, train
from sparseshot.training.machine import find_device
from sparseshot.training.pictures import Shown, write_picture
from sparseshot.training.prepare import Marked, prepare
from sparseshot.training.rounds import WeakSupervision, train_in_rounds

SOURCE = "source.json"


@dataclass(frozen=True)
class Source:
    """What a run is trained on: a benchmark set, or pairs of slides and marks.

    Attributes:
        dataset: name in the catalogue, or None.
        root: its folder.
        pairs: images or slides and the files of their marks.
        fraction: share of the marks that is kept.
        seed: which marks are kept.
        marking: how they are chosen, one of :data:`sparseshot.cells.MARKINGS`.
        mpp: µm per pixel of slides that do not tell.
        exhaustive_class: annotations of this class are regions where everything is marked.
    """

    dataset: str | None = None
    root: Path | None = None
    pairs: tuple[tuple[Path, Path], ...] = ()
    fraction: float = 1.0
    seed: int = 0
    marking: str = "random"
    mpp: float | None = None
    exhaustive_class: str = "Exhaustive"

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction is {self.fraction}; give a share of the marks above 0, up to 1")
        if self.marking not in MARKINGS:
            raise InputError(f"there is no marking {self.marking!r}; there are {', '.join(MARKINGS)}")
        if self.root is not None and not self.root.is_dir():
            raise DataNotFoundError(
                self.root, "there is no such folder; give the one that holds the data set"
            )

    def load(self) -> TrainingData:
        """Open everything."""
        if self.dataset is not None and self.root is not None:
            return training_data_of_dataset(
                self.dataset, self.root, fraction=self.fraction, seed=self.seed, marking=self.marking
            )
        return training_data_of_pairs(
            self.pairs,
            mpp=self.mpp,
            exhaustive_class=self.exhaustive_class,
            fraction=self.fraction,
            seed=self.seed,
            marking=self.marking,
        )

    def to_json(self) -> str:
        """Return the source as JSON."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(values, indent=1, default=str)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`to_json` gave."""
        try:
            values = json.loads(path.read_text())
            root = None if values["root"] is None else Path(values["root"])
            pairs = tuple((Path(image), Path(marks)) for image, marks in values["pairs"])
            return cls(**(values | {"root": root, "pairs": pairs}))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FormatError(path, f"does not tell what the run was trained on ({error})") from error


def make_config(profile: str, file: Path | None, settings: Mapping[str, Any]) -> TrainConfig:
    """Make a configuration from a profile, then a TOML file, then settings, each over the one before."""
    if profile not in PROFILES:
        raise InputError(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    values = dict(PROFILES[profile])
    if file is not None:
        try:
            values |= tomllib.loads(file.read_text())
        except OSError as error:
            raise DataNotFoundError(file, f"cannot be read ({error.strerror})") from error
        except tomllib.TOMLDecodeError as error:
            raise FormatError(file, f"is not TOML ({error})") from error
    known = [item.name for item in fields(TrainConfig)]
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(
                f"{file or profile}: there is no setting {name!r}{hint} Known are {', '.join(known)}"
            )
    return TrainConfig(**{**values, **settings})


def train_run(
    config: TrainConfig,
    source: Source,
    folder: Path,
    *,
    weak: WeakSupervision | None = None,
    fabric: Fabric | None = None,
    show: bool = True,
) -> Checkpoint:
    """Train what a source holds, in as many rounds as wished; a finished run is only loaded."""
    material = source.load()
    folder.mkdir(parents=True, exist_ok=True)
    _claim_source(folder / SOURCE, source)

    def trainer(marked: Sequence[Marked], where: Path) -> Checkpoint:
        canvases, held_out = prepare(marked, material.validation, config)
        return train(config, canvases, held_out, where, fabric=fabric, show=show)

    return train_in_rounds(weak or WeakSupervision(1), config, material.training, folder, trainer=trainer)


def run_checkpoint(run: Path) -> Checkpoint:
    """Load the model of a run folder, or a model file itself."""
    return Checkpoint.load(run / MODEL if run.is_dir() else run)


def _claim_source(path: Path, source: Source) -> None:
    """Write down what the run is trained on, or see that it is still the same."""
    if path.exists():
        if Source.read(path) != source:
            raise OutputError(path.parent, "holds a run on other images or marks; choose another folder")
        return
    with replacing(path) as temporary:
        temporary.write_text(source.to_json())


def run_source(run: Path) -> Source:
    """Tell what a run was trained on."""
    folder = run if run.is_dir() else run.parent
    if not (folder / SOURCE).is_file():
        raise DataNotFoundError(
            folder / SOURCE, "is missing, so say what to evaluate on: --dataset or --images"
        )
    return Source.read(folder / SOURCE)


def known_of_dataset(
    name: str, root: Path, *, split: Split, trained_on: Source | None = None
) -> tuple[list[Known], list[Shown]]:
    """Return the images of a split to count on, and some to show, one that it was trained on among them."""
    samples = load_dataset(name, root, split=split).samples
    known = [Known(open_slide(sample.image, mpp=sample.mpp), sample.cells) for sample in samples]
    shown = [Shown(item.slide, item.truth) for item in known[:: max(1, len(known) // 3)][:3]]
    if trained_on is not None and trained_on.dataset == name and trained_on.root == root:
        item = trained_on.load().training[0]
        if item.truth is not None:
            shown.insert(0, Shown(item.slide, item.truth, item.marks))
    return known, shown


def known_of_pairs(
    images: Sequence[Path], marks: Sequence[Path], *, mpp: float | None
) -> tuple[list[Known], list[Shown]]:
    """Return one's own exhaustively marked images, to count on and to show."""
    material = training_data_of_pairs(
        find_pairs(images, marks, None), mpp=mpp, exhaustive_class="Exhaustive", fraction=1.0, seed=0
    )
    known = [Known(item.slide, item.marks) for item in material.training]
    return known, [Shown(item.slide, item.truth) for item in known[:4]]


def evaluate_run(
    run: Path, images: Sequence[Known], shown: Sequence[Shown], out: Path, *, device: str = "cpu"
) -> Evaluation:
    """Evaluate a run's model; write ``evaluation.json`` and ``evaluation.png`` to ``out``."""
    if not images:
        raise InputError("no images to evaluate on; choose another split or give --images")
    checkpoint = run_checkpoint(run)
    result = evaluate(checkpoint, images, device=find_device(device))
    out.mkdir(parents=True, exist_ok=True)
    result.write(out / "evaluation.json")
    threshold = 0.5 if checkpoint.threshold is None else checkpoint.threshold
    write_picture(out / "evaluation.png", checkpoint, shown, threshold=threshold)
    return result
