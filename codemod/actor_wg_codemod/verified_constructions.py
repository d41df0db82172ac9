"""Do a project's own constructions of managers bind against verl 0.9?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actor_wg_codemod.bindings import Module, Place, descend, path_of
from actor_wg_codemod.call_binder import Binder, spelled
from actor_wg_codemod.call_shapes import Shape, shape_of
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import ClassValue, Constructor, Nothing, Partial, Unknown, Value
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verdicts import CONSTRUCTIONS, Verdict

_CALLERS = frozenset(
    {"remote", "partial", "partialmethod", "__init__", "submit", "to_thread", "cls"}
)


class Constructions:
    """Judges the constructions of managers."""

    def __init__(self, evaluator: Evaluator, binder: Binder) -> None:
        self.ev = evaluator
        self.link = evaluator.link
        self.binder = binder
        self.wanted = frozenset(
            {*evaluator.names.manager_parameters[1:], evaluator.names.new_group, None}
        )

    def verdicts(self, module: Module) -> Iterator[Verdict]:
        """What is to say about the constructions of a module."""
        for chain in descend(module.tree, None, self._may_construct):
            call = chain[-1][0]
            assert isinstance(call, ast.Call)
            yield from self._construction(call, module.place(chain))

    def _may_construct(self, node: ast.AST) -> bool:
        """A cheap look before a call's target is asked for."""
        if not isinstance(node, ast.Call):
            return False
        if any(keyword.arg in self.wanted for keyword in node.keywords):
            return True
        name = (path_of(node.func) or "").rpartition(".")[2] or getattr(node.func, "attr", "")
        return name in _CALLERS or name.lstrip("_")[:1].isupper()

    def _construction(self, call: ast.Call, place: Place) -> Iterator[Verdict]:
        callees = self.ev.evaluate(call.func, place)
        targets = self.ev.forwarding.targets(call, place)
        passed_on = targets != callees
        subject = f"{spelled(call.args[0] if passed_on and call.args else call.func)}(...)"
        for target in targets:
            found = self._target(target)
            if found is None:
                continue
            info, given, proven, partly = found
            if not self.link.roles(info).manager:
                continue
            proven = proven and self.link.roles(info).proven
            shape = shape_of(call, skip=int(passed_on), incomplete=passed_on or partly)
            shape = Shape(max(shape.positional + given, 0), shape.keywords, shape.open)
            yield self.binder.bound(call, subject, info, "__init__", shape, proven, CONSTRUCTIONS)
            return
        if self._fits(call) and all(isinstance(t, (Unknown, Nothing)) for t in targets):
            why = "what is constructed here is not known, and its keywords are the manager's"
            yield Verdict(CONSTRUCTIONS, call, Status.SKIPPED, subject, why)

    def _target(self, value: Value) -> tuple[ClassInfo, int, bool, bool] | None:
        """(the constructed class, positional arguments it has already, proven, whether it has keywords too)."""
        if isinstance(value, Partial):
            inner = self._target(value.target)
            return None if inner is None else (inner[0], inner[1] + value.given, inner[2], True)
        if isinstance(value, Constructor):
            return value.info, -int(value.takes_self), value.proven, False
        if isinstance(value, ClassValue):
            return value.info, 0, value.proven, False
        return None

    def _fits(self, call: ast.Call) -> bool:
        names = self.ev.names
        words = {keyword.arg for keyword in call.keywords}
        return self.ev.project.mentions_verl and (
            {names.new_group, names.manager_parameters[2]} <= words
        )
