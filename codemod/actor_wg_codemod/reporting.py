"""What every kind of site shares: findings with their fixes, and code that serves both spellings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import Chain, Module
from actor_wg_codemod.guards import Guards
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


class Reporting:
    """Collects the findings of one module."""

    def __init__(self, evaluator: Evaluator, module: Module) -> None:
        self.ev = evaluator
        self.module = module
        self.names = evaluator.names
        self.guards = Guards(evaluator)
        self.found: dict[tuple[Span, str], Finding] = {}

    def _report(
        self,
        code: str,
        node: ast.AST,
        word: str,
        message: str,
        *,
        spans: Iterable[Span] = (),
        proven: bool = True,
    ) -> None:
        if not proven and not self.ev.project.mentions_verl:
            return
        span = self.module.name_span(node, word)
        new = self.names.table[word]
        if span is None:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
            rough = Span(line, column, line, column + 1)
            why = f"{message} Its text is spelled in a way that no edit can rename: rename it to {new} by hand."
            self.found[rough, "AWG902"] = Finding("AWG902", rough, why, Safety.MANUAL)
            return
        edits = tuple(Edit(s, new) for s in sorted({span, *spans}))
        if proven:
            finding = Finding(
                code, span, message, Safety.SAFE, Fix(f"Rename {word} to {new}", edits)
            )
        else:
            unsure = f"{message} Not proven: that this is verl's is only likely from its shape."
            finding = Finding(
                "AWG901", span, unsure, Safety.UNSAFE, Fix(f"Rename {word} to {new}", edits)
            )
        self.found.setdefault((span, finding.code), finding)

    def _manual(self, node: ast.AST, word: str, message: str) -> None:
        span = self.module.name_span(node, word)
        if span is None:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
            span = Span(line, column, line, column + 1)
        self.found.setdefault((span, "AWG902"), Finding("AWG902", span, message, Safety.MANUAL))

    def _serve(
        self, chain: Chain, new: str, report: Callable[[], None], receiver: ast.expr | None = None
    ) -> None:
        if not self.guards.serves_both(chain, self.module, new, receiver):
            report()

    def _kimi_key(self, chain: Chain, node: ast.AST, word: str) -> None:
        if word == self.names.size and self.ev.kimi.holds(node):
            message = (
                f"A Kimi engine's init_process_group takes {self.names.new_size} {self.names.since}, "
                "so its topology has to say it."
            )
            self._serve(
                chain, self.names.new_size, lambda: self._report("AWG013", node, word, message)
            )
