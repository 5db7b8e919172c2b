"""Slides with the cells people marked on them, and what a run is trained on."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter
from torch import nn

from sparseshot.cells import MARKINGS, Cells, choose_marks, read_cells
from sparseshot.cells.summary import without_large_outlines
from sparseshot.datasets import Sample, load_dataset
from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.files import read_json
from sparseshot.images import Box, Slide, TissueMask, open_slide, tissue_mask
from sparseshot.images.fingerprint import file_fingerprint
from sparseshot.models.config import TrainSettings
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import WindowOutputs, look_at
from sparseshot.training.mark_checks import marks_on, without_suggestions
from sparseshot.training.same_cells import merge_marks


@dataclass(frozen=True)
class AnnotatedSlide:
    """A slide and its marks.

    Attributes:
        slide: the slide or image.
        marks: the cells people marked, in level-0 pixels.
        truth: every cell, in simulations that keep a fraction of the marks; else None.
        tissue: the tissue mask of a slide that has glass too; None: tissue everywhere.
    """

    slide: Slide
    marks: Cells
    truth: Cells | None = None
    tissue: TissueMask | None = None

    @property
    def cells(self) -> Cells:
        """Every known cell: the truth if there is one, else the marks."""
        return self.marks if self.truth is None else self.truth

    def look_at(
        self,
        network: nn.Module,
        config: TrainSettings,
        *,
        threshold: float,
        box: Box | None = None,
        halo_px: int | None = None,
    ) -> WindowOutputs:
        """Run a network over a box of the slide; see :func:`sparseshot.models.inference.look_at`."""
        frame = SlideFrame.over(
            self.slide, mpp=config.mpp, classes=config.labelling.names, colors=config.found_colors
        )
        return look_at(
            network,
            config.make_task(),
            self.slide,
            frame,
            threshold=threshold,
            box=box,
            halo_px=halo_px,
            tissue=self.tissue,
        )


@dataclass(frozen=True)
class TrainingData:
    """What a run is trained or evaluated on: a benchmark set, or pairs of slides and marks.

    Attributes:
        dataset: name in the catalogue, or None.
        root: folder of the benchmark sets.
        pairs: images or slides and the files of their marks.
        fraction: share of the marks to keep; above 1 the number of marks to keep. Exhaustive regions are
            kept only with all marks of their slide.
        seed: of the choice of marks.
        marking: how marks are chosen, one of :data:`sparseshot.cells.MARKINGS`.
        mpp: µm per pixel of slides that carry no resolution: one for all, or one or None for each pair.
        force_mpp: use it for slides that state another, too.
        everywhere: take glass for tissue.
        exhaustive_class: annotations of this class are regions in which every cell is marked.
        keep_large: keep outlines far larger than a cell, which are otherwise left out with a warning.
    """

    dataset: str | None = None
    root: Path | None = None
    pairs: tuple[tuple[Path, Path], ...] = ()
    fraction: float = 1.0
    seed: int = 0
    marking: str = "random"
    mpp: float | tuple[float | None, ...] | None = None
    exhaustive_class: str = "Exhaustive"
    keep_large: bool = False
    force_mpp: bool = False
    everywhere: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.fraction < math.inf:
            raise InputError(
                f"fraction is {self.fraction}; give a share of the marks up to 1, or a number of marks"
            )
        if self.marking not in MARKINGS:
            raise InputError(f"there is no marking {self.marking!r}; there are {', '.join(MARKINGS)}")
        if isinstance(self.mpp, tuple) and len(self.mpp) != len(self.pairs):
            raise InputError(f"{len(self.mpp)} pixel sizes for {len(self.pairs)} slides; give one for each")
        if self.root is not None and not self.root.is_dir():
            raise DataNotFoundError(
                self.root, "there is no such folder; give the one that holds the data set"
            )

    def load(self) -> tuple[list[AnnotatedSlide], list[AnnotatedSlide]]:
        """Open the training and the validation slides, each once; own slides have no validation part.

        In a benchmark set training and validation images keep the same fraction of their marks: nobody who
        marks sparsely has an exhaustively marked validation set. The other marks are kept as the truth. Where
        the set has no validation split, a sixth of the patients in training becomes one.
        """
        if self.dataset is None or self.root is None:
            if not self.pairs:
                raise InputError("nothing to train on; give a slide and its marks")
            mpps = self.mpp if isinstance(self.mpp, tuple) else [self.mpp] * len(self.pairs)
            of_slide: dict[Path, tuple[Path, float | None, list[Path]]] = {}
            for (image, file), mpp in zip(self.pairs, mpps, strict=True):
                of_slide.setdefault(image.resolve(), (image, mpp, []))[2].append(file)
            slides = [self._open(*own) for own in of_slide.values()]
            return (self._thinned(slides, of=slides) if self.fraction != 1 else slides), []
        training = load_dataset(self.dataset, self.root, split="train")
        try:
            validation = load_dataset(self.dataset, self.root, split="validation")
        except DataNotFoundError:
            training, validation = training.hold_out(1 / 6)
        known, held_out = (
            [replace(item, truth=item.marks) for item in open_samples(part.samples)]
            for part in (training, validation)
        )
        both = [*known, *held_out]
        return self._thinned(known, of=both), self._thinned(held_out, of=both)

    def _open(self, image: Path, mpp: float | None, files: Sequence[Path]) -> AnnotatedSlide:
        """Open an image or slide, read its marks, and find the tissue.

        Marks of several files are put together: the cells of one file are not background to another, and a
        cell that is marked twice counts once. Where somebody marked is tissue.
        """
        slide = open_slide(image, mpp=mpp, force_mpp=self.force_mpp)
        tissue = TissueMask.everywhere(slide) if self.everywhere else tissue_mask(slide)
        marks = merge_marks([self._read_marks(file, slide, tissue) for file in files], slide.name)
        return AnnotatedSlide(slide, marks, tissue=tissue.including(marks.xy))

    def _read_marks(self, file: Path, slide: Slide, tissue: TissueMask) -> Cells:
        cells = read_cells(file, slide_mpp=slide.mpp, exhaustive_class=self.exhaustive_class)
        marks = marks_on(slide, without_suggestions(cells), file, tissue)
        return marks if self.keep_large else without_large_outlines(marks, str(file))

    def _thinned(
        self, slides: Sequence[AnnotatedSlide], *, of: Sequence[AnnotatedSlide]
    ) -> list[AnnotatedSlide]:
        """Return slides with the share of their marks that is kept of all the slides ``of``."""
        share = self.fraction
        if share > 1:
            share = min(1.0, share / max(1, sum(len(item.marks) for item in of)))
        kept = choose_marks([item.marks for item in slides], share, seed=self.seed, marking=self.marking)
        return [replace(item, marks=marks) for item, marks in zip(slides, kept, strict=True)]

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of each file of the pairs, by its path; a file that is missing has none."""
        files: dict[str, str] = {}
        for image, marks in self.pairs:
            if image.exists():  # OME-Zarr is a folder
                files[str(image)] = file_fingerprint(image)
            if marks.is_file():
                with marks.open("rb") as file:
                    files[str(marks)] = hashlib.file_digest(file, "sha256").hexdigest()
        return files

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the ``source.json`` of a run of version 0.2."""
        try:
            known = {item.name for item in fields(cls)}
            values = {name: value for name, value in read_json(path).items() if name in known}
            return TypeAdapter(cls).validate_python(values)
        except (AttributeError, ValueError) as error:
            raise FormatError(path, f"does not say what the run was trained on ({error})") from error


def open_samples(samples: Iterable[Sample]) -> list[AnnotatedSlide]:
    """Open images of a benchmark set; all their cells are marked."""
    return [
        AnnotatedSlide(open_slide(sample.image, mpp=sample.mpp, force_mpp=True), sample.cells)
        for sample in samples
    ]
