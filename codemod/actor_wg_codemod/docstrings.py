"""How a docstring writes the entry of an argument, a line of code, and a name in a call."""

from __future__ import annotations

import re

_SECTION = re.compile(
    r"\s*(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes):?\s*"
)
_HEADING = re.compile(r"\s*[A-Z][A-Za-z ]+:\s*")
_OPENING = re.compile(r"^(\s*)[rRuU]?(?:\"{3}|'{3}|[\"'])")
_UNDERLINE = re.compile(r"\s*-{3,}\s*")
_FIELD = r":(?:param|parameter|arg|argument|key|keyword|type|ivar|cvar|var|attr)\s+(?:[^:]*\s)?|@(?:param|type|ivar)\s+"


def is_entry(lines: list[str], index: int, column: int, word: str) -> bool:
    """Whether the word at a place of a docstring heads the entry of an argument or attribute.

    Args:
        lines: the docstring's lines as they stand in the source.
        index: which of them.
        column: where in it the word begins.
        word: the word.
    """
    line = lines[index]
    before, after = line[:column], line[column + len(word) :]
    if re.fullmatch(rf".*(?:{_FIELD})\*{{0,2}}", before):
        return re.match(r"\s*:", after) is not None
    if not re.fullmatch(r"\s*(?:[-*]\s+)?`{0,2}\*{0,2}(?:\w+,\s*)*", before):
        return False
    header = _header(lines, index)
    if header < 0 or not _SECTION.fullmatch(_OPENING.sub(r"\1", lines[header])):
        return False
    if _underlined(lines, header):  # NumPy
        return (
            _indent(line) <= _indent(lines[header])
            and re.match(r"(?:,\s*\w+)*\s*(?::.*)?$", after) is not None
        )
    first = next((n for n in range(header + 1, index) if lines[n].strip()), index)
    if _indent(line) != _indent(lines[first]):
        return False  # a description that goes on
    return re.match(r"`{0,2}\s*(?:\(.*\))?\s*(?::|--? )", after) is not None


def is_code(lines: list[str], index: int) -> bool:
    """Whether a line of a docstring is typed at a prompt or stands in a fence."""
    if re.match(r"\s*(?:>>>|\.\.\.)(?:\s|$)", lines[index]):
        return True
    fences = sum(line.strip().startswith("```") for line in lines[:index])
    return fences % 2 == 1


def _header(lines: list[str], index: int) -> int:
    """The line of the heading under which a line stands; -1 where it has none."""
    for number in range(index - 1, -1, -1):
        line = lines[number]
        if _UNDERLINE.fullmatch(line):
            return number - 1
        if number == 0:
            line = _OPENING.sub(r"\1", line)
        if _HEADING.fullmatch(line) and _indent(line) < _indent(lines[index]):
            return number
    return -1


def _underlined(lines: list[str], header: int) -> bool:
    return header + 1 < len(lines) and _UNDERLINE.fullmatch(lines[header + 1]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
