"""What the callers of a function pass for one of its parameters, and whether all of them are in view."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import DEFS, Chain, Module, Place, path_of
from actor_wg_codemod.values import (
    UNKNOWN,
    ClassValue,
    External,
    Function,
    Nothing,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

MOST_FILES = 6
MOST_STEPS = 60
PLAIN_BASES = frozenset(
    {"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing.NamedTuple"}
)
"""Bases outside the project that never call a method of theirs by its name."""


class Callers:
    """The evaluator's part that looks from a parameter to the calls that fill it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def given(
        self, node: ast.arg, function: ast.AST, outer: Place, default: Values
    ) -> Values | None:
        """What the calls in the project pass for a parameter.

        Args:
            node: the parameter.
            function: the function that has it.
            outer: where that function is defined.
            default: what the parameter is where a call leaves it out.

        Returns:
            Unknown is among the values where there can be calls that are not in view, or whose
            arguments are not; None where no call in view says anything.
        """
        if not isinstance(function, DEFS) or not self._searchable(function, outer):
            return None
        if node.arg.endswith(("config", "cfg")):
            return None
        if node in (function.args.vararg, function.args.kwarg):
            return None
        key = ("callers", id(node))
        if key in self.ev._active or len(self.ev._active) > MOST_STEPS:
            return None
        self.ev._active.add(key)
        try:
            return self._given(node, function, outer, default)
        finally:
            self.ev._active.discard(key)

    def _given(
        self,
        node: ast.arg,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        outer: Place,
        default: Values,
    ) -> Values | None:
        if len(self.ev.project.mentions(self._name(function, outer))) > MOST_FILES:
            return None
        found: set[Value] = set()
        for use in self._uses(function, outer):
            found |= UNKNOWN if use is None else self._passed(node, function, *use, default)
        if all(isinstance(v, (Unknown, Nothing)) for v in found):
            return None
        if not self._only_called_in_view(function, outer):
            found |= default | UNKNOWN
        return frozenset(found)

    def arguments(
        self, node: ast.arg, function: ast.AST, outer: Place
    ) -> Iterator[tuple[ast.expr, Place] | None]:
        """What each call in the project writes for a parameter, and where; None where that is not in view."""
        if not isinstance(function, DEFS) or not self._searchable(function, outer):
            return
        if len(self.ev.project.mentions(self._name(function, outer))) > MOST_FILES:
            return
        if not self._only_called_in_view(function, outer):
            yield None
        for use in self._uses(function, outer):
            argument = None if use is None else self._argument(node, function, use[0], use[2])
            if use is None or argument is None:
                yield None
            else:
                yield argument, use[1]

    @staticmethod
    def _argument(
        node: ast.arg,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        call: ast.Call,
        shift: int,
    ) -> ast.expr | None:
        """What a call writes for a parameter; None where it leaves it out or unpacks something."""
        for keyword in call.keywords:
            if keyword.arg == node.arg:
                return keyword.value
        positional = [*function.args.posonlyargs, *function.args.args]
        index = positional.index(node) - shift if node in positional else len(call.args)
        if any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
            return None
        return call.args[index] if 0 <= index < len(call.args) else None

    def _uses(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place
    ) -> Iterator[tuple[ast.Call, Place, int] | None]:
        """(call, where, how many leading parameters it does not give) of each call; None for any other use."""
        nodes, name = self._overridden(function, outer), self._name(function, outer)
        for path in self.ev.project.mentions(name):
            module = self.ev.module(path)
            if module is None:
                yield None
                continue
            for chain in module.carriers(name):
                use = chain[-1][0]
                if isinstance(use, ast.alias):
                    if use.asname and self._is_imported(use, chain, function, module):
                        yield None
                elif isinstance(use, ast.Constant):
                    if use.value == name and not _is_listed(chain):
                        yield None  # getattr, globals(), a registry
                elif isinstance(use, (ast.Name, ast.Attribute)) and isinstance(use.ctx, ast.Load):
                    yield from self._use(use, chain, module, nodes, method=outer.scope.is_class)

    def _name(self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place) -> str:
        """The name by which a function is called: a constructor by that of its class."""
        owner = self.ev.link.owner_of(outer.scope) if function.name == "__init__" else None
        return function.name if owner is None else owner.name

    def _searchable(self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place) -> bool:
        name = self._name(function, outer)
        return not name.startswith("__") and len(name) > 2

    def _use(
        self,
        use: ast.expr,
        chain: Chain,
        module: Module,
        nodes: frozenset[int],
        *,
        method: bool,
    ) -> Iterator[tuple[ast.Call, Place, int] | None]:
        means = self.ev.evaluate(use, module.place(chain))
        made = (self.ev.link.constructor(v.info) if isinstance(v, ClassValue) else v for v in means)
        meant = [v for v in made if isinstance(v, Function) and id(v.node) in nodes]
        call = chain[-2][0]
        if not meant:
            if method and any(isinstance(v, Unknown) for v in means):
                yield None
        elif not isinstance(call, ast.Call) or call.func is not use:
            yield None
        else:
            place = module.place(chain[:-1])
            constructs = any(isinstance(v, ClassValue) for v in means)
            yield call, place, 1 if constructs else self.given_before(call, meant[0], place)

    def given_before(self, call: ast.Call, function: Function, place: Place) -> int:
        """How many leading parameters, self or cls, the object before the dot fills in a call."""
        decorators = {(path_of(d) or "") for d in getattr(function.node, "decorator_list", ())}
        if function.owner is None or "staticmethod" in decorators:
            return 0
        if "classmethod" in decorators or not isinstance(call.func, ast.Attribute):
            return 1
        owners = self.ev.evaluate(call.func.value, place)
        return 0 if any(isinstance(v, ClassValue) for v in owners) else 1

    def _passed(
        self,
        node: ast.arg,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        call: ast.Call,
        place: Place,
        shift: int,
        default: Values,
    ) -> Values:
        argument = self._argument(node, function, call, shift)
        if argument is not None:
            return self.ev.evaluate(argument, place)
        unpacked = [a for a in call.args if isinstance(a, ast.Starred)]
        unpacked_keywords = [k for k in call.keywords if k.arg is None]
        return UNKNOWN if unpacked or unpacked_keywords else default

    def _overridden(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place
    ) -> frozenset[int]:
        """ids of the function and of the methods of base classes that it stands in for."""
        owner = self.ev.link.owner_of(outer.scope)
        bases = self.ev.link.mro(owner)[1:] if owner is not None else []
        methods = (self.ev.link.own_method(b, function.name) for b in bases)
        return frozenset({id(function), *(id(m.node) for m in methods if m is not None)})

    def _is_imported(
        self, alias: ast.alias, chain: Chain, function: ast.AST, module: Module
    ) -> bool:
        """Whether an import under another name is one of the function."""
        place = module.place(chain)
        bindings = module.bindings(place.scope, alias.asname or alias.name)
        return any(
            isinstance(v, Function) and v.node is function
            for b in bindings
            if b.node is alias
            for v in self.ev.bound(b)
        )

    def _only_called_in_view(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place
    ) -> bool:
        """Whether nothing calls a function but by its name: no decorator, framework or computed name."""
        if not all(self.ev.decorating.is_transparent(d, outer) for d in function.decorator_list):
            return False
        owner = self.ev.link.owner_of(outer.scope)
        if function.name == "__init__":
            return False  # subclasses and factories construct it as well
        if owner is None:
            module = outer.scope.module
            return not module.carriers("globals") and not _computes_names(module)
        for current in self.ev.link.mro(owner):
            if current.module is not None and _computes_names(current.module):
                return False
            outside = (v for b in self.ev.link.bases(current) for v in b)
            if any(isinstance(v, External) and v.name not in PLAIN_BASES for v in outside):
                return False
        return True


def _is_listed(chain: Chain) -> bool:
    """Whether a string is one of `__all__`."""
    return any(
        isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        and "__all__"
        in (path_of(t) for t in getattr(node, "targets", [getattr(node, "target", None)]))
        for node, _ in chain
    )


def _computes_names(module: Module) -> bool:
    """Whether a module asks objects for attributes by a name that it computes."""
    for chain in module.carriers("getattr"):
        call = chain[-2][0]
        if isinstance(call, ast.Call) and call.func is chain[-1][0] and len(call.args) > 1:
            if not isinstance(call.args[1], ast.Constant):
                return True
    return False
