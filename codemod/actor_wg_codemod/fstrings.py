"""Puts the positions of nodes inside f-strings right, which `ast` misplaces before Python 3.12.

https://docs.python.org/3/whatsnew/3.12.html#pep-701-syntactic-formalization-of-f-strings
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BETWEEN = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|#[^\n]*)*")
_OPENING = re.compile(r"([A-Za-z]{0,2})('''|\"\"\"|'|\")")
_NAMED_ESCAPE = re.compile(r"\\N\{[^{}]*\}")
_CONVERSION_OR_END = "!:}="


@dataclass(frozen=True)
class _Field:
    """A replacement field: offsets of its braces, of its expression, of its format spec."""

    start: int
    expression: tuple[int, int]
    spec: tuple[int, int] | None
    spec_fields: tuple[_Field, ...]
    end: int


class _Text:
    """The text of one f-string expression in the file, with offsets that turn into places."""

    def __init__(self, lines: Sequence[str], node: ast.expr) -> None:
        last = (node.end_lineno or node.lineno) - 1
        first = node.lineno - 1
        raw = [line.rstrip("\r\n") for line in lines[first : last + 1]]
        self.text = "\n".join(raw)
        self._first_line = node.lineno
        self._starts = [0]
        for line in raw:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.start = _characters(raw[0], node.col_offset)
        self.end = self._starts[last - first] + _characters(raw[-1], node.end_col_offset or 0)

    def place(self, offset: int) -> tuple[int, int]:
        """Line from 1 and column in UTF-8 bytes, as `ast` counts."""
        row = bisect_left(self._starts, offset + 1) - 1
        prefix = self.text[self._starts[row] : offset]
        return self._first_line + row, len(prefix) if prefix.isascii() else len(prefix.encode())


def _characters(line: str, column: int) -> int:
    return column if line.isascii() else len(line.encode()[:column].decode())


def relocate(tree: ast.AST, text_lines: Sequence[str], words: Sequence[str] = ()) -> None:
    """Corrects, in place, the positions of every node inside the f-strings of `tree`.

    Does nothing useful on Python 3.12 or newer, where they are right already.

    Args:
        tree: what `ast.parse` made of the text.
        text_lines: the text, split only at line feeds and carriage returns.
        words: where given, f-strings without any of them are left as they are.
    """
    wanted: list[int] | None = None
    if words:
        pattern = re.compile("|".join(map(re.escape, words)))
        wanted = [number for number, line in enumerate(text_lines, 1) if pattern.search(line)]
        if not wanted:
            return
    for node in _outermost(tree, wanted):
        _relocate_fields(node, text_lines)


def _outermost(tree: ast.AST, wanted: list[int] | None) -> Iterator[ast.JoinedStr]:
    """The f-strings not inside another, of those that reach over one of the wanted lines."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if wanted is not None and not _reaches(node, wanted):
            continue
        if isinstance(node, ast.JoinedStr):
            yield node
        else:
            stack.extend(ast.iter_child_nodes(node))


def _reaches(node: ast.AST, wanted: list[int]) -> bool:
    end = getattr(node, "end_lineno", None)
    if end is None:
        return True
    start: int = node.lineno  # type: ignore[attr-defined]
    for decorator in getattr(node, "decorator_list", ()):
        start = min(start, decorator.lineno)
    index = bisect_left(wanted, start)
    return index < len(wanted) and wanted[index] <= end


def _relocate_fields(node: ast.JoinedStr, lines: Sequence[str]) -> None:
    text = _Text(lines, node)
    fields: list[_Field] = []
    inside = _literals(text.text, text.start, text.end, fields)
    _match(node, fields, inside, text, lines)


def _match(
    node: ast.JoinedStr,
    fields: Sequence[_Field],
    inside: tuple[int, int],
    text: _Text,
    lines: Sequence[str],
) -> None:
    """Places the parts of an f-string, or of a format spec, whose content spans `inside`."""
    if sum(isinstance(value, ast.FormattedValue) for value in node.values) != len(fields):
        return  # not the text this tree was made of
    starts = [field.start for field in fields] + [inside[1]]
    position, index = inside[0], 0
    for value in node.values:
        if not isinstance(value, ast.FormattedValue):
            _set_place(value, text, position, starts[index])
            continue
        field = fields[index]
        position, index = field.end, index + 1
        _set_place(value, text, field.start, field.end)
        _relocate_expression(value.value, text, field.expression, lines)
        if field.spec is not None and isinstance(value.format_spec, ast.JoinedStr):
            _set_place(value.format_spec, text, *field.spec)
            spec_inside = (field.spec[0] + 1, field.spec[1])
            _match(value.format_spec, field.spec_fields, spec_inside, text, lines)


def _relocate_expression(
    node: ast.expr, text: _Text, span: tuple[int, int], lines: Sequence[str]
) -> None:
    """Parses the expression once more, alone, and copies its positions over."""
    line, column = text.place(span[0])
    placed = ast.parse(f"({text.text[span[0] : span[1]]})", mode="eval").body
    for old, new in zip(ast.walk(node), ast.walk(placed), strict=False):
        if type(old) is not type(new):
            return
        if isinstance(new, (ast.expr, ast.arg, ast.keyword)):
            shift = column - 1 if new.lineno == 1 else 0
            old.col_offset = new.col_offset + shift  # type: ignore[attr-defined]
            shift = column - 1 if new.end_lineno == 1 else 0
            old.end_col_offset = (new.end_col_offset or 0) + shift  # type: ignore[attr-defined]
            old.lineno = new.lineno + line - 1  # type: ignore[attr-defined]
            old.end_lineno = (new.end_lineno or 0) + line - 1  # type: ignore[attr-defined]
    if isinstance(node, ast.Tuple) and (node.lineno, node.col_offset) == (line, column - 1):
        expression = text.text[slice(*span)]  # a bare tuple has taken the added parentheses
        start = span[1] - len(expression.lstrip())
        _set_place(node, text, start, start + len(expression.strip()))
    for inner in _outermost(node, None):
        _relocate_fields(inner, lines)


def _set_place(node: ast.expr, text: _Text, start: int, end: int) -> None:
    node.lineno, node.col_offset = text.place(start)
    node.end_lineno, node.end_col_offset = text.place(end)


def _literals(text: str, position: int, end: int, fields: list[_Field]) -> tuple[int, int]:
    """Collects the fields of literals that stand side by side; where their content lies."""
    first = closing = None
    while position < end:
        opening = _OPENING.match(text, position)
        if not opening:
            break
        prefix, quote = opening[1].lower(), opening[2]
        first = opening.end() if first is None else first
        closing = _closing(text, opening.end(), quote)
        if "f" in prefix:
            raw = "r" in prefix
            fields.extend(_fields(text, opening.end(), closing, raw=raw, nested=False))
        between = _BETWEEN.match(text, closing + len(quote))
        position = between.end() if between else end
    return (position if first is None else first, position if closing is None else closing)


def _closing(text: str, position: int, quote: str) -> int:
    while not text.startswith(quote, position):
        position += 2 if text[position] == "\\" else 1
    return position


def _fields(text: str, position: int, end: int, *, raw: bool, nested: bool) -> Iterator[_Field]:
    while position < end:
        character = text[position]
        if character == "\\" and not raw:
            escape = _NAMED_ESCAPE.match(text, position)
            if escape:
                position = escape.end()
            else:
                position += 1 if text[position + 1] in "{}" else 2
        elif character in "{}" and not nested and text[position + 1] == character:
            position += 2
        elif character == "{":
            field = _field(text, position, end, raw=raw)
            yield field
            position = field.end
        elif character == "}":
            return
        else:
            position += 1


def _field(text: str, start: int, end: int, *, raw: bool) -> _Field:
    stop = _expression_end(text, start + 1)
    position = stop
    if text[position] == "=":
        position += 1
        while text[position].isspace():
            position += 1
    if text[position] == "!":
        position += 2
        while text[position].isspace():
            position += 1
    spec = None
    inner: tuple[_Field, ...] = ()
    if text[position] == ":":
        spec_start = position
        inner = tuple(_fields(text, position + 1, end, raw=raw, nested=True))
        position = _spec_end(text, inner[-1].end if inner else position + 1)
        spec = (spec_start, position)
    return _Field(start, (start + 1, stop), spec, inner, position + 1)


def _spec_end(text: str, position: int) -> int:
    while text[position] != "}":
        position += 1
    return position


def _expression_end(text: str, position: int) -> int:
    """Where an expression ends: at its `!r`, `=`, `:` or `}`, outside of strings and brackets."""
    depth = 0
    while True:
        character = text[position]
        if character in "\"'":
            quote = character * 3 if text.startswith(character * 3, position) else character
            position = _closing(text, position + len(quote), quote) + len(quote)
            continue
        if character in "([{":
            depth += 1
        elif depth and character in ")]}":
            depth -= 1
        elif not depth and character in "!=<>" and text[position + 1] == "=":
            position += 1
        elif not depth and character in _CONVERSION_OR_END:
            return position
        position += 1
