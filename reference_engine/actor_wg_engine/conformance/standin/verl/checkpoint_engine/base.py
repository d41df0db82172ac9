"""verl.checkpoint_engine.base, answered by the reference engine."""

from __future__ import annotations

from verl.checkpoint_engine import (
    CheckpointEngine,
    CheckpointEngineManager,
    CheckpointEngineRegistry,
    CheckpointEngineWithCache,
    CheckpointEngineWorker,
    ColocatedCheckpointEngine,
    TensorMeta,
)

__all__ = [
    "CheckpointEngine",
    "CheckpointEngineManager",
    "CheckpointEngineRegistry",
    "CheckpointEngineWithCache",
    "CheckpointEngineWorker",
    "ColocatedCheckpointEngine",
    "TensorMeta",
]
