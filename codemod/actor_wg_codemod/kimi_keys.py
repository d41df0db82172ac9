"""Kimi's topology: every place in the project that writes the size key into a dictionary which reaches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Module, Place
from actor_wg_codemod.flows import Flow
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import Container, Function

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


class KimiKeys:
    """Follows what the `build_topology` overrides of Kimi engines return."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self._sites: dict[int, ast.AST] | None = None

    def holds(self, node: ast.AST) -> bool:
        """Whether a string constant or keyword is a key of some Kimi engine's topology."""
        if self._sites is None:
            self._sites = {}
            self._sites.update((id(n), n) for n in self._all())
        return id(node) in self._sites

    def _all(self) -> Iterator[ast.AST]:
        for path in self.ev.project.mentions(renames.TOPOLOGY_METHOD):
            module = self.ev.module(path)
            for chain in module.carriers(renames.TOPOLOGY_METHOD) if module is not None else ():
                node = chain[-1][0]
                if not isinstance(node, DEFS) or module is None:
                    continue
                owner = self.ev.link.owner_of(module.place(chain).scope)
                if owner is not None and self.ev.link.is_kimi(owner):
                    for flow, _, _ in self._parts(module, node):
                        yield from (site for site, _, _ in flow.sites)

    def unclear(self, info: ClassInfo) -> bool:
        """Whether an override returns a dictionary of which it cannot be seen who writes its keys."""
        for current in self.ev.link.mro(info):
            method = self.ev.link.own_method(current, renames.TOPOLOGY_METHOD)
            if isinstance(method, Function) and isinstance(method.node, DEFS):
                return any(
                    not flow.sites and not flow.other and not self._inherited(part, place)
                    for flow, part, place in self._parts(method.module, method.node)
                )
        return False

    def _parts(
        self, module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Iterator[tuple[Flow, ast.expr, Place]]:
        """The dictionaries that an override returns, with what writes the size key into them."""
        word = self.ev.names.size
        for value, place in self.ev.returns(module, node):
            for part in value.elts if isinstance(value, ast.Tuple) else [value]:
                yield self.ev.flows.keys(part, place, word, self.ev.names.table[word]), part, place

    def _inherited(self, part: ast.expr, place: Place) -> bool:
        """Whether a dictionary is what verl's own override returned."""
        return any(
            isinstance(v, Container) and v.topology is not None
            for v in self.ev.evaluate(part, place)
        )
