"""Renames a parameter or local with all its uses, and says when that cannot be done by an edit."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from actor_wg_codemod.bindings import COMPREHENSIONS, DEFS, Chain, Scope
from actor_wg_codemod.model import Span

OBSERVERS = frozenset({"locals", "vars", "eval", "exec", "dir"})


@dataclass(frozen=True)
class Renaming:
    """The spans of one local name, or the reason why it cannot be renamed."""

    spans: tuple[Span, ...] = ()
    problem: str | None = None


class LocalNames:
    """Finds every use of a function's local name."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, str, str], Renaming] = {}

    def rename(self, scope: Scope, word: str, new: str) -> Renaming:
        """All places that mean the local `word` of a function scope, for renaming it to `new`."""
        key = (id(scope.node), word, new)
        if key not in self._done:
            self._done[key] = self._rename(scope, word, new)
        return self._done[key]

    def _rename(self, scope: Scope, word: str, new: str) -> Renaming:
        module = scope.module
        if any(_names(d, word) for d in getattr(scope.node, "decorator_list", ())):
            return Renaming(problem=f"a decorator of this function names {word}")
        spans: list[Span] = []
        uses: list[Chain] = []
        for chain in module.carriers_in(scope.node, word):
            node = chain[-1][0]
            if isinstance(node, (ast.Attribute, ast.keyword, ast.Constant)):
                continue
            place = module.place(chain)
            if isinstance(node, ast.Global) or module.resolve(place.scope, word) is not scope:
                continue
            if isinstance(node, (*DEFS, ast.ClassDef)) or (
                isinstance(node, ast.alias) and node.asname != word
            ):
                return Renaming(
                    problem=f"{word} is also the name of a definition or import in this function"
                )
            span = module.name_span(node, word)
            if span is None:
                return Renaming(problem=f"a use of {word} could not be located in the text")
            spans.append(span)
            uses.append(chain)
        problem = self._clash(scope, new, uses) or self._observed(scope, word)
        if problem:
            return Renaming(problem=problem)
        return Renaming(tuple(sorted(set(spans))))

    def _clash(self, scope: Scope, new: str, uses: list[Chain]) -> str | None:
        """A name that the rename would capture or be captured by."""
        module = scope.module
        for chain in module.carriers_in(scope.node, new):
            node = chain[-1][0]
            if isinstance(node, (ast.Attribute, ast.keyword, ast.Constant)):
                continue
            if isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) != new:
                continue
            place = module.place(chain)
            if not _inside(place.scope, scope):
                continue
            home = module.resolve(place.scope, new)
            if home is None or home is scope or not _inside(home, scope):
                return f"this function already uses the name {new}"
            if any(_inside(module.place(use).scope, home) for use in uses):
                return f"an inner scope of this function already binds {new}"
        return None

    def _observed(self, scope: Scope, word: str) -> str | None:
        """A call that lets the program see its local names."""
        module = scope.module
        pattern = rf"\b(?:{'|'.join(sorted(OBSERVERS))})\s*\("
        for chain in module.chains(pattern, ast.Call):
            call = chain[-1][0]
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            name = call.func.id
            if name not in OBSERVERS or not _within(chain, scope.node):
                continue
            own: Scope | None = module.place(chain).scope
            while own is not None and own is not scope and isinstance(own.node, COMPREHENSIONS):
                own = own.parent
            if own is not scope or module.resolve(own, name) is not None:
                continue
            if name in ("vars", "dir") and call.args:
                continue
            if name in ("eval", "exec") and (len(call.args) > 1 or call.keywords):
                continue
            return f"{name}() in this function can see the name {word}"
        return None


def _names(node: ast.AST, word: str) -> bool:
    """Whether an expression says a name as a keyword or a string."""
    return any(
        (isinstance(part, ast.keyword) and part.arg == word)
        or (isinstance(part, ast.Constant) and part.value == word)
        for part in ast.walk(node)
    )


def _within(chain: Chain, node: ast.AST) -> bool:
    return any(n is node for n, _ in chain)


def _inside(scope: Scope, outer: Scope) -> bool:
    current: Scope | None = scope
    while current is not None:
        if current is outer:
            return True
        current = current.parent
    return False
