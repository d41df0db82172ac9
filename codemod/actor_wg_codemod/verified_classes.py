"""Do a project's managers, engines, rollouts and replicas take what verl 0.9 passes to them?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import DEFS, Module, descend
from actor_wg_codemod.call_shapes import Shape, misfit
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.signatures import VerlCall
from actor_wg_codemod.values import External, Function, Unknown, Value
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verdicts import (
    ENGINES,
    MANAGERS,
    REPLICAS,
    ROLLOUTS,
    Kin,
    Verdict,
    bound_parameters,
    since,
)
from actor_wg_codemod.verified_protocol import Protocol

CHECK_OF = {
    renames.MANAGER: MANAGERS,
    renames.ENGINE: ENGINES,
    signatures.ROLLOUT: ROLLOUTS,
}
DUCK_METHODS = ("abort_all_requests", "resume_generation", "release_kv_cache")
"""A class with these stands in for a replica, whatever it inherits from."""


class Classes:
    """Judges the classes of a project against one release of verl."""

    def __init__(self, evaluator: Evaluator, release: str) -> None:
        self.ev = evaluator
        self.link = evaluator.link
        self.release = release
        self.protocol = Protocol(evaluator, release)

    def classes(self, module: Module) -> Iterator[ClassInfo]:
        """Every class that a module defines."""
        for chain in descend(module.tree, None, lambda node: isinstance(node, ast.ClassDef)):
            node = chain[-1][0]
            assert isinstance(node, ast.ClassDef)
            yield self.link.project_class(module, node, module.place(chain))

    def verdicts(self, info: ClassInfo) -> Iterator[Verdict]:
        """What is to say about a class; nothing where it has to do with none of verl's."""
        for kin in self.kin(info):
            found: dict[str, Verdict] = {}
            for call in signatures.CALLS:
                for verdict in self._override(info, kin, call) if call.owner == kin.owner else ():
                    if found.setdefault(call.method, verdict).status is Status.PASSED:
                        found[call.method] = verdict
            yield from found.values()
            if kin.owner == renames.ENGINE:
                yield from self.protocol.verdicts(info, kin)

    # What a class is

    def kin(self, info: ClassInfo) -> list[Kin]:
        """Which of verl's classes a class stands for."""
        roles = self.link.roles(info)
        found = []
        if roles.manager:
            found.append(Kin(renames.MANAGER, roles.proven, roles.named))
        if self.link.is_engine(info):
            found.append(Kin(renames.ENGINE, True))
        elif roles.engine and self.link.own_method(info, renames.TOPOLOGY_METHOD) is not None:
            found.append(Kin(renames.ENGINE, False))
        for owner, family in signatures.FAMILIES.items():
            proven = self._derives(info, family)
            if proven is not None:
                found.append(Kin(owner, proven))
        if not found and self._duck(info):
            found.append(Kin(signatures.REPLICA, False))
        return found

    def _derives(self, info: ClassInfo, family: frozenset[str]) -> bool | None:
        """Whether a class derives from one of a family of verl's: proven, by its looks (False), or not."""
        likely = False
        for current in self.link.mro(info):
            if current.name in family and self.in_copy(current):
                return True
            for values in self.link.bases(current):
                for value in values:
                    proven = self._names_one(value, family)
                    if proven:
                        return True
                    likely |= proven is False
        return False if likely else None

    def _names_one(self, value: Value, family: frozenset[str]) -> bool | None:
        if isinstance(value, External) and value.last in family:
            return self._is_verls(value)
        if isinstance(value, Unknown) and value.hint in family:
            return False if self.ev.project.mentions_verl else None
        return None

    @staticmethod
    def _is_verls(value: External) -> bool:
        return value.name.partition(".")[0] == renames.VERL

    def in_copy(self, info: ClassInfo) -> bool:
        """Whether a class belongs to a copy of verl in the tree."""
        return info.module is not None and self.ev.project.verl_name(info.module.path) is not None

    def _duck(self, info: ClassInfo) -> bool:
        return all(self.link.own_method(info, name) is not None for name in DUCK_METHODS)

    # Overrides

    def _override(self, info: ClassInfo, kin: Kin, call: VerlCall) -> Iterator[Verdict]:
        method = self.link.own_method(info, call.method)
        if method is None or not isinstance(method.node, DEFS):
            return
        subject = f"{info.name}.{call.method}"
        check = CHECK_OF.get(call.owner, REPLICAS)
        problem = misfit(method.node.args, _shape(call), bound=bound_parameters(method))
        if problem is None:
            yield Verdict(check, method.node, Status.PASSED, subject)
            return
        if self._copy_differs(info, call):
            if not self.in_copy(info):
                why = f"the copy of verl in this tree does not call it as verl 0.9 does ({call.shown})"
                yield Verdict(check, method.node, Status.SKIPPED, subject, why)
            return
        status, doubt = self._weight(info, kin, call)
        fix = _remedy(call, method)
        reason = (
            f"verl {since(call.since)} calls {call.shown}; {call.method} {problem}.{doubt} {fix}"
        )
        yield Verdict(check, method.node, status, subject, reason)

    def _weight(self, info: ClassInfo, kin: Kin, call: VerlCall) -> tuple[Status, str]:
        """(how much a misfit counts, why it counts less)."""
        if not kin.proven:
            return Status.ADVISORY, f" Not proven: that verl's {kin.owner} is meant is only likely."
        if call.since > self.release:
            return Status.ADVISORY, f" verl {self.release} does not do so yet."
        if call.advisory:
            return Status.ADVISORY, " Only some of verl's trainers do so."
        if kin.owner == renames.MANAGER and call.method == "__init__" and not kin.named:
            if not self.in_copy(info):
                setting = renames.MANAGER_CLASS_SETTING
                return Status.ADVISORY, f" It does so only with a class that {setting} names."
        if kin.owner == renames.ENGINE and not self.in_copy(info) and not self.registered(info):
            return Status.ADVISORY, " It is not registered here, so verl itself never makes one."
        return Status.FAILED, ""

    def registered(self, info: ClassInfo) -> bool:
        """Whether the registry gets the class or one below it, by decorator or by a call anywhere."""
        if self.link.registered(info) or any(map(self.registered, self.link.subclasses(info))):
            return True
        for path in self.ev.project.mentions(info.name):
            module = self.ev.module(path)
            for chain in module.carriers(info.name) if module is not None else ():
                if module is not None and self.link._registers(chain, info, module):
                    return True
        return False

    def _copy_differs(self, info: ClassInfo, call: VerlCall) -> bool:
        """Whether a copy of verl in the tree has a base whose own method does not take the call either."""
        for current in self.link.mro(info):
            if not self.in_copy(current):
                continue
            own = self.link.own_method(current, call.method)
            if own is not None and (current is not info or self.in_copy(info)):
                if misfit(own.node.args, _shape(call), bound=bound_parameters(own)) is not None:
                    return not self._old_names(own)
        return False

    def _old_names(self, method: Function) -> bool:
        old = self.ev.names.table
        return any(a.arg in old for a in ast.walk(method.node.args) if isinstance(a, ast.arg))


def _shape(call: VerlCall) -> Shape:
    return Shape(call.positional, call.keywords, call.open)


def _remedy(call: VerlCall, method: Function) -> str:
    taken = {a.arg for a in ast.walk(method.node.args) if isinstance(a, ast.arg)}
    missing = [word for word in call.keywords if word not in taken]
    if call.owner == signatures.ROLLOUT and "wire_format" in missing:
        extra = ", ".join(
            'wire_format="named_tensors"' if word == "wire_format" else f"{word}=None"
            for word in missing
        )
        return f"Add {extra} or **kwargs."
    if call.keywords == ("reject_request",):
        return "Add reject_request=False, and pass it on to super() or to the servers."
    if missing and call.keywords:
        return f"Take {', '.join(missing)}."
    return "Make it take that call."
