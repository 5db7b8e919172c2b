"""Files on the server that may be added as slides: in the folders the studio was started with, and below."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseshot.errors import DataNotFoundError
from sparseshot.images.fingerprint import is_ome_zarr
from sparseshot.images.opening import IMAGE_SUFFIXES
from sparseshot.prediction.manifest import is_prediction
from sparseshot.studio.project import PROJECT

_MOST_SHOWN = 2000


@dataclass(frozen=True)
class FileRoots:
    """Folders in which slides may be chosen.

    A place is named by the number of its folder and the names below it, as ``0/case 7/a.svs``. Links are not
    followed, because they may lead out.

    Attributes:
        folders: absolute, without links.
    """

    folders: tuple[Path, ...]

    @classmethod
    def around(cls, paths: Iterable[Path]) -> "FileRoots":
        """Return the folders of slides, and those that were given, without those inside others."""
        folders = {
            (path if path.is_dir() and not is_ome_zarr(path) else path.parent).resolve() for path in paths
        }
        outer = [each for each in folders if not any(other in each.parents for other in folders)]
        return cls(tuple(sorted(each for each in outer if each.is_dir())))

    def path(self, name: str) -> Path:
        """Return the file or folder of a name.

        Raises:
            DataNotFoundError: there is none, or it is not inside a folder that may be seen.
        """
        number, *parts = name.split("/")
        known = {str(k): folder for k, folder in enumerate(self.folders)}
        is_plain = all(part.isprintable() and part[:1] not in {"", "."} for part in parts)
        if number in known and is_plain and not {"\\", ":"} & set("".join(parts)):
            path = known[number].joinpath(*parts)
            with suppress(OSError):
                if path.resolve(strict=True) == path:  # otherwise it is a link
                    return path
        raise DataNotFoundError(Path("files"), "there is no such file or folder here")

    def listed(self, name: str) -> dict[str, Any]:
        """Return the folders and slides in a folder; the folders themselves for an empty name."""
        if not name and len(self.folders) != 1:
            roots = [{"place": str(k), "name": str(each)} for k, each in enumerate(self.folders)]
            return {"name": "", "up": None, "folders": roots, "slides": []}
        name = name or "0"
        folder = self.path(name)
        if not folder.is_dir() or is_ome_zarr(folder):
            raise DataNotFoundError(folder, "there is no such folder here")
        inside = (each for each in folder.iterdir() if not each.name.startswith("."))
        paths = sorted(
            (each for each in inside if not each.is_symlink()), key=lambda each: each.name.casefold()
        )
        above, _, _ = name.rpartition("/")
        answer: dict[str, Any] = {"name": folder.name, "folders": [], "slides": []}
        answer["up"] = above or (None if len(self.folders) == 1 else "")
        for path in paths[:_MOST_SHOWN]:
            entry = {"place": f"{name}/{path.name}", "name": path.name}
            if path.suffix.lower() in IMAGE_SUFFIXES and (path.is_file() or is_ome_zarr(path)):
                answer["slides"].append(entry)
            elif path.is_dir() and not is_prediction(path) and not (path / PROJECT).exists():
                answer["folders"].append(entry)
        return answer
