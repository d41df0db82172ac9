"""Do a project's managers, engines, rollouts and replicas take what verl 0.9 passes to them?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import DEFS, Module, descend, path_of
from actor_wg_codemod.call_shapes import Shape, misfit
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.signatures import VerlCall
from actor_wg_codemod.values import External, Function, Unknown, Value
from actor_wg_codemod.verdict_rows import Status

MANAGERS, ENGINES, ROLLOUTS, REPLICAS, NCCL = "V3", "V4", "V6", "V7", "V8"
CHECK_OF = {
    renames.MANAGER: MANAGERS,
    renames.ENGINE: ENGINES,
    signatures.ROLLOUT: ROLLOUTS,
}
DUCK_METHODS = ("abort_all_requests", "resume_generation", "release_kv_cache")
"""A class with these stands in for a replica, whatever it inherits from."""


@dataclass(frozen=True)
class Verdict:
    """What one check says about one node of a module."""

    check: str
    node: ast.AST
    status: Status
    subject: str
    reason: str = ""


@dataclass(frozen=True)
class Kin:
    """What a class is to verl: `owner` is the class of verl's that it stands for or derives from."""

    owner: str
    proven: bool
    named: bool = False


class Classes:
    """Judges the classes of a project against one release of verl."""

    def __init__(self, evaluator: Evaluator, release: str) -> None:
        self.ev = evaluator
        self.link = evaluator.link
        self.release = release

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
                yield from self._protocol(info, kin)
                yield from self._parameter_names(info, kin)

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
            f"verl {_since(call.since)} calls {call.shown}; {call.method} {problem}.{doubt} {fix}"
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

    # What an engine hands to itself

    def topology_owner(self, info: ClassInfo) -> str | None:
        """The engine of verl's whose `build_topology` a class inherits; None where it has its own."""
        for current in self.link.mro(info):
            if self.link.own_method(current, renames.TOPOLOGY_METHOD) is not None:
                return None
            if current.node is None:
                return current.verl
            for values in self.link.bases(current):
                for value in values:
                    if isinstance(value, External) and value.last in signatures.NCCL_FAMILY:
                        return signatures.NCCL
        return None

    def _protocol(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        """An override of one half of a verl engine's private protocol has to fit the other half."""
        init = self.link.own_method(info, renames.INIT_METHOD)
        owner = self.topology_owner(info)
        if init is not None and owner is not None:
            yield from self._init(info, kin, init, owner)
        if self._outer_nccl(info):
            yield from self._nccl(info, kin)

    def _init(self, info: ClassInfo, kin: Kin, init: Function, owner: str) -> Iterator[Verdict]:
        subject = f"{info.name}.{renames.INIT_METHOD}"
        check = NCCL if owner == signatures.NCCL else ENGINES
        problems: dict[str, tuple[str, str]] = {}
        for release in signatures.RELEASES:
            known = signatures.signature(owner, renames.INIT_METHOD, release)
            if known is None or known.arguments.kwarg is not None:
                continue
            words = tuple(a.arg for a in known.arguments.args[1:])
            problem = misfit(init.node.args, Shape(0, words), bound=bound_parameters(init))
            if problem is not None:
                problems[release] = (problem, ", ".join(words))
        release = signatures.worst(problems, self.release)
        if release is None:
            if signatures.signature(owner, renames.INIT_METHOD, self.release) is not None:
                yield Verdict(check, init.node, Status.PASSED, subject)
            return
        problem, handed = problems[release]
        method = f"{owner}.{renames.TOPOLOGY_METHOD} of verl {_since(release)}"
        reason = (
            f"{method}, which it inherits, hands over {handed}, and {renames.INIT_METHOD} {problem}. "
            "Take these names, or **kwargs."
        )
        yield Verdict(check, init.node, self._status(kin.proven, release), subject, reason)

    def _outer_nccl(self, info: ClassInfo) -> bool:
        """Whether verl's NCCL engine, from outside the tree, is among the bases."""
        for current in self.link.mro(info):
            if current.node is None and current.verl == signatures.NCCL:
                return True
            for values in self.link.bases(current):
                if any(
                    isinstance(v, External)
                    and v.last in signatures.NCCL_FAMILY
                    and self._is_verls(v)
                    for v in values
                ):
                    return True
        return False

    def _nccl(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        since = signatures.LATEST
        topology = self.link.own_method(info, renames.TOPOLOGY_METHOD)
        init = self.link.own_method(info, renames.INIT_METHOD)
        if topology is not None and init is None:
            subject = f"{info.name}.{renames.TOPOLOGY_METHOD}"
            if _says(topology.node, signatures.SENDERS, renames.TOPOLOGY_METHOD):
                yield Verdict(NCCL, topology.node, Status.PASSED, subject)
            else:
                reason = (
                    f"the {renames.INIT_METHOD} that it inherits from {signatures.NCCL} needs "
                    f"{signatures.SENDERS} since verl {since}, and this topology has no such key. Add "
                    f'"{signatures.SENDERS}": [1] * <world size> to both dictionaries where one rank sends.'
                )
                status = self._status(kin.proven, since)
                yield Verdict(NCCL, topology.node, status, subject, reason)
        prepare = self.link.own_method(info, "prepare")
        if prepare is not None and topology is None:
            subject = f"{info.name}.prepare"
            if _says(prepare.node, signatures.WORKER_METADATA, "prepare"):
                yield Verdict(NCCL, prepare.node, Status.PASSED, subject)
            else:
                reason = (
                    f"the {renames.TOPOLOGY_METHOD} that it inherits from {signatures.NCCL} reads .master and "
                    f".node_id of what prepare() returns since verl {since}. Return "
                    f"{signatures.WORKER_METADATA}(node_id=self.get_node_id(), master=...) there."
                )
                status = self._status(kin.proven, since)
                yield Verdict(NCCL, prepare.node, status, subject, reason)

    def _parameter_names(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        """verl calls `build_topology` by position, so another name for a parameter breaks keyword callers only."""
        method = self.link.own_method(info, renames.TOPOLOGY_METHOD)
        known = signatures.signature(renames.ENGINE, renames.TOPOLOGY_METHOD, self.release)
        if method is None or known is None or self.in_copy(info):
            return
        if misfit(method.node.args, Shape(3, ()), bound=bound_parameters(method)) is not None:
            return  # said already
        wanted = [a.arg for a in known.arguments.args[1:]]
        names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
        names = names[bound_parameters(method) :][: len(wanted)]
        strange = [
            (own, new)
            for own, new in zip(names, wanted, strict=False)
            if own != new and own not in self.ev.names.table
        ]
        if strange and kin.proven:
            pairs = " and ".join(f"{own} where verl has {new}" for own, new in strange)
            reason = (
                f"it says {pairs}. verl passes them by position, so it runs; callers by keyword fail. "
                "Rename them."
            )
            subject = f"{info.name}.{renames.TOPOLOGY_METHOD}"
            yield Verdict(ENGINES, method.node, Status.ADVISORY, subject, reason)

    def _status(self, proven: bool, since: str) -> Status:
        return Status.FAILED if proven and since <= self.release else Status.ADVISORY


def bound_parameters(method: Function) -> int:
    """How many leading parameters of a method Python gives itself."""
    decorators = getattr(method.node, "decorator_list", [])
    names = {(path_of(d) or "").rpartition(".")[2] for d in decorators}
    return 0 if "staticmethod" in names else 1


def _shape(call: VerlCall) -> Shape:
    return Shape(call.positional, call.keywords, call.open)


def _since(release: str) -> str:
    return f">= {release}" if release != signatures.LATEST else release


def _says(node: ast.AST, word: str, method: str) -> bool:
    """Whether a function says a word, or asks `super()` for the same method."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value == word:
            return True
        if isinstance(part, ast.keyword) and part.arg == word:
            return True
        if isinstance(part, (ast.Name, ast.Attribute)) and (path_of(part) or "").endswith(word):
            return True
        if isinstance(part, ast.Attribute) and part.attr == method:
            if isinstance(part.value, ast.Call) and path_of(part.value.func) == "super":
                return True
    return False


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
