"""Do a project's own calls of managers, engines and NCCL's metadata bind against verl 0.9?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import DEFS, Chain, Module, Place, descend, path_of
from actor_wg_codemod.call_shapes import Shape, misfit, shape_of
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import (
    ClassValue,
    Constructor,
    External,
    Instance,
    Mock,
    Nothing,
    Partial,
    Super,
    Unknown,
    Value,
)
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verified_classes import NCCL, Verdict, bound_parameters

CONSTRUCTIONS, CALLS = "V2", "V5"
_CALLERS = frozenset(
    {"remote", "partial", "partialmethod", "__init__", "submit", "to_thread", "cls"}
)


class ProjectCalls:
    """Judges the calls of a project against one release of verl; `engines` gives the project's engines."""

    def __init__(
        self, evaluator: Evaluator, release: str, engines: Callable[[], list[ClassInfo]]
    ) -> None:
        self.ev = evaluator
        self.link = evaluator.link
        self.release = release
        self.engines = engines
        self.wanted = frozenset(
            {*evaluator.names.manager_parameters[1:], evaluator.names.new_group, None}
        )

    def verdicts(self, module: Module) -> Iterator[Verdict]:
        """What is to say about the calls of a module."""
        yield from self._constructions(module)
        for method in (renames.TOPOLOGY_METHOD, renames.INIT_METHOD):
            yield from self._engine_calls(module, method)
        yield from self._metadata(module)

    # Constructions of a manager

    def _constructions(self, module: Module) -> Iterator[Verdict]:
        for chain in descend(module.tree, None, self._may_construct):
            call = chain[-1][0]
            assert isinstance(call, ast.Call)
            place = module.place(chain)
            yield from self._construction(call, place)

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
        subject = f"{_spelled(call.args[0] if passed_on and call.args else call.func)}(...)"
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
            yield self._bound(call, subject, info, "__init__", shape, proven, CONSTRUCTIONS)
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

    # Signatures

    def _bound(
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
            return self._against_table(node, subject, current.verl, method, shape, proven, check)
        why = "a base class cannot be seen, so its signature is not known"
        return Verdict(check, node, Status.SKIPPED, subject, why)

    def _against_table(
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
        release = signatures.worst(found, self.release)
        if release is not None:
            latest = release == signatures.LATEST
            where, problem = found[release]
            where = f"{where} of verl {release if latest else '>= ' + release}"
            return self._unbound(check, node, subject, where, problem, proven, release)
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
        since: str,
    ) -> Verdict:
        reason = f"{where} {problem}, so this raises TypeError. {self._advice(problem)}"
        status = Status.FAILED
        if not proven:
            status = Status.ADVISORY
            reason += " Not proven: that this is verl's is only likely."
        elif since > self.release:
            status = Status.ADVISORY
            reason += f" verl {self.release} still takes it."
        return Verdict(check, node, status, subject, reason)

    def _advice(self, problem: str) -> str:
        for old, new in self.ev.names.table.items():
            if problem.startswith(f"takes no {old}="):
                return f"Pass {new}= (`actor-wg migrate` does)."
        if problem.startswith(f"takes no {renames.WITHDRAWN_KEYWORD}="):
            return "Pass config=<the checkpoint engine's config>, which names the backend."
        if signatures.SENDERS in problem:
            return f"Pass {signatures.SENDERS}=, the number of actor ranks in the group (1 without multi_sender)."
        if "multi_sender" in problem:
            return "Pass multi_sender=False for a single sender, as before."
        return "Make the call fit."

    # Calls of an engine

    def _engine_calls(self, module: Module, method: str) -> Iterator[Verdict]:
        for chain in module.carriers(method):
            node = chain[-1][0]
            if len(chain) < 2 or not isinstance(node, ast.Attribute):
                continue
            call = chain[-2][0]
            if not isinstance(call, ast.Call) or call.func is not node:
                continue
            place = module.place(chain[:-1])
            verdict = self._engine_call(call, node, method, place)
            if verdict is not None:
                yield verdict

    def _engine_call(
        self, call: ast.Call, node: ast.Attribute, method: str, place: Place
    ) -> Verdict | None:
        subject = f"{_spelled(node)}(...)"
        receivers = self.ev.evaluate(node.value, place)
        for value in receivers:
            if not isinstance(value, (ClassValue, Instance, Super)):
                continue
            info = value.info
            roles = self.link.roles(info)
            if not (roles.engine or self.link.is_engine(info)):
                continue
            proven = self.link.is_engine(info) and getattr(value, "proven", True)
            shape = shape_of(call)
            if method == renames.INIT_METHOD and isinstance(value, ClassValue):
                shape = Shape(max(shape.positional - 1, 0), shape.keywords, shape.open)
            check = self._check(info)
            above = isinstance(value, Super)
            if self._is_abstract(info, method, above=above):
                return None
            verdict = self._bound(call, subject, info, method, shape, proven, check, above=above)
            if info.verl == renames.ENGINE and verdict.status is Status.FAILED:
                return self._fits_own(verdict, method, shape)
            return verdict
        return self._unknown_receiver(call, subject, method, receivers)

    def _fits_own(self, verdict: Verdict, method: str, shape: Shape) -> Verdict:
        """A call of whichever engine is configured: the project may only ever mean its own."""
        for info in self.engines():
            own = self.link.own_method(info, method)
            if own is None or misfit(own.node.args, shape, bound=bound_parameters(own)) is not None:
                continue
            reason = f"{verdict.reason} It fits {info.name}.{method} of this project, which may be all it means."
            return replace(verdict, status=Status.ADVISORY, reason=reason)
        return verdict

    def _check(self, info: ClassInfo) -> str:
        nccl = any(c.verl == signatures.NCCL and c.node is None for c in self.link.mro(info))
        return NCCL if nccl else CALLS

    def _is_abstract(self, info: ClassInfo, method: str, *, above: bool) -> bool:
        """An `init_process_group` of an engine of which nothing but the abstract one is known."""
        if method != renames.INIT_METHOD:
            return False
        first = self.link.mro(info)[int(above) :]
        return not first or (first[0].node is None and first[0].verl == renames.ENGINE)

    def _unknown_receiver(
        self, call: ast.Call, subject: str, method: str, receivers: frozenset[Value]
    ) -> Verdict | None:
        if method != renames.TOPOLOGY_METHOD or not self.ev.project.mentions_verl:
            return None
        if not all(isinstance(v, (Unknown, Nothing, Mock)) for v in receivers):
            return None
        known = signatures.signature(renames.ENGINE, method, self.release)
        if known is None or misfit(known.arguments, shape_of(call), bound=1) is None:
            return None
        why = "what it is called on is not known, and the call does not fit verl's build_topology"
        return Verdict(CALLS, call, Status.SKIPPED, subject, why)

    # NCCL's metadata

    def _metadata(self, module: Module) -> Iterator[Verdict]:
        for chain in module.carriers(signatures.MASTER_METADATA):
            node = chain[-1][0]
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(
                node.ctx, ast.Load
            ):
                continue
            place = module.place(chain)
            if any(self._is_nccls(v) for v in self.ev.evaluate(node, place)):
                verdict = self._metadata_use(chain)
                if verdict is not None:
                    yield verdict

    @staticmethod
    def _is_nccls(value: Value) -> bool:
        name = f"{signatures.NCCL_MODULE}.{signatures.MASTER_METADATA}"
        return isinstance(value, External) and value.name == name

    def _metadata_use(self, chain: Chain) -> Verdict | None:
        node, by = chain[-1]
        parent = chain[-2][0]
        subject = signatures.MASTER_METADATA
        if isinstance(parent, ast.Call) and by == "func":
            return self._against_table(
                parent, f"{subject}(...)", subject, "__init__", shape_of(parent), True, NCCL
            )
        if any(name in ("annotation", "returns") for _, name in chain[-4:]):
            return None
        reason = (
            f"what NCCL's prepare() returns is {signatures.WORKER_METADATA} since verl {signatures.LATEST}, "
            f"with this as its .master; look whether this use means what prepare() gives."
        )
        return Verdict(NCCL, node, Status.ADVISORY, subject, reason)


def _spelled(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
