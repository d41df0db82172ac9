"""Does an engine that overrides one half of a verl engine's private protocol fit the other half?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import path_of
from actor_wg_codemod.call_shapes import Shape, misfit
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import External, Function
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verdicts import ENGINES, NCCL, Kin, Verdict, bound_parameters, since


class Protocol:
    """Judges what an engine's `prepare`, `build_topology` and `init_process_group` hand to each other."""

    def __init__(self, evaluator: Evaluator, release: str) -> None:
        self.link = evaluator.link
        self.project = evaluator.project
        self.renamed = evaluator.names.table
        self.release = release

    def _topology_owner(self, info: ClassInfo) -> str | None:
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

    def verdicts(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        """An override of one half of a verl engine's private protocol has to fit the other half."""
        init = self.link.own_method(info, renames.INIT_METHOD)
        owner = self._topology_owner(info)
        if init is not None and owner is not None:
            yield from self._init(info, kin, init, owner)
        if self._outer_nccl(info):
            yield from self._nccl(info, kin)
        yield from self._parameter_names(info, kin)

    def _init(self, info: ClassInfo, kin: Kin, init: Function, owner: str) -> Iterator[Verdict]:
        subject = f"{info.name}.{renames.INIT_METHOD}"
        check = NCCL if owner == signatures.NCCL else ENGINES
        problems: dict[str, tuple[str, str]] = {}
        for release in signatures.RELEASES:
            known = signatures.signature(owner, renames.INIT_METHOD, release)
            if known is None or known.arguments.kwarg is not None:
                continue
            words = tuple(a.arg for a in known.arguments.args[1:])
            why = misfit(init.node.args, Shape(0, words), bound=bound_parameters(init))
            if why is not None:
                problems[release] = (why, ", ".join(words))
        worst = signatures.worst(problems, self.release)
        if worst is None:
            if signatures.signature(owner, renames.INIT_METHOD, self.release) is not None:
                yield Verdict(check, init.node, Status.PASSED, subject)
            return
        problem, handed = problems[worst]
        method = f"{owner}.{renames.TOPOLOGY_METHOD} of verl {since(worst)}"
        reason = (
            f"{method}, which it inherits, hands over {handed}, and {renames.INIT_METHOD} {problem}. "
            "Take these names, or **kwargs."
        )
        yield Verdict(check, init.node, self._status(kin.proven, worst), subject, reason)

    def _outer_nccl(self, info: ClassInfo) -> bool:
        """Whether verl's NCCL engine, from outside the tree, is among the bases."""
        for current in self.link.mro(info):
            if current.node is None and current.verl == signatures.NCCL:
                return True
            for values in self.link.bases(current):
                if any(
                    isinstance(v, External) and v.last in signatures.NCCL_FAMILY and _is_verls(v)
                    for v in values
                ):
                    return True
        return False

    def _nccl(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        latest = signatures.LATEST
        topology = self.link.own_method(info, renames.TOPOLOGY_METHOD)
        init = self.link.own_method(info, renames.INIT_METHOD)
        if topology is not None and init is None:
            subject = f"{info.name}.{renames.TOPOLOGY_METHOD}"
            if _says(topology.node, signatures.SENDERS, renames.TOPOLOGY_METHOD):
                yield Verdict(NCCL, topology.node, Status.PASSED, subject)
            else:
                reason = (
                    f"the {renames.INIT_METHOD} that it inherits from {signatures.NCCL} needs "
                    f"{signatures.SENDERS} since verl {latest}, and this topology has no such key. Add "
                    f'"{signatures.SENDERS}": [1] * <world size> to both dictionaries where one rank sends.'
                )
                status = self._status(kin.proven, latest)
                yield Verdict(NCCL, topology.node, status, subject, reason)
        prepare = self.link.own_method(info, "prepare")
        if prepare is not None and topology is None:
            subject = f"{info.name}.prepare"
            if _says(prepare.node, signatures.WORKER_METADATA, "prepare"):
                yield Verdict(NCCL, prepare.node, Status.PASSED, subject)
            else:
                reason = (
                    f"the {renames.TOPOLOGY_METHOD} that it inherits from {signatures.NCCL} reads .master and "
                    f".node_id of what prepare() returns since verl {latest}. Return "
                    f"{signatures.WORKER_METADATA}(node_id=self.get_node_id(), master=...) there."
                )
                status = self._status(kin.proven, latest)
                yield Verdict(NCCL, prepare.node, status, subject, reason)

    def _parameter_names(self, info: ClassInfo, kin: Kin) -> Iterator[Verdict]:
        """verl calls `build_topology` by position, so another name for a parameter breaks keyword callers only."""
        method = self.link.own_method(info, renames.TOPOLOGY_METHOD)
        known = signatures.signature(renames.ENGINE, renames.TOPOLOGY_METHOD, self.release)
        if method is None or known is None or self._in_copy(info):
            return
        if misfit(method.node.args, Shape(3, ()), bound=bound_parameters(method)) is not None:
            return  # said already
        wanted = [a.arg for a in known.arguments.args[1:]]
        names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
        names = names[bound_parameters(method) :][: len(wanted)]
        strange = [
            (own, new)
            for own, new in zip(names, wanted, strict=False)
            if own != new and own not in self.renamed
        ]
        if strange and kin.proven:
            pairs = " and ".join(f"{own} where verl has {new}" for own, new in strange)
            reason = (
                f"it says {pairs}. verl passes them by position, so it runs; callers by keyword fail. "
                "Rename them."
            )
            subject = f"{info.name}.{renames.TOPOLOGY_METHOD}"
            yield Verdict(ENGINES, method.node, Status.ADVISORY, subject, reason)

    def _in_copy(self, info: ClassInfo) -> bool:
        return info.module is not None and self.project.verl_name(info.module.path) is not None

    def _status(self, proven: bool, first: str) -> Status:
        return Status.FAILED if proven and first <= self.release else Status.ADVISORY


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


def _is_verls(value: External) -> bool:
    return value.name.partition(".")[0] == renames.VERL
