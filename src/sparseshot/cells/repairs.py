"""Counts of repairs made while reading a file."""

import re
import warnings
from collections import Counter

from sparseshot.errors import RepairWarning, SparseshotWarning

_PLURAL = re.compile(r"\b(?:(\w+)ies|(class)es|(nucle)i|(\w+)s)\b")


class Repairs:
    """Counts repairs in one file and warns once.

    >>> import warnings
    >>> repairs = Repairs()
    >>> repairs.count("self-crossing outlines repaired", 3)
    >>> repairs.count("empty outlines left out", 0)
    >>> repairs.count("empty geometries left out")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     repairs.warn("cells.geojson")
    >>> print(caught[0].message)
    cells.geojson: 3 self-crossing outlines repaired, 1 empty geometry left out
    """

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def count(self, what: str, number: int = 1) -> None:
        """Count ``number`` more of ``what``, e.g. ``"empty outlines left out"``."""
        if number:
            self._numbers[what] += int(number)

    def warn(self, where: str, category: type[SparseshotWarning] = RepairWarning) -> None:
        """Emit one warning that names the file and counts each repair, if there were any."""
        if self._numbers:
            listed = ", ".join(
                f"{number:,} {_one(what) if number == 1 else what}" for what, number in self._numbers.items()
            )
            warnings.warn(f"{where}: {listed}", category, stacklevel=3)


def _one(what: str) -> str:
    """Return what was counted with its first plural as a singular."""
    endings = ("y", "", "us", "")
    return _PLURAL.sub(
        lambda found: (found[found.lastindex or 0]) + endings[(found.lastindex or 1) - 1], what, count=1
    )
