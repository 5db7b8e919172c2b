"""The experiments that come with the package."""

from importlib.resources import files
from pathlib import Path

from sparseshot.errors import DataNotFoundError
from sparseshot.experiments.toml_file import ExperimentFile


def shipped_experiments() -> dict[str, Path]:
    """Return the files by name, in alphabetical order."""
    folder = Path(str(files(__package__).joinpath("shipped")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def open_experiment(name_or_path: str, *, profile: str | None = None) -> ExperimentFile:
    """Read an experiment by the name of a shipped one, or by the path of a TOML file."""
    path = Path(name_or_path)
    shipped = shipped_experiments()
    if path.suffix != ".toml" and not path.exists():
        if name_or_path not in shipped:
            raise DataNotFoundError(
                name_or_path, f"is neither a file nor an experiment that comes along: {', '.join(shipped)}"
            )
        path = shipped[name_or_path]
    return ExperimentFile.read(path, profile=profile)
