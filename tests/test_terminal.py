"""Progress in 80 columns and off a terminal, and text that a terminal would obey."""

import io
import re
import sys

import pytest

from sparseshot.terminal import printable, shown_events
from sparseshot.training.logs import progress_note
from sparseshot.work import Event

VALUES = {"loss": 0.1234, "excluded": 0.041, "marked_share": 0.22, "alpha": 0.05, "crops_per_second": 31.0}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, title: str, note: str) -> str:
    """Return the last state of a bar in 80 columns, without its colours."""
    for name, value in {"COLUMNS": "80", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with shown_events(keep=True) as report:
        report(Event(title, 150, 300, message=note))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    return plain.replace("\r", "\n").strip().splitlines()[-1]


def test_steps_and_time_left_stay_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    line = shown_on_a_terminal(monkeypatch, "segment adaptive", progress_note(VALUES))
    assert len(line) <= 80
    assert "segment adaptive" in line
    assert "150/300" in line
    assert re.search(r"(--|\d\d):(--|\d\d)", line)
    assert "loss 0.1234, marked ≈ 22%" in line


def test_a_long_name_is_cut_and_its_brackets_and_escapes_are_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = shown_on_a_terminal(monkeypatch, "[red]\x1b]0;x\x07" + 80 * "long", "5 cells")
    assert line.startswith("[red]\\x1b]")
    assert "150/300" in line
    assert "5 cells" in line


def test_off_a_terminal_there_is_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("sparseshot.terminal.time.monotonic", lambda: now)
    with shown_events() as report:
        report(Event("segment adaptive", 100, 300))
        for step in range(101, 161):
            now += 1
            report(Event("segment adaptive", step, 300, message="loss 0.5"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "segment adaptive: 130 of 300, about 2 min 50 s left, loss 0.5",
        "segment adaptive: 160 of 300, about 2 min 20 s left, loss 0.5",
    ]


def test_a_message_alone_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_events() as report:
        report(Event("preparing", message="reading \x1b[2Jmarks"))
    assert capsys.readouterr() == ("", "reading \\x1b[2Jmarks\n")


@pytest.mark.parametrize("text", ["\x1b[2J", "\n", "\u202e", "\udcff", "\x00", "\x9b"])
def test_control_characters_are_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert printable("tumour [µm] 病") == "tumour [µm] 病"
