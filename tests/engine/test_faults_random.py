"""Randomised kills under Ray: no replica is ever served with a mix of versions, and syncs go on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from actor_wg_engine import Deadlines, EngineError  # noqa: E402

REPLICAS = 3
DEADLINES = Deadlines(sync_s=20, connect_s=15, replica_s=10, settle_s=1, abort_s=2)
BOUND_S = 8.0  # from the kill to the end of the sync, on a busy machine


def weights(version):
    """Some 20 MB that differ in every element from one version to the next."""
    for index in range(20):
        yield f"w{index}", torch.full((262_144 + index,), float((version or 0) * 100 + index))


def in_place_adapter(backend, in_place):
    from actor_wg_engine.serving import WeightStore

    return WeightStore({name: tensor.clone() for name, tensor in weights(0)}) if in_place else None


class Siege:
    """A world in which something is killed in every sync."""

    def __init__(self, world, backend, in_place, seed, **kwargs):
        self.chance = random.Random(seed)
        self.world = world(
            backend,
            1,
            [1] * REPLICAS,
            weights=weights,
            adapter=in_place_adapter(backend, in_place),
            deadlines=DEADLINES,
            **kwargs,
        )
        self.version = 0
        self.ranks = REPLICAS
        self.wait_for_all()
        self.usual = self.sync()

    @property
    def manager(self):
        return self.world.manager

    def wait_for_all(self):
        """Wait until every process has imported what it needs: that is not part of a sync."""
        workers = [*self.world.actor_wg.workers, *self.world.rollouts]
        ray.get([worker.process_id.remote() for worker in workers], timeout=120)

    def sync(self):
        """One quiet sync; how long it took."""
        self.version += 1
        began = time.monotonic()
        self.manager.update_weights(global_steps=self.version)
        return time.monotonic() - began

    def kill_one(self):
        """Kill a worker at a random moment of a sync, and judge what is left."""
        source = self.chance.random() < 0.1
        replica = self.chance.choice(self.manager.replicas)
        victim = self.world.actor_wg.workers[0] if source else replica.workers[0]
        pid = ray.get(victim.process_id.remote(), timeout=30)
        self.version += 1
        after = self.chance.uniform(0, 1.1 * self.usual)
        error, seconds = asyncio.run(self._strike(pid, after))
        assert error is None or isinstance(error, EngineError), repr(error)
        assert seconds < BOUND_S, f"{seconds:.1f} s from the kill to the end: {error}"
        if error is not None:
            expected = "actor rank 0" if source else f"replica {replica.replica_rank}"
            assert expected in str(error), error
        self.judge(dead=None if source else replica)
        self.repair(None if source else replica)

    async def _strike(self, pid, after):
        task = asyncio.ensure_future(self.manager.update_weights(global_steps=self.version))
        await asyncio.wait([task], timeout=after)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        await asyncio.wait([task])
        return task.exception(), time.monotonic() - began

    def judge(self, dead):
        """Whatever is served holds exactly the old version or exactly the new one."""
        for replica in self.manager.replicas:
            label = f"replica {replica.replica_rank}"
            if replica is dead:
                continue
            if not replica.serving:
                assert label in self.manager.quarantined, f"{label} is not served, and not named"
                continue
            version = self.manager.versions[label]
            assert version in (self.version, self.version - 1), f"{label} serves {version}"
            wrong = ray.get(replica.workers[0].matches.remote(version, weights), timeout=30)
            assert wrong == [], f"{label} serves a mix: {wrong}"
            assert replica.cached

    def repair(self, dead):
        """Replace what was killed; the next sync must be right at once."""
        if dead is None:
            self.world.actor_wg = self.manager.actor_wg = self.world.spawn_actors(1)
        else:
            self.manager.remove_replicas([dead])
            self.manager.add_replicas([self.world.spawn_replica(self.ranks, 1)])
            self.ranks += 1
        self.wait_for_all()
        self.sync()
        assert self.world.wrong(self.version) == [[]] * REPLICAS
        assert self.manager.quarantined == {}
        assert all(replica.serving for replica in self.manager.replicas)


SETUPS = [("naive", False, {}), ("nccl", True, {}), ("nccl", False, {"shared_memory": False})]
IDS = ["naive-staged", "one-host-in-place", "chain-staged"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("backend", "in_place", "kwargs"), SETUPS, ids=IDS)
def test_a_few_random_kills(world, backend, in_place, kwargs):
    siege = Siege(world, backend, in_place, seed=11, **kwargs)
    for _ in range(4):
        siege.kill_one()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_random_kills(world):
    for turn, (backend, in_place, kwargs) in enumerate(SETUPS):
        siege = Siege(world, backend, in_place, seed=1000 + turn, **kwargs)
        for _ in range(68 if turn == 0 else 66):
            siege.kill_one()
        siege.world.close()
