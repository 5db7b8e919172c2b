"""Assignment of images to training, validation and test: as published, and no patient in two splits."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from sparseshot.datasets.catalogue import SPLITS, Split, Splits
from sparseshot.errors import DataNotFoundError, FormatError


def read_lists(splits: Splits, folder: Path) -> dict[str, Split]:
    """Read the files that list the images of each split; return the split of each name.

    A name may be listed with or without the suffix of its file.
    """
    listed: dict[str, Split] = {}
    for split, file in splits.lists.items():
        path = folder / file
        if not path.exists():
            continue
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise FormatError(path, f"not text ({error}); write one image name per line, in UTF-8") from error
        for number, line in enumerate(lines, start=1):
            name = line.strip()
            if not name:
                continue
            if listed.setdefault(name, split) != split:
                raise FormatError(
                    path,
                    f"line {number}: {name} is in {splits.lists[listed[name]]} too; leave it in one of them",
                )
    return listed


def listed_names(names: Iterable[str], listed: Mapping[str, Split]) -> tuple[dict[str, Split], list[str]]:
    """Match images with a list; return the split of each, and the lines that match no image.

    >>> listed_names(["a_0.93", "b"], {"a_0.93.png": "train", "c.png": "test"})
    ({'a_0.93': 'train'}, ['c.png'])
    """
    names = set(names)
    found: dict[str, Split] = {}
    missing = []
    for line, split in listed.items():
        name = line if line in names else Path(line).stem
        if name in names:
            found[name] = split
        else:
            missing.append(line)
    return found, missing


def split_by_name(name: str, patterns: Mapping[Split, Sequence[str]]) -> Split | None:
    """Return the first split with a pattern that matches the name.

    >>> split_by_name("09_2", {"train": ("0[1-6]_*",), "test": ("09_*", "10_*")})
    'test'
    """
    for split in SPLITS:
        if any(fnmatchcase(name, pattern) for pattern in patterns.get(split, ())):
            return split
    return None


def with_a_test(published: Mapping[str, Split | None], splits: Splits) -> dict[str, Split | None]:
    """Apply the catalogue's substitute splits, for use where the published test images are absent."""
    used = dict(published)
    for split, rule in splits.without_test.items():
        for name, given in published.items():
            if isinstance(rule, str):
                taken = given == rule
            else:
                taken = given == "train" and any(fnmatchcase(name, pattern) for pattern in rule)
            if taken:
                used[name] = split
    return used


def by_patient(
    split_of: Mapping[str, Split | None], patient_of: Mapping[str, str]
) -> dict[str, Split | None]:
    """Leave out images that would put a patient into two splits; the test set takes precedence.

    >>> by_patient({"a1": "train", "a2": "test", "b1": "train"}, {"a1": "a", "a2": "a", "b1": "b"})
    {'a1': None, 'a2': 'test', 'b1': 'train'}
    """
    rank = {split: number for number, split in enumerate(SPLITS)}  # test is last and strongest
    strongest: dict[str, Split] = {}
    for name, split in split_of.items():
        patient = patient_of[name]
        if split is not None and rank[split] >= rank[strongest.get(patient, "train")]:
            strongest[patient] = split
    return {
        name: split if split is not None and strongest[patient_of[name]] == split else None
        for name, split in split_of.items()
    }


def require(split: Split, available: Iterable[Split | None], splits: Splits, root: Path) -> None:
    """Raise an error that lists the available splits if ``split`` has no images."""
    available = set(available)
    if split not in available:
        parts = ", ".join(part for part in SPLITS if part in available) or "no split at all"
        raise DataNotFoundError(
            root,
            f"has no images for {split!r}, only {parts} ({splits.source}); hold some patients of train out "
            "with hold_out, or complete the folder",
        )
