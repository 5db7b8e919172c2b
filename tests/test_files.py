import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sparseshot.errors import DataNotFoundError, FormatError, OutputError
from sparseshot.files import locked, read_json, read_toml, replacing, replacing_folder, write_json


@pytest.mark.parametrize("read", [read_json, read_toml])
def test_what_is_not_json_or_toml_is_a_format_error(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = tmp_path / "a"
    with pytest.raises(DataNotFoundError, match="cannot be read"):
        read(path)
    with pytest.raises(DataNotFoundError, match="cannot be read"):
        read(tmp_path)
    for content in (b"a = ", b"a = 'caf\xe9'", b"a = " + b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"JSON|TOML|UTF-8"):
            read(path)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a = 'é'", encoding="utf-8-sig")
    assert read_toml(path) == {"a": "é"}
    path.write_text('{"a": "é"}', encoding="utf-8-sig")
    assert read_json(path) == {"a": "é"}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [p.name for p in tmp_path.iterdir()] == ["a.json.gz"]
    assert path.read_text() == "old"


# A file that was opened right before Ctrl-C is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupted_at_any_line_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, 7)  # what is compiled at the first call is not compiled again

    def reached(moment: int) -> bool:
        """Write with Ctrl-C before some line of Python; return whether there were that many lines."""
        lines, interrupts = iter(range(moment)), 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal interrupts
            if event == "line" and frame.f_code.co_filename != __file__ and next(lines, None) is None:
                interrupts += 1
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        with suppress(KeyboardInterrupt):
            try:
                sys.settrace(trace)
                with replacing(path) as temporary:
                    temporary.write_text("whole")
            finally:
                sys.settrace(before)
        return interrupts > 0

    moments = 0
    while reached(moments):
        assert {each.name for each in tmp_path.iterdir()} <= {path.name}
        path.unlink(missing_ok=True)
        moments += 1
    assert moments > 300
    assert path.read_text() == "whole"


@pytest.mark.parametrize("name", ["store.zarr", "old"])
def test_a_replaced_folder_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = tmp_path / name
    for content in ("first", "second"):
        with replacing_folder(store, marks=["kind"]) as new:
            new.mkdir()
            (new / "kind").write_text(content)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target == store and self.parent.name.endswith(".part"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), replacing_folder(store, marks=["kind"]) as new:
        new.mkdir()
    assert (store / "kind").read_text() == "second"
    assert list(tmp_path.iterdir()) == [store]


def test_the_temporary_name_keeps_the_suffixes(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.json.gz") as temporary:
        assert temporary.name.endswith(".json.gz")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="create it first"), replacing(tmp_path / "no" / "a.txt"):
        pass


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link, dangling = tmp_path / "there" / "a.json", tmp_path / "link.json", tmp_path / "dangling.json"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to(target.with_name("b.json"))
    for path in (link, dangling):
        write_json(path, 7)
        assert path.is_symlink()
        assert path.resolve().read_text() == "7"
    assert sorted(path.name for path in target.parent.iterdir()) == ["a.json", "b.json"]


def test_a_device_stays_a_device() -> None:
    write_json("/dev/null", 7)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_json(pipe, 7)
    reader.join(timeout=20)
    assert read == ["7"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_standard_output_can_be_redirected_to_a_file(tmp_path: Path) -> None:
    program = "from sparseshot.files import write_json; write_json('/dev/stdout', 7)"
    with (tmp_path / "out.json").open("w") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out.json").read_text() == "7"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"7"


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        write_json(tmp_path, 7)


@pytest.mark.parametrize("name", ["x" * 250, "切" * 83, os.fsdecode(b"caf\xe9.json"), "[a-z]*.json"])
def test_any_name_that_a_file_can_have(tmp_path: Path, name: str) -> None:
    write_json(tmp_path / name, 7)
    assert [path.name for path in tmp_path.iterdir()] == [name]


KILLED = """
import os, signal, sys
from sparseshot.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    write_json(path, 1)
    assert left.exists(), "it may belong to a process that has just begun"
    os.utime(left, (0, 0))
    with replacing(path) as temporary:
        assert not left.exists()
        os.utime(temporary, (0, 0))
        write_json(path, 2)
        assert temporary.exists(), "its process is at work"
    assert list(tmp_path.iterdir()) == [path]


WAIT = """
import sys
from pathlib import Path
from sparseshot.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_locked_folder_is_free_when_the_other_process_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", WAIT, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(OutputError, match="--out"), locked(folder):
            pass
        other.kill()
    with locked(folder):
        pass
    assert list(folder.iterdir()) == []


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path):
            taken.set()
            free.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(30)
    with pytest.raises(OutputError, match="at work here"), locked(tmp_path, wait_s=0.1):
        pass
    threading.Timer(0.1, free.set).start()
    with locked(tmp_path, wait_s=30):
        assert free.is_set()
    holder.join()
