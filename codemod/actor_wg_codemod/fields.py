"""The fields of dataclasses, attrs classes and NamedTuples: what their constructors take, and what calls give them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import Module, Place, path_of
from actor_wg_codemod.values import (
    UNKNOWN,
    ClassValue,
    External,
    Function,
    Tuple,
    Value,
    Values,
    held,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator
    from actor_wg_codemod.linking import ClassInfo, Linker

MAKERS = frozenset({"dataclass", "s", "attrs", "attributes", "define", "mutable", "frozen"})
"""Decorators of dataclasses and attrs that write a constructor, by their last name."""
SPECIFIERS = frozenset({"ib", "attrib", "field"})
"""What attrs' older classes say of a field in place of an annotation."""
FAR = 99
"""More positions than a constructor takes."""
NAMED_TUPLES = frozenset({"typing.NamedTuple", "typing_extensions.NamedTuple"})


class Fields:
    """The evaluator's part that knows which calls fill an object's fields."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def filled(self, call: ast.Call, place: Place) -> Values:
        """The classes and objects whose fields a call's keywords may be.

        `C(name=...)` where nothing of the project takes it, `replace(c, name=...)`, `patch.multiple(C, name=...)`.
        """
        made = frozenset(
            v
            for v in self.ev.forwarding.targets(call, place)
            if isinstance(v, ClassValue) and self.ev.link.constructor(v.info) is None
        )
        called = self.ev.evaluate(call.func, place)
        if made or any(isinstance(v, (ClassValue, Function)) for v in called):
            return made
        found = self.within(call.args[0], place) if call.args else frozenset()
        if isinstance(call.func, ast.Attribute):
            found |= self.within(call.func.value, place)
        return found - UNKNOWN

    def within(self, node: ast.expr, place: Place) -> Values:
        """What an expression is, or a string names, or `vars(...)` and `__dict__` are of."""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            node = node.value
        elif isinstance(node, ast.Call) and path_of(node.func) == "vars" and node.args:
            node = node.args[0]
        text = self.ev.calls.text(node, place)
        if text is None:
            return self.ev.evaluate(node, place)
        return self.ev.by_name(text, place.scope.module.path)

    def unnamed(
        self, call: ast.Call, name: str, place: Place
    ) -> Iterator[tuple[Value, Values, Module]]:
        """(whose field it is, what a call gives for it without naming it, where that is written)."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        tables = [k.value for k in call.keywords if k.arg in (None, "update")]
        tables += call.args if last == "update" else []
        owners: Values = frozenset()
        if path_of(call.func) == "type" and len(call.args) == 3:
            owners = held(self.ev.evaluate(call.args[1], place))  # a class below these
            tables += call.args[2:]
        elif tables or call.args:
            owners = self.filled(call, place)
        for owner in owners:
            if isinstance(owner, ClassValue):
                names = positional(self.ev.link, owner.info)
                given = self._positions(call, owner, last, place) if name in names else []
                if name in names[: len(given)]:
                    yield owner, given[names.index(name)], place.scope.module
            for table in tables:
                for value, where in self.ev.forwarding.splatted(table, name, place):
                    yield owner, self.ev.evaluate(value, where), where.scope.module

    def _positions(
        self, call: ast.Call, owner: ClassValue, last: str, place: Place
    ) -> list[Values]:
        """What a construction, `_make` or a partial construction gives for each position."""
        if last == "_make":
            rows = self._literal(call.args[:1])
            return self._spread(rows, place) if rows is not None else [UNKNOWN] * FAR
        whole = owner in self.ev.evaluate(call.func, place)
        return self._spread(call.args if whole else call.args[1:], place)

    @staticmethod
    def _literal(arguments: Sequence[ast.expr]) -> list[ast.expr] | None:
        rows = [a.elts for a in arguments if isinstance(a, (ast.List, ast.Tuple))]
        return rows[0] if rows else None

    def _spread(self, arguments: list[ast.expr], place: Place) -> list[Values]:
        """What is given at each position, where that is known; what is unpacked may go on for ever."""
        found: list[Values] = []
        for argument in arguments:
            if not isinstance(argument, ast.Starred):
                found.append(self.ev.evaluate(argument, place))
                continue
            values = self.ev.evaluate(argument.value, place)
            known = [v.items for v in values if isinstance(v, Tuple)]
            if len(known) != 1 or len(values) != 1:
                return [*found, *[UNKNOWN] * FAR]
            found += known[0]
        return found


def is_named_tuple(link: Linker, info: ClassInfo) -> bool:
    """Whether a class of the project is a typing.NamedTuple."""
    return any(
        isinstance(v, External) and v.name in NAMED_TUPLES for b in link.bases(info) for v in b
    )


def positional(link: Linker, info: ClassInfo) -> list[str]:
    """The fields that a written constructor takes by position, those that it inherits first."""
    found: dict[str, bool] = {}
    for current in reversed(link.mro(info)):
        if current.node is not None and (_makes(current.node) or is_named_tuple(link, current)):
            found |= _fields(current.node)
    return [name for name, by_position in found.items() if by_position]


def _makes(node: ast.ClassDef) -> bool:
    return any(_last(d) in MAKERS for d in node.decorator_list)


def _fields(node: ast.ClassDef) -> dict[str, bool]:
    """The fields of a class body in order, and whether each is taken by position."""
    found: dict[str, bool] = {}
    by_position = not any(_says(d, "kw_only", True) for d in node.decorator_list)
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
            kind = _last(statement.annotation)
            if kind == "KW_ONLY":
                by_position = False
            if kind in ("KW_ONLY", "ClassVar"):
                continue
        elif not isinstance(statement, ast.Assign) or _last(statement.value) not in SPECIFIERS:
            continue
        if isinstance(target, ast.Name):
            value = statement.value
            told = _says(value, "init", False) or _says(value, "kw_only", True)
            found[target.id] = by_position and not told
    return found


def _last(node: ast.expr | None) -> str:
    """The last name of what is called, parametrized, or named, in a string as well."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.partition("[")[0].rpartition(".")[2]
    return (path_of(node) or "").rpartition(".")[2] if node is not None else ""


def _says(node: ast.expr | None, word: str, what: bool) -> bool:
    return isinstance(node, ast.Call) and any(
        k.arg == word and isinstance(k.value, ast.Constant) and k.value.value is what
        for k in node.keywords
    )
