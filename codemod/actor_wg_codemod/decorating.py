"""What stands under the name of a decorated function or class."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import Place, path_of
from actor_wg_codemod.values import (
    UNKNOWN,
    ClassValue,
    External,
    Function,
    Instance,
    Nothing,
    Remote,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

TRANSPARENT = frozenset(
    {
        "abc",
        "asyncio",
        "builtins",
        "contextlib",
        "dataclasses",
        "functools",
        "pytest",
        "ray",
        "torch",
        "typing",
        "typing_extensions",
        "unittest",
    }
)
"""Packages whose decorators leave it to the function what it takes and gives back."""


class Decorating:
    """The evaluator's part that knows decorators."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def decorated(
        self,
        value: ClassValue | Function,
        node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        place: Place,
    ) -> Values:
        """What a definition's name stands for."""
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (path_of(target) or "").rpartition(".")[2] == "remote":
                values = self.ev.evaluate(target, place)
                if any(isinstance(v, External) and v.name == "ray.remote" for v in values):
                    return frozenset({Remote(value)})
        stand_in = self.stand_in(value, node.decorator_list, place)
        if stand_in is not None:
            return frozenset({stand_in})
        if isinstance(node, ast.ClassDef) or node.returns is not None:
            return frozenset({value})
        opaque = any(self._may_replace(d, place) for d in node.decorator_list)
        return frozenset({value}) | UNKNOWN if opaque else frozenset({value})

    def stand_in(
        self, value: ClassValue | Function, decorators: list[ast.expr], place: Place
    ) -> Value | None:
        """What the project's decorators put in the place of a definition; None where that acts as it does.

        A decorator is looked through unless what it puts there takes a renamed keyword as a parameter of
        its own, or is known to give back something of its own.
        """
        for decorator in decorators:
            for known in self.ev.evaluate(decorator, place):
                for made in self._made(known):
                    if self._stands_before(made, value):
                        return made
        return None

    def is_transparent(self, decorator: ast.expr, place: Place) -> bool:
        """Whether only the callers of the decorated function call it, and get what it gives."""
        return all(
            isinstance(v, External) and v.name.partition(".")[0] in TRANSPARENT
            for v in self._called(decorator, place)
        )

    def _may_replace(self, decorator: ast.expr, place: Place) -> bool:
        """Whether nothing is known about what a decorator gives back."""
        return any(
            isinstance(v, Unknown)
            or (isinstance(v, External) and v.name.partition(".")[0] not in TRANSPARENT)
            for v in self._called(decorator, place)
        )

    def _called(self, decorator: ast.expr, place: Place) -> Values:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self.ev.evaluate(target, place)

    def _made(self, decorator: Value) -> Values:
        """What calling a decorator of the project gives."""
        if isinstance(decorator, Function) and not decorator.module.is_stub:
            return self.ev.function_result(decorator)
        if isinstance(decorator, ClassValue) and decorator.info.node is not None:
            return frozenset({Instance(decorator.info, decorator.proven)})
        return frozenset()

    def _stands_before(self, made: Value, value: ClassValue | Function) -> bool:
        if isinstance(value, ClassValue):
            return isinstance(made, ClassValue) and made.info not in self.ev.link.mro(value.info)
        if isinstance(made, Instance):
            methods = [
                method
                for name in ("__call__", "__get__")
                for current in self.ev.link.mro(made.info)
                if (method := self.ev.link.own_method(current, name)) is not None
            ]
            return any(self._has_its_own(method) for method in methods)
        return isinstance(made, Function) and self._has_its_own(made)

    def _has_its_own(self, function: Function) -> bool:
        """Whether a function takes a renamed keyword itself, or gives something of its own."""
        arguments = function.node.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if any(a.arg in self.ev.names.table for a in named):
            return True
        return not any(isinstance(v, (Unknown, Nothing)) for v in self.ev.function_result(function))
