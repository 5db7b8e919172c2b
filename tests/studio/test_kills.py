from pathlib import Path

import pytest
from tests.studio.chromium import IN_BROWSER
from tests.studio.kills import kill_again_and_again

pytestmark = IN_BROWSER


@pytest.mark.timeout(900)
def test_marks_and_training_survive_the_death_of_the_studio(tmp_path: Path) -> None:
    """`python -m benchmarks studio_kills` does it ten times."""
    report = kill_again_and_again(tmp_path, kills=2, seed=0)
    assert report.confirmed
    assert report.confirmed <= report.kept
    assert len(report.kept) == report.made  # those that were not confirmed were sent again
    assert all(after > before for before, after in report.steps)
