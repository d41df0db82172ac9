"""verl.workers.config, as far as a checkpoint backend needs it."""

from __future__ import annotations

from actor_wg_engine.contract import CheckpointEngineConfig

__all__ = ["CheckpointEngineConfig"]
