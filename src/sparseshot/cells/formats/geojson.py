"""GeoJSON of any size, some features at a time."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from sparseshot.errors import FormatError

CHUNK_BYTES = 1 << 20
LARGEST_FEATURE_BYTES = 1 << 28
MOST_VALUES = 1 << 23
"""A feature of twice as many values is refused, and smaller ones of more may be; each is a Python object."""
_JSON = json.JSONDecoder()
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_LONGEST_WORD = len("-Infinity")


class FeatureStream:
    """The features of a GeoJSON document: a collection, an array of features, or a single one.

    Attributes:
        frame: the members of the document but its features, once all of them were read.
    """

    def __init__(self, file: BinaryIO, where: str, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file, self._where, self._chunk_bytes = file, where, chunk_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._place, self._reads = "", 0, 0
        self.frame: dict[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield some features at a time, after the number of the first of them in the file, from 0."""
        if self._takes("["):
            yield from self._features()
        elif not self._takes("{"):
            raise self._wrong("it", "an object {…}")
        else:
            is_collection = False
            for _ in self._items("}", "a member"):
                key = self._value("it")
                if not isinstance(key, str) or not self._takes(":"):
                    raise self._wrong(f"what follows {key!r:.50}", "a colon")
                if key == "features" and self._takes("["):
                    is_collection = True
                    self.frame[key] = []
                    yield from self._features()
                else:
                    self.frame[key] = self._value(f"its member {key!r:.50}")
            if not is_collection:
                yield 0, [self.frame]
        if self._next():
            raise self._wrong("what follows its end", "nothing")

    def _features(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield the objects of an array that was opened, each time the file is read on."""
        first, reads = 0, self._reads
        features: list[dict[str, Any]] = []
        for _ in self._items("]", "a feature"):
            what = f"feature {first + len(features)}"
            if self._next() != "{":
                raise self._wrong(what, "an object {…}")
            features.append(self._value(what))
            if self._reads > reads:
                yield first, features
                first, features, reads = first + len(features), [], self._reads
        if features:
            yield first, features

    def _items(self, closing: str, what: str) -> Iterator[None]:
        """Yield before each item of the array or object that was opened."""
        if self._takes(closing):
            return
        yield
        while self._takes(","):
            yield
        if not self._takes(closing):
            raise self._wrong(f"what follows {what}", "a comma")

    def _takes(self, mark: str) -> bool:
        """Step over a mark if it comes next, and return whether it does."""
        comes = self._next() == mark
        self._place += comes
        return comes

    def _next(self) -> str:
        """Return the next character that is not blank, or nothing at the end of the file."""
        while True:
            if found := _NOT_BLANK.search(self._text, self._place):
                self._place = found.start()
                return found[0]
            self._place = len(self._text)
            if not self._reads_on("its space"):
                return ""

    def _value(self, what: str) -> Any:
        """Return the next value, reading on until it is complete."""
        self._next()
        while True:
            try:
                value, end = _JSON.raw_decode(self._text, self._place)
                if end < len(self._text) or not self._reads_on(what):  # else a number may go on
                    break
                continue
            except RecursionError:
                raise FormatError(self._where, f"{what} is nested too deep") from None
            except ValueError as error:
                wrong = FormatError(
                    self._where, f"{what} cannot be understood: it is not valid JSON: {error}"
                )
                place = len(self._text) if "Unterminated" in str(error) else getattr(error, "pos", -1)
            if place < len(self._text) - _LONGEST_WORD:
                raise wrong
            is_cut_off = place == len(self._text)
            if not self._reads_on(what):
                raise self._cut_off(what) if is_cut_off else wrong
        if "\\u" in self._text[self._place : end]:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:  # half a surrogate pair
                raise FormatError(self._where, f"{what} cannot be understood: {error}") from None
        self._place = end
        return value

    def _reads_on(self, what: str) -> bool:
        """Read more of the file after what is left of the text, and return whether there was any."""
        left = self._text[self._place :]
        if len(left) > LARGEST_FEATURE_BYTES:
            raise FormatError(self._where, f"{what} is longer than {len(left) >> 20} MB")
        if len(left) > MOST_VALUES and sum(map(left.count, "[{,")) > MOST_VALUES:
            raise FormatError(self._where, f"{what} has more than {MOST_VALUES:,} values")
        data = self._file.read(max(len(left), self._chunk_bytes))
        try:
            self._text, self._place = left + self._decoder.decode(data, final=not data), 0
        except UnicodeDecodeError as error:
            raise FormatError(self._where, f"{what} is no text in UTF-8: {error}") from None
        self._reads += 1
        return bool(data)

    def _wrong(self, what: str, wanted: str) -> FormatError:
        """Return the error for what comes next instead of what is wanted."""
        if not self._next():
            return self._cut_off(what)
        came = self._text[self._place : self._place + 20]
        return FormatError(self._where, f"is not valid JSON: {what} is {came!r}…, not {wanted}")

    def _cut_off(self, what: str) -> FormatError:
        text = f"ends in the middle of {what}: the file is cut off; export or copy it again"
        return FormatError(self._where, text)
