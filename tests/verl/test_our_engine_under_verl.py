"""Our engines, registered in verl's registry, driven by verl's own manager and worker groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed; see make_environment.py")

import verl_workers
from verl.checkpoint_engine import CheckpointEngineManager

pytestmark = pytest.mark.usefixtures("verl_ray")


@pytest.fixture(scope="module")
def fleet() -> Iterator[verl_workers.Fleet]:
    started = verl_workers.Fleet(2, 4, "actor_wg_backends")
    yield started
    started.stop()


def expect(rollout_wg: Any, step: int) -> None:
    wanted = verl_workers.digest(verl_workers.weights_at(step))
    assert rollout_wg.digest() == [wanted] * rollout_wg.world_size


@pytest.mark.parametrize("rebuild_group", [False, True], ids=["kept", "rebuilt"])
@pytest.mark.parametrize(("actors", "rollouts"), [(2, 2), (1, 4)])
@pytest.mark.parametrize("backend", ["actor_wg_gloo", "actor_wg_shared_memory"])
def test_three_syncs(
    fleet: verl_workers.Fleet, backend: str, actors: int, rollouts: int, rebuild_group: bool
) -> None:
    config, actor_wg, rollout_wg, replicas = fleet.use(
        backend, actors, rollouts, rebuild_group=rebuild_group
    )
    manager = CheckpointEngineManager(config, actor_wg=actor_wg, replicas=replicas)
    for step in (1, 2):
        manager.update_weights(global_steps=step)
        expect(rollout_wg, step)

    async def awaited() -> None:
        await manager.update_weights(global_steps=3)

    asyncio.run(awaited())
    expect(rollout_wg, 3)


def test_the_chain_between_hosts(fleet: verl_workers.Fleet) -> None:
    config, actor_wg, rollout_wg, replicas = fleet.use("actor_wg_gloo", 1, 3, shared_memory=False)
    manager = CheckpointEngineManager(config, actor_wg=actor_wg, replicas=replicas)
    for step in (1, 2):
        manager.update_weights(global_steps=step)
        expect(rollout_wg, step)


def test_replicas_come_and_go(fleet: verl_workers.Fleet) -> None:
    config, actor_wg, rollout_wg, replicas = fleet.use("actor_wg_gloo", 1, 3)
    manager = CheckpointEngineManager(config, actor_wg=actor_wg, replicas=replicas[:1])
    manager.update_weights(global_steps=1)
    manager.add_replicas(replicas[1:])
    manager.update_weights(global_steps=2)
    expect(rollout_wg, 2)
    manager.remove_replicas(replicas[:2])
    manager.update_weights(global_steps=3)
    digests = rollout_wg.digest()
    assert digests[2] == verl_workers.digest(verl_workers.weights_at(3))
    assert digests[0] == digests[1] == verl_workers.digest(verl_workers.weights_at(2))
