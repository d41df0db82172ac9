"""Real workers, real bytes: whatever the actors have, every rollout rank has after a sync."""

from __future__ import annotations

import asyncio

import pytest

BACKENDS = ["naive", "nccl"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("actors", "tp"), [(2, [1, 1]), (1, [2, 1, 1])])
@pytest.mark.parametrize("rebuild_group", [False, True])
def test_three_syncs_bring_every_byte_to_every_rollout_rank(
    world, backend, actors, tp, rebuild_group
):
    w = world(backend, actors, tp, rebuild_group=rebuild_group)
    for version in (1, 2, 3):
        w.manager.update_weights(global_steps=version)
        assert w.wrong(version) == [[]] * sum(tp)
        assert w.manager.versions == {f"replica {rank}": version for rank in range(len(tp))}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sync_can_be_awaited(world, backend):
    w = world(backend, 1, [1])

    async def main() -> None:
        await w.manager.update_weights(global_steps=1)
        await asyncio.gather(*(w.manager.update_weights(global_steps=v) for v in (2, 2, 3)))

    asyncio.run(main())
    assert w.wrong(3) == [[]]


@pytest.mark.parametrize("tp", [[1], [1, 1, 1]])
def test_workers_on_hosts_of_their_own_are_reached_by_a_chain(world, tp):
    w = world("nccl", 2, tp, shared_memory=False)
    for version in (1, 2, 3):
        w.manager.update_weights(global_steps=version)
        assert w.wrong(version) == [[]] * sum(tp)
