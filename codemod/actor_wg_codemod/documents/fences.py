"""Fenced code in Markdown: plain, in quotes and lists, and as MyST directives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .blocks import PYTHON, Block, drop_options, is_python

_OPEN = re.compile(
    r"(?P<quote>(?:[ \t]*>[ ]?)*)"
    r"(?P<indent>[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*)"
    r"(?P<fence>`{3,}|~{3,}|:{3,})[ \t]*(?P<info>.*)"
)
_DIRECTIVE = re.compile(r"\{(?P<name>[\w:+-]+)\}[ \t]*(?P<argument>.*)")
_ATTRIBUTES = re.compile(r"\{\s*\.?(?P<word>[\w-]+)[^}]*\}")
_WORD = re.compile(r"[\w-]+")
_QUOTE = re.compile(r"[ \t]*>[ ]?")


@dataclass
class _Fence:
    """An open fence: what closes it, and where its content starts."""

    mark: str
    quotes: int
    indent: int
    python: bool = False
    directive: bool = False
    # A directive of MyST such as a note holds Markdown, in which other fences may stand.
    container: bool = False
    block: Block = field(default_factory=list)

    def closed_by(self, text: str) -> bool:
        bare = text.strip()
        return len(bare) >= len(self.mark) and not bare.strip(self.mark[0])


def blocks(lines: Sequence[str]) -> list[Block]:
    """The fenced Python blocks of a Markdown document, given by its lines."""
    found: list[_Fence] = []
    opened: list[_Fence] = []
    comment = False
    for index, line in enumerate(lines):
        comment = _in_comment(line, comment) if not opened else False
        if comment:
            continue
        while opened and _unquoted(line, opened[-1].quotes) is None:
            # The quote that held the fence is over, and so is the fence.
            opened.pop()
        if opened:
            fence = opened[-1]
            cut = _unquoted(line, fence.quotes) or 0
            text = line[cut:]
            if fence.closed_by(text):
                opened.pop()
                continue
            if not fence.container:
                bare = len(text) - len(text.lstrip(" \t"))
                inner = min(fence.indent, bare)
                fence.block.append((index, cut + inner, text[inner:]))
                continue
        fence_opened = _opening(line)
        if fence_opened:
            opened.append(fence_opened)
            found.append(fence_opened)
    return [
        drop_options(fence.block) if fence.directive else fence.block
        for fence in found
        if fence.python
    ]


def _opening(line: str) -> _Fence | None:
    match = _OPEN.fullmatch(line)
    if not match:
        return None
    mark, info = match["fence"], match["info"].strip()
    if mark[0] == "`" and "`" in info:
        return None
    fence = _Fence(mark, match["quote"].count(">"), len(match["indent"]))
    directive = _DIRECTIVE.fullmatch(info)
    if directive and directive["name"].lower() not in PYTHON:
        name = directive["name"].lower()
        fence.directive = True
        fence.python = is_python(name, directive["argument"])
        fence.container = not fence.python and not is_python(name, "python")
    elif mark[0] == ":":
        # Without a directive, colons only set a division apart.
        return None
    else:
        fence.python = _language(info) in PYTHON
    return fence


def _language(info: str) -> str:
    """The language that the info string of a fence names, in lower case."""
    attributes = _ATTRIBUTES.match(info)
    if attributes:
        return attributes["word"].lower()
    word = _WORD.match(info)
    return word[0].lower() if word else ""


def _unquoted(line: str, quotes: int) -> int | None:
    """Where the content behind `quotes` quote marks starts, or None if there are fewer."""
    place = 0
    for _ in range(quotes):
        match = _QUOTE.match(line, place)
        if not match:
            return None
        place = match.end()
    return place


def _in_comment(line: str, inside: bool) -> bool:
    """Whether the line belongs to an HTML comment that hides whole lines."""
    if inside:
        # The line that ends the comment hides nothing that follows it.
        return "-->" not in line
    return line.lstrip().startswith("<!--") and "-->" not in line
