"""Reference checkpoint engine for the names of verl 0.9; importing it is cheap, torch loads on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "Capabilities": "contract",
    "CheckpointEngine": "contract",
    "CheckpointEngineConfig": "contract",
    "CheckpointEngineWithCache": "contract",
    "TensorMeta": "contract",
    "CheckpointEngineRegistry": "registry",
    "CheckpointEngineManager": "manager",
    "Deadlines": "rounds",
    "CheckpointEngineWorker": "worker",
    "WorkerGroup": "worker_group",
    "ColocatedCheckpointEngine": "transports.colocated",
    "EngineError": "errors",
    "SyncError": "errors",
}

if TYPE_CHECKING:
    from actor_wg_engine.contract import (
        Capabilities,
        CheckpointEngine,
        CheckpointEngineConfig,
        CheckpointEngineWithCache,
        TensorMeta,
    )
    from actor_wg_engine.errors import EngineError, SyncError
    from actor_wg_engine.manager import CheckpointEngineManager
    from actor_wg_engine.registry import CheckpointEngineRegistry
    from actor_wg_engine.rounds import Deadlines
    from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
    from actor_wg_engine.worker import CheckpointEngineWorker
    from actor_wg_engine.worker_group import WorkerGroup

__all__ = [
    "Capabilities",
    "CheckpointEngine",
    "CheckpointEngineConfig",
    "CheckpointEngineManager",
    "CheckpointEngineRegistry",
    "CheckpointEngineWithCache",
    "CheckpointEngineWorker",
    "ColocatedCheckpointEngine",
    "Deadlines",
    "EngineError",
    "SyncError",
    "TensorMeta",
    "WorkerGroup",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
