"""Python in Markdown fences and in reStructuredText blocks, with document lines as places.

A block that is not Python on its own (an excerpt, an ellipsis among keywords) is left out
without a word: documentation is full of such blocks, and nothing in them can be proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from actor_wg_codemod.model import Finding

from . import fences, restructured
from .blocks import Block
from .lines import splice, split_lines
from .magics import neutralize
from .view import Line, PythonView, Row, syntax_problem

MARKDOWN = (".md", ".markdown")
RESTRUCTURED = (".rst", ".rest")
_PROMPT = re.compile(r"(?:>>>|In \[\d+\]:)(?: |$)")
_CONTINUED = re.compile(r"(?:\.\.\.| +\.{3,}:)(?: |$)")


def view(path: str, text: str) -> PythonView:
    """All Python blocks of the document as one module, each line at its own document line."""
    find = restructured.blocks if PurePath(path).suffix.lower() in RESTRUCTURED else fences.blocks
    lines = split_lines(text.removeprefix("\ufeff"))
    source = [Line("")] * len(lines)
    for block in find(lines):
        for part in _statements(block):
            for index, line in part:
                source[index] = line
    rows = tuple(Row(None, number, line.shifts) for number, line in enumerate(source, 1))
    return PythonView("\n".join(line.text for line in source), rows)


def apply(text: str, findings: Iterable[Finding]) -> str:
    """The document with the fixes of `findings` put in, every other byte as it was.

    Raises:
        EditError: an edit does not cover a name, or two edits overlap.
    """
    return splice(text, findings)


def _statements(block: Block) -> Iterable[list[tuple[int, Line]]]:
    """The parts of a block that are Python: all of it, or the statements of a session."""
    first = next((text for _, _, text in block if text.strip()), "")
    parts = _session(block) if _PROMPT.match(first.lstrip()) else [block]
    for part in parts:
        bare = neutralize([text for _, _, text in part])
        if syntax_problem("\n".join(line.text for line in bare)) is None:
            yield [
                (index, Line(line.text, ((0, cut), *line.shifts)))
                for (index, cut, _), line in zip(part, bare, strict=True)
            ]


def _session(block: Block) -> Sequence[Block]:
    """The statements typed at the prompts of an interactive session, output left out."""
    parts: list[Block] = []
    typing = False
    for index, cut, text in block:
        bare = text.lstrip()
        indent = len(text) - len(bare)
        prompt = _PROMPT.match(bare)
        if prompt:
            parts.append([])
        elif typing:
            # The dots of IPython are indented so that they stand below the prompt.
            prompt = _CONTINUED.match(bare) or _CONTINUED.match(text)
            indent = 0 if prompt and prompt.string == text else indent
        typing = prompt is not None
        if prompt:
            taken = indent + prompt.end()
            parts[-1].append((index, cut + taken, text[taken:]))
    return parts
