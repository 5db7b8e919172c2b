"""What the tests of the docs are made of sees what is wrong."""

from pathlib import Path

import pytest
import typer
from tests.cli.app_tree import mentioned, understand
from tests.docs.blocks import Typed, anchors_of, blocks_of, inline_code, links_of, shell_commands

PAGE = """# A `page` of all kinds

Type `sparseshot cells FILE` and read [more](other.md#there), ![see](a.png).

    sparseshot data list   # all of them
    make test

    a formula = 3

```console
$ sparseshot --version
sparseshot 1
$ sparseshot cells a.csv
```

```cobol
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE.replace("    a formula", "\nText.\n\n    a formula"))
    return path


def test_blocks_commands_and_links_are_found(page: Path) -> None:
    commands, formula, console, cobol = blocks_of(page)
    assert shell_commands(commands) == [
        Typed(("sparseshot", "data", "list")),
        Typed(("make", "test")),
    ]
    assert shell_commands(formula) is None
    assert shell_commands(console) == [
        Typed(("sparseshot", "--version"), "sparseshot 1\n"),
        Typed(("sparseshot", "cells", "a.csv")),
    ]
    assert (cobol.language, str(cobol)) == ("cobol", f"page.md:{cobol.line}")
    assert "sparseshot cells FILE" in set(inline_code(page))
    assert list(links_of(page)) == [("other.md", "there"), ("a.png", "")]
    assert anchors_of(page) == {"a-page-of-all-kinds"}


def test_a_command_that_is_not_there_is_seen() -> None:
    assert understand(["sparseshot", "data", "list", "--json"]) == "data list"
    with pytest.raises(AssertionError, match="no command 'lits'"):
        understand(["sparseshot", "data", "lits"])
    with pytest.raises(typer.TyperException, match="--jsno"):
        understand(["sparseshot", "data", "list", "--jsno"])
    mentioned(["sparseshot", "train", "--fraction", "0.3"])
    with pytest.raises(AssertionError, match="--fractoin"):
        mentioned(["sparseshot", "train", "--fractoin", "0.3"])
