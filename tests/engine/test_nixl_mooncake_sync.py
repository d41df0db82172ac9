"""NIXL and Mooncake between real Ray workers on CPU: every byte, several syncs, and a kill midway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import CheckpointEngineRegistry, SyncError  # noqa: E402
from actor_wg_engine.serving import WeightStore  # noqa: E402


def _backends():
    for name in ("nixl", "mooncake"):
        try:
            CheckpointEngineRegistry.new(name, bucket_size=1)
        except ImportError as error:
            yield pytest.param(name, marks=pytest.mark.skip(reason=str(error)))
        else:
            yield name


BACKENDS = list(_backends())
FATAL = 13


class Mortal(WeightStore):
    """A store whose process dies in the middle of version 13."""

    async def update_weights(self, weights, global_steps=None, wire_format="named_tensors"):
        async def dying():
            count = 0
            async for item in weights:
                count += 1
                if global_steps == FATAL and count == 9:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield item

        await super().update_weights(dying(), global_steps, wire_format)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("actors", "tp"), [(1, [1]), (2, [1, 1]), (1, [2, 1, 1])])
def test_several_syncs_bring_every_byte_to_every_rollout_rank(world, backend, actors, tp):
    w = world(backend, actors, tp)
    for version in (1, 2, 3, 4):
        w.manager.update_weights(global_steps=version)
        assert w.wrong(version) == [[]] * sum(tp)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "engine_kwargs",
    [
        {"rebuild_group": True},
        {"rebuild_group": True, "persistent": False},
        {"slots": 2, "staging_bytes": 64 << 10},
        {"staging_bytes": 1 << 20, "checksum": False},
    ],
    ids=["rebuilt", "freed", "two-small-slots", "unchecked"],
)
def test_the_bytes_do_not_depend_on_the_options(world, backend, engine_kwargs):
    w = world(backend, 1, [1, 1], **engine_kwargs)
    for version in (1, 2, 3):
        w.manager.update_weights(global_steps=version)
        assert w.wrong(version) == [[], []]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("victim", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_rollout_rank_killed_midway_ends_the_sync_and_the_next_one_is_right(
    world, backend, victim
):
    w = world(backend, 2, [1, 1, 1], staging_bytes=128 << 10)
    w.manager.update_weights(global_steps=1)
    doomed = w.replicas[victim]
    w.manager.remove_replicas([doomed])
    w.adapter = Mortal()
    replacement = w.spawn_replica(victim, 1)
    kept = [replica for replica in w.replicas if replica is not doomed]
    w.manager.remove_replicas(kept)
    w.manager.add_replicas([*kept[:victim], replacement, *kept[victim:]])
    w.manager.update_weights(global_steps=2)

    began = time.monotonic()
    with pytest.raises(SyncError) as failure:
        w.manager.update_weights(global_steps=FATAL)
    assert time.monotonic() - began < 10
    assert failure.value.failures

    w.manager.remove_replicas([replacement])
    w.manager.update_weights(global_steps=FATAL + 1)
    assert w.wrong(FATAL + 1) == [[], []]
    w.adapter = None
    w.manager.add_replicas([w.spawn_replica(victim, 1)])
    w.manager.update_weights(global_steps=FATAL + 2)
    assert w.wrong(FATAL + 2) == [[], [], []]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_that_used_the_package_exits_cleanly(backend):
    """NIXL's wheel and the system have a libnl each; with both loaded, a process crashed at its exit."""
    program = (
        "from actor_wg_engine import CheckpointEngineRegistry\n"
        f"engine = CheckpointEngineRegistry.new({backend!r}, bucket_size=1 << 20)\n"
        "engine.prepare()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
