"""Lines and offsets of a text, counted the way Python counts them, and edits spliced into it."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator

from actor_wg_codemod.model import Edit, Finding, Span
from actor_wg_codemod.splicing import EditError

_LINE_END = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"\w+")


class DocumentError(ValueError):
    """A document that cannot be read as what its name says; the text is the reason."""


def split_lines(text: str) -> list[str]:
    """The lines of `text` without their ends.

    Only line feeds and carriage returns end a line; `str.splitlines` also cuts at form feeds
    and at separators that Python and editors do not count.
    """
    return _LINE_END.split(text)


class Offsets:
    """Converts between places (line from 1, column from 0) and offsets of one text."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._skip = 1 if text.startswith("\ufeff") else 0

    def offset(self, line: int, column: int) -> int:
        """The offset of a place; a byte order mark is no column.

        Raises:
            EditError: the text has no such line.
        """
        if not 1 <= line <= len(self._starts):
            raise EditError(f"there is no line {line}")
        return self._starts[line - 1] + column + (self._skip if line == 1 else 0)

    def span(self, start: int, end: int) -> Span:
        """The span between two offsets."""
        return Span(*self._place(start), *self._place(end))

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        column = offset - self._starts[line - 1]
        return line, column - (self._skip if line == 1 else 0)


def edits_of(findings: Iterable[Finding]) -> Iterator[tuple[int | None, Edit]]:
    """The edits of all findings that carry a fix, each with the cell it belongs to."""
    for finding in findings:
        if finding.fix is not None:
            for edit in finding.fix.edits:
                yield finding.cell, edit


def replace(text: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """`text` with each `(start, end, new)` put in; the same replacement given twice counts once.

    Raises:
        EditError: two replacements overlap.
    """
    pieces: list[str] = []
    done = 0
    for start, end, new in sorted(set(replacements)):
        if start < done:
            raise EditError("two edits overlap")
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


def splice(text: str, findings: Iterable[Finding]) -> str:
    """`text` with the fixes of `findings` applied, whose spans are places of the text itself.

    Raises:
        EditError: an edit does not cover exactly one name, or two edits overlap.
    """
    offsets = Offsets(text)
    replacements = []
    for _, edit in edits_of(findings):
        span = edit.span
        start = offsets.offset(span.line, span.column)
        end = offsets.offset(span.end_line, span.end_column)
        check_name(text[start:end], edit)
        replacements.append((start, end, edit.text))
    return replace(text, replacements)


def check_name(covered: str, edit: Edit) -> None:
    """Refuse an edit whose span does not hold one name.

    Raises:
        EditError: `covered`, the text under the edit, is not a name.
    """
    if not _NAME.fullmatch(covered):
        place = f"line {edit.span.line}, column {edit.span.column + 1}"
        raise EditError(f"{place}: {covered[:40]!r} is not a name to be replaced")
