"""What the code around a container puts into it, bit by bit."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import DEFS, Chain, Place, Scope, first_parameter, path_of
from actor_wg_codemod.values import Container, Function, Value, Values, elements, held, mapped

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

FILLS = frozenset(
    {"append", "add", "appendleft", "insert", "extend", "update", "setdefault", "put", "put_nowait"}
)


class Filling:
    """The evaluator's part that follows containers."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def filled(self, node: ast.expr, values: Values, place: Place) -> Values:
        """Adds to a container's elements what the code around puts into it."""
        path = path_of(node)
        if path is None or not any(isinstance(v, Container) and not v.declared for v in values):
            return values
        return with_added(values, self.fills(path, place))

    def fills(self, path: str, place: Place) -> Values:
        """The elements that are put into the container at a path, in its scope or its class."""
        region = self.region(path, place)
        key = ("fills", id(region), path)
        if key in self.ev._active:
            return frozenset()
        self.ev._active.add(key)
        try:
            module = place.scope.module
            word = path.rpartition(".")[2].partition("[")[0]
            found: set[Value] = set()
            for chain in module.carriers(word):
                inside = len(chain) > 2 and any(n is region for n, _ in chain)
                if inside and path_of(chain[-1][0]) == path:
                    found |= self._put_by(chain, place)
            return frozenset(found)
        finally:
            self.ev._active.discard(key)

    def _put_by(self, chain: Chain, place: Place) -> Values:
        """What one use of a container puts into it."""
        module = place.scope.module
        (node, by), (parent, _), (above, _) = chain[-1], chain[-2], chain[-3]
        if isinstance(parent, ast.Subscript):
            if isinstance(parent.ctx, ast.Store) and parent.value is node:
                binding = module.store(chain[:-1], "")
                if binding.kind == "value" and binding.value is not None:
                    return self.ev.evaluate(binding.value, binding.place)
        elif isinstance(parent, ast.Attribute):
            if parent.attr in FILLS and isinstance(above, ast.Call):
                return self._put(above, parent.attr, module.place(chain[:-2]))
        elif isinstance(parent, ast.AugAssign):
            if parent.target is node:
                return held(self.ev.evaluate(parent.value, module.place(chain[:-1])))
        elif isinstance(parent, ast.Call) and by == "args":
            index = parent.args.index(node)  # type: ignore[arg-type]
            return self._put_by_callee(parent, index, module.place(chain[:-1]))
        elif isinstance(parent, ast.keyword) and parent.arg and isinstance(above, ast.Call):
            return self._put_by_callee(above, parent.arg, module.place(chain[:-2]))
        elif isinstance(parent, ast.Assign) and parent.value is node:
            target = parent.targets[0]
            if isinstance(target, ast.Name):
                return self.fills(target.id, module.place(chain[:-1]))
        return frozenset()

    def _put(self, call: ast.Call, method: str, place: Place) -> Values:
        named: set[Value] = set()
        for keyword in call.keywords:
            values = self.ev.evaluate(keyword.value, place)
            named |= values if keyword.arg else held(values)
        if not call.args:
            return frozenset(named)
        values = self.ev.evaluate(call.args[-1], place)
        if method == "extend":
            return elements(values)
        return mapped(values) | named if method == "update" else values

    def _put_by_callee(self, call: ast.Call, argument: int | str, place: Place) -> Values:
        """What a function of the project puts into a container that it is given."""
        found: set[Value] = set()
        for callee in self.ev.evaluate(call.func, place):
            if not isinstance(callee, Function) or not isinstance(callee.node, DEFS):
                continue
            name = argument
            if isinstance(argument, int):
                index = argument + self.ev.callers.given_before(call, callee, place)
                positional = [*callee.node.args.posonlyargs, *callee.node.args.args]
                name = positional[index].arg if index < len(positional) else ""
            if name:
                chain = (*callee.place.chain, (callee.node, "body"))
                found |= self.fills(str(name), callee.module.place(chain, inside=True))
        return frozenset(found)

    def region(self, path: str, place: Place) -> ast.AST:
        """The node inside which a path means the same thing: the class for `self.x`, else its scope."""
        root = path.partition(".")[0].partition("[")[0]
        home = place.scope.module.resolve(place.scope, root)
        if home is not None and home.is_function and ("." in path):
            scope: Scope | None = home
            first = first_parameter(home.node)
            while scope is not None and first == root:
                if scope.is_class:
                    return scope.node
                scope = scope.parent
        return home.node if home is not None else place.scope.module.tree


def with_added(values: Values, added: Values) -> Values:
    """The same values, where every container whose elements were not declared holds the added ones too."""
    if not added:
        return values
    return frozenset(
        Container(v.items | added, v.mapping, v.declared, v.topology)
        if isinstance(v, Container) and not v.declared
        else v
        for v in values
    )
