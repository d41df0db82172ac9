"""The progress bar and the colors: on a real pseudo-terminal, and never elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import pty
from collections.abc import Iterator
from typing import TextIO

import pytest

from actor_wg_codemod.progress import Paint, Progress, wants_color


class Terminal:
    """A pseudo-terminal: `stream` is what a program writes to, `seen` what a person sees."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="ascii")

    def seen(self) -> str:
        self.stream.write("~")
        self.stream.flush()
        text = ""
        while not text.endswith("~"):
            text += os.read(self._master, 4096).decode()
        return text[:-1]

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    opened = Terminal()
    yield opened
    opened.close()


def test_a_pipe_sees_nothing_of_the_bar():
    stream = io.StringIO()
    with Progress(3, stream, moment=0, interval=0) as bar:
        for _ in range(3):
            bar.advance()
    assert stream.getvalue() == ""


def test_a_short_run_shows_no_bar(terminal):
    with Progress(3, terminal.stream, moment=3600) as bar:
        bar.advance(3)
    assert terminal.seen() == ""


def test_a_quiet_run_shows_no_bar(terminal):
    with Progress(3, terminal.stream, enabled=False, moment=0) as bar:
        bar.advance(3)
    assert terminal.seen() == ""


def test_a_dumb_terminal_sees_no_bar(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with Progress(3, terminal.stream, moment=0) as bar:
        bar.advance(3)
    assert terminal.seen() == ""


def test_a_long_run_shows_a_bar_after_a_moment_and_takes_it_away(terminal):
    ticks = iter([0.0, 0.5, 1.0, 1.0, 1.05, 2.0, 2.0])
    with Progress(4, terminal.stream, moment=0.7, clock=lambda: next(ticks)) as bar:
        bar.advance()
        assert terminal.seen() == ""
        bar.advance()
        assert terminal.seen() == f"\r\x1b[K[{'#' * 15}{'.' * 15}] 2/4 files"
        bar.advance()
        assert terminal.seen() == ""
        bar.advance()
        assert terminal.seen() == f"\r\x1b[K[{'#' * 30}] 4/4 files"
    assert terminal.seen() == "\r\x1b[K"


def test_the_bar_is_gone_after_an_exception(terminal):
    with contextlib.suppress(KeyError), Progress(2, terminal.stream, moment=0) as bar:
        bar.advance()
        raise KeyError
    assert terminal.seen().endswith("\r\x1b[K")


def test_the_bar_fits_a_narrow_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with Progress(2, terminal.stream, moment=0) as bar:
        bar.advance()
        assert len(terminal.seen().removeprefix("\r\x1b[K")) == 19


def test_a_terminal_that_goes_away_does_not_stop_the_work(terminal):
    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(f"no one reads {text}")

    with Progress(2, Gone(), moment=0, interval=0) as bar:
        bar.advance()
        bar.advance()


def test_nothing_to_do_is_no_division_by_zero(terminal):
    with Progress(0, terminal.stream, moment=0) as bar:
        bar.advance()
    assert terminal.seen() == ""


def test_colors_only_where_they_are_wanted(terminal):
    pipe = io.StringIO()
    xterm = {"TERM": "xterm"}
    assert wants_color(terminal.stream, xterm)
    assert wants_color(pipe, {"FORCE_COLOR": "1"})
    assert wants_color(terminal.stream, {**xterm, "NO_COLOR": ""})
    assert not wants_color(pipe, xterm)
    assert not wants_color(terminal.stream, {"TERM": "dumb"})
    assert not wants_color(terminal.stream, {**xterm, "NO_COLOR": "1"})
    assert not wants_color(terminal.stream, {**xterm, "NO_COLOR": "1", "FORCE_COLOR": "1"})
    closed = io.StringIO()
    closed.close()
    assert not wants_color(closed, xterm)


def test_paint():
    assert Paint(enabled=True)("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Paint(enabled=True)("x") == "x"
    assert Paint(enabled=True)("", "red") == ""
    assert Paint(enabled=False)("x", "red") == "x"
