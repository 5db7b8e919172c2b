"""Projects: which slides they hold, and where marks, runs and results are."""

import errno
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter, ValidationError

from sparseshot.errors import DataNotFoundError, FormatError, InputError, OutputError, RepairWarning, utf8
from sparseshot.files import locked, read_json, write_json
from sparseshot.images import open_slide
from sparseshot.images.fingerprint import is_ome_zarr
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.slide import check_mpp
from sparseshot.prediction.manifest import Manifest, is_prediction, predictions_in
from sparseshot.prediction.slides import find_slides
from sparseshot.studio.marks import MarkBook

PROJECT = "project.json"
SUFFIX = ".studio"
_JOURNAL = "marks.jsonl"
_FORMAT, _VERSION = "sparseshot studio", 1
_REPAIR = (
    "restore it from a backup, or write it anew with the slides in the order in which they were added, as "
    f'{{"format": "{_FORMAT}", "version": 1, "slides": [{{"id": "1", "path": "/folder/biopsy.svs"}}]}}; '
    "marks and runs belong to these ids and are not lost"
)
_LONGEST_WAIT_S = 30
"""For another process that writes the project file, which takes it milliseconds."""


@dataclass(frozen=True)
class SlideEntry:
    """A slide of a project.

    Attributes:
        id: by which the page knows it.
        path: of the file; relative to the project's parent if it lies there, so that both move together.
        mpp: µm per pixel that a person gave, for files that state none.
        found: folders of finished predictions that were opened with it.
    """

    id: str
    path: str
    mpp: float | None = None
    found: tuple[str, ...] = ()


@dataclass
class Project:
    """A folder with a project file.

    Attributes:
        folder: of the project.
        slides: its slides by id.
    """

    folder: Path
    slides: dict[str, SlideEntry]
    _open: dict[str, PyramidSlide] = field(default_factory=dict, init=False)
    _mutex: Lock = field(default_factory=Lock, init=False)

    @classmethod
    def open(
        cls, paths: Sequence[Path], *, folder: Path | None = None, mpp: float | None = None
    ) -> "Project":
        """Open a project, or create one from slides.

        Args:
            paths: slides or folders of them; folders that ``predict`` wrote, of one slide or of several;
                or one project folder.
            folder: of the project; by default beside the first slide, with its name and ``.studio``. Without
                slides, ``sparseshot.studio`` here, to which slides can be added.
            mpp: µm per pixel of slides that state none.
        """
        if mpp is not None:
            check_mpp(mpp)
        if folder is None:
            first = (paths[0] if paths else Path("sparseshot")).absolute()
            is_project = (first / PROJECT).is_file()
            folder = first if is_project else first.with_name(first.name + SUFFIX)
            paths = paths[1:] if is_project else paths
        folder, paths = folder.absolute(), list(_unfolded(paths))
        while True:
            known = _read(folder)
            project = cls(folder, dict(known))
            project._add(paths, mpp)
            if project.slides == known and (folder / PROJECT).is_file():
                return project
            # A process that wrote in the meantime may have given the same ids to other slides.
            with _writable(folder), locked(folder, wait_s=_LONGEST_WAIT_S):
                if _read(folder) == known:
                    project._save()
                    return project

    def add(self, path: Path) -> str:
        """Add a slide; return its id."""
        with self._changing():
            entry = self._with_slide(path.absolute(), None)
            self.slides[entry.id] = entry
        return entry.id

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Read what other processes wrote, and write what the block changes."""
        with locked(self.folder, wait_s=_LONGEST_WAIT_S):
            self.slides = _read(self.folder)
            yield
            self._save()

    def _add(self, paths: Sequence[Path], mpp: float | None) -> None:
        entry: SlideEntry | None = None
        for path in paths:
            if is_prediction(path):
                entry = self._with_found(entry, path.absolute())
            else:
                entry = self._with_slide(path.absolute(), mpp)
            self.slides[entry.id] = entry

    def _with_slide(self, path: Path, mpp: float | None) -> SlideEntry:
        if not path.exists():
            raise DataNotFoundError(path, "no such slide; check the path")
        if path.is_dir() and not is_ome_zarr(path):
            raise InputError(f"{path}: is neither a slide, a project, nor a result of predict")
        for entry in self.slides.values():
            if self._path(entry) == path:
                is_asked = mpp is not None and (entry.mpp is not None or not _states_mpp(path))
                return replace(entry, mpp=mpp) if is_asked else entry
        number = 1 + max((int(each) for each in {*self.slides, *self._marked}), default=0)
        own = path.relative_to(self.folder.parent) if path.is_relative_to(self.folder.parent) else path
        name = _storable(own)
        return SlideEntry(str(number), name, None if _states_mpp(path) else mpp)

    def _with_found(self, entry: SlideEntry | None, found: Path) -> SlideEntry:
        manifest = Manifest.load(found)
        identity = manifest.identity["slide"] if manifest else {}
        named = [each for each in self.slides.values() if Path(each.path).name == identity.get("name")]
        known = named if len(named) == 1 else list(self.slides.values())
        if len(named) == 1 or (entry is None and len(known) == 1):
            (entry,) = known
        if entry is None:
            raise InputError(f"{found}: give the slide before its result: studio slide.svs found/slide.svs")
        size = identity.get("size_px")
        own = list(self.slide(entry.id).size)
        if size != own:
            raise InputError(f"{found}: is the result of a slide of {size} pixels; {entry.path} has {own}")
        return replace(entry, found=tuple(dict.fromkeys([*entry.found, _storable(found)])))

    @property
    def identity(self) -> str:
        """Distinguishes this project from another one at the same address."""
        return hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]

    @property
    def journal(self) -> Path:
        """The file of the marks."""
        return self.folder / _JOURNAL

    @cached_property
    def _marked(self) -> set[str]:
        """Ids in the journal: a new slide with one of them would show marks of another."""
        return set(MarkBook(self.journal).slides)

    def _save(self) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "slides": list(self.slides.values())}
        write_json(self.folder / PROJECT, content)

    def entry(self, slide: str) -> SlideEntry:
        """Return a slide by its id."""
        if slide not in self.slides:
            raise DataNotFoundError(self.folder, "the project has no such slide")
        return self.slides[slide]

    def path(self, slide: str) -> Path:
        """Return the file of a slide."""
        return self._path(self.entry(slide))

    def _path(self, entry: SlideEntry) -> Path:
        return self.folder.parent / entry.path  # an absolute path replaces the folder

    def slide(self, slide: str) -> PyramidSlide:
        """Return a slide, opened when it is first needed."""
        entry = self.entry(slide)
        with self._mutex:
            if slide not in self._open:
                # A person who gives a size corrects the file.
                force = entry.mpp is not None
                self._open[slide] = open_slide(self._path(entry), mpp=entry.mpp, force_mpp=force)
            return self._open[slide]

    def set_mpp(self, slide: str, mpp: float) -> None:
        """Store the pixel size that a person gave for a slide."""
        check_mpp(mpp)
        with self._changing():
            self.slides[slide] = replace(self.entry(slide), mpp=mpp)
        with self._mutex:
            if slide in self._open:
                self._open[slide].mpp = mpp


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Say what to do where a folder cannot be written to."""
    try:
        yield
    except (OutputError, OSError) as error:
        cause = error.__cause__ if isinstance(error, OutputError) else error
        if getattr(cause, "errno", None) not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        raise OutputError(
            folder, "cannot be written; give --project a folder that can, and the slide stays where it is"
        ) from error


def _storable(path: Path) -> str:
    """Return a path as text for the project file."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{utf8(path)}: the name is not in UTF-8; rename the file or its folder") from error
    return os.fspath(path)


def _unfolded(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield slides and results; those in folders after those that were named, slides first."""
    folders = [path for path in paths if path.is_dir() and not is_prediction(path) and not is_ome_zarr(path)]
    yield from (path for path in paths if path not in folders)
    results = {folder: predictions_in(folder) for folder in folders}
    for folder, inside in results.items():
        if not inside:
            yield from find_slides([folder])
    for inside in results.values():
        yield from inside


def _read(folder: Path) -> dict[str, SlideEntry]:
    path = folder / PROJECT
    # Listed once: between two looks another process may write the project file.
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    if PROJECT not in names:
        if _JOURNAL in names:
            raise OutputError(folder, f"holds marks and no {PROJECT}; {_REPAIR}")
        # A name with a dot is the lock of a process that is about to write the project file.
        if any(not name.startswith(".") for name in names):
            raise OutputError(folder, f"holds other files and no {PROJECT}; give another --project")
        return {}
    try:
        content = read_json(path)
    except FormatError as error:
        raise FormatError(path, f"{error.problem}; {_REPAIR}") from error
    if not isinstance(content, dict) or not isinstance(content.get("slides"), list):
        raise FormatError(path, f"has no list of slides; {_REPAIR}")
    if content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise FormatError(path, "is not a project of this sparseshot")
    entries: dict[str, SlideEntry] = {}
    damaged = []
    for number, each in enumerate(content["slides"], 1):
        try:
            entry = _ENTRY.validate_python(each, strict=False, extra="forbid")
            if entry.id in entries or not re.fullmatch("[0-9]{1,9}", entry.id):
                raise ValueError(f"its id is {entry.id[:20]!r}; ids are numbers, each once")
            if entry.mpp is not None:
                check_mpp(entry.mpp)
            entries[entry.id] = entry
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            damaged.append(f"slide {number}: {reason}")
    if damaged and not entries:
        raise FormatError(path, f"has no slide that can be read ({damaged[0]}); {_REPAIR}")
    if damaged:
        aside = _set_aside(path)
        warnings.warn(
            f"{path}: {'; '.join(damaged[:5])}; the other slides are opened{aside}; {_REPAIR}",
            RepairWarning,
            stacklevel=2,
        )
    return entries


_ENTRY = TypeAdapter(SlideEntry)


def _set_aside(path: Path) -> str:
    """Keep a copy of a damaged project file, because the next change writes only what could be read."""
    copy = path.with_suffix(".damaged.json")
    try:
        if not copy.exists():
            shutil.copyfile(path, copy)
    except OSError:
        return ""
    return f", and a copy of the file is kept as {copy.name}"


def needs_mpp(project: Project, slide: str) -> bool:
    """Return whether a slide states no pixel size and nobody gave one."""
    entry, path = project.entry(slide), project.path(slide)
    if entry.mpp is not None or not path.exists():
        return False
    return not _states_mpp(path)


def _states_mpp(path: Path) -> bool:
    """Return whether a slide states its pixel size; raise if it is no slide."""
    with open_slide(path, mpp=1.0, force_mpp=True) as opened:
        return opened.stated_mpp is not None
