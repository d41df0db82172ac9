"""Python in reStructuredText: code directives and doctest blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .blocks import CODE_DIRECTIVES, PYTHON_DIRECTIVES, Block, drop_options, indent_of, is_python

_DIRECTIVE = re.compile(
    r"(?P<lead>[ \t]*(?:(?:[-*+]|\(?(?:\d+|[a-zA-Z#])[.)])[ \t]+)*)\.\.[ \t]+"
    r"(?P<name>[\w:+.-]+)::(?:[ \t]+(?P<argument>.*)|[ \t]*)"
)
# Two dots that open neither a directive nor a target, footnote or substitution.
_COMMENT = re.compile(r"[ \t]*\.\.(?:[ \t]+(?![_\[|])(?![\w:+.-]+::(?:\s|$)).*|[ \t]*)")
_DOCTEST = re.compile(r"[ \t]*>>> ")


def blocks(lines: Sequence[str]) -> list[Block]:
    """The Python blocks of a reStructuredText document, given by its lines."""
    found: list[Block] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        directive = _DIRECTIVE.fullmatch(line)
        if directive:
            name = directive["name"].lower()
            if name in CODE_DIRECTIVES or name in PYTHON_DIRECTIVES:
                end = _content_end(lines, index + 1, len(directive["lead"]))
                if is_python(name, directive["argument"] or ""):
                    found.append(_content(lines, index + 1, end))
                index = end
                continue
        elif _COMMENT.fullmatch(line) and not _is_empty_comment(lines, index):
            index = _content_end(lines, index + 1, indent_of(line))
            continue
        elif _DOCTEST.match(line) and (index == 0 or not lines[index - 1].strip()):
            end = index
            while end < len(lines) and lines[end].strip():
                end += 1
            cut = indent_of(line)
            found.append(_cut([(i, 0, lines[i]) for i in range(index, end)], cut))
            index = end
            continue
        index += 1
    return found


def _is_empty_comment(lines: Sequence[str], index: int) -> bool:
    """Two dots with nothing after them and a blank line below end blocks and hide nothing."""
    below = lines[index + 1] if index + 1 < len(lines) else ""
    return lines[index].strip() == ".." and not below.strip()


def _content_end(lines: Sequence[str], start: int, lead: int) -> int:
    """Behind the last line that is indented deeper than what introduced it."""
    end = start
    for index in range(start, len(lines)):
        if lines[index].strip():
            if indent_of(lines[index]) <= lead:
                break
            end = index + 1
    return end


def _content(lines: Sequence[str], start: int, end: int) -> Block:
    whole = drop_options([(index, 0, lines[index]) for index in range(start, end)])
    cut = min((indent_of(text) for _, _, text in whole if text.strip()), default=0)
    return _cut(whole, cut)


def _cut(block: Block, cut: int) -> Block:
    """The block without the first `cut` characters of white space of its lines."""
    spaces = [min(cut, indent_of(text)) for _, _, text in block]
    return [
        (index, space, text[space:]) for (index, _, text), space in zip(block, spaces, strict=True)
    ]
