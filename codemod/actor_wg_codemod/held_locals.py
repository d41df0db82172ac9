"""AWG101: function locals that hold the worker group, a topology, or the number of its ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Binding, Chain, Place, Scope
from actor_wg_codemod.forwarding import Taking, parameter_names
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from actor_wg_codemod.reaching import reaching
from actor_wg_codemod.sites import Sites
from actor_wg_codemod.values import (
    ClassValue,
    Constructor,
    Container,
    External,
    Foreign,
    Function,
    Group,
    Instance,
    Library,
    Nothing,
    Remote,
    Value,
)

PLAIN = frozenset({"value", "annotated", "each", "enter"})
LOCAL = PLAIN | {"augment", "delete"}
WORLD_SIZE = "world_size"
CONTROLLER = "Trainer"
TAKEN = frozenset({Taking.OURS, Taking.READS})


class HeldLocals:
    """Decides about the locals of one module.

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
        self.renamed: set[tuple[int, str]] = set()
        """(id of the function's node, name) of every local that is renamed."""
        self._holding: set[tuple[int, str]] = set()

    def findings(self) -> list[Finding]:
        """One finding for each local, at the first place that binds it."""
        found = []
        for word in (self.names.group, self.names.kwargs, self.names.size):
            for scope, bindings in self._locals(word):
                if self._holds(word, scope, bindings):
                    self._holding.add((id(scope.node), word))
                    finding = self._finding(word, scope, bindings)
                    if finding is not None:
                        found.append(finding)
        return found

    def _locals(self, word: str) -> Iterator[tuple[Scope, list[Binding]]]:
        """The functions that bind a name as a plain local, with its bindings."""
        seen = set()
        for chain in self.module.carriers(word):
            node = chain[-1][0]
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
                continue
            home = self.module.resolve(self.module.place(chain).scope, word)
            if home is None or not home.is_function or id(home.node) in seen:
                continue
            seen.add(id(home.node))
            bindings = self.module.bindings(home, word)
            if all(b.kind in LOCAL for b in bindings):
                yield home, bindings

    def _finding(self, word: str, scope: Scope, bindings: list[Binding]) -> Finding | None:
        new = self.names.table[word]
        renaming = self.ev.forwarding.locals.rename(scope, word, new)
        spans = [s for b in bindings if (s := self.module.name_span(b.node, word)) is not None]
        if not spans:
            return None
        what = (
            "the actor worker group" if word == self.names.group else "the worker group's topology"
        )
        if renaming.problem is not None:
            message = f"{word} holds {what}; rename it to {new} by hand: {renaming.problem}."
            return Finding("AWG902", min(spans), message, Safety.MANUAL)
        self.renamed.add((id(scope.node), word))
        fix = Fix(f"Rename {word} to {new}", tuple(Edit(s, new) for s in renaming.spans))
        message = f"The local {word} holds {what}, which verl >= 0.9 calls {new}."
        return Finding("AWG101", min(spans), message, Safety.NAMING, fix)

    def _holds(self, word: str, scope: Scope, bindings: list[Binding]) -> bool:
        """Whether what is bound, or where it goes, proves what the local is; all bindings count."""
        plain = [b for b in bindings if b.kind in PLAIN]
        sure = [b for b in plain if self._is_value(word, b)]
        if any(self._is_controller(v) for b in plain for v in self.ev.bound(b)):
            return False
        used, walrus, anywhere = self._proving_uses(word, scope)
        reached = {id(b) for place in used for b in reaching(plain, place)}
        reached |= {id(b) for b in plain if id(b.node) in walrus}
        if not sure and not reached and not anywhere:
            return False
        empty = [b for b in plain if all(isinstance(v, Nothing) for v in self.ev.bound(b))]
        return anywhere or all(b in sure or b in empty or id(b) in reached for b in plain)

    # What is bound

    def _is_value(self, word: str, binding: Binding) -> bool:
        if word == self.names.size:
            return self._override(binding.place.scope) or (
                binding.value is not None
                and any(self._is_size(n, binding.place) for n in ast.walk(binding.value))
            )
        values = self.ev.bound(binding)
        if word == self.names.group:
            return any(isinstance(v, Group) for v in values)
        if isinstance(binding.value, ast.Call) and binding.unpack[:1] == (0,):
            callees = self.ev.evaluate(binding.value.func, binding.place)
            if any(self._mixes_in(c) for c in callees):
                return True
        return any(
            isinstance(v, Container)
            and v.topology is not None
            and self.ev.link.is_engine(v.topology)
            for v in values
        )

    def _mixes_in(self, callee: Value) -> bool:
        """Whether something called is the method of a class that only other code makes an engine."""
        if not isinstance(callee, Function) or callee.owner is None:
            return False
        named = getattr(callee.node, "name", "") == renames.TOPOLOGY_METHOD
        return named and self.ev.link.is_engine(callee.owner)

    def _is_size(self, node: ast.AST, place: Place) -> bool:
        """The size of the group, or a renamed attribute or key that holds it."""
        if isinstance(node, ast.Attribute):
            if node.attr == WORLD_SIZE:
                return self._is_group(node.value, place)
            if node.attr in (self.names.size, self.names.new_size):
                return (
                    self.sites.attribute_verdict(node.value, place, self.names.size)[0]
                    is Taking.OURS
                )
        if isinstance(node, ast.Constant) and node.value == self.names.size:
            return self.module.name_span(node, self.names.size) in self.keys
        return False

    def _is_group(self, node: ast.expr, place: Place) -> bool:
        if isinstance(node, ast.Name):
            home = self.module.resolve(place.scope, node.id)
            if home is not None and (id(home.node), node.id) in self._holding:
                return True
        return any(isinstance(v, Group) for v in self.ev.evaluate(node, place))

    def _is_controller(self, value: Value) -> bool:
        """verl's top-level trainer, or another library's: never the worker group."""
        if isinstance(value, Foreign):
            return value.name.endswith(CONTROLLER)
        if isinstance(value, Remote):
            return self._is_controller(value.target)
        if isinstance(value, (Instance, ClassValue)):
            return any(c.name in renames.HOLDERS for c in self.ev.link.mro(value.info))
        return False

    def _override(self, scope: Scope) -> bool:
        """Whether a scope is an engine's `build_topology`."""
        node = scope.node
        if not isinstance(node, DEFS) or node.name != renames.TOPOLOGY_METHOD:
            return False
        owner = self.ev.link.owner_of(scope.parent)
        return owner is not None and self.ev.link.is_engine(owner)

    # Where it goes

    def _proving_uses(self, word: str, scope: Scope) -> tuple[list[Place], set[int], bool]:
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
            return returned and self._override(scope)
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
