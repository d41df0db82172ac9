"""Proves an edited module before it is written: same tree under the rename, same scopes.

What `symtable` knows: https://docs.python.org/3/library/symtable.html
"""

from __future__ import annotations

import ast
import symtable
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from actor_wg_codemod.source import Source, SourceError, parse
from actor_wg_codemod.splicing import Replacement, splice

_PLACED_AT_START = (ast.Name, ast.arg, ast.keyword)
_BINDS_NOTHING = (ast.keyword, ast.Attribute)
_FLAGS = (
    "is_referenced", "is_parameter", "is_global", "is_declared_global", "is_nonlocal",
    "is_local", "is_free", "is_imported", "is_assigned", "is_annotated", "is_namespace",
)  # fmt: skip


class ProofError(Exception):
    """The edited text is not the old program under the rename; says why."""


def prove(source: Source, tree: ast.Module, new_text: str, changes: Sequence[Replacement]) -> None:
    """Checks that `new_text` is the old program with the changed names, and nothing else.

    Args:
        source: the old text.
        tree: what `source.parse` makes of it.
        new_text: the text with the changes put in.
        changes: all of them, in the order of the text.

    Raises:
        ProofError: it does not parse, its tree differs in any other way, or a name would be
            newly undefined, captured, or merged with another.
    """
    try:
        new_tree = parse(new_text, words=sorted({change.new for change in changes}))
    except SourceError as error:
        raise ProofError(f"the result would not parse: {error}") from None
    comparison = _Comparison(source, changes)
    comparison.run(tree, new_tree)
    if new_text != splice(source.text, changes):  # the comparison skips lines without changes
        raise ProofError("the result would differ in more than the renamed names")
    if comparison.bindings:
        _prove_scopes(source.text, new_text, comparison.bindings)


class _Comparison:
    """Walks both trees side by side and accounts for every difference by one of the changes."""

    def __init__(self, source: Source, changes: Sequence[Replacement]) -> None:
        self._source = source
        self._open = {source.place(change.start): change for change in changes}
        self._lines = sorted({line for line, _ in self._open})
        self._pairs = sorted({(change.old, change.new) for change in changes})
        self.bindings: set[tuple[str, str]] = set()

    def run(self, old: ast.Module, new: ast.Module) -> None:
        stack: list[tuple[ast.AST, ast.AST]] = [(old, new)]
        while stack:
            one, other = stack.pop()
            if type(one) is not type(other):
                raise self._differs(one)
            if isinstance(one, ast.stmt) and not self._reaches(one):
                if not _same_lines(one, other):
                    raise self._differs(one)
                continue  # the same text on the same lines
            stack.extend(self._fields(one, other))
        for (line, column), change in self._open.items():
            if "#" not in self._source.lines[line - 1][:column]:
                raise ProofError(f"line {line}: the edit of {change.old!r} changes no name")

    def _fields(self, one: ast.AST, other: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        for name in one._fields:
            old, new = getattr(one, name, None), getattr(other, name, None)
            olds, news = _as_list(old), _as_list(new)
            if len(olds) != len(news):
                raise self._differs(one)
            for left, right in zip(olds, news, strict=True):
                if isinstance(left, ast.AST) and isinstance(right, ast.AST):
                    yield left, right
                elif isinstance(one, ast.Constant) and name == "value":
                    self._constant(one, left, right)
                elif left != right or type(left) is not type(right):
                    self._identifier(one, left, right)

    def _constant(self, node: ast.Constant, left: object, right: object) -> None:
        if type(left) is not type(right):
            raise self._differs(node)
        if left == right or (left != left and right != right):
            return
        self._open = {
            place: change
            for place, change in self._open.items()
            if not self._is_inside(node, place)
        }
        if repr(self._renamed(left)) != repr(self._renamed(right)):
            raise self._differs(node)

    def _renamed(self, value: object) -> object:
        if isinstance(value, str):
            for old, new in self._pairs:
                value = value.replace(new, old)
        elif isinstance(value, bytes):
            for old, new in self._pairs:
                value = value.replace(new.encode(), old.encode())
        return value

    def _identifier(self, node: ast.AST, left: object, right: object) -> None:
        for place, change in self._open.items():
            if (change.old, change.new) == (left, right) and self._is_at(node, place, change):
                del self._open[place]
                if not isinstance(node, _BINDS_NOTHING):
                    self.bindings.add((change.old, change.new))
                return
        raise self._differs(node)

    def _is_at(self, node: ast.AST, place: tuple[int, int], change: Replacement) -> bool:
        if isinstance(node, _PLACED_AT_START):
            return place == self._place(node.lineno, node.col_offset)
        if isinstance(node, ast.Attribute):
            line, column = self._place(node.end_lineno or 0, node.end_col_offset or 0)
            return place == (line, column - len(change.old))
        return self._is_inside(node, place)

    def _is_inside(self, node: ast.AST, place: tuple[int, int]) -> bool:
        if not isinstance(node, (ast.expr, ast.stmt, ast.alias, ast.excepthandler, ast.pattern)):
            return False
        start = self._place(node.lineno, node.col_offset)
        return start <= place < self._place(node.end_lineno or 0, node.end_col_offset or 0)

    def _place(self, line: int, column: int) -> tuple[int, int]:
        text = self._source.lines[line - 1]
        return line, column if text.isascii() else len(text.encode()[:column].decode())

    def _reaches(self, node: ast.stmt) -> bool:
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        index = bisect_left(self._lines, first)
        return index < len(self._lines) and self._lines[index] <= (node.end_lineno or 0)

    def _differs(self, node: ast.AST) -> ProofError:
        line = getattr(node, "lineno", None)
        where = f"line {line}: " if line else ""
        return ProofError(f"{where}the result would differ in more than the renamed names")


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _same_lines(one: ast.AST, other: ast.AST) -> bool:
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _prove_scopes(text: str, new_text: str, pairs: Iterable[tuple[str, str]]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = symtable.symtable(text, "<old>", "exec")
            new = symtable.symtable(new_text, "<new>", "exec")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ProofError(f"the result would not compile: {reason}") from None
    except RecursionError:
        raise ProofError("nested too deeply for this Python") from None
    for pair in sorted(pairs):
        _Scopes(old, new, *pair, _binds_in_comprehension(new_text, pair)).prove()


class _Scopes:
    """The scopes of both texts side by side, looked at for one old and one new name."""

    def __init__(
        self,
        old: symtable.SymbolTable,
        new: symtable.SymbolTable,
        old_name: str,
        new_name: str,
        inlined: bool,
    ) -> None:
        self._pair = (old, new)
        self._inlined = inlined
        self._old_name, self._new_name = old_name, new_name
        self._is_bound = _bound(old, old_name)

    def prove(self) -> None:
        stack = [self._pair]
        while stack:
            old, new = stack.pop()
            children = old.get_children(), new.get_children()
            if len(children[0]) != len(children[1]):
                raise ProofError("the result would have other scopes")
            stack.extend(zip(*children, strict=True))
            self._compare(old, new)

    def _compare(self, old: symtable.SymbolTable, new: symtable.SymbolTable) -> None:
        before = _flags(old, self._old_name), _flags(old, self._new_name)
        after = _flags(new, self._old_name), _flags(new, self._new_name)
        where = f"in {old.get_type()} {old.get_name()!r} (line {old.get_lineno()})"
        if before == after:
            return
        if self._inlined and before[0] and after[1] and (after[0] or before[1]):
            return  # its comprehensions bind one of the names for themselves
        if before[0] is not None and before[1] is not None and after[0] is None:
            raise ProofError(f"{self._new_name!r} {where} would be merged with {self._old_name!r}")
        if before[0] is not None and after[0] is not None and before[1] is None:
            raise ProofError(f"only some uses of {self._old_name!r} {where} would be renamed")
        if before[0] != after[1] or before[1] is not None or after[0] is not None:
            raise ProofError(f"{self._new_name!r} {where} would mean another {self._old_name!r}")
        is_global = old.lookup(self._old_name).is_global()
        top = old.get_type() != "module"
        if is_global and top and not (self._is_bound and _bound(self._pair[1], self._new_name)):
            raise ProofError(f"{self._new_name!r} {where} would be undefined")


def _flags(table: symtable.SymbolTable, name: str) -> tuple[bool, ...] | None:
    if name not in table.get_identifiers():
        return None
    symbol = table.lookup(name)
    return tuple(getattr(symbol, flag)() for flag in _FLAGS)


def _binds_in_comprehension(text: str, names: tuple[str, str]) -> bool:
    """Whether a comprehension that Python 3.12 and later run inside its function binds one of the names.

    https://peps.python.org/pep-0709/: its names then stand in the function's table, without a
    table of their own.
    """
    return sys.hexversion >= 0x030C0000 and any(
        isinstance(part, ast.Name) and part.id in names
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp))
        for generator in node.generators
        for part in ast.walk(generator.target)
    )


def _bound(module: symtable.SymbolTable, name: str) -> bool:
    if name not in module.get_identifiers():
        return False
    symbol = module.lookup(name)
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
