"""Fixtures and settings of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The time of an example depends on the machine; the examples themselves do not.
settings.register_profile("sparseshot", deadline=None, derandomize=True)
settings.load_profile("sparseshot")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the public data sets; skip the test if it is absent."""
    folder = Path(os.environ.get("SPARSESHOT_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}; set SPARSESHOT_DATA to where they are")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first what stays on one worker, the browser's tests before all, so that both end together."""

    def rank(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        return 2 if group is None else group.args != ("browser",)

    items.sort(key=rank)
