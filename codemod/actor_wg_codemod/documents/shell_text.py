"""Shell scripts as far as settings need them: comments, continued lines, variables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(
    r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?P<comment>(?<![^\s;&|()])\#[^\r\n]*)|.""", re.DOTALL
)
_ASSIGNMENT = re.compile(
    r"""(?:^|[\s;&|(])(?P<name>[A-Za-z_]\w*)=(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s;&|()]*)"""
)
_VARIABLE = re.compile(
    r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>\w+)(?P<default>:?[-=][^{}]*)?\})"
)
_MOST = 64


def without_comments(text: str) -> str:
    """The script without its comments, lines that a backslash continues put together.

    A `#` within quotes, or within a word, starts no comment.
    """
    kept = ("" if match["comment"] is not None else match[0] for match in _COMMENT.finditer(text))
    return _CONTINUED.sub(" ", "".join(kept))


def variables(script: str) -> dict[str, list[str]]:
    """Every value that the script (without comments) gives each of its variables."""
    found: dict[str, list[str]] = {}
    for match in _ASSIGNMENT.finditer(script):
        found.setdefault(match["name"], []).append(match["value"].strip("\"'"))
    return found


def expand(value: str, known: dict[str, list[str]], depth: int = 5) -> Iterator[str]:
    """The texts that `value` can stand for; nothing where a variable is not known."""
    match = _VARIABLE.search(value)
    if not match:
        yield value
        return
    if not depth:
        return
    choices = list(known.get(match["name"] or match["braced"], ()))
    if match["default"]:
        choices.append(match["default"].lstrip(":").lstrip("-="))
    texts = (
        text
        for choice in choices
        for text in expand(value[: match.start()] + choice + value[match.end() :], known, depth - 1)
    )
    yield from itertools.islice(texts, _MOST)
