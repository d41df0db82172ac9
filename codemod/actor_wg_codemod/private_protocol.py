"""AWG101: the topology key and `init_process_group` of engines other than Kimi's, both sides or neither."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import Chain, Module
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.model import Edit, Finding, Fix, Safety
from actor_wg_codemod.project import PYTHON
from actor_wg_codemod.protocol_sides import Side, Sides, Site
from actor_wg_codemod.values import ClassValue, Container, Function, Instance, Super, Unknown

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


@dataclass
class Protocol:
    """Methods that have to change together, and whether all of it can be seen."""

    methods: list[Function] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    classes: list[ClassInfo] = field(default_factory=list)
    whole: bool = True


class PrivateProtocol:
    """Finds the private protocols that a module takes part in."""

    def __init__(self, evaluator: Evaluator, module: Module) -> None:
        self.ev = evaluator
        self.module = module
        self.names = evaluator.names
        self.word = self.names.size
        self.new = self.names.new_size
        self.sides = Sides(evaluator)
        self.renamed: set[tuple[int, str]] = set()
        """(id of the function's node, name) of every parameter that is renamed."""

    def findings(self) -> list[Finding]:
        """One finding for each key, keyword and parameter of this module."""
        found: dict[int, Finding] = {}
        done: list[ClassInfo] = []
        for info in self._engines():
            if info in done:
                continue
            family = self._family(info)
            done += family
            for protocol in self._protocols(family):
                for node in self._places(protocol):
                    finding = self._finding(node)
                    if finding is not None:
                        found[id(node)] = finding
        return list(found.values())

    def _finding(self, node: ast.AST) -> Finding | None:
        word, new = self.word, self.new
        span = self.module.name_span(node, word)
        if span is None:
            return None
        edits = [Edit(span, new)]
        if isinstance(node, ast.arg):
            scope = self.module.place(self.module.chain_to(node)).scope
            renaming = self.ev.forwarding.locals.rename(scope, word, new)
            if renaming.problem is not None:
                message = (
                    f"The engine's own key {word} can only be renamed by hand: {renaming.problem}."
                )
                return Finding("AWG902", span, message, Safety.MANUAL)
            edits = [Edit(s, new) for s in renaming.spans]
            self.renamed.add((id(scope.node), word))
        message = (
            f"The engine's own topology key {word} holds what {self.names.release} calls {new}."
        )
        return Finding(
            "AWG101", span, message, Safety.NAMING, Fix(f"Rename {word} to {new}", tuple(edits))
        )

    # Which classes

    def _engines(self) -> Iterator[ClassInfo]:
        """The project's own engines that a site of this module may belong to."""
        for chain in self.module.carriers(self.word):
            infos = [self._around(chain, self.module), *self._called(chain, self.module)]
            for info in infos:
                if info is not None and self._own(info):
                    yield info

    def _own(self, info: ClassInfo) -> bool:
        return (
            info.node is not None
            and self.ev.link.is_engine(info)
            and not self.ev.link.roles(info).kimi
        )

    def _around(self, chain: Chain, module: Module) -> ClassInfo | None:
        for depth in range(len(chain) - 1, 0, -1):
            node = chain[depth][0]
            if isinstance(node, ast.ClassDef):
                return self.ev.link.project_class(module, node, module.place(chain[: depth + 1]))
        return None

    def _called(self, chain: Chain, module: Module) -> list[ClassInfo]:
        """The engines of a keyword of `init_process_group(...)` or of a key of a topology."""
        node, parent = chain[-1][0], chain[-2][0]
        place = module.place(chain[:-1])
        if isinstance(node, ast.keyword) and isinstance(parent, ast.Call):
            func = parent.func
            if isinstance(func, ast.Attribute) and func.attr == renames.INIT_METHOD:
                values = self.ev.evaluate(func.value, place)
                return [v.info for v in values if isinstance(v, (Instance, ClassValue, Super))]
        holder = _holder(chain)
        if holder is None:
            return []
        values = self.ev.evaluate(holder, place)
        return [v.topology for v in values if isinstance(v, Container) and v.topology is not None]

    def _family(self, info: ClassInfo) -> list[ClassInfo]:
        """Everything in the project that shares a base class with an engine."""
        found = [c for c in self.ev.link.mro(info) if c.node is not None]
        for current in found:
            found += [c for c in self.ev.link.subclasses(current) if c not in found]
        return found

    # What belongs together

    def _protocols(self, family: list[ClassInfo]) -> list[Protocol]:
        groups: list[Protocol] = []
        sides: dict[int, Side] = {}
        for info in family:
            writer = self._method(info, renames.TOPOLOGY_METHOD)
            reader = self._method(info, renames.INIT_METHOD)
            made = [m for m in (writer, reader) if m is not None]
            for method in made:
                if id(method.node) not in sides:
                    sides[id(method.node)] = self.sides.of(method)
            w = sides[id(writer.node)] if writer else Side("open")
            r = sides[id(reader.node)] if reader else Side("open")
            if not w.sites and not r.sites:
                continue
            linked = bool(w.sites and r.sites)
            whole = "hidden" not in (w.state, r.state) and "none" not in (w.state, r.state)
            whole = whole and not self.ev.link.roles(info).kimi
            methods = [m for m in made if sides[id(m.node)].sites]
            joined = [g for g in groups if any(m in g.methods for m in methods)]
            group = Protocol(whole=whole)
            for other in joined:
                groups.remove(other)
                group.whole = group.whole and other.whole
                group.methods += other.methods
                group.classes += other.classes
            group.methods += [m for m in methods if m not in group.methods]
            group.classes += [info] if linked else []
            groups.append(group)
        for group in groups:
            group.sites = [s for m in group.methods for s in sides[id(m.node)].sites]
        return [g for g in groups if g.whole and g.classes]

    def _method(self, info: ClassInfo, name: str) -> Function | None:
        for current in self.ev.link.mro(info):
            method = self.ev.link.own_method(current, name)
            if method is not None:
                return method
        return None

    # Who else spells the key

    def _places(self, protocol: Protocol) -> list[ast.AST]:
        """The protocol's places in this module; none where the project spells the key in an unclear way."""
        sites = list(protocol.sites)
        known = {id(n) for n, _ in sites}
        modules = [
            m for p in self.ev.project.mentions(self.word) if (m := self.ev.module(p)) is not None
        ]
        if self.module not in modules:
            modules.append(self.module)
        for module in modules:
            for chain in module.carriers(self.word):
                if id(chain[-1][0]) in known:
                    continue
                verdict = self._other_use(chain, module, protocol)
                if verdict == "unclear":
                    return []
                if verdict == "site":
                    sites.append((chain[-1][0], module))
        if any(m.name_span(n, self.word) is None for n, m in sites):
            return []
        if any(self._clashes(n, m) for n, m in sites if m is not self.module):
            return []
        if any(self._clashes(n, m) for n, m in sites):
            return [n for n, m in sites if m is self.module and isinstance(n, ast.arg)]
        if len({m.path for _, m in sites}) > 1 and any(
            not m.path.endswith(PYTHON) for _, m in sites
        ):
            return []
        return [n for n, m in sites if m is self.module]

    def _clashes(self, node: ast.AST, module: Module) -> bool:
        if not isinstance(node, ast.arg):
            return False
        scope = module.place(module.chain_to(node)).scope
        return self.ev.forwarding.locals.rename(scope, self.word, self.new).problem is not None

    def _other_use(self, chain: Chain, module: Module, protocol: Protocol) -> str:
        """'site' for a further place of the protocol, 'unclear' where nobody can tell, else ''."""
        node, parent = chain[-1][0], chain[-2][0]
        classes = [
            c for info in protocol.classes for c in self.ev.link.mro(info) if c.node is not None
        ]
        called = self._called(chain, module)
        if called:
            return "site" if any(c in classes for c in called) else ""
        if isinstance(node, ast.keyword) and isinstance(parent, ast.Call):
            func = parent.func
            if isinstance(func, ast.Attribute) and func.attr == renames.INIT_METHOD:
                values = self.ev.evaluate(func.value, module.place(chain[:-1]))
                return "unclear" if any(isinstance(v, Unknown) for v in values) else ""
            return ""
        if not isinstance(node, ast.Constant) or node.value != self.word:
            return ""
        around = self._around(chain, module)
        if around is not None and self.ev.link.is_engine(around) and around not in classes:
            return ""
        names = [c.name for c in classes]
        return "unclear" if any(module.lines_of(rf"\b{name}\b") for name in names) else ""


def _holder(chain: Chain) -> ast.expr | None:
    """The dictionary of which the string at the end of a chain is a key that is read or written."""
    node, parent = chain[-1][0], chain[-2][0]
    if isinstance(parent, ast.Subscript) and parent.slice is node:
        return parent.value
    if (
        isinstance(parent, ast.Compare)
        and parent.left is node
        and isinstance(parent.ops[0], (ast.In, ast.NotIn))
    ):
        return parent.comparators[0]
    if (
        isinstance(parent, ast.Call)
        and node in parent.args[:1]
        and isinstance(parent.func, ast.Attribute)
    ):
        return parent.func.value if parent.func.attr in ("get", "pop") else None
    return None
