"""The fields of dataclasses, attrs classes and NamedTuples: what their constructors take, in which order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import path_of
from actor_wg_codemod.values import External

if TYPE_CHECKING:
    from actor_wg_codemod.linking import ClassInfo, Linker

MAKERS = frozenset({"dataclass", "s", "attrs", "attributes", "define", "mutable", "frozen"})
"""Decorators of dataclasses and attrs that write a constructor, by their last name."""
SPECIFIERS = frozenset({"ib", "attrib", "field"})
"""What attrs' older classes say of a field in place of an annotation."""
NAMED_TUPLES = frozenset({"typing.NamedTuple", "typing_extensions.NamedTuple"})


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
