"""Planning is pure: tables of worlds and what becomes of them."""

from __future__ import annotations

import pytest

from actor_wg_engine import topology
from actor_wg_engine.errors import TopologyError
from actor_wg_engine.topology import Relay
from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
from actor_wg_engine.transports.torch_distributed import (
    HCCLCheckpointEngine,
    TorchDistributedCheckpointEngine,
)

ENGINES = [ColocatedCheckpointEngine, TorchDistributedCheckpointEngine, HCCLCheckpointEngine]


def metadata(actors, rollouts, hosts=None, devices=None, connected=None):
    count = actors + rollouts
    return [
        {
            "session": "ab" * 16 if index == 0 else None,
            "generation": 5 if index == 0 else 0,
            "connected": connected(index) if connected else None,
            "host": hosts[index] if hosts else "h",
            "ring": f"ring-{index}",
            "store": ["127.0.0.1", 1] if index == 0 else None,
            "device_type": "cuda" if devices else "cpu",
            "device": devices[index] if devices else None,
        }
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("hosts", "due"),
    [
        ("a", [Relay()]),
        ("aa", [Relay(readers=(1,)), Relay(owner=0)]),
        ("ab", [Relay(downstream=1, behind=(1,)), Relay(upstream=0)]),
        (
            "abab",
            [
                Relay(downstream=1, readers=(2,), behind=(1, 3)),
                Relay(upstream=0, readers=(3,)),
                Relay(owner=0),
                Relay(owner=1),
            ],
        ),
        (
            "abc",
            [
                Relay(downstream=1, behind=(1, 2)),
                Relay(upstream=0, downstream=2, behind=(2,)),
                Relay(upstream=1),
            ],
        ),
    ],
)
def test_one_leader_per_host_and_a_chain_of_leaders(hosts, due):
    assert topology.relay(list(hosts)) == due


@pytest.mark.parametrize("size", [1, 2, 3, 30])
def test_a_ring_is_one_chain(size):
    ring = topology.ring(size)
    assert ring[0][0] is None
    assert ring[-1][1] is None
    for rank, (_, following) in enumerate(ring[:-1]):
        assert following == rank + 1
        assert ring[following][0] == rank


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("actors", [1, 2, 8])
@pytest.mark.parametrize("rollouts", [1, 2, 3, 8, 30])
def test_every_list_is_as_long_as_its_group_and_ranks_are_contiguous(engine, actors, rollouts):
    entries = metadata(actors, rollouts)
    before = repr(entries)
    to_actors, to_rollouts = engine.build_topology(actors, rollouts, entries)
    assert {len(values) for values in to_actors.values()} == {actors}
    assert {len(values) for values in to_rollouts.values()} == {rollouts}
    ranks = [rank for rank in to_actors["rank"] + to_rollouts["rank"] if rank >= 0]
    assert ranks == list(range(rollouts + 1))
    assert to_actors["rank"][1:] == [-1] * (actors - 1)
    assert set(to_actors["world_size"] + to_rollouts["world_size"]) == {rollouts + 1}
    assert repr(entries) == before
    assert engine.build_topology(actors, rollouts, entries) == (to_actors, to_rollouts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("actors", "rollouts", "entries", "message"),
    [
        (1, 0, 1, "rollout_world_size is 0; add a replica"),
        (0, 1, 1, "at least one actor must send"),
        (1, 2, 2, "metadata of 2 workers for 1 actors and 2 rollout workers"),
    ],
)
def test_worlds_that_do_not_fit_are_refused(engine, actors, rollouts, entries, message):
    with pytest.raises(TopologyError, match=message):
        engine.build_topology(actors, rollouts, metadata(1, entries - 1))


def test_a_first_actor_that_is_not_the_master_is_refused():
    entries = metadata(1, 1)
    entries[0]["session"] = None
    with pytest.raises(TopologyError, match="is_master=True"):
        ColocatedCheckpointEngine.build_topology(1, 1, entries)


def test_naive_refuses_a_second_host_and_names_it():
    entries = metadata(1, 2, hosts=["a", "a", "b"])
    with pytest.raises(TopologyError, match="rollout worker 1 is on host b"):
        ColocatedCheckpointEngine.build_topology(1, 2, entries)


def test_two_ranks_on_one_gpu_are_named():
    entries = metadata(1, 2, devices=["GPU-1", "GPU-2", "GPU-1"])
    with pytest.raises(TopologyError, match="group ranks 0 and 2 are both on device GPU-1"):
        TorchDistributedCheckpointEngine.build_topology(1, 2, entries)


def test_mixed_device_types_are_refused():
    entries = metadata(1, 1)
    entries[1]["device_type"] = "cuda"
    with pytest.raises(TopologyError, match="cpu and cuda"):
        TorchDistributedCheckpointEngine.build_topology(1, 1, entries)


@pytest.mark.parametrize(
    ("connected", "generation"),
    [
        (lambda index: ["ab" * 16, 4, index, 3], 4),
        (lambda index: ["ab" * 16, 4, index, 3] if index != 2 else None, 5),
        (lambda index: ["ab" * 16, 4, 3 - index, 3], 5),
        (lambda index: ["cd" * 16, 4, index, 3], 5),
        (lambda index: None, 5),
    ],
)
def test_a_group_is_kept_only_if_all_members_have_it(connected, generation):
    entries = metadata(1, 2, connected=connected)
    actors, rollouts = ColocatedCheckpointEngine.build_topology(1, 2, entries)
    assert set(actors["generation"] + rollouts["generation"]) == {generation}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rank": [0]}, "a list of 1 for 'rank' of the rollout workers"),
        ({"rank": (0, 1)}, "tuple for 'rank'"),
        ({"rank": [0, 1], "peer": [1, 2, 3]}, "a list of 3 for 'peer'"),
    ],
)
def test_lists_of_a_wrong_length_are_named(kwargs, message):
    with pytest.raises(TopologyError, match=message.replace("(", r"\(")):
        topology.check_lists(kwargs, 2, "rollout workers")


def test_lists_of_the_right_length_pass():
    topology.check_lists({"rank": [0, 1]}, 2, "rollout workers")
