"""Binds one call against what a class has under a name: the project's own method, else verl's by the table."""

from __future__ import annotations

import ast

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import DEFS
from actor_wg_codemod.call_shapes import Shape, misfit
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verdicts import Verdict, bound_parameters, since


class Binder:
    """Knows the signatures of one release of verl and of the project."""

    def __init__(self, evaluator: Evaluator, release: str) -> None:
        self.link = evaluator.link
        self.renamed = evaluator.names.table
        self.release = release

    def bound(
        self,
        node: ast.AST,
        subject: str,
        info: ClassInfo,
        method: str,
        shape: Shape,
        proven: bool,
        check: str,
        *,
        above: bool = False,
    ) -> Verdict:
        """Binds a call against what a class has under a name; `above`: what `super()` finds."""
        for current in self.link.mro(info)[int(above) :]:
            own = self.link.own_method(current, method)
            if own is not None:
                bound = bound_parameters(own) if isinstance(own.node, DEFS) else 1
                problem = misfit(own.node.args, shape, bound=bound)
                if problem is None:
                    return Verdict(check, node, Status.PASSED, subject)
                where = f"{current.name}.{method} of this project"
                return self._unbound(check, node, subject, where, problem, proven, "0.9.0")
            if current.node is not None:
                continue
            return self.against_table(node, subject, current.verl, method, shape, proven, check)
        why = "a base class cannot be seen, so its signature is not known"
        return Verdict(check, node, Status.SKIPPED, subject, why)

    def against_table(
        self,
        node: ast.AST,
        subject: str,
        owner: str,
        method: str,
        shape: Shape,
        proven: bool,
        check: str,
    ) -> Verdict:
        found: dict[str, tuple[str, str]] = {}
        seen = False
        for release in signatures.RELEASES:
            known = signatures.signature(owner, method, release) or signatures.signature(
                renames.ENGINE, method, release
            )
            problem = known and misfit(known.arguments, shape, bound=1)
            seen = seen or known is not None
            if known is not None and problem:
                found[release] = (known.owner, problem)
        first = signatures.worst(found, self.release)
        if first is not None:
            where, why = found[first]
            where = f"{where} of verl {since(first)}"
            return self._unbound(check, node, subject, where, why, proven, first)
        if not seen:
            why = f"verl's {owner}.{method} is not in the table of signatures"
            return Verdict(check, node, Status.SKIPPED, subject, why)
        return Verdict(check, node, Status.PASSED, subject)

    def _unbound(
        self,
        check: str,
        node: ast.AST,
        subject: str,
        where: str,
        problem: str,
        proven: bool,
        first: str,
    ) -> Verdict:
        reason = f"{where} {problem}, so this raises TypeError. {self._advice(problem)}"
        status = Status.FAILED
        if not proven:
            status = Status.ADVISORY
            reason += " Not proven: that this is verl's is only likely."
        elif first > self.release:
            status = Status.ADVISORY
            reason += f" verl {self.release} still takes it."
        return Verdict(check, node, status, subject, reason)

    def _advice(self, problem: str) -> str:
        for old, new in self.renamed.items():
            if problem.startswith(f"takes no {old}="):
                return f"Pass {new}= (`actor-wg migrate` does)."
        if problem.startswith(f"takes no {renames.WITHDRAWN_KEYWORD}="):
            return "Pass config=<the checkpoint engine's config>, which names the backend."
        if signatures.SENDERS in problem:
            return f"Pass {signatures.SENDERS}=, the number of actor ranks in the group (1 without multi_sender)."
        if "multi_sender" in problem:
            return "Pass multi_sender=False for a single sender, as before."
        return "Make the call fit."


def spelled(node: ast.AST) -> str:
    """An expression as a reader would name it."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
