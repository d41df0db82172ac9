"""Edits as offsets in a text: checked against it, and put in by plain cutting and joining."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actor_wg_codemod.model import Edit
from actor_wg_codemod.source import Source

_WORD = re.compile(r"\w+")


class EditError(Exception):
    """The edits do not fit the text; nothing of them was applied."""


@dataclass(frozen=True, order=True)
class Replacement:
    """An edit by offsets in the text."""

    start: int
    end: int
    old: str
    new: str


def replacements(source: Source, edits: Iterable[Edit]) -> list[Replacement]:
    """The edits in the order of the text, each once.

    Raises:
        EditError: an edit lies outside of the text, covers no word, or overlaps another.
    """
    found: list[Replacement] = []
    for edit in sorted(set(edits)):
        span = edit.span
        place = f"line {span.line}, column {span.column + 1}"
        try:
            start = source.offset(span.line, span.column)
            end = source.offset(span.end_line, span.end_column)
        except ValueError:
            raise EditError(f"{place}: the edit is stale, the text has no such place") from None
        old = source.text[start:end]
        if not _WORD.fullmatch(old) or not _WORD.fullmatch(edit.text):
            raise EditError(f"{place}: the edit is stale, {old[:40]!r} is not a name") from None
        if found and start < found[-1].end:
            raise EditError(f"{place}: two edits overlap")
        found.append(Replacement(start, end, old, edit.text))
    return found


def splice(text: str, changes: Sequence[Replacement]) -> str:
    """The text with each replacement put in by its offsets; what the transformer is measured by."""
    parts = []
    position = 0
    for change in changes:
        parts += [text[position : change.start], change.new]
        position = change.end
    return "".join([*parts, text[position:]])
