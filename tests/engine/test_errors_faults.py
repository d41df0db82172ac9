"""Faults in real processes: bounded time, a clear error, no mix of versions, and the next sync works."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from pathlib import Path

import pytest

from actor_wg_engine import Deadlines, EngineError, SyncError
from actor_wg_engine.serving import WeightStore

torch = pytest.importorskip("torch")

SETUPS = [
    ("naive", {}),
    ("nccl", {}),
    ("nccl", {"shared_memory": False}),
]
IDS = ["naive", "gloo-one-host", "gloo-chain"]


class Gated:
    """Weights that stop in the middle: they report through one pipe and go on through another."""

    def __init__(self, folder: Path, *, stop_at: int = 6) -> None:
        self.paths = [str(folder / "reached"), str(folder / "proceed")]
        self.stop_at = stop_at
        for path in self.paths:
            os.mkfifo(path)
        # Open at both ends, so that neither side waits for the other to come.
        self.reached, self.proceed = (os.open(path, os.O_RDWR) for path in self.paths)

    def __getstate__(self):
        return {"paths": self.paths, "stop_at": self.stop_at}

    def __call__(self, version):
        for index in range(12):
            if index == self.stop_at and (version or 0) % 10 == 0:
                Path(self.paths[0]).write_text("x")
                with Path(self.paths[1]).open("rb", buffering=0) as pipe:
                    pipe.read(1)
            yield f"w{index}", torch.full((300_000 + index,), float(version or 0))

    def wait(self) -> None:
        ready, _, _ = select.select([self.reached], [], [], 60)
        assert ready, "the weights were not asked for"
        os.read(self.reached, 1)

    def go(self) -> None:
        os.write(self.proceed, b"xx")


class Raising:
    """Weights whose generator raises in the version 10."""

    def __call__(self, version):
        for index in range(12):
            if version == 10 and index == 7:
                raise RuntimeError("the optimizer is on fire")
            yield f"w{index}", torch.full((300_000 + index,), float(version or 0))


def run_and(manager, version, meanwhile, **kwargs):
    """Start a sync, do something in the middle of it, and return its error and how long it took."""
    result = {}

    def target():
        try:
            manager.update_weights(global_steps=version, **kwargs)
        except (EngineError, ValueError) as error:
            result["error"] = error

    thread = threading.Thread(target=target)
    thread.start()
    meanwhile()
    began = time.monotonic()
    thread.join(60)
    assert not thread.is_alive()
    return result.get("error"), time.monotonic() - began


@pytest.fixture(params=SETUPS, ids=IDS)
def three(request, world, tmp_path):
    backend, kwargs = request.param
    gate = Gated(tmp_path)
    w = world(backend, 2, [1, 1, 1], weights=gate, **kwargs)
    w.gate = gate
    w.manager.update_weights(global_steps=1)
    return w


def check_restored(w, dead=()):
    for replica in w.manager.replicas:
        if replica.replica_rank not in dead:
            assert replica.serving, replica.replica_rank
            assert replica.cached, replica.replica_rank


def check_whole(w, versions, dead=()):
    """Each survivor holds exactly one of the versions."""
    for replica in w.manager.replicas:
        if replica.replica_rank in dead:
            continue
        label = f"replica {replica.replica_rank}"
        version = w.manager.versions[label]
        assert version in versions
        import ray

        assert ray.get(replica.workers[0].matches.remote(version, steady), timeout=60) == []


def replace_dead(w, rank):
    gone = next(r for r in w.manager.replicas if r.replica_rank == rank)
    w.manager.remove_replicas([gone])
    w.manager.add_replicas([w.spawn_replica(rank, 1)])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rollout_killed_in_the_middle_is_named_and_the_others_go_on(three, rank):
    w = three
    pid = w.pids()[rank]

    def meanwhile():
        w.gate.wait()
        os.kill(pid, signal.SIGKILL)
        w.gate.go()

    error, seconds = run_and(w.manager, 10, meanwhile)
    assert isinstance(error, SyncError)
    assert f"replica {rank} rank 0: its process died" in str(error)
    assert seconds < 5
    assert list(w.manager.quarantined) == [f"replica {rank}"]
    check_restored(w, dead=[rank])
    check_whole(w, (1, 10), dead=[rank])
    replace_dead(w, rank)
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], [], []]
    assert w.manager.quarantined == {}


def test_a_rollout_killed_before_a_sync_is_passed_over_afterwards(three):
    w = three
    os.kill(w.pids()[1], signal.SIGKILL)
    with pytest.raises(SyncError, match="replica 1 rank 0: its process died"):
        w.manager.update_weights(global_steps=2)
    check_restored(w, dead=[1])
    check_whole(w, (1, 2), dead=[1])
    w.manager.update_weights(global_steps=3)
    assert w.manager.versions == {"replica 0": 3, "replica 1": 1, "replica 2": 3}
    check_whole(w, (3,), dead=[1])


def test_a_killed_source_leaves_all_replicas_at_the_old_version(three):
    import ray

    w = three
    pid = ray.get(w.actor_wg.workers[0].process_id.remote())

    def meanwhile():
        w.gate.wait()
        os.kill(pid, signal.SIGKILL)

    error, seconds = run_and(w.manager, 10, meanwhile)
    assert isinstance(error, SyncError)
    assert "actor rank 0: its process died" in str(error)
    assert seconds < 5
    assert w.manager.quarantined == {}
    check_restored(w)
    check_whole(w, (1,))
    w.actor_wg = w.manager.actor_wg = w.spawn_actors(2)
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], [], []]


def test_a_cancelled_sync_frees_everything(three):
    w = three

    async def main():
        task = asyncio.create_task(w.manager.update_weights(global_steps=10))
        await asyncio.to_thread(w.gate.wait)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    assert asyncio.run(main()) < 5
    w.gate.go()
    assert w.manager.quarantined == {}
    check_restored(w)
    check_whole(w, (1,))
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], [], []]


def test_a_frozen_rollout_runs_into_the_deadline(three):
    w = three
    pid = w.pids()[1]
    try:
        error, seconds = run_and(w.manager, 2, lambda: os.kill(pid, signal.SIGSTOP), timeout_s=2.0)
        if error is None:  # it was done before it could be frozen
            error, seconds = run_and(w.manager, 3, lambda: None, timeout_s=2.0)
        assert isinstance(error, SyncError)
        assert "replica 1 rank 0" in str(error)
        assert seconds < 10
        assert "replica 1" in w.manager.quarantined
        check_restored(w, dead=[1])
    finally:
        os.kill(pid, signal.SIGCONT)
    w.manager.update_weights(global_steps=4)
    assert w.wrong(4) == [[], [], []]
    assert w.manager.quarantined == {}


@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
def test_a_generator_that_raises_fails_both_sides(world, backend, kwargs):
    w = world(backend, 2, [1, 1], weights=Raising(), **kwargs)
    w.manager.update_weights(global_steps=1)
    with pytest.raises(SyncError, match="the optimizer is on fire"):
        w.manager.update_weights(global_steps=10)
    check_restored(w)
    check_whole(w, (1,))
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], []]


class Picky:
    """An adapter that refuses version 10 after a few tensors, and keeps the old one."""

    def __init__(self):
        self.weights = {}
        self._new = {}

    async def update_weights(self, weights, global_steps=None, wire_format="named_tensors"):
        self._new = {}
        async for name, tensor in weights:
            if global_steps == 10 and len(self._new) == 3 and self.picky():
                raise ValueError("no room for this tensor")
            self._new[name] = tensor

    def picky(self):
        return os.environ.get("AWG_TEST_RANK") != "0"

    def commit_update(self, global_steps=None):
        self.weights = self._new

    def discard_update(self):
        self._new = {}


@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
def test_a_consumer_that_raises_fails_alone(world, backend, kwargs):
    w = world(backend, 1, [1], weights=Raising().__class__(), adapter=Picky(), **kwargs)
    w.adapter = None
    w.manager.add_replicas([w.spawn_replica(1, 1), w.spawn_replica(2, 1)])
    w.weights = steady
    w.manager.actor_wg = w.actor_wg = w.spawn_actors(1)
    w.manager.update_weights(global_steps=1)
    with pytest.raises(SyncError, match="replica 0 rank 0: ValueError: no room") as caught:
        w.manager.update_weights(global_steps=10)
    assert caught.value.committed == ("replica 1", "replica 2")
    assert w.manager.versions == {"replica 0": 1, "replica 1": 10, "replica 2": 10}
    check_restored(w)
    check_whole(w, (1, 10))
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], [], []]


def steady(version):
    for index in range(12):
        yield f"w{index}", torch.full((300_000 + index,), float(version or 0))


@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
def test_a_rendezvous_that_never_completes_ends_with_the_deadline(world, backend, kwargs):
    deadlines = Deadlines(connect_s=3, sync_s=20, replica_s=10)
    w = world(backend, 1, [1, 1], deadlines=deadlines, **kwargs)
    pid = w.pids()[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(SyncError, match="replica 1 rank 0"):
            w.manager.update_weights(global_steps=1)
        assert time.monotonic() - began < 12
    finally:
        os.kill(pid, signal.SIGCONT)
    w.manager.update_weights(global_steps=2)
    assert w.wrong(2) == [[], []]


@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
def test_a_replica_that_was_overwritten_in_part_is_not_served_until_the_next_sync(
    world, backend, kwargs
):
    parameters = {name: torch.zeros_like(tensor) for name, tensor in steady(0)}
    adapter = WeightStore(parameters)
    w = world(backend, 1, [1, 1], weights=Raising(), adapter=adapter, **kwargs)
    w.manager.update_weights(global_steps=1)
    assert w.wrong(1) == [[], []]
    with pytest.raises(SyncError, match="the optimizer is on fire"):
        w.manager.update_weights(global_steps=10)
    assert sorted(w.manager.quarantined) == ["replica 0", "replica 1"]
    assert not any(replica.serving for replica in w.replicas)
    w.manager.update_weights(global_steps=11)
    assert w.wrong(11) == [[], []]
    assert w.manager.quarantined == {}
    check_restored(w)
