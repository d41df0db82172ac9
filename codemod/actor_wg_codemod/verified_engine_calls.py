"""Do a project's calls of engines, and its uses of NCCL's metadata, bind against verl 0.9?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.bindings import Chain, Module, Place
from actor_wg_codemod.call_binder import Binder, spelled
from actor_wg_codemod.call_shapes import Shape, misfit, shape_of
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import (
    ClassValue,
    External,
    Instance,
    Mock,
    Nothing,
    Super,
    Unknown,
    Value,
)
from actor_wg_codemod.verdict_rows import Status
from actor_wg_codemod.verdicts import CALLS, NCCL, Verdict, bound_parameters


class EngineCalls:
    """Judges the calls of engines against one release of verl; `engines` gives the project's own."""

    def __init__(
        self, evaluator: Evaluator, binder: Binder, engines: Callable[[], list[ClassInfo]]
    ) -> None:
        self.ev = evaluator
        self.link = evaluator.link
        self.binder = binder
        self.release = binder.release
        self.engines = engines

    def verdicts(self, module: Module) -> Iterator[Verdict]:
        """What is to say about the calls of a module."""
        for method in (renames.TOPOLOGY_METHOD, renames.INIT_METHOD):
            yield from self._engine_calls(module, method)
        yield from self._metadata(module)

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
        subject = f"{spelled(node)}(...)"
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
            verdict = self.binder.bound(
                call, subject, info, method, shape, proven, check, above=above
            )
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
            return self.binder.against_table(
                parent, f"{subject}(...)", subject, "__init__", shape_of(parent), True, NCCL
            )
        if any(name in ("annotation", "returns") for _, name in chain[-4:]):
            return None
        reason = (
            f"what NCCL's prepare() returns is {signatures.WORKER_METADATA} since verl {signatures.LATEST}, "
            f"with this as its .master; look whether this use means what prepare() gives."
        )
        return Verdict(NCCL, node, Status.ADVISORY, subject, reason)
