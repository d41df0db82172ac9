"""What the ring backends plan without their packages, and what they say when these are missing."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

pytest.importorskip("torch")

from actor_wg_engine import CheckpointEngineRegistry
from actor_wg_engine.errors import TopologyError

BACKENDS = ["nixl", "mooncake"]


def member(transport, name, *, master=False, slots=(4, 1024)):
    return {
        "transport": transport,
        "slots": list(slots),
        "session": "ab" * 16 if master else None,
        "generation": 3 if master else 0,
        "connected": None,
        "host": "127.0.0.1",
        "port": 1,
        "token": "t",
        "device": None,
        "station": {"name": name},
    }


def world(transport, actors, rollouts):
    return [member(transport, f"a{i}", master=i == 0) for i in range(actors)] + [
        member(transport, f"r{i}") for i in range(rollouts)
    ]


def names(workers):
    return [None if worker is None else worker["station"]["name"] for worker in workers]


@pytest.mark.parametrize("transport", BACKENDS)
@pytest.mark.parametrize(
    ("actors", "rollouts", "prev", "following"),
    [
        (1, 1, (["a0"]), (["r0"], [None])),
        (2, 1, (["a0"]), (["r0", None], [None])),
        (1, 2, (["a0", "r0"]), (["r0"], ["r1", None])),
        (3, 4, (["a0", "r0", "r1", "r2"]), (["r0", None, None], ["r1", "r2", "r3", None])),
    ],
)
def test_each_rank_gets_its_two_neighbors(transport, actors, rollouts, prev, following):
    cls = CheckpointEngineRegistry.get(transport)
    actor_kwargs, rollout_kwargs = cls.build_topology(
        actors, rollouts, world(transport, actors, rollouts)
    )
    assert actor_kwargs["rank"] == [0] + [-1] * (actors - 1)
    assert rollout_kwargs["rank"] == list(range(1, rollouts + 1))
    assert names(actor_kwargs["prev_worker"]) == [None] * actors
    assert names(rollout_kwargs["prev_worker"]) == prev
    assert names(actor_kwargs["next_worker"]) == following[0]
    assert names(rollout_kwargs["next_worker"]) == following[1]
    assert {*actor_kwargs["generation"], *rollout_kwargs["generation"]} == {3}


@pytest.mark.parametrize("transport", BACKENDS)
def test_a_world_without_rollouts_is_refused(transport):
    with pytest.raises(TopologyError, match="add a replica"):
        CheckpointEngineRegistry.get(transport).build_topology(2, 0, world(transport, 2, 0))


@pytest.mark.parametrize("transport", BACKENDS)
@pytest.mark.parametrize(
    ("change", "text"),
    [({"slots": [4, 2048]}, "slots"), ({"transport": "other"}, "transport")],
)
def test_workers_that_do_not_fit_together_are_named(transport, change, text):
    metadata = world(transport, 1, 3)
    metadata[2].update(change)
    with pytest.raises(TopologyError, match=f"group rank 2 has {text}"):
        CheckpointEngineRegistry.get(transport).build_topology(1, 3, metadata)


@pytest.mark.parametrize(
    ("backend", "install"),
    [
        ("nixl", "pip install --no-deps nixl-cu12"),
        ("mooncake", "pip install mooncake-transfer-engine"),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, backend, install):
    cls = CheckpointEngineRegistry.get(backend)
    find_spec = importlib.util.find_spec

    def nowhere(name, package=None):
        return None if name.split(".")[0].startswith(backend) else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    with pytest.raises(ImportError, match=install):
        cls(bucket_size=1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrong", [{"slots": 1}, {"staging_bytes": 0}])
def test_sizes_that_cannot_work_are_refused(backend, wrong):
    with pytest.raises(ValueError, match="at least"):
        CheckpointEngineRegistry.get(backend)(bucket_size=1024, **wrong)


def test_planning_loads_neither_package():
    for backend in BACKENDS:
        module = importlib.import_module(CheckpointEngineRegistry.get(backend).__module__)
        loaded = {
            value.__name__.split(".")[0]
            for value in vars(module).values()
            if hasattr(value, "__spec__")
        }
        assert loaded.isdisjoint({"nixl", "nixl_cu12", "nixl_cu13", "mooncake"})
