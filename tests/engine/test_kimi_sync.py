"""The kimi_ckpt_engine backend: who sends which share to whom, and every byte over other backends."""

from __future__ import annotations

import asyncio
import itertools

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import CheckpointEngineRegistry, SyncError  # noqa: E402
from actor_wg_engine.errors import EngineError, TopologyError  # noqa: E402

KIMI = "kimi_ckpt_engine"


def world_metadata(actors, rollouts, shares=2):
    engines = [
        CheckpointEngineRegistry.new(KIMI, bucket_size=1024, shares=shares)
        for _ in range(actors + rollouts)
    ]
    metadata = [engine.prepare() for engine in engines]
    for engine in engines:
        engine.finalize()
    return metadata


@pytest.mark.parametrize(
    ("actors", "rollouts", "shares", "owners", "first"),
    [
        (1, 1, 1, [[0]], [0]),
        (1, 1, 2, [[0, 1]], [0, 0]),
        (2, 2, 2, [[0], [1]], [0, 1]),
        (3, 2, 2, [[0], [1], []], [0, 1]),
        (2, 3, 5, [[0, 2, 4], [1, 3]], [0, 1, 2, 0, 1]),
    ],
)
def test_shares_are_dealt_to_actors_and_first_rollout_ranks_in_turn(
    actors, rollouts, shares, owners, first
):
    cls = CheckpointEngineRegistry.get(KIMI)
    sending, receiving = cls.build_topology(
        actors, rollouts, world_metadata(actors, rollouts, shares)
    )
    members = sum(1 for owned in owners if owned)
    assert sending["rank"] == [*range(members), *[-1] * (actors - members)]
    assert receiving["rank"] == list(range(members, members + rollouts))
    owned = [
        [share for share, group in enumerate(groups) if group is not None]
        for groups in sending["groups"]
    ]
    assert owned == owners
    for groups, share in itertools.product(sending["groups"], range(shares)):
        assert groups[share] is None or groups[share]["rank"] == 0
    for share in range(shares):
        ranks = [groups[share]["rank"] for groups in receiving["groups"]]
        assert sorted(ranks) == list(range(1, rollouts + 1))
        assert ranks.index(1) == first[share]


def test_a_world_without_rollouts_is_refused():
    with pytest.raises(TopologyError, match="add a replica"):
        CheckpointEngineRegistry.get(KIMI).build_topology(1, 0, world_metadata(1, 0))


def test_workers_with_other_shares_are_refused():
    metadata = world_metadata(1, 1, 2) + world_metadata(0, 1, 3)
    with pytest.raises(TopologyError, match="worker 2 moves 3 shares"):
        CheckpointEngineRegistry.get(KIMI).build_topology(1, 2, metadata)


@pytest.mark.parametrize("wrong", [{"shares": 0}, {"transport": KIMI}, {"transport": "pigeons"}])
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"shares=|pigeons"):
        CheckpointEngineRegistry.new(KIMI, bucket_size=1024, **wrong)


def test_sending_without_a_group_is_an_error():
    engine = CheckpointEngineRegistry.new(KIMI, bucket_size=1024)
    with pytest.raises(EngineError, match="before init_process_group"):
        asyncio.run(engine.send_weights(iter([])))


def _usable(transport):
    try:
        CheckpointEngineRegistry.new(transport, bucket_size=1)
    except ImportError as error:
        return pytest.param(transport, marks=pytest.mark.skip(reason=str(error)))
    return transport


@pytest.mark.parametrize("transport", ["nccl", _usable("nixl"), _usable("mooncake")])
@pytest.mark.parametrize(("actors", "tp"), [(1, [1]), (2, [1, 1]), (3, [2, 1])])
def test_several_syncs_bring_every_byte_to_every_rollout_rank(world, transport, actors, tp):
    w = world(KIMI, actors, tp, transport=transport)
    for version in (1, 2, 3):
        w.manager.update_weights(global_steps=version)
        assert w.wrong(version) == [[]] * sum(tp)


class Failing:
    """Weights that cannot be produced in version 2."""

    def __call__(self, version):
        yield "first", torch.full((1000,), float(version))
        if version == 2:
            raise RuntimeError("the shard is unreadable")
        yield "second", torch.full((2000,), float(version))


def test_a_generator_that_raises_is_reported_and_the_next_sync_is_right(world):
    w = world(KIMI, 2, [1, 1], weights=Failing())
    w.manager.update_weights(global_steps=1)
    with pytest.raises(SyncError, match="the shard is unreadable"):
        w.manager.update_weights(global_steps=2)
    w.manager.update_weights(global_steps=3)
    assert w.wrong(3) == [[], []]
