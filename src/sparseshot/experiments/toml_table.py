"""A table of a TOML file whose values are checked when they are read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from sparseshot.errors import FormatError, unknown_name
from sparseshot.files import read_toml

T = TypeVar("T", str, int, float)
_KINDS = {str: "a string in quotes", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class TomlTable:
    """A table, or the whole file.

    Attributes:
        path: the file.
        values: content of the table.
        place: its header, as ``[[grid]] 2``; empty for the whole file.
    """

    path: Path
    values: Mapping[str, Any]
    place: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file."""
        return cls(path, read_toml(path))

    def error(self, problem: str) -> FormatError:
        """Return an error that names the file and the table."""
        return FormatError(self.path, f"{self.place}: {problem}" if self.place else problem)

    def check_keys(self, known: Collection[str]) -> None:
        """Raise if a key is unknown."""
        for key in self.values:
            self.check_known(key, known, kind="key")

    def check_known(self, name: object, known: Collection[str], *, kind: str) -> None:
        """Raise if a name is not one of the known ones."""
        if name not in known:
            raise self.error(unknown_name(kind, name, known))

    def table(self, key: str) -> Self:
        """Return a table in this one; an empty one if there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{key} is {value!r}; make it a table, [{key}]")
        outer = self.place.strip("[]")
        return type(self)(self.path, value, f"[{outer}.{key}]" if outer else f"[{key}]")

    def tables(self, key: str) -> list[Self]:
        """Return the tables ``[[key]]``."""
        values = self.values.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.error(f"{key} is {values!r}; write it as [[{key}]]")
        return [type(self)(self.path, value, f"[[{key}]] {k}") for k, value in enumerate(values, start=1)]

    def get(self, key: str, default: T) -> T:
        """Return a string or number of the default's type."""
        value = self.values.get(key, default)
        kind = type(default)
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise self.error(f"{key} is {value!r}; give {_KINDS[kind]}")
        if kind is str and "\0" in value:
            raise self.error(f"{key} is {value!r}; remove the NUL character")
        try:
            return kind(value)
        except OverflowError:
            raise self.error(f"{key} is too large for a number") from None

    def items(self, key: str, default: list[Any] | None = None) -> list[Any]:
        """Return a list with at least one entry; without a default it has to be there."""
        value = self.values.get(key, default)
        if value is None:
            raise self.error(f"there is no {key} here; add {key} = […]")
        if not isinstance(value, list) or not value:
            raise self.error(f"{key} is {value!r}; give a list with at least one entry")
        return value

    def strings(self, key: str, default: list[str] | None = None) -> tuple[str, ...]:
        """Return a list of strings, each once."""
        values = default if key not in self.values and default is not None else self.items(key)
        for value in values:
            if not isinstance(value, str):
                raise self.error(f"{key} holds {value!r}; put names in quotes")
        return tuple(dict.fromkeys(values))
