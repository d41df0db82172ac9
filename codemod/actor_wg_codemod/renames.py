"""The rename table: what verl 0.9 renamed, and the only file that names verl's classes.

Source: verl pull request 6724 (commit e71ae41d2) and the wheels 0.8.0 (old) and 0.9.1 (new).
"""

from __future__ import annotations

from dataclasses import dataclass

VERL = "verl"
ENGINE_PACKAGE = "checkpoint_engine"
BASE_MODULE = "checkpoint_engine/base.py"

MANAGER = "CheckpointEngineManager"
ENGINE = "CheckpointEngine"
KIMI = "KIMICheckpointEngine"
REGISTRY = "CheckpointEngineRegistry"
KIMI_BACKEND = "kimi_ckpt_engine"
"""The name under which verl registers its Kimi engine."""

ENGINES = frozenset(
    {
        ENGINE,
        KIMI,
        "CheckpointEngineWithCache",
        "ColocatedCheckpointEngine",
        "NCCLCheckpointEngine",
        "HCCLCheckpointEngine",
        "NIXLCheckpointEngine",
        "MooncakeCheckpointEngine",
    }
)

PUBLIC_CLASSES = ENGINES | {MANAGER, REGISTRY}

HOLDERS: dict[str, frozenset[str]] = {
    "RayPPOTrainer": frozenset({"checkpoint_manager"}),
    "SeparateRayPPOTrainer": frozenset({"checkpoint_manager"}),
    "OneStepOffRayTrainer": frozenset({"checkpoint_manager"}),
    "FullyAsyncTrainer": frozenset({"checkpoint_manager", "hybrid_checkpoint_manager"}),
    "PPOTrainer": frozenset({"checkpoint_manager"}),
    "PPOTrainerSeparateAsync": frozenset({"checkpoint_manager", "standalone_checkpoint_manager"}),
}
"""verl's own classes that keep a manager, and the attributes in which they keep it."""

MANAGER_PARAMETERS = ("config", "{group}", "replicas")
"""The manager's constructor after `self`; `{group}` is the renamed one."""

TOPOLOGY_METHOD = "build_topology"
INIT_METHOD = "init_process_group"
BACKEND_CLASS_ATTRIBUTE = "backend_cls"
WITHDRAWN_KEYWORD = "backend"
"""Lived on verl's main from January to February 2026; no release takes it."""
MANAGER_CLASS_SETTING = "checkpoint_manager_class"
MANAGER_NAME_HINTS = ("checkpoint_manager", "checkpoint_engine_manager")
GROUP_CLASS_HINT = "WorkerGroup"


@dataclass(frozen=True)
class Vocabulary:
    """The names of one direction: what is looked for (`old`) and what it becomes (`new`)."""

    group: str
    new_group: str
    size: str
    new_size: str
    kwargs: str
    new_kwargs: str
    reverse: bool = False

    @property
    def table(self) -> dict[str, str]:
        """Old name to new name."""
        return {
            self.group: self.new_group,
            self.size: self.new_size,
            self.kwargs: self.new_kwargs,
        }

    @property
    def since(self) -> str:
        """When verl has the names that the old ones become."""
        return "before verl 0.9" if self.reverse else "since verl 0.9"

    @property
    def release(self) -> str:
        """The releases of verl that use the names that the old ones become."""
        return f"{VERL} < 0.9" if self.reverse else f"{VERL} >= 0.9"

    @property
    def manager_parameters(self) -> tuple[str, ...]:
        """The constructor's parameter names after `self`, in the old spelling."""
        return tuple(name.format(group=self.group) for name in MANAGER_PARAMETERS)


FORWARD = Vocabulary(
    "trainer",
    "actor_wg",
    "trainer_world_size",
    "actor_wg_world_size",
    "trainer_kwargs",
    "actor_wg_kwargs",
)
REVERSE = Vocabulary(
    "actor_wg",
    "trainer",
    "actor_wg_world_size",
    "trainer_world_size",
    "actor_wg_kwargs",
    "trainer_kwargs",
    reverse=True,
)
