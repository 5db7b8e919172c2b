"""A table of a TOML file that gives its values checked, and errors with their lines."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.experiments.toml_lines import Place, line_of


@dataclass(frozen=True)
class TomlTable:
    """A table, or the whole file.

    Attributes:
        path: the file.
        text: all of its text, to find lines in.
        values: what the table holds.
        place: the way to the table.
    """

    path: Path
    text: str
    values: Mapping[str, Any]
    place: Place = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; what is no TOML, or no text, is an error."""
        try:
            text = path.read_text(encoding="utf-8-sig")
            return cls(path, text, tomllib.loads(text))
        except OSError as error:
            raise DataNotFoundError(path, f"cannot be read ({error.strerror})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FormatError(path, f"is not TOML ({error})") from error

    def wrong(self, key: str | None, problem: str, value: object = None) -> FormatError:
        """Return the error that names the line of a key, or of a value in its list."""
        place = self.place if key is None else (*self.place, key)
        return FormatError(self.path, f"line {line_of(self.text, place, value)}: {problem}")

    def check_keys(self, known: Collection[str]) -> None:
        """Raise if there is a key that means nothing."""
        for key in self.values:
            self.check_known(key, key, known, kind="key")

    def check_known(self, key: str, name: object, known: Collection[str], *, kind: str) -> None:
        """Raise if a name, given under ``key``, is none of the known ones."""
        if name in known:
            return
        near = get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise self.wrong(key, f"there is no {kind} {name!r}{hint} Known are {', '.join(known)}", name)

    def table(self, key: str) -> Self:
        """Return the table of that name; an empty one where there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"{key} is {value!r}; make it a table, [{key}]")
        return replace(self, values=value, place=(*self.place, key))

    def tables(self, key: str) -> list[Self]:
        """Return the tables ``[[key]]``; none where there are none."""
        values = self.values.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.wrong(key, f"{key} is {values!r}; write it as [[{key}]]")
        return [
            replace(self, values=value, place=(*self.place, key, index)) for index, value in enumerate(values)
        ]

    def string(self, key: str, default: str) -> str:
        """Return a string."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, f"{key} is {value!r}; put it in quotes")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a number."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"{key} is {value!r}; give a number")
        return value

    def whole_number(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self.number(key, default)
        if not isinstance(value, int):
            raise self.wrong(key, f"{key} is {value!r}; give a whole number")
        return value

    def items(self, key: str, default: list[Any] | None = None) -> list[Any]:
        """Return a list that is not empty; without a default it has to be there."""
        value = self.values.get(key, default)
        if value is None:
            raise self.wrong(None, f"there is no {key} here; add {key} = […]")
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"{key} is {value!r}; give a list with at least one entry")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings that is not empty, each once."""
        values = self.items(key)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(key, f"{key} holds {value!r}; put names in quotes", value)
        return tuple(dict.fromkeys(values))
