"""Jupyter notebooks: the Python of the code cells, and edits put back into the raw JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from actor_wg_codemod.model import Finding
from actor_wg_codemod.splicing import EditError

from .lines import (
    DocumentError,
    Offsets,
    check_name,
    edits_of,
    replace,
    split_lines,
)
from .magics import neutralize
from .view import PythonView, Row, syntax_problem

_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\r\n]*")
# What stands for one character of a decoded string.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)
_LANGUAGES = frozenset({"", "python", "python3", "ipython", "ipython3"})


@dataclass(frozen=True)
class _Text:
    """A JSON string: where its content stands in the raw text, and what it says."""

    start: int
    end: int
    value: str


@dataclass(frozen=True)
class _Cell:
    number: int
    parts: tuple[_Text, ...]
    python: bool

    @property
    def source(self) -> str:
        return "".join(part.value for part in self.parts)

    def raw_range(self, raw: str, start: int, end: int) -> tuple[int, int]:
        """Where the characters from `start` to `end` of the source stand in the raw JSON."""
        for part in self.parts:
            if end <= len(part.value):
                break
            start, end = start - len(part.value), end - len(part.value)
        else:
            raise EditError(f"cell {self.number} has no character {end}")
        if start < 0:
            raise EditError(f"cell {self.number}: a name is spread over two JSON strings")
        first = _behind(raw, part.start, start)
        return first, _behind(raw, first, end - start)


def view(text: str) -> PythonView:
    """The Python of all code cells as one module; a notebook of another language has none.

    Raises:
        DocumentError: the text is not the JSON of a notebook.
    """
    source: list[str] = []
    rows: list[Row] = []
    problems: list[str] = []
    for cell in _cells(text):
        if not cell.python:
            continue
        lines = neutralize(split_lines(cell.source))
        problem = syntax_problem("\n".join(line.text for line in lines))
        if problem is not None:
            problems.append(f"cell {cell.number}, line {problem[0]}: {problem[1]}")
            continue
        source += [line.text for line in lines]
        rows += [Row(cell.number, i, line.shifts) for i, line in enumerate(lines, 1)]
    problem_line = "; ".join(problems) or None
    return PythonView("\n".join(source), tuple(rows), problem_line)


def apply(text: str, findings: Iterable[Finding]) -> str:
    """The notebook with the fixes of `findings` put in, every other byte as it was.

    Raises:
        DocumentError: the text is not the JSON of a notebook.
        EditError: an edit does not cover a name of its cell, or two edits overlap.
    """
    cells = {cell.number: cell for cell in _cells(text)}
    offsets: dict[int, Offsets] = {}
    replacements = []
    for number, edit in edits_of(findings):
        cell = cells.get(number) if number is not None else None
        if cell is None:
            raise DocumentError(f"there is no code cell {number}")
        source = cell.source
        places = offsets.setdefault(cell.number, Offsets(source))
        start = places.offset(edit.span.line, edit.span.column)
        end = places.offset(edit.span.end_line, edit.span.end_column)
        check_name(source[start:end], edit)
        replacements.append(
            (*cell.raw_range(text, start, end), json.dumps(edit.text, ensure_ascii=False)[1:-1])
        )
    return replace(text, replacements)


def _behind(raw: str, place: int, count: int) -> int:
    """The place `count` characters of a JSON string's value behind `place`."""
    for _ in range(count):
        match = _CHARACTER.match(raw, place)
        place = match.end() if match else place + 1
    return place


def _cells(text: str) -> list[_Cell]:
    cells: list[tuple[tuple[_Text, ...], str]] = []
    language = ""
    try:
        for key, place in _members(text, _skip(text, 1 if text.startswith("\ufeff") else 0)):
            if key == "metadata":
                language = _language(_DECODER.raw_decode(text, place)[0])
            elif key == "cells":
                for cell in _elements(text, place):
                    found = _code_cell(text, cell)
                    if found:
                        cells.append(found)
    except (ValueError, IndexError, RecursionError) as error:
        raise DocumentError(f"not the JSON of a notebook: {error}") from error
    python = language in _LANGUAGES
    return [
        _Cell(number, parts, python and own in _LANGUAGES)
        for number, (parts, own) in enumerate(cells, 1)
    ]


def _code_cell(text: str, place: int) -> tuple[tuple[_Text, ...], str] | None:
    """The source and the language of the cell at `place`, or None if it holds no code."""
    kind: Any = None
    parts: tuple[_Text, ...] = ()
    language = ""
    for key, value in _members(text, place):
        if key == "cell_type":
            kind = _DECODER.raw_decode(text, value)[0]
        elif key == "metadata":
            metadata = _DECODER.raw_decode(text, value)[0]
            editor = metadata.get("vscode") if isinstance(metadata, dict) else None
            language = _word(editor, "languageId")
        elif key == "source":
            starts = [value] if text[value] == '"' else list(_elements(text, value))
            parts = tuple(_string(text, start) for start in starts)
    return (parts, language) if kind == "code" else None


def _language(metadata: Any) -> str:
    if not isinstance(metadata, dict):
        return ""
    named = _word(metadata.get("language_info"), "name")
    return named or _word(metadata.get("kernelspec"), "language")


def _word(table: Any, key: str) -> str:
    value = table.get(key) if isinstance(table, dict) else None
    return value.lower() if isinstance(value, str) else ""


def _string(text: str, place: int) -> _Text:
    if text[place] != '"':
        raise ValueError(f"a string is missing at character {place + 1}")
    value, end = _DECODER.raw_decode(text, place)
    return _Text(place + 1, end - 1, value)


def _members(text: str, place: int) -> Iterator[tuple[str, int]]:
    """The keys of the object at `place`, each with where its value starts."""
    for start in _items(text, place, "{", "}"):
        key = _string(text, start)
        colon = _skip(text, key.end + 1)
        if text[colon] != ":":
            raise ValueError(f"a colon is missing at character {colon + 1}")
        yield key.value, _skip(text, colon + 1)


def _elements(text: str, place: int) -> Iterator[int]:
    """Where the elements of the array at `place` start."""
    return _items(text, place, "[", "]")


def _items(text: str, place: int, opened: str, closed: str) -> Iterator[int]:
    if text[place] != opened:
        raise ValueError(f"{opened} is missing at character {place + 1}")
    place = _skip(text, place + 1)
    while text[place] != closed:
        yield place
        if opened == "{":
            place = _skip(text, _skip(text, _string(text, place).end + 1) + 1)
        place = _skip(text, _DECODER.raw_decode(text, place)[1])
        if text[place] == ",":
            place = _skip(text, place + 1)
        elif text[place] != closed:
            raise ValueError(f"a comma is missing at character {place + 1}")


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place
