"""Where a local goes: the uses that prove that it is the worker group, a topology or a size."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Chain, Place, Scope
from actor_wg_codemod.forwarding import Taking, parameter_names
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.model import Span
from actor_wg_codemod.sites import Sites
from actor_wg_codemod.values import ClassValue, Constructor, External, Library

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

TAKEN = frozenset({Taking.OURS, Taking.READS})


class ProvingUses:
    """Finds those uses in one module.

    Args:
        sites: the module's sites.
        keys: spans of keywords, attributes and keys that are renamed in this module.
    """

    def __init__(self, sites: Sites, keys: frozenset[Span]) -> None:
        self.sites = sites
        self.ev = sites.ev
        self.module = sites.module
        self.names = sites.names
        self.keys = keys

    def proving(self, word: str, scope: Scope) -> tuple[list[Place], set[int], bool]:
        """What proves what the local is: places of uses, ids of walrus targets, a nested function."""
        places: list[Place] = []
        walrus: set[int] = set()
        nested = False
        for chain in self.module.carriers(word):
            node = chain[-1][0]
            if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Del):
                continue
            place = self.module.place(chain)
            if self.module.resolve(place.scope, word) is not scope:
                continue
            if isinstance(node.ctx, ast.Store):
                if isinstance(chain[-2][0], ast.NamedExpr) and self._proves(
                    word, chain[:-1], scope
                ):
                    walrus.add(id(node))
            elif self._proves(word, chain, scope):
                places.append(place)
                nested = nested or place.scope is not scope
        return places, walrus, nested

    def _proves(self, word: str, chain: Chain, scope: Scope) -> bool:
        """Whether the expression at the end of a chain goes to where the renamed thing belongs."""
        node, (parent, _) = chain[-1][0], chain[-2]
        names = self.names
        if word == names.kwargs:
            returned = any(isinstance(n, ast.Return) for n, _ in chain)
            return returned and is_override(self.ev, scope)
        wanted = (word, names.table[word])
        if isinstance(parent, ast.keyword) and isinstance(chain[-3][0], ast.Call):
            if parent.arg not in wanted:
                return False
            if self.module.name_span(parent, word) in self.keys:
                return True
            return bool(self._takings(chain[:-2], word) & TAKEN)
        if isinstance(parent, ast.Call) and node in parent.args:
            index = parent.args.index(node)
            if any(isinstance(a, ast.Starred) for a in parent.args[: index + 1]):
                return False
            return self._positional(parent, index, self.module.place(chain[:-1]), word)
        if isinstance(parent, ast.Dict) and node in parent.values:
            key = parent.keys[parent.values.index(node)]
            return key is not None and self.module.name_span(key, word) in self.keys
        if word == names.group and isinstance(parent, ast.Assign) and parent.value is node:
            place = self.module.place(chain)
            return any(
                isinstance(t, ast.Attribute)
                and t.attr in wanted
                and self.sites.attribute_verdict(t.value, place, word)[0] is Taking.OURS
                for t in parent.targets
            )
        return False

    def _takings(self, chain: Chain, word: str) -> frozenset[Taking]:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        return self.ev.forwarding.call_takings(call, self.module.place(chain), word)

    def _positional(self, call: ast.Call, index: int, place: Place, word: str) -> bool:
        callees = self.ev.evaluate(call.func, place)
        if any(isinstance(c, External) and c.name == "functools.partial" for c in callees):
            index -= 1
        for target in self.ev.forwarding.targets(call, place):
            if word == self.names.size:
                if isinstance(target, Library) and target.name == "topology" and index == 0:
                    return True
            elif isinstance(target, (ClassValue, Constructor)) and target.proven:
                shift = 1 if isinstance(target, Constructor) and target.takes_self else 0
                if index - shift == self._group_position(target.info):
                    return True
        return False

    def _group_position(self, info: ClassInfo) -> int | None:
        """Where a manager's constructor takes the group, `self` not counted."""
        roles = self.ev.link.roles(info)
        if not roles.manager or not roles.proven:
            return None
        for current in self.ev.link.mro(info):
            init = self.ev.link.own_method(current, "__init__")
            if init is not None:
                group = self.ev.forwarding.group_parameter(current, init)
                names = parameter_names(init.node)
                return names.index(group) - 1 if group in names else None
            if current.node is None and current.verl == renames.MANAGER:
                return self.names.manager_parameters.index(self.names.group)
        return None


def is_override(evaluator: Evaluator, scope: Scope) -> bool:
    """Whether a scope is an engine's `build_topology`."""
    node = scope.node
    if not isinstance(node, DEFS) or node.name != renames.TOPOLOGY_METHOD:
        return False
    owner = evaluator.link.owner_of(scope.parent)
    return owner is not None and evaluator.link.is_engine(owner)
