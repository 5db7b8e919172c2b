"""Where in a TOML file a value stands: tomllib gives values without their lines."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"^\s*\[(\[)?\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")

Place = tuple[str | int, ...]


def line_of(text: str, place: Sequence[str | int], value: object = None) -> int:
    """Return the line, from 1, of a key in a TOML text; with ``value``, that of the value in the key's list.

    What is not found stands where the nearest table or key around it stands.

    Args:
        text: valid TOML.
        place: the way to the key, as ``("grid", 1, "losses")`` for the second ``[[grid]]``.
        value: a string or number in it.

    >>> text = '''title = "x"
    ... [[grid]]
    ... losses = ["ece"]
    ... [[grid]]
    ... losses = [
    ...   "ece",
    ...   "foacl",
    ... ]'''
    >>> line_of(text, ("grid", 1, "losses"), "foacl"), line_of(text, ("grid", 1, "tasks"))
    (7, 4)
    """
    wanted = tuple(place)
    known = list(_places(text))
    best, start = max(((len(at), line) for at, line in known if at == wanted[: len(at)]), default=(0, 1))
    if value is None or best < len(wanted):
        return start
    lines = text.splitlines()
    end = min((line for _, line in known if line > start), default=len(lines) + 1)
    # A string as TOML writes it, either way; a number not as a part of another.
    forms = [json.dumps(value, ensure_ascii=False), f"'{value}'"] if isinstance(value, str) else [f"{value}"]
    pattern = re.compile("|".join(rf"(?<![\w.]){re.escape(form)}(?![\w.])" for form in forms))
    return next((line for line in range(start, end) if pattern.search(lines[line - 1])), start)


def _places(text: str) -> Iterator[tuple[Place, int]]:
    """Return every table and key with its line."""
    table: Place = ()
    seen: Counter[str] = Counter()
    in_string = False
    for line, content in enumerate(text.splitlines(), start=1):
        quotes = len(re.findall(r'"""|\'\'\'', content))
        if not in_string:
            if header := _HEADER.match(content):
                table = _parts(header[2])
                if header[1]:
                    table = (*table, seen[header[2]])
                    seen[header[2]] += 1
                yield table, line
            elif key := _KEY.match(content):
                yield (*table, *_parts(key[1])), line
        in_string ^= quotes % 2 == 1


def _parts(name: str) -> Place:
    return tuple(part.strip("\"'") for part in _PART.findall(name))
