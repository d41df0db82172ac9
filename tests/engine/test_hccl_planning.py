"""The hccl backend where there is no Ascend: it plans like nccl, and refuses to run with the reason."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import CheckpointEngineRegistry  # noqa: E402
from actor_wg_engine.errors import EngineError, TopologyError  # noqa: E402

pytestmark = pytest.mark.skipif(hasattr(torch, "npu"), reason="this machine has an Ascend NPU")


def member(index, *, master=False, device=None, kind="npu"):
    return {
        "session": "cd" * 16 if master else None,
        "generation": 5 if master else 0,
        "connected": None,
        "host": f"host-{index // 2}",
        "ring": f"ring-{index}",
        "store": ["127.0.0.1", 4000] if master else None,
        "device_type": kind,
        "device": device or f"npu-{index}",
    }


def world(count):
    return [member(index, master=index == 0) for index in range(count)]


def plan(actors, rollouts, metadata):
    return CheckpointEngineRegistry.get("hccl").build_topology(actors, rollouts, metadata)


@pytest.mark.parametrize(("actors", "rollouts"), [(1, 1), (1, 4), (2, 2), (8, 30)])
def test_one_source_and_all_rollouts_are_in_the_group(actors, rollouts):
    sending, receiving = plan(actors, rollouts, world(actors + rollouts))
    assert sending["rank"] == [0] + [-1] * (actors - 1)
    assert receiving["rank"] == list(range(1, rollouts + 1))
    assert {*sending["world_size"], *receiving["world_size"]} == {rollouts + 1}
    assert {*sending["generation"], *receiving["generation"]} == {5}
    for kwargs, size in ((sending, actors), (receiving, rollouts)):
        assert all(isinstance(v, list) and len(v) == size for v in kwargs.values())


def test_the_collective_library_finds_its_own_way_between_hosts():
    _, receiving = plan(1, 4, world(5))
    for relay in receiving["relay"]:
        assert (relay.owner, relay.upstream, relay.downstream, relay.readers) == (
            None,
            None,
            None,
            (),
        )


def test_two_ranks_on_one_device_are_refused_by_name():
    metadata = world(3)
    metadata[2] = member(2, device="npu-1")
    with pytest.raises(TopologyError, match="group ranks 1 and 2 are both on device npu-1"):
        plan(1, 2, metadata)


def test_a_worker_on_another_kind_of_device_is_refused():
    metadata = world(3)
    metadata[1] = member(1, kind="cpu")
    with pytest.raises(TopologyError, match="cpu and npu"):
        plan(1, 2, metadata)


def test_a_world_without_rollouts_is_refused():
    with pytest.raises(TopologyError, match="add a replica"):
        plan(2, 0, world(2))


@pytest.mark.parametrize("is_master", [True, False])
def test_preparing_here_is_refused_with_what_is_missing_and_what_to_use(is_master):
    engine = CheckpointEngineRegistry.new("hccl", bucket_size=1024, is_master=is_master)
    with pytest.raises(EngineError, match=r"Ascend NPU and the package torch_npu.*use 'nccl'"):
        engine.prepare()
    engine.finalize()
    assert engine.status()["state"] == "idle"
