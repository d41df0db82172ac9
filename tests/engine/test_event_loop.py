"""While 256 MiB move, no event loop stands still: not the driver's, not the workers'."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from actor_wg_engine import CheckpointEngineWorker, WorkerGroup  # noqa: E402
from actor_wg_engine.worker import ActorWorker  # noqa: E402

GAP_S = 0.05
TICK_S = 0.01
STARVED_S = 0.02
ATTEMPTS = 4


class Ticker:
    """Measures how much later than due a 10 ms timer of an event loop comes, at worst."""

    def __init__(self):
        self.gap = 0.0
        self.last = time.monotonic()
        self.task = asyncio.ensure_future(self.run())

    async def run(self):
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.gap = max(self.gap, now - self.last - TICK_S)
            self.last = now

    def stop(self):
        self.task.cancel()
        return max(self.gap, time.monotonic() - self.last - TICK_S)


class Ticking:
    """What is added to the workers: a ticker in their event loop."""

    async def start_ticker(self):
        self.ticker = Ticker()

    async def stop_ticker(self):
        return self.ticker.stop()


class TickingActor(Ticking, ActorWorker):
    """An actor with a ticker."""


class Idle(Ticking):
    """A process that does nothing: its gap is the machine's own."""


class Sink:
    """A server that takes the weights and drops them."""

    async def update_weights(self, weights, global_steps=None, **_):
        async for _name, _tensor in weights:
            pass


class _Config:
    def __init__(self, checkpoint_engine):
        self.checkpoint_engine = checkpoint_engine


class TickingRollout(Ticking, CheckpointEngineWorker):
    """A rollout worker with a ticker."""

    def __init__(self, config):
        super().__init__(_Config(config), None, Sink())


def weights(version):
    """256 MiB."""
    for index in range(64):
        yield f"w{index}", torch.full((1 << 20,), float(index), dtype=torch.float32)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("backend", "kwargs"),
    [("naive", {}), ("nccl", {}), ("nccl", {"shared_memory": False})],
    ids=["naive", "one-host", "chain"],
)
def test_no_event_loop_stands_still(world, backend, kwargs):
    w = world(backend, 1, [1], weights=weights, bucket_megabytes=4, **kwargs)
    actors = [{"config": w.config, "weights": weights, "is_master": True}]
    w.actor_wg = w.manager.actor_wg = WorkerGroup.spawn(TickingActor, actors, **w.options)
    rollouts = WorkerGroup.spawn(TickingRollout, [{"config": w.config}], **w.options)
    w.replicas[0].workers = rollouts.workers
    idle = WorkerGroup.spawn(Idle, [{}], **w.options)
    w.manager.update_weights(global_steps=1)
    everyone = [*w.actor_wg.workers, *rollouts.workers, *idle.workers]

    async def measured(step):
        await asyncio.gather(*[worker.start_ticker.remote() for worker in everyone])
        own = Ticker()
        await w.manager.update_weights(global_steps=step)
        gap = own.stop()
        gaps = await asyncio.gather(*[worker.stop_ticker.remote() for worker in everyone])
        return {"driver": gap, "actor": gaps[0], "rollout": gaps[1]}, gaps[2]

    machine, gaps = 1.0, {}
    for attempt in range(ATTEMPTS):
        gaps, machine = asyncio.run(measured(attempt + 2))
        if max(gaps.values()) < GAP_S:
            return
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    if machine > STARVED_S or load > 2 * cores:
        pytest.skip(
            f"a starved machine: an idle process stood still for {machine:.3f} s, load {load:.0f}"
        )
    pytest.fail(f"largest gaps {gaps}; an idle process had {machine:.3f}")


def test_the_ticker_sees_a_blocked_loop():
    async def blocked():
        ticker = Ticker()
        await asyncio.sleep(0.03)
        with Path("/dev/zero").open("rb") as source:
            began = time.monotonic()
            while time.monotonic() - began < 0.2:
                source.read(1 << 20)
        return ticker.stop()

    assert asyncio.run(blocked()) > 0.15
