"""What can be known of a model when only some of the true cells are marked."""

from dataclasses import dataclass

from sparseshot.cells import Cells
from sparseshot.metrics.intervals import Interval, wilson_interval
from sparseshot.metrics.matching import match_cells


@dataclass(frozen=True)
class SparseCounts:
    """Marks that were found, marks that were missed, and everything that was found; adds up.

    A found cell without a mark may be right or wrong, so precision and F1 cannot be known, and are not here.

    >>> counts = SparseCounts(hits=45, misses=5, found=900) + SparseCounts(hits=5, misses=0, found=100)
    >>> counts.recall, counts.marked_share, counts.found
    (0.9090909090909091, 0.05, 1000)
    >>> low, high = counts.recall_interval()
    >>> round(low, 2), round(high, 2)
    (0.8, 0.96)
    """

    hits: int = 0
    misses: int = 0
    found: int = 0

    def __add__(self, other: "SparseCounts") -> "SparseCounts":
        return SparseCounts(self.hits + other.hits, self.misses + other.misses, self.found + other.found)

    @property
    def marks(self) -> int:
        """How many marks there are."""
        return self.hits + self.misses

    @property
    def recall(self) -> float:
        """The share of the marks that was found; nan without marks.

        It is the recall of all cells as far as the marks are a fair sample of them.
        """
        return self.hits / self.marks if self.marks else float("nan")

    def recall_interval(self, *, level: float = 0.95) -> Interval:
        """Return Wilson's interval of the recall."""
        return wilson_interval(self.hits, self.marks, level=level)

    @property
    def marked_share(self) -> float:
        """The share of what was found that is marked; nan where nothing was found.

        It is the precision times the fraction of cells that is marked: a lower bound of each of the two.
        """
        return self.hits / self.found if self.found else float("nan")


def sparse_counts(marks: Cells, found: Cells, *, radius_um: float = 3.0) -> SparseCounts:
    """Count the marks that were found, one to one within a radius in µm."""
    counts = match_cells(marks, found, radius_um=radius_um).counts
    return SparseCounts(hits=counts.tp, misses=counts.fn, found=len(found))
