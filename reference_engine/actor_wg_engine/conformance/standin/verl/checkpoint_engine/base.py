"""verl.checkpoint_engine.base, answered by the reference engine."""

from __future__ import annotations

from actor_wg_engine.contract import CheckpointEngine, CheckpointEngineWithCache, TensorMeta
from actor_wg_engine.manager import CheckpointEngineManager
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
from actor_wg_engine.worker import CheckpointEngineWorker

__all__ = [
    "CheckpointEngine",
    "CheckpointEngineManager",
    "CheckpointEngineRegistry",
    "CheckpointEngineWithCache",
    "CheckpointEngineWorker",
    "ColocatedCheckpointEngine",
    "TensorMeta",
]
