"""What verl 0.9's classes take and how verl calls them: data for `actor-wg verify`.

Source: the wheels 0.9.0 and 0.9.1, read with ast; `tests/codemod/test_verification_signatures.py` compares every
line with them. Paths are relative to the package's folder.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from actor_wg_codemod import renames

RELEASES = ("0.9.0", "0.9.1")
LATEST = RELEASES[-1]

ENGINE = renames.ENGINE
MANAGER = renames.MANAGER
NCCL = "NCCLCheckpointEngine"
ROLLOUT = "BaseRollout"
REPLICA = "RolloutReplica"
MASTER_METADATA = "MasterMetadata"
WORKER_METADATA = "WorkerMetadata"
NCCL_MODULE = "verl.checkpoint_engine.nccl_checkpoint_engine"
SENDERS = "num_senders"
"""What NCCL's `build_topology` hands to `init_process_group` since 0.9.1."""

_BASE = "checkpoint_engine/base.py"
_NCCL = "checkpoint_engine/nccl_checkpoint_engine.py"
_HCCL = "checkpoint_engine/hccl_checkpoint_engine.py"
_NIXL = "checkpoint_engine/nixl_checkpoint_engine.py"
_MOONCAKE = "checkpoint_engine/mooncake_checkpoint_engine.py"
_KIMI = "checkpoint_engine/kimi_checkpoint_engine.py"
_WORKERS = "workers/engine_workers.py"
_TRAINER = "trainer/ppo/ray_trainer.py"
_VLLM_SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"

TOPOLOGY = "cls, actor_wg_world_size, rollout_world_size, metadata"


@dataclass(frozen=True)
class Signature:
    """The parameters of a method of verl's, without annotations; a default is written `=...`.

    `since` is the first release in the table that has it so, `until` the first that has not.
    `fields` says that the class is a dataclass whose fields are these parameters.
    """

    owner: str
    method: str
    parameters: str
    file: str
    since: str = "0.9.0"
    until: str = ""
    fields: bool = False

    @cached_property
    def arguments(self) -> ast.arguments:
        """The parameters as ast has them."""
        body = ast.parse(f"def f({self.parameters}): ...").body[0]
        assert isinstance(body, ast.FunctionDef)
        return body.args

    def holds_in(self, release: str) -> bool:
        """Whether a release has it."""
        return self.since <= release and not (self.until and release >= self.until)


SIGNATURES = (
    Signature(MANAGER, "__init__", "self, config, actor_wg, replicas", _BASE),
    Signature(ENGINE, "build_topology", TOPOLOGY, _BASE),
    Signature(ENGINE, "init_process_group", "self, **kwargs", _BASE),
    Signature("ColocatedCheckpointEngine", "build_topology", "cls, *args, **kwargs", _BASE),
    Signature("ColocatedCheckpointEngine", "init_process_group", "self, **kwargs", _BASE),
    Signature(NCCL, "build_topology", TOPOLOGY, _NCCL),
    Signature(
        NCCL, "init_process_group", "self, rank, world_size, master_metadata", _NCCL, until="0.9.1"
    ),
    Signature(
        NCCL,
        "init_process_group",
        f"self, rank, world_size, master_metadata, {SENDERS}",
        _NCCL,
        since="0.9.1",
    ),
    Signature("HCCLCheckpointEngine", "build_topology", TOPOLOGY, _HCCL),
    Signature(
        "HCCLCheckpointEngine",
        "init_process_group",
        "self, rank, world_size, master_metadata",
        _HCCL,
    ),
    Signature("NIXLCheckpointEngine", "build_topology", TOPOLOGY, _NIXL),
    Signature(
        "NIXLCheckpointEngine",
        "init_process_group",
        "self, rank, world_size, prev_agent_metadata, next_agent_metadata",
        _NIXL,
    ),
    Signature("MooncakeCheckpointEngine", "build_topology", f"{TOPOLOGY}s", _MOONCAKE),
    Signature(
        "MooncakeCheckpointEngine",
        "init_process_group",
        "self, rank, world_size, metadata",
        _MOONCAKE,
    ),
    Signature(renames.KIMI, "build_topology", TOPOLOGY, _KIMI),
    Signature(
        renames.KIMI,
        "init_process_group",
        "self, rank, actor_wg_world_size, rollout_world_size, master_metadata",
        _KIMI,
    ),
    Signature(
        MASTER_METADATA, "__init__", "self, zmq_ip, zmq_port", _NCCL, until="0.9.1", fields=True
    ),
    Signature(
        MASTER_METADATA,
        "__init__",
        "self, zmq_ip, zmq_port, multi_sender",
        _NCCL,
        since="0.9.1",
        fields=True,
    ),
)


@dataclass(frozen=True)
class VerlCall:
    """How verl calls something that projects override.

    Args:
        owner: the class of verl's whose subclasses are called so.
        method: the overridden method.
        positional: how many positional arguments verl gives.
        keywords: the keywords that it gives.
        file: where verl does it.
        callee: what stands before the parenthesis there, its last words.
        since: the first release in the table that does it.
        advisory: verl does it only on some paths, which a project may never take.
        open: settings add keywords of the project's own.
    """

    owner: str
    method: str
    positional: int
    keywords: tuple[str, ...]
    file: str
    callee: str
    since: str = "0.9.0"
    advisory: bool = False
    open: bool = False

    @property
    def shown(self) -> str:
        """The call, as a reader would write it."""
        given = ["..."] * self.positional + [f"{word}=" for word in self.keywords]
        name = self.owner if self.method == "__init__" else self.method
        return f"{name}({', '.join(given)})"


CALLS = (
    VerlCall(MANAGER, "__init__", 0, ("config", "actor_wg", "replicas"), _TRAINER, MANAGER),
    VerlCall(MANAGER, "update_weights", 1, (), _TRAINER, "checkpoint_manager.update_weights"),
    VerlCall(
        MANAGER,
        "abort_replicas",
        0,
        ("reject_request",),
        "trainer/ppo/v1/trainer_separate_async.py",
        "checkpoint_manager.abort_replicas",
        since="0.9.1",
        advisory=True,
    ),
    VerlCall(
        ENGINE,
        "__init__",
        0,
        ("bucket_size",),
        _BASE,
        "CheckpointEngineRegistry.new",
        open=True,
    ),
    VerlCall(
        ENGINE,
        "__init__",
        0,
        ("bucket_size", "is_master"),
        _WORKERS,
        "CheckpointEngineRegistry.new",
        open=True,
    ),
    VerlCall(ENGINE, "build_topology", 3, (), _BASE, "backend_cls.build_topology"),
    VerlCall(
        ENGINE, "send_weights", 1, ("global_steps",), _WORKERS, "checkpoint_engine.send_weights"
    ),
    VerlCall(
        ENGINE, "receive_weights", 0, ("global_steps",), _BASE, "checkpoint_engine.receive_weights"
    ),
    VerlCall(
        ROLLOUT,
        "update_weights",
        1,
        ("global_steps", "wire_format"),
        _BASE,
        "server_adapter.update_weights",
    ),
    VerlCall(
        REPLICA,
        "abort_all_requests",
        0,
        ("reject_request",),
        _BASE,
        "r.abort_all_requests",
        since="0.9.1",
    ),
    VerlCall(
        "vLLMHttpServer",
        "abort_all_requests",
        0,
        ("reject_request",),
        _VLLM_SERVER,
        "abort_all_requests.remote",
        since="0.9.1",
    ),
    VerlCall(
        "TRTLLMHttpServer",
        "abort_all_requests",
        0,
        ("reject_request",),
        "workers/rollout/replica.py",
        "abort_all_requests.remote",
        since="0.9.1",
    ),
)

FAMILIES: dict[str, frozenset[str]] = {
    ROLLOUT: frozenset({ROLLOUT, "ServerAdapter", "HFRollout", "NaiveRollout"}),
    REPLICA: frozenset(
        {
            REPLICA,
            "vLLMReplica",
            "vLLMPDReplica",
            "SGLangReplica",
            "SGLangPDReplica",
            "TRTLLMReplica",
        }
    ),
    "vLLMHttpServer": frozenset({"vLLMHttpServer"}),
    "TRTLLMHttpServer": frozenset({"TRTLLMHttpServer"}),
}
"""verl's classes beside engines and managers that projects derive from, with verl's own subclasses."""

NCCL_FAMILY = frozenset({NCCL, "DeltaShardedCheckpointEngine"})


def signature(owner: str, method: str, release: str) -> Signature | None:
    """What a method of one of verl's classes takes in a release; None where the table has nothing."""
    for one in SIGNATURES:
        if (one.owner, one.method) == (owner, method) and one.holds_in(release):
            return one
    return None


def worst(failing: Collection[str], wanted: str) -> str | None:
    """The release to name for something that fails in some: where it starts to, if it does in `wanted`.

    What fails only in later releases than the wanted one has the first of them; what fails only in
    earlier ones has none.
    """
    if wanted in failing:
        first = RELEASES.index(wanted)
        while first and RELEASES[first - 1] in failing:
            first -= 1
        return RELEASES[first]
    return next((release for release in RELEASES if release > wanted and release in failing), None)
