"""Applies edits with libcst, on the smallest statements around them; refuses stale or overlapping ones.

libcst's own positions cost several times a parse, so an edited word is found by its number among
all equal words: each stands in exactly one name, string or comment, and these come in the order
of the text. https://libcst.readthedocs.io/en/latest/visitors.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import libcst

from actor_wg_codemod.chunks import Chunk, chunks
from actor_wg_codemod.model import Edit
from actor_wg_codemod.source import Source
from actor_wg_codemod.splicing import EditError, Replacement, replacements, splice

_Leaf = TypeVar(
    "_Leaf", libcst.Name, libcst.SimpleString, libcst.FormattedStringText, libcst.Comment
)
_HEADER = "if 1:"


def apply(source: Source, tree: ast.Module, edits: Iterable[Edit]) -> str:
    """The text with the edits put in by libcst, every other byte as it was.

    Args:
        source: the text and its lines.
        tree: what `source.parse` makes of it.
        edits: spans that hold exactly one name each.

    Raises:
        EditError: an edit is stale or overlaps another, or libcst would change anything else.
    """
    changes = replacements(source, edits)
    try:
        new_text = _apply_to_chunks(source, chunks(source, tree, changes))
    except libcst.ParserSyntaxError:  # a stretch of lines that is no program on its own
        whole = Chunk(0, len(source.text), False, tuple(changes))
        try:
            new_text = _apply_to_chunks(source, [whole])
        except libcst.ParserSyntaxError as error:
            raise EditError(f"libcst cannot parse it: {error.message}") from None
    _compare(new_text, source.text, changes)
    return new_text


def transform(module: libcst.Module, edits: Iterable[Edit]) -> libcst.Module:
    """The same on a whole module, for those who have one.

    Raises:
        EditError: as `apply`.
    """
    text = module.code
    changes = replacements(Source(text), edits)
    try:
        result = module.visit(Renamer(text, [(c.start, c.old, c.new) for c in changes]))
    except RecursionError:
        raise EditError("nested too deeply for libcst") from None
    _compare(result.code, text, changes)
    return result


class Renamer(libcst.CSTTransformer):
    """Replaces words by their number among the occurrences of all old words in the text."""

    def __init__(self, text: str, changes: Sequence[tuple[int, str, str]]) -> None:
        """Takes the text of the tree to visit, and (offset, old word, new word) for each change.

        Raises:
            EditError: no such word stands there.
        """
        super().__init__()
        words = sorted({old for _, old, _ in changes}, key=len, reverse=True)
        self._words = re.compile("|".join(map(re.escape, words)))
        numbers = {m.start(): (n, m[0]) for n, m in enumerate(self._words.finditer(text))}
        self._new: dict[int, str] = {}
        for offset, old, new in changes:
            number, found = numbers.get(offset, (-1, ""))
            if found != old:
                raise EditError(f"the edit is stale, {old!r} does not stand where it should")
            self._new[number] = new
        self._next = 0
        self._values: dict[int, str] = {}

    def _renamed(self, value: str) -> str:
        def put(match: re.Match[str]) -> str:
            number = self._next
            self._next += 1
            return self._new.get(number, match[0])

        return self._words.sub(put, value)

    def _replaced(self, original: _Leaf, updated: _Leaf) -> _Leaf:
        value = self._values.pop(id(original))
        return updated if value == updated.value else updated.with_changes(value=value)

    # Parentheses around a name may hold comments, so its turn is between the two.

    def leave_Name_lpar(self, node: libcst.Name) -> None:  # noqa: N802
        self._values[id(node)] = self._renamed(node.value)

    def leave_SimpleString_lpar(self, node: libcst.SimpleString) -> None:  # noqa: N802
        self._values[id(node)] = self._renamed(node.value)

    def leave_Name(self, original_node: libcst.Name, updated_node: libcst.Name) -> libcst.Name:  # noqa: N802
        return self._replaced(original_node, updated_node)

    def leave_SimpleString(  # noqa: N802
        self, original_node: libcst.SimpleString, updated_node: libcst.SimpleString
    ) -> libcst.SimpleString:
        return self._replaced(original_node, updated_node)

    def leave_FormattedStringText(  # noqa: N802
        self, original_node: libcst.FormattedStringText, updated_node: libcst.FormattedStringText
    ) -> libcst.FormattedStringText:
        self._values[id(original_node)] = self._renamed(original_node.value)
        return self._replaced(original_node, updated_node)

    def leave_Comment(  # noqa: N802
        self, original_node: libcst.Comment, updated_node: libcst.Comment
    ) -> libcst.Comment:
        self._values[id(original_node)] = self._renamed(original_node.value)
        return self._replaced(original_node, updated_node)


def _compare(new_text: str, text: str, changes: Sequence[Replacement]) -> None:
    if new_text != splice(text, changes):
        raise EditError("libcst would change more than the renamed names")


def _apply_to_chunks(source: Source, stretches: Iterable[Chunk]) -> str:
    parts = []
    position = 0
    for chunk in stretches:
        parts += [source.text[position : chunk.start], _transformed(source.text, chunk)]
        position = chunk.end
    return "".join([*parts, source.text[position:]])


def _transformed(text: str, chunk: Chunk) -> str:
    stretch = text[chunk.start : chunk.end]
    # libcst loses a form feed in front and some line ends at the end, so it never sees them.
    code = stretch.lstrip("\f").rstrip("\r\n")
    before, after = stretch.partition(code)[::2] if code else (stretch, "")
    header = _HEADER + ("\r\n" if "\r\n" in code else "\n") if chunk.indented else ""
    shift = len(header) - len(before) - chunk.start
    changes = [(change.start + shift, change.old, change.new) for change in chunk.changes]
    try:
        module = libcst.parse_module(header + code)
        renamed = module.visit(Renamer(header + code, changes)).code
        return before + renamed[len(header) :] + after
    except RecursionError:
        raise EditError("nested too deeply for libcst") from None
