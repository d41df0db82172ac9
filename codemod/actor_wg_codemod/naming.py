"""Old names that still run: locals and private keys (AWG101), and the words that quote them (AWG102)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from actor_wg_codemod.held_locals import HeldLocals
from actor_wg_codemod.model import Finding, Safety, Span
from actor_wg_codemod.private_protocol import PrivateProtocol
from actor_wg_codemod.quoted_words import QuotedWords
from actor_wg_codemod.sites import Sites

if TYPE_CHECKING:
    from actor_wg_codemod.bindings import Module
    from actor_wg_codemod.evaluate import Evaluator

PARAMETERS = frozenset({"AWG002", "AWG012"})


class Naming:
    """Finds what a module still calls by its old name although it runs.

    Args:
        evaluator: what knows the project.
        module: the module to look at.
        breaking: the module's breaking findings; the words about what they rename follow them.
    """

    def __init__(self, evaluator: Evaluator, module: Module, breaking: Iterable[Finding]) -> None:
        self.ev = evaluator
        self.module = module
        self.proven = [f for f in breaking if f.safety is Safety.SAFE]

    def findings(self) -> list[Finding]:
        """All naming findings in source order; where an edit would clash, an AWG902 instead."""
        sites = Sites(self.ev, self.module)
        keys = {f.span for f in self.proven if f.code not in PARAMETERS}
        private = PrivateProtocol(self.ev, self.module)
        found = private.findings()
        keys |= {f.span for f in found if f.safety is Safety.NAMING}
        held = HeldLocals(sites, frozenset(keys))
        found += held.findings()
        renamed = held.renamed | private.renamed | self._parameters()
        taken = {e.span for f in (*self.proven, *found) if f.fix for e in f.fix.edits}
        found += QuotedWords(
            sites, frozenset(renamed), frozenset(taken), frozenset(keys)
        ).findings()
        return sorted(found, key=lambda f: (f.span, f.code))

    def _parameters(self) -> set[tuple[int, str]]:
        """The functions (by the ids of their nodes) and names of parameters that a finding renames."""
        spans: set[Span] = {f.span for f in self.proven if f.code in PARAMETERS}
        found = set()
        for word in self.ev.names.table if spans else ():
            for chain in self.module.carriers(word):
                if self.module.name_span(chain[-1][0], word) in spans:
                    found.add((id(self.module.place(chain).scope.node), word))
        return found
