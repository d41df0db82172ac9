"""Cuts a module into the smallest stretches of whole lines that hold edits and parse on their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from actor_wg_codemod.source import Source
from actor_wg_codemod.splicing import Replacement


@dataclass(frozen=True)
class Chunk:
    """Offsets of a stretch of text, whether it stands in an indented block, and its changes."""

    start: int
    end: int
    indented: bool
    changes: tuple[Replacement, ...]


def chunks(source: Source, tree: ast.Module, changes: Sequence[Replacement]) -> Iterator[Chunk]:
    """The stretches for changes in the order of the text."""
    ranges: list[tuple[int, int, list[Replacement]]] = []
    for change in changes:
        line, _ = source.place(change.start)
        if ranges and line <= ranges[-1][1]:
            ranges[-1][2].append(change)
            continue
        first, last = _statement_lines(source, tree, line)
        inside = [change]
        while ranges and first <= ranges[-1][1]:
            earlier = ranges.pop()
            first, last = min(first, earlier[0]), max(last, earlier[1])
            inside = earlier[2] + inside
        ranges.append((first, last, inside))
    ends = (*source.starts[1:], len(source.text))
    for first, last, inside in ranges:
        code = source.lines[first - 1].lstrip("\f")
        indented = code[:1].isspace() and not code.lstrip().startswith("#")
        yield Chunk(source.starts[first - 1], ends[last - 1], indented, tuple(inside))


def _statement_lines(source: Source, tree: ast.Module, line: int) -> tuple[int, int]:
    """The lines of the innermost statement around a line, or the line itself between statements."""
    body: Sequence[ast.stmt] = tree.body
    while True:
        first = last = line
        around: list[ast.stmt] = []
        while True:  # statements that share a line stay together
            near = [n for n in body if _first_line(n) <= last and first <= (n.end_lineno or 0)]
            if len(near) == len(around):
                break
            around = near
            first = min(first, _first_line(around[0]))
            last = max(last, around[-1].end_lineno or 0)
        if len(around) != 1:
            return first, last
        for block in _blocks(source, around[0]):
            if _first_line(block[0]) <= line <= (block[-1].end_lineno or 0):
                body = block
                break
        else:
            return first, last


def _blocks(source: Source, node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement that start on a line of their own."""
    owners: list[ast.AST] = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    for owner in owners:  # which grows by each elif
        for name in ("body", "orelse", "finalbody"):
            block = getattr(owner, name, None)
            if not block or not isinstance(block, list):
                continue
            line = source.lines[_first_line(block[0]) - 1].lstrip()
            if name == "orelse" and isinstance(block[0], ast.If) and line.startswith("elif"):
                owners.append(block[0])
            elif _starts_line(source, block[0]):
                yield block


def _starts_line(source: Source, node: ast.stmt) -> bool:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    places = [(part.lineno, part.col_offset) for part in decorators]
    line, column = min([(node.lineno, node.col_offset), *places])
    before = source.lines[line - 1].encode()[:column]
    return before.strip() in (b"", b"@")


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
