"""Every code block of README and docs is run, by its language.

- ``python``: with ``>>>`` as a doctest, otherwise as a program. A page shares one namespace.
- ``console``, ``sh``, and indented lines that begin with a program: each block in a fresh copy of the folder
  of ``tests/docs/stage.py``. ``SHORTER`` shortens training. Commands in ``NOT_RUN``, those on a cluster
  and those of other programs are only parsed: the app must know the command and its flags, the Makefile
  the target.
- ``toml`` and ``json``: read by the reader they are meant for.
- ``text`` and ``bibtex`` are not run. Any other language is an error.
"""

import doctest
import importlib
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
from sparseshot.datasets import dataset_info
from sparseshot.experiments import read_experiment
from sparseshot.losses import ExclusiveCrossEntropy
from sparseshot.training import make_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"python", "console", "sh", "toml", "json", "text", "bibtex", "indented"}

SHORTER = {
    "train": ("--config", "tiny.toml", "--steps", "4", "--device", "cpu"),
    "experiment": ("--dry-run",),
}
EXIT_CODES = {"data check": 1}  # the data set of the stage is incomplete
NOT_RUN = {
    "data fetch": "downloads",
    "demo": "takes minutes, and has its own tests",
    "starter": "takes half an hour, and has its own tests",
    "studio": "serves until it is ended, and has its own tests",
}
SMALLER = {
    'TrainConfig(task="detect", loss="ece", steps=200)': 'TrainConfig(task="detect", width=4, steps=2)',
    'Path("run")': 'Path("own run")',  # the run of the stage has other settings
}
"""Text of a Python block, and what is run instead."""

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
warnings_are_shown = pytest.mark.filterwarnings("default::sparseshot.errors.SparseshotWarning")


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
def test_sessions_print_what_they_show(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0


def programs_of(page: Path) -> list[Block]:
    return [b for b in blocks_of(page) if b.language == "python" and ">>>" not in b.text]


@warnings_are_shown
@pytest.mark.parametrize("page", [p for p in PAGES if programs_of(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_programs_run(page: Path, stage: Path) -> None:
    names: dict[str, Any] = {}
    for block in programs_of(page):
        text = block.text
        for original, smaller in SMALLER.items():
            text = text.replace(original, smaller)
        exec(compile("\n" * block.line + text, str(page), "exec"), names)


@warnings_are_shown
@some_blocks("console", "sh", "indented")
def test_commands_run(block: Block, stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for typed in shell_commands(block) or ():
        program, *rest = typed.words
        if program == "sparseshot":
            run(list(typed.words), stage)
        else:
            parse(program, rest)
        output = capsys.readouterr().out
        if typed.shown is not None:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(typed.shown, output, flags), output


def run(words: list[str], stage: Path) -> None:
    """Run a sparseshot command in the stage, with the options of :data:`SHORTER`."""
    name = parse_command(words)
    if name in NOT_RUN or "--cluster" in words:
        return
    if name == "train" and "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
    found = {word: sorted(map(str, stage.glob(word))) for word in words if "*" in word}
    paths = [part for word in words for part in (found.get(word) or [word])]
    complete = any(".toml:" in word for word in words)  # a data set of one's own expects nothing
    assert main([*paths[1:], *SHORTER.get(name, ())]) == (0 if complete else EXIT_CODES.get(name, 0))


def parse(program: str, words: list[str]) -> None:
    """Check that a command of another program names an existing target, module or file."""
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
        assert program in {"pip", "srun", "ray"}


@some_blocks("toml")
def test_toml_is_understood(block: Block, stage: Path) -> None:
    path = stage / "shown.toml"
    path.write_text(block.text)
    table = tomllib.loads(block.text)
    if "grid" in table:
        for subject in {run.subject for run in read_experiment(path).runs}:
            if subject.own is not None:
                subject.check_data(stage / "data")
    elif all(isinstance(entry, dict) and "parts" in entry for entry in table.values()):
        catalogue = tomllib.loads((ROOT / "src/sparseshot/datasets/catalogue.toml").read_text())
        for name, entry in table.items():
            if name in catalogue:
                assert all(part in catalogue[name]["parts"] for part in entry["parts"])
            else:
                assert dataset_info(f"{path}:{name}").parts
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
def test_links_have_a_target(page: Path) -> None:
    for target, anchor in links_of(page):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors_of(path), f"{page.name} links to {target}#{anchor}, which does not exist"
        if page.is_relative_to(ROOT / "docs"):
            assert path.is_relative_to(ROOT / "docs"), (
                f"{page.name} links to {target}, which is not in the site"
            )


def test_the_readme_trains_with_the_loss() -> None:
    """The session leaves a loss of ours, and a value that was trained with it."""
    session = "\n".join(block.text for block in blocks_of(ROOT / "README.md") if ">>>" in block.text)
    test = doctest.DocTestParser().get_doctest(session, {}, "README", None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, clear_globs=False).failed == 0
    assert isinstance(test.globs["loss"], ExclusiveCrossEntropy)
    assert test.globs["value"].grad_fn is not None


@pytest.mark.parametrize(("page", "lines"), [("README.md", 120), ("docs/results.md", 150)])
def test_pages_that_should_be_short_are(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= lines


@pytest.mark.parametrize("script", ["tables", "starter_tables", "clicks_tables"])
def test_tables_match_the_raw_metrics(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "results"))
    between = importlib.import_module("tables").between
    for name, (page, table) in importlib.import_module(script).TABLES.items():
        shown = between(name).search(page.read_text())
        assert shown is not None, f"{page} has no place for the table {name}"
        assert table() in shown[0], f"run `python docs/results/{script}.py`"
