"""Puts f-strings of flake8's tree where they stand, on a copy of only what changes.

Before Python 3.12 `ast` misplaces the nodes inside f-strings; the other plugins of the run have the
same tree before them and must not see it move.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

from actor_wg_codemod import fstrings

Node = TypeVar("Node", bound=ast.AST)


def placed(tree: ast.Module, lines: Sequence[str], words: Sequence[str]) -> ast.Module:
    """A tree in which every node on a line with one of `words` has its right place.

    Args:
        tree: flake8's; it is never changed, the result shares what needs no move.
        lines: the text that it was made from.
        words: the names that are looked for.
    """
    if sys.version_info >= (3, 12):
        return tree
    pattern = re.compile("|".join(map(re.escape, words)))
    wanted = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
    own = _own(tree, wanted)
    if own is not tree:
        fstrings.relocate(own, lines, words)
    return own


def _own(node: Node, wanted: Sequence[int]) -> Node:
    """The node itself, or a copy of it where an f-string on a wanted line hangs below."""
    if isinstance(node, ast.JoinedStr):
        return _copied(node)
    changed: dict[str, object] = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            new: object = _own(value, wanted) if _covers(value, wanted) else value
            if new is not value:
                changed[name] = new
        elif isinstance(value, list):
            items = [
                _own(item, wanted) if isinstance(item, ast.AST) and _covers(item, wanted) else item
                for item in value
            ]
            if any(new is not old for new, old in zip(items, value, strict=True)):
                changed[name] = items
    if not changed:
        return node
    own = copy.copy(node)
    for name, new in changed.items():
        setattr(own, name, new)
    return own


def _copied(node: Node) -> Node:
    """A copy of everything below a node, but not of what other plugins have hung on it."""
    own = type(node)()
    for name in node._attributes:
        setattr(own, name, getattr(node, name, None))
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            value = [_copied(item) if isinstance(item, ast.AST) else item for item in value]
        elif isinstance(value, ast.AST):
            value = _copied(value)
        setattr(own, name, value)
    return own


def _covers(node: ast.AST, wanted: Sequence[int]) -> bool:
    """Whether a node, with its decorators, stands on one of the lines; one without a place may."""
    start = getattr(node, "lineno", None)
    end = getattr(node, "end_lineno", None)
    if start is None or end is None:
        return True
    for decorator in getattr(node, "decorator_list", ()):
        start = min(start, decorator.lineno)
    index = bisect_left(wanted, start)
    return index < len(wanted) and wanted[index] <= end
