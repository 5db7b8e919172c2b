import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_example_on_the_page_is_true() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 20
    assert not failed
