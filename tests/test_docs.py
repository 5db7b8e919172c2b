"""What README and docs show is what happens.

Every code block is run, by its language:

- ``python`` with ``>>>`` as a doctest, without as a program, all of a page in one namespace;
- ``console`` and ``sh``, and indented lines that begin with a program: each block in a fresh copy of the
  folder of ``tests/docs/stage.py``. ``SHORTER`` makes training short; ``NOT_RUN`` is only parsed, as is
  what other programs do: the command and its flags are known to the app, the target is in the Makefile;
- ``toml`` and ``json`` by the reader they are meant for;
- ``text`` and ``bibtex`` are not for running. Any other language is an error.
"""

import doctest
import importlib.util
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.app_tree import check_mention, parse_command
from tests.docs.blocks import Block, anchors_of, blocks_of, inline_code, links_of, shell_commands
from tests.docs.stage import build

from sparseshot.cells import read_cells
from sparseshot.cli import main
from sparseshot.experiments import ExperimentFile
from sparseshot.training import make_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"python", "console", "sh", "toml", "json", "text", "bibtex", "indented"}

SHORTER = {
    "train": ("--config", "tiny.toml", "--steps", "4", "--device", "cpu"),
    "experiment": ("--dry-run",),
}
EXIT_CODES = {"data check": 1}  # the set of the stage is not whole, and that is what the command is for
NOT_RUN = {"data fetch": "downloads", "demo": "takes minutes, and has its own tests"}
SMALLER = {
    'TrainConfig(task="detect", loss="ece", steps=200)': 'TrainConfig(task="detect", width=4, steps=2)'
}
"""What a Python block says, and what is run instead."""

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
warnings_are_told = pytest.mark.filterwarnings("default::sparseshot.errors.SparseshotWarning")


def some_blocks(*languages: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in languages], ids=str)


@pytest.fixture(scope="session")
def whole_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stage"))


@pytest.fixture
def stage(whole_stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "stage"
    shutil.copytree(whole_stage, folder)
    monkeypatch.chdir(folder)
    return folder


def test_every_block_is_of_a_known_language() -> None:
    assert [f"{block}: {block.language!r}" for block in BLOCKS if block.language not in LANGUAGES] == []


@by_page
def test_sessions_give_what_they_show(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0


@warnings_are_told
@by_page
def test_programs_run(page: Path, stage: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        if block.language == "python" and ">>>" not in block.text:
            text = block.text
            for said, smaller in SMALLER.items():
                text = text.replace(said, smaller)
            exec(compile("\n" * block.line + text, str(page), "exec"), names)


@warnings_are_told
@some_blocks("console", "sh", "indented")
def test_commands_run(block: Block, stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for typed in shell_commands(block) or ():
        program, *rest = typed.words
        if program == "sparseshot":
            run(list(typed.words), stage)
        else:
            parse(program, rest)
        told = capsys.readouterr().out
        if typed.shown is not None:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(typed.shown, told, flags), told


def run(words: list[str], stage: Path) -> None:
    """Run a command of ours in the stage, shorter where :data:`SHORTER` says so."""
    name = parse_command(words)
    if name in NOT_RUN:
        return
    if name == "train" and "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
    paths = [
        part for word in words for part in (sorted(map(str, stage.glob(word))) if "*" in word else [word])
    ]
    assert main([*paths[1:], *SHORTER.get(name, ())]) == EXIT_CODES.get(name, 0)


def parse(program: str, words: list[str]) -> None:
    """See that a command of another program names what there is."""
    if program == "make":
        for target in words:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), target
    elif program == "torchrun":
        at = words.index("-m")
        parse_command(words[at + 1 :])
    elif program == "python" and words[0] == "-m":
        assert importlib.util.find_spec(words[1]), words[1]
    elif program == "python":
        assert (ROOT / words[0]).is_file(), words[0]
    else:
        assert program in {"pip", "srun"}


@some_blocks("toml")
def test_toml_is_understood(block: Block, stage: Path) -> None:
    path = stage / "shown.toml"
    path.write_text(block.text)
    table = tomllib.loads(block.text)
    if "grid" in table:
        ExperimentFile.read(path).check_data(stage / "data", set(table.get("data", {})))
    elif all(isinstance(entry, dict) and "parts" in entry for entry in table.values()):
        catalogue = tomllib.loads((ROOT / "src/sparseshot/datasets/catalogue.toml").read_text())
        for name, entry in table.items():
            assert all(part in catalogue[name]["parts"] for part in entry["parts"])
    else:
        make_config("quick", path, {})


@pytest.mark.skipif(not any(block.language == "json" for block in BLOCKS), reason="no page shows JSON")
@some_blocks("json")
def test_json_is_understood(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "shown.geojson"
    path.write_text(block.text)
    assert json.loads(block.text)["type"] == "FeatureCollection"
    assert len(read_cells(path)) > 0


@by_page
def test_commands_in_the_text_are_known(page: Path) -> None:
    for code in inline_code(page):
        if code.startswith("sparseshot "):
            check_mention(code.split())


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links_of(page):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors_of(path), f"{page.name} links to {target}#{anchor}, which is not there"
        if page.is_relative_to(ROOT / "docs"):
            assert path.is_relative_to(ROOT / "docs"), (
                f"{page.name} links to {target}, which is not in the site"
            )


def test_the_readme_shows_the_loss() -> None:
    assert ">>> loss = ExclusiveCrossEntropy()" in (ROOT / "README.md").read_text()


def test_tables_are_those_of_the_raw_metrics() -> None:
    path = ROOT / "docs" / "results" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for name, (page, table) in tables.TABLES.items():
        shown = tables.between(name).search(page.read_text())
        assert shown is not None, f"{page} has no place for the table {name}"
        assert table() in shown[0], f"run `python {path.relative_to(ROOT)} --write`"
