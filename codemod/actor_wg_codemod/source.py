"""Reads Python source without losing a byte: encoding, byte order mark, line endings, and why it does not parse.

https://peps.python.org/pep-0263/ says how a file names its encoding.
"""

from __future__ import annotations

import ast
import codecs
import re
import sys
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from actor_wg_codemod import fstrings

_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(?:#.*)?\Z")
_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTES_LINE_END = re.compile(rb"\r\n|\n|\r")

# What a line that does not parse may hold that only a newer Python reads, newest first.
_NEWER_SYNTAX: tuple[tuple[tuple[int, int], str, re.Pattern[str]], ...] = (
    ((3, 14), "template strings", re.compile(r"(?<![\w\"'])(?:[tT][rR]?|[rR][tT])[\"']")),
    (
        (3, 14),
        "except without parentheses",
        re.compile(r"\s*except\s+[\w.]+\s*,[^:]*:\s*(?:#.*)?$"),
    ),
    (
        (3, 13),
        "defaults of type parameters",
        re.compile(r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[[^\]]*="),
    ),
    ((3, 12), "type parameters", re.compile(r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[")),
    ((3, 12), "the type statement", re.compile(r"\s*type\s+\w+\s*(?:\[.*)?=")),
    ((3, 11), "except*", re.compile(r"\s*except\s*\*")),
    ((3, 11), "unpacking in an index", re.compile(r".*\[[^\]]*\*\s*\w|.*\*\w+\s*:\s*\*")),
)


class SourceError(Exception):
    """The file cannot be read as Python; `reason` is a sentence, `line` counts from 1 where known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line


@dataclass(frozen=True)
class Source:
    """Decoded text with its line endings as they are, and what is needed to encode it again."""

    text: str
    encoding: str = "utf-8"
    bom: bool = False

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their endings, split only where Python's tokenizer splits."""
        return tuple(_LINE_END.split(self.text))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset in `text` at which each line starts."""
        return (0, *(match.end() for match in _LINE_END.finditer(self.text)))

    def offset(self, line: int, column: int) -> int:
        """The offset in `text` of a line (from 1) and a column (from 0, in characters).

        Raises:
            ValueError: there is no such place.
        """
        if not 1 <= line <= len(self.starts) or not 0 <= column <= len(self.lines[line - 1]):
            raise ValueError(f"no line {line}, column {column}")
        return self.starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """The line (from 1) and column (from 0) of an offset in `text`."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1]


def decode(data: bytes, *, cookie: bool = True) -> Source:
    """Decodes a Python file by its byte order mark or encoding cookie, else as UTF-8.

    Args:
        data: the file.
        cookie: whether a comment in the first lines can name the encoding; only Python has that.

    Raises:
        SourceError: the encoding is unknown, the bytes do not fit it, or it has more than one
            spelling for a text, so that nothing could be written back byte for byte.
    """
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[len(codecs.BOM_UTF8) :] if bom else data
    encoding = _cookie(body) if cookie else None
    if bom:
        if encoding is not None and not _is_utf8(encoding):
            raise SourceError(f"starts with a UTF-8 byte order mark but declares {encoding}", 1)
        encoding = "utf-8"
    try:
        source = Source(body.decode(encoding or "utf-8"), encoding or "utf-8", bom)
        if encoding is not None and source.text.encode(encoding) != body:
            raise SourceError(f"cannot be written back as {encoding} without other changes")
        return source
    except UnicodeDecodeError as error:
        line = len(_BYTES_LINE_END.findall(body, 0, error.start)) + 1
        what = "UTF-8, and no encoding is declared" if encoding is None else error.encoding
        raise SourceError(f"byte 0x{body[error.start]:02x} is not {what}", line) from None
    except UnicodeError as error:
        raise SourceError(f"cannot be decoded as {encoding}: {error}") from None
    except LookupError:
        raise SourceError(f"declares the unknown encoding {encoding}", 1) from None


def encode(source: Source, text: str) -> bytes:
    """Encodes `text` the way `source` was encoded.

    Raises:
        SourceError: the encoding cannot express the text.
    """
    try:
        body = text.encode(source.encoding)
    except UnicodeError as error:
        raise SourceError(f"cannot be encoded as {source.encoding}: {error}") from None
    return codecs.BOM_UTF8 + body if source.bom else body


def parse(text: str, filename: str = "<unknown>", *, words: Sequence[str] = ()) -> ast.Module:
    """Parses a module; positions inside f-strings are right on every Python.

    Args:
        text: what `decode` returned, line endings and all.
        filename: only for the error.
        words: where given, before Python 3.12 only f-strings that hold one of them are put right.

    Raises:
        SourceError: the running Python cannot parse it; says why and which Python could.
    """
    if "\0" in text:
        line = len(_LINE_END.findall(text, 0, text.index("\0"))) + 1
        raise SourceError("holds a null byte, so it is not Python source", line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, filename)
        if sys.version_info < (3, 12):
            fstrings.relocate(tree, _LINE_END.split(text), words)
    except SyntaxError as error:
        raise _explain(error, text) from None
    except (RecursionError, MemoryError):
        raise SourceError("nested too deeply for this Python") from None
    except ValueError as error:
        raise SourceError(f"not Python source: {error}") from None
    return tree


def _cookie(body: bytes) -> str | None:
    head = body[:4096] if b"coding" in body[:4096] else b""
    for line in _BYTES_LINE_END.split(head, maxsplit=2)[:2]:
        match = _COOKIE.match(line)
        if match:
            return match[1].decode("ascii", "replace")
        if not _BLANK_OR_COMMENT.match(line):
            return None
    return None


def _is_utf8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    except LookupError:
        return False


def _explain(error: SyntaxError, text: str) -> SourceError:
    """Turns Python's error into a reason that says which Python could read the file."""
    reason = error.msg or "invalid syntax"
    running = sys.version_info[:2]
    this = f"this is Python {running[0]}.{running[1]}"
    if error.filename == "<fstring>":  # before 3.12 line and column are those of the field
        return SourceError(_needs_new_fstrings(reason, this), _line_of_field(error, text))
    line = error.lineno or None
    lines = _LINE_END.split(text)
    source_line = lines[line - 1] if line and line <= len(lines) else ""
    for version, what, pattern in _NEWER_SYNTAX:
        if version > running and pattern.match(source_line):
            needed = f"{version[0]}.{version[1]}"
            return SourceError(f"{reason}; for {what} Python {needed} is needed, {this}", line)
    if running < (3, 12) and "f-string" in reason:
        reason = _needs_new_fstrings(reason, this)
    if "Missing parentheses in call to" in reason:
        reason = f"{reason} (code for Python 2)"
    return SourceError(f"syntax error: {reason}", line)


def _needs_new_fstrings(reason: str, this: str) -> str:
    if "cannot include" in reason:  # a backslash or a comment in a field
        return f"{reason}: needs Python 3.12 or newer, {this}"
    return f"{reason}; if the file is right, it needs Python 3.12 or newer, {this}"


def _line_of_field(error: SyntaxError, text: str) -> int | None:
    field = (error.text or "").strip()[1:-1].split("\n")[0]
    position = text.find("{" + field) if field else -1
    return None if position < 0 else len(_LINE_END.findall(text, 0, position)) + 1
