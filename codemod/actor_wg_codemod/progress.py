"""What only a terminal gets to see: a progress bar on long runs, and colors."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

_STYLES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}
_WIDTH = 30
_ERASE = "\r\x1b[K"


def is_terminal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    try:
        return stream.isatty() and environ.get("TERM") != "dumb"
    except ValueError:
        # A stream that was closed is nobody's terminal.
        return False


def wants_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to color what goes to the stream: on a terminal, unless `NO_COLOR` is set.

    `FORCE_COLOR` colors everywhere; `NO_COLOR` is stronger. Set to nothing, neither counts.
    """
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or is_terminal(stream, environ)


class Paint:
    """Colors text, or leaves it alone where colors are not wanted."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def __call__(self, text: str, *styles: str) -> str:
        """The text in the styles named: bold, dim, red, green, yellow, cyan."""
        if not (self.enabled and styles and text):
            return text
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"


class Progress:
    """A bar on a terminal that appears when a run takes longer than a moment.

    Nothing is ever written to a stream that is no terminal. Used as a context manager, so that
    the bar is gone before anything else is written, also after an exception.
    """

    def __init__(
        self,
        total: int,
        stream: TextIO | None = None,
        *,
        enabled: bool = True,
        moment: float = 0.7,
        interval: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts to count.

        Args:
            total: how many steps there will be.
            stream: where the bar goes, standard error if not given.
            enabled: False keeps the bar away (`--quiet`).
            moment: seconds that a run may take without a bar.
            interval: seconds between two drawings at least.
            clock: seconds that only ever grow.
        """
        self._stream = sys.stderr if stream is None else stream
        self._active = enabled and total > 0 and is_terminal(self._stream)
        self._total, self._done = total, 0
        self._interval, self._clock = interval, clock
        self._next = clock() + moment
        self._drawn = False

    def advance(self, steps: int = 1) -> None:
        """Counts `steps` more as done."""
        self._done = min(self._total, self._done + steps)
        if self._active and self._clock() >= self._next:
            self._draw()

    def close(self) -> None:
        """Takes the bar away; it does not come back."""
        if self._drawn:
            self._write(_ERASE)
        self._active = self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _draw(self) -> None:
        self._next = self._clock() + self._interval
        self._drawn = True
        filled = _WIDTH * self._done // self._total
        bar = "#" * filled + "." * (_WIDTH - filled)
        line = f"[{bar}] {self._done}/{self._total} files"
        # A line that wraps could not be erased.
        self._write(_ERASE + line[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # A terminal that went away must not stop the work.
            self._active = self._drawn = False
