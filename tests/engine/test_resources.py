"""Over many syncs and rebuilds under Ray, no process holds more than it did after the first few."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

MIB = 1 << 20
M_MMAP_THRESHOLD = -3
GROWN = {"descriptors": 1, "threads": 1, "segments": 0, "resident": 5 * MIB}


def weights(version):
    """Some 8 MB, some of them in tensors larger than a bucket."""
    # Large tensors get pages of their own, given back when freed; what glibc hoards is not a leak.
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)
    for index in range(30):
        yield f"w{index}", torch.full((20_000 + index,), float(version or 0))
    yield "large", torch.full((1_500_000,), float(version or 0))


@dataclass(frozen=True)
class Held:
    """What a process holds, as the kernel counts it."""

    descriptors: int
    threads: int
    segments: int
    resident: int

    @classmethod
    def of(cls, pid: int) -> Held:
        folder = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        maps = (folder / "maps").read_text().splitlines()
        return cls(
            descriptors=len(list((folder / "fd").iterdir())),
            threads=int(status["Threads"]),
            segments=len({line.split()[4] for line in maps if "memfd:actor-wg" in line}),
            resident=int(status["VmRSS"].split()[0]) * 1024,
        )


def pids(world):
    workers = [*world.actor_wg.workers, *world.rollouts]
    return ray.get([worker.process_id.remote() for worker in workers], timeout=60)


def hold(world, first, syncs):
    """Sync many times; what the processes held before and after."""
    step = first
    for step in range(first + 1, first + 7):
        world.manager.update_weights(global_steps=step)
    assert world.wrong(step) == [[]] * len(world.rollouts)
    before = [Held.of(pid) for pid in pids(world)]
    for step in range(first + 7, first + 7 + syncs):
        world.manager.update_weights(global_steps=step)
    assert world.wrong(step) == [[]] * len(world.rollouts)
    after = [Held.of(pid) for pid in pids(world)]
    return before, after, step


def require_flat(before, after, what):
    for rank, (old, new) in enumerate(zip(before, after, strict=True)):
        for field, allowed in GROWN.items():
            was, now = getattr(old, field), getattr(new, field)
            assert now <= was + allowed, f"{what}, worker {rank}: {field} went from {was} to {now}"


def in_place():
    """A server that writes over its weights: what grows then is the engine's."""
    from actor_wg_engine.serving import WeightStore

    return WeightStore({name: tensor.clone() for name, tensor in weights(0)})


SETUPS = [("naive", {}), ("nccl", {}), ("nccl", {"shared_memory": False})]
IDS = ["naive", "one-host", "chain"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
@pytest.mark.parametrize(("rebuild", "syncs"), [(False, 25), (True, 15)], ids=["kept", "rebuilt"])
def test_a_few_syncs_are_flat(world, backend, kwargs, rebuild, syncs):
    w = world(
        backend, 1, [1, 1], weights=weights, adapter=in_place(), rebuild_group=rebuild, **kwargs
    )
    before, after, _ = hold(w, 0, syncs)
    require_flat(before, after, f"{syncs} syncs")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("backend", "kwargs"), SETUPS, ids=IDS)
@pytest.mark.parametrize(("rebuild", "syncs"), [(False, 200), (True, 100)], ids=["kept", "rebuilt"])
def test_many_syncs_are_flat(world, backend, kwargs, rebuild, syncs):
    w = world(
        backend, 1, [1, 1], weights=weights, adapter=in_place(), rebuild_group=rebuild, **kwargs
    )
    before, after, step = hold(w, 0, syncs // 2)
    require_flat(before, after, f"{syncs // 2} syncs")
    _, last, _ = hold(w, step, syncs // 2)
    require_flat(before, last, f"{syncs} syncs")
