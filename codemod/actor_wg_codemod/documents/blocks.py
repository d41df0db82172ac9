"""What a block of Python in a document is, and which language names mean Python."""

from __future__ import annotations

import re
from typing import TypeAlias

Block: TypeAlias = list[tuple[int, int, str]]
"""The lines of a block: index in the document, columns cut off in front, what is left."""

PYTHON = frozenset(
    {
        *("py", "py3", "pyi", "python", "python3", "ipython", "ipython3"),
        *("pycon", "python-console", "python-repl", "ipythonconsole"),
    }
)
"""Names of Python and of its interactive sessions, as highlighters know them."""

CODE_DIRECTIVES = frozenset({"code", "code-block", "sourcecode"})
"""Directives whose argument is the language of what they hold."""

PYTHON_DIRECTIVES = frozenset(
    {"code-cell", "doctest", "ipython", "jupyter-execute", "testcleanup", "testcode", "testsetup"}
)
"""Directives that hold Python unless their argument names another language."""

OPTION = re.compile(r"[ \t]*:[\w-]+:(?:[ \t]|$)")
"""A line that sets an option of a directive, in both kinds of markup."""

_WORD = re.compile(r"[\w-]+")


def is_python(directive: str, argument: str) -> bool:
    """Whether a directive with this argument holds Python."""
    word = _WORD.match(argument.strip())
    language = word[0].lower() if word else ""
    if directive in CODE_DIRECTIVES:
        return language in PYTHON
    if directive == "code-cell":
        return not language or language in PYTHON
    return directive in PYTHON_DIRECTIVES


def indent_of(line: str) -> int:
    """How many characters of white space a line starts with."""
    return len(line) - len(line.lstrip(" \t"))


def drop_options(block: Block) -> Block:
    """The block without the option lines that a directive's content may start with."""
    place = 0
    if block and block[0][2].strip() == "---":
        ends = (i for i, (_, _, text) in enumerate(block[1:], 1) if text.strip() == "---")
        place = next(ends, 0) + 1
    else:
        while place < len(block) and OPTION.match(block[place][2]):
            place += 1
    return block[place:]
