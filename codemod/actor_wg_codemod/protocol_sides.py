"""What `build_topology` writes and `init_process_group` reads of an engine's own topology key."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Module, Place, Scope, path_of
from actor_wg_codemod.forwarding import kwargs_use, parameter_names
from actor_wg_codemod.values import Function

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

Site = tuple[ast.AST, Module]


@dataclass
class Side:
    """What one method has to do with the key.

    `state`: seen (all its places are known), hidden (some may be elsewhere), none, or open (abstract).
    """

    state: str
    sites: list[Site] = field(default_factory=list)


class Sides:
    """Reads methods for the key that both sides spell."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.word = evaluator.names.size
        self.new = evaluator.names.new_size

    def of(self, method: Function) -> Side:
        """What one method, `build_topology` or `init_process_group`, has to do with the key."""
        if not isinstance(method.node, DEFS):
            return Side("hidden")
        if _abstract(method.node):
            return Side("open")
        if method.node.name == renames.INIT_METHOD:
            return self._reader(method)
        return self._writer(method, method.node)

    def _reader(self, method: Function) -> Side:
        names = parameter_names(method.node)
        if self.new in names:
            return Side("hidden")
        if self.word in names:
            given = (
                *method.node.args.posonlyargs,
                *method.node.args.args,
                *method.node.args.kwonlyargs,
            )
            return Side("seen", [(a, method.module) for a in given if a.arg == self.word])
        keys: list[Site] = []
        hidden = splat = popped = False
        for chain, _ in self.ev.forwarding.kwargs_uses(method):
            kind, detail = kwargs_use(chain, self.word)
            if kind == "key" and detail is not None:
                keys.append((detail, method.module))
                parent = chain[-2][0]
                popped = popped or (isinstance(parent, ast.Attribute) and parent.attr == "pop")
            splat = splat or kind == "splat"
            hidden = hidden or kind in ("reads", "write")
        if hidden or (splat and not popped):
            return Side("hidden", keys)
        return Side("seen" if keys else "none", keys)

    def _writer(self, method: Function, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Side:
        side = Side("seen")
        returned = self.ev.returns(method.module, node)
        if not returned:
            return Side("open")
        for value, place in returned:
            for part in _parts(value):
                flow = self.ev.flows.keys(part, place, self.word, self.new)
                side.sites += [(n, m) for n, _, m in flow.sites if (n, m) not in side.sites]
                if flow.other or any(m is not method.module for _, _, m in flow.sites):
                    side.state = "hidden"
                if not flow.sites and not self._closed(part, place):
                    side.state = "hidden"
        if self._stays(method) or self._asks_base(method):
            side.state = "hidden"
        if side.state == "seen" and not side.sites:
            side.state = "none"
        return side

    def _stays(self, method: Function) -> bool:
        """Whether the method has a parameter or local of that name that no edit can rename."""
        scope = _inside(method)
        if not method.module.bindings(scope, self.word):
            return False
        return self.ev.forwarding.locals.rename(scope, self.word, self.new).problem is not None

    def _closed(self, node: ast.expr, place: Place) -> bool:
        """Whether a dictionary surely lacks the key, or takes all its keys from one that shows them."""
        if isinstance(node, ast.Dict):
            return all(isinstance(k, ast.Constant) for k in node.keys)
        if isinstance(node, ast.Constant):
            return node.value is None
        if isinstance(node, ast.DictComp):
            source = node.generators[0].iter
            if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
                flow = self.ev.flows.keys(source.func.value, place, self.word, self.new)
                return source.func.attr == "items" and bool(flow.sites)
            return False
        if isinstance(node, ast.Name):
            module = place.scope.module
            home = module.resolve(place.scope, node.id)
            bindings = module.bindings(home, node.id) if home is not None else []
            return bool(bindings) and all(
                b.value is not None and not b.unpack and self._closed(b.value, b.place)
                for b in bindings
            )
        return False

    def _asks_base(self, method: Function) -> bool:
        """Whether a writer takes a part of its topology from another engine's."""
        for chain in method.module.carriers(renames.TOPOLOGY_METHOD):
            if isinstance(chain[-1][0], ast.Attribute) and any(n is method.node for n, _ in chain):
                return True
        return False


def _inside(method: Function) -> Scope:
    return method.module.place((*method.place.chain, (method.node, "body")), inside=True).scope


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        value = value.left
    return list(value.elts) if isinstance(value, ast.Tuple) else [value]


def _abstract(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if any((path_of(d) or "").endswith("abstractmethod") for d in node.decorator_list):
        return True
    return all(
        isinstance(s, (ast.Pass, ast.Raise))
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )
