"""Registers our engines in verl's registry, as a user would with `custom_backend_module`."""

from __future__ import annotations

from verl.checkpoint_engine import CheckpointEngineRegistry

from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
from actor_wg_engine.transports.torch_distributed import TorchDistributedCheckpointEngine

CheckpointEngineRegistry.register("actor_wg_gloo")(TorchDistributedCheckpointEngine)
CheckpointEngineRegistry.register("actor_wg_shared_memory")(ColocatedCheckpointEngine)
