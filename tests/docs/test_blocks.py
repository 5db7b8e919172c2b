"""The parts that the tests of the docs are built from."""

from pathlib import Path

import pytest
import typer
from tests.cli.app_tree import check_mention, parse_command
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


def test_an_unknown_command_is_an_error() -> None:
    assert parse_command(["sparseshot", "data", "list", "--json"]) == "data list"
    with pytest.raises(AssertionError, match="no command 'lits'"):
        parse_command(["sparseshot", "data", "lits"])
    with pytest.raises(typer.TyperException, match="--jsno"):
        parse_command(["sparseshot", "data", "list", "--jsno"])
    check_mention(["sparseshot", "train", "--fraction", "0.3"])
    with pytest.raises(AssertionError, match="--fractoin"):
        check_mention(["sparseshot", "train", "--fractoin", "0.3"])
