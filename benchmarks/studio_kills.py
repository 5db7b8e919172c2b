"""``kill -9`` of the studio at ten random moments: ``python -m benchmarks studio_kills``."""

import tempfile
from pathlib import Path

from tests.studio.kills import kill_again_and_again

KILLS = 10


def main() -> None:
    """Print what was lost."""
    with tempfile.TemporaryDirectory() as folder:
        report = kill_again_and_again(Path(folder), kills=KILLS, seed=1)
    lost = len(report.confirmed - report.kept)
    print(f"{KILLS} kills, {report.made:,} clicks, {len(report.kept):,} marks on disk.")
    print(f"Confirmed by the page before a kill: {len(report.confirmed):,}; of them lost: {lost}.")
    print("Training steps before and after each kill:", ", ".join(f"{a} → {b}" for a, b in report.steps))
