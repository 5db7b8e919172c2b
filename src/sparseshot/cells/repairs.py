"""What was mended while a file was read, said once."""

import warnings
from collections import Counter

from sparseshot.errors import RepairWarning, SparseshotWarning


class Repairs:
    """Counts what is mended in one file and warns of it once.

    >>> import warnings
    >>> repairs = Repairs()
    >>> repairs.count("self-crossing outlines mended", 3)
    >>> repairs.count("empty outlines left out", 0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     repairs.warn("cells.geojson")
    >>> print(caught[0].message)
    cells.geojson: 3 self-crossing outlines mended
    """

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def count(self, what: str, number: int = 1) -> None:
        """Note that ``number`` of ``what`` were met, e.g. ``"empty outlines left out"``."""
        if number:
            self._numbers[what] += int(number)

    def warn(self, where: str, category: type[SparseshotWarning] = RepairWarning) -> None:
        """Return one warning that names the file and counts each repair, if there was any."""
        if self._numbers:
            told = ", ".join(f"{number:,} {what}" for what, number in self._numbers.items())
            warnings.warn(f"{where}: {told}", category, stacklevel=3)
