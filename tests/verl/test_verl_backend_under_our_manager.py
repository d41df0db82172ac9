"""A backend written for verl, in verl's own workers and groups, driven by our manager."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed; see make_environment.py")

import verl_workers

from actor_wg_engine import CheckpointEngineManager, CheckpointEngineRegistry

pytestmark = pytest.mark.usefixtures("verl_ray")


@pytest.fixture
def fleet() -> Any:
    """verl's groups with the user's backend, and our manager over them."""
    import verl_style_backend

    CheckpointEngineRegistry.register("verl_style")(verl_style_backend.VerlStyleEngine)
    started = verl_workers.Fleet(2, 3, "verl_style_backend")
    config, actor_wg, rollout_wg, replicas = started.use("verl_style", 2, 3)
    yield CheckpointEngineManager(config, actor_wg, replicas[:2]), actor_wg, rollout_wg, replicas
    started.stop()


def test_syncs_elasticity_and_a_dead_worker(fleet: Any) -> None:
    import ray

    manager, _, rollout_wg, replicas = fleet

    def held(step: int) -> str:
        return verl_workers.digest(verl_workers.weights_at(step))

    manager.update_weights(global_steps=1)
    assert rollout_wg.digest()[:2] == [held(1)] * 2
    asyncio.run(_awaited(manager, 2))
    assert rollout_wg.digest()[:2] == [held(2)] * 2
    manager.add_replicas(replicas[2:])
    manager.update_weights(global_steps=3)
    assert rollout_wg.digest() == [held(3)] * 3
    ray.kill(rollout_wg.workers[0])
    with pytest.raises(Exception, match="replica 0"):
        manager.update_weights(global_steps=4)
    manager.remove_replicas(replicas[:1])
    manager.update_weights(global_steps=5)
    left = [worker.digest.remote() for worker in rollout_wg.workers[1:]]
    assert ray.get(left, timeout=30) == [held(5)] * 2


async def _awaited(manager: Any, step: int) -> None:
    await manager.update_weights(global_steps=step)
