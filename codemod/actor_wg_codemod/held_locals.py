"""AWG101: function locals that hold the worker group, a topology, or the number of its ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import COMPREHENSIONS, Binding, Place, Scope
from actor_wg_codemod.forwarding import Taking
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from actor_wg_codemod.proving_uses import ProvingUses, is_override
from actor_wg_codemod.reaching import reaching
from actor_wg_codemod.sites import Sites
from actor_wg_codemod.values import (
    ClassValue,
    Container,
    Foreign,
    Function,
    Group,
    Instance,
    Nothing,
    Remote,
    Value,
)

PLAIN = frozenset({"value", "annotated", "each", "enter"})
LOCAL = PLAIN | {"augment", "delete"}
WORLD_SIZE = "world_size"
CONTROLLER = "Trainer"


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
        self.uses = ProvingUses(sites, keys)
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
        """The functions and comprehensions that bind a name as a plain local, with its bindings."""
        seen = set()
        for chain in self.module.carriers(word):
            node = chain[-1][0]
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
                continue
            home = self.module.resolve(self.module.place(chain).scope, word)
            if home is None or not _inside_function(home) or id(home.node) in seen:
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
        message = f"The local {word} holds {what}, which {self.names.release} calls {new}."
        return Finding("AWG101", min(spans), message, Safety.NAMING, fix)

    def _holds(self, word: str, scope: Scope, bindings: list[Binding]) -> bool:
        """Whether what is bound, or where it goes, proves what the local is; all bindings count."""
        plain = [b for b in bindings if b.kind in PLAIN]
        sure = [b for b in plain if self._is_value(word, b)]
        if any(self._is_controller(v) for b in plain for v in self.ev.bound(b)):
            return False
        used, walrus, anywhere = self.uses.proving(word, scope)
        reached = {id(b) for place in used for b in reaching(plain, place)}
        reached |= {id(b) for b in plain if id(b.node) in walrus}
        if not sure and not reached and not anywhere:
            return False
        empty = [b for b in plain if all(isinstance(v, Nothing) for v in self.ev.bound(b))]
        return anywhere or all(b in sure or b in empty or id(b) in reached for b in plain)

    # What is bound

    def _is_value(self, word: str, binding: Binding) -> bool:
        if word == self.names.size:
            return is_override(self.ev, binding.place.scope) or (
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


def _inside_function(scope: Scope) -> bool:
    """Whether a scope is a function, or a comprehension in one."""
    current: Scope | None = scope
    while current is not None and isinstance(current.node, COMPREHENSIONS):
        current = current.parent
    return current is not None and current.is_function
