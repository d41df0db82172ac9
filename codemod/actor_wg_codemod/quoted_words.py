"""AWG102: docstrings, comments and messages that quote the old name of something the rename covers.

The size and the topology local are quoted wherever their names stand, since nothing else is called
so; the bare word for the group is prose, and only an entry, backquotes or code make it a quotation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from actor_wg_codemod import docstrings, renames
from actor_wg_codemod.bindings import DEFS, FUNCTIONS, Scope
from actor_wg_codemod.forwarding import Taking, parameter_names
from actor_wg_codemod.held_locals import WORLD_SIZE
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from actor_wg_codemod.proving_uses import is_override
from actor_wg_codemod.sites import Sites
from actor_wg_codemod.text_places import TextPlace, text_places
from actor_wg_codemod.values import Instance

_QUOTES = ('"', "'")


class QuotedWords:
    """Decides about the words in the texts of one module.

    Args:
        sites: the module's sites.
        renamed: (id of the function's node, name) of every parameter and local that is renamed.
        taken: spans that other findings edit.
        keys: spans of the keywords, attributes and keys among them.
    """

    def __init__(
        self,
        sites: Sites,
        renamed: frozenset[tuple[int, str]],
        taken: frozenset[Span],
        keys: frozenset[Span],
    ) -> None:
        self.sites = sites
        self.ev = sites.ev
        self.module = sites.module
        self.names = sites.names
        self.renamed = renamed
        self.taken = taken
        self.keys = keys

    def findings(self) -> list[Finding]:
        """One finding for each place."""
        found = []
        for word, new in self.names.table.items():
            for place in text_places(self.module, word):
                if place.span not in self.taken and self._quotes(word, place):
                    what = f"This {place.kind} still says {word}, which {self.names.release} calls {new}."
                    fix = Fix(f"Rename {word} to {new}", (Edit(place.span, new),))
                    found.append(Finding("AWG102", place.span, what, Safety.NAMING, fix))
        return found

    def _quotes(self, word: str, place: TextPlace) -> bool:
        line = self.module.lines[place.span.line - 1]
        before, after = line[: place.span.column], line[place.span.end_column :]
        if word == self.names.group:
            return self._quotes_group(place, before, after)
        if not self._follows(word, place.scope):
            return False
        if before.endswith("self."):
            return word == self.names.size and self._kimi(place.scope)
        if before.endswith((".", "/", "-")) or after.startswith("/"):
            return False
        if before.endswith(_QUOTES) and after.startswith(before[-1]):
            return self._key_follows(word, place)
        return True

    # The size and the topology

    def _follows(self, word: str, scope: Scope) -> bool:
        """Whether a name means the renamed thing in the texts of a scope."""
        current: Scope | None = scope
        while current is not None:
            if current.is_function:
                if self.module.bindings(current, word):
                    return (id(current.node), word) in self.renamed
                if word != self.names.group and is_override(self.ev, current):
                    return True
            elif current.is_class:
                return self._class_follows(word, current)
            current = current.parent
        return False

    def _class_follows(self, word: str, scope: Scope) -> bool:
        owner = self.ev.link.owner_of(scope)
        if owner is None:
            return False
        roles = self.ev.link.roles(owner)
        if roles.manager and roles.proven:
            if word != self.names.group:
                return self._builds_topology(scope)
            return self.sites._owned(Instance(owner), word)[0] is Taking.OURS
        if word == self.names.group or not self.ev.link.is_engine(owner):
            return False
        return roles.kimi or self._engine_follows(word, owner)

    def _builds_topology(self, scope: Scope) -> bool:
        """Whether a manager's code has to do with topologies, so that its words mean theirs."""
        chains = self.module.carriers(renames.TOPOLOGY_METHOD)
        return any(
            isinstance(c[-1][0], ast.Attribute) and any(n is scope.node for n, _ in c)
            for c in chains
        )

    def _engine_follows(self, word: str, owner: ClassInfo) -> bool:
        """Whether the class overrides the method, and no other method has a parameter of that name."""
        if owner.node is None or self.ev.link.own_method(owner, renames.TOPOLOGY_METHOD) is None:
            return False
        methods = [m for m in owner.node.body if isinstance(m, DEFS)]
        return all(word not in parameter_names(m) or (id(m), word) in self.renamed for m in methods)

    def _owner(self, scope: Scope) -> ClassInfo | None:
        current: Scope | None = scope
        while current is not None and not current.is_class:
            current = current.parent
        return self.ev.link.owner_of(current)

    def _kimi(self, scope: Scope) -> bool:
        owner = self._owner(scope)
        return owner is not None and self.ev.link.roles(owner).kimi

    def _key_follows(self, word: str, place: TextPlace) -> bool:
        """Whether a quoted name is no key, or one that is renamed in the same class."""
        if isinstance(place.node, ast.Constant) and place.node.value == word:
            return place.kind == "message"
        owner = self._owner(place.scope)
        around = owner.node if owner is not None else place.scope.node
        spans = [
            self.module.name_span(c[-1][0], word)
            for c in self.module.carriers(word)
            if isinstance(c[-1][0], ast.Constant)
            and c[-1][0].value == word
            and any(n is around for n, _ in c)
        ]
        return not spans or any(s in self.keys for s in spans)

    # The group

    def _quotes_group(self, place: TextPlace, before: str, after: str) -> bool:
        word = self.names.group
        attribute = re.match(r"\.(\w+)", after)
        if attribute and not re.search(r"[\w.]\Z", before):
            return attribute[1] in self._attributes(place.scope)
        if before.endswith("self.") and not re.search(r"\w\.self\.\Z", before):
            owner = self._owner(place.scope)
            return owner is not None and self.sites._owned(Instance(owner), word)[0] is Taking.OURS
        if place.kind == "docstring" and self._entry(place):
            return True
        if not self._follows(word, place.scope):
            return False
        if before.endswith("`") and after.startswith("`"):
            return True
        return place.kind != "message" and self._in_call(place, before, after)

    def _attributes(self, scope: Scope) -> frozenset[str]:
        """Attributes that only the worker group can have where a text says `group.attribute`."""
        word = self.names.group
        current: Scope | None = scope
        while current is not None:
            if current.is_function and self.module.bindings(current, word):
                if (id(current.node), word) in self.renamed:
                    return frozenset(self._read_from(current))
                return frozenset()
            if current.is_function and is_override(self.ev, current):
                return frozenset({WORLD_SIZE})
            if current.is_class:
                return (
                    frozenset({WORLD_SIZE}) if self._class_follows(word, current) else frozenset()
                )
            current = current.parent
        return frozenset()

    def _read_from(self, scope: Scope) -> Iterator[str]:
        for chain in self.module.carriers(self.names.group):
            node, parent = chain[-1][0], chain[-2][0]
            if (
                isinstance(node, ast.Name)
                and isinstance(parent, ast.Attribute)
                and self.module.resolve(self.module.place(chain).scope, node.id) is scope
            ):
                yield parent.attr

    def _entry(self, place: TextPlace) -> bool:
        """Whether a docstring describes the manager's parameter or attribute at a place."""
        scope, node = place.scope, place.node
        function = scope.node if isinstance(scope.node, FUNCTIONS) else None
        if node is None or (function is not None and getattr(function, "name", "") != "__init__"):
            return False
        owner = self.ev.link.owner_of(scope.parent if function is not None else scope)
        if owner is None:
            return False
        roles = self.ev.link.roles(owner)
        init = self.ev.link.own_method(owner, "__init__")
        if not roles.manager or not roles.proven:
            return False
        if init is not None:
            known = self.ev.forwarding.group_parameter(owner, init)
            if known not in (self.names.group, self.names.new_group):
                return False
        lines, index = self._lines(node, place.span.line)
        return docstrings.is_entry(lines, index, place.span.column, self.names.group)

    def _in_call(self, place: TextPlace, before: str, after: str) -> bool:
        """Whether a line of code in a text passes the keyword to a manager or reads its attribute."""
        text = before
        if place.node is not None:
            lines, index = self._lines(place.node, place.span.line)
            if not docstrings.is_code(lines, index):
                return False
            text = "\n".join([*lines[:index], before])
        owner = self._owner(place.scope)
        classes = "|".join(sorted({renames.MANAGER, *([owner.name] if owner else [])}))
        if re.match(r"\s*=(?!=)", after):
            open_call = rf"\b(?:{classes})\((?:(?:[^()]|\([^()]*\))*,)?\s*(?:\.\.\.\s*)?\Z"
            return re.search(open_call, text) is not None
        made = re.findall(rf"(\w+)\s*=\s*(?:\w+\.)*(?:{classes})\(", text)
        return any(re.search(rf"(?<![\w.]){name}\.\Z", before) for name in made)

    def _lines(self, node: ast.AST, line: int) -> tuple[list[str], int]:
        first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", line)
        return self.module.lines[first - 1 : last], line - first
