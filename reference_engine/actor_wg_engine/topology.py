"""Pure: worlds and metadata -> one assignment per worker. No I/O, tested as tables.

Group ranks: the source (actor rank 0) is 0, the rollout workers follow from 1 in their order, and
all other actors are -1. Two shapes are offered: a ring, where each rank hands on to the next, and a
relay, where one leader per host feeds its host and hands on to the leader of the next host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from actor_wg_engine.contract import Kwargs
from actor_wg_engine.errors import TopologyError

T = TypeVar("T")

OUTSIDE = -1


@dataclass(frozen=True)
class Relay:
    """Where one group rank gets its buckets and whom it serves."""

    owner: int | None = None
    """Group rank on the same host whose buckets this rank reads; None for leaders."""
    upstream: int | None = None
    """Leader of the previous host; None for the source and for all who have an owner."""
    downstream: int | None = None
    """Leader of the next host."""
    readers: tuple[int, ...] = ()
    """Group ranks on the same host that read this rank's buckets."""
    behind: tuple[int, ...] = ()
    """All group ranks that are reached through `downstream`."""


def check_worlds(
    actor_wg_world_size: int, rollout_world_size: int, metadata: Sequence[Any]
) -> None:
    """Refuse worlds that cannot form a group.

    Raises:
        TopologyError: an empty world, or metadata of another length.
    """
    if actor_wg_world_size < 1:
        raise TopologyError(
            f"actor_wg_world_size is {actor_wg_world_size}; at least one actor must send"
        )
    if rollout_world_size < 1:
        raise TopologyError(
            f"rollout_world_size is {rollout_world_size}; add a replica before update_weights"
        )
    expected = actor_wg_world_size + rollout_world_size
    if len(metadata) != expected:
        raise TopologyError(
            f"metadata of {len(metadata)} workers for {actor_wg_world_size} actors and "
            f"{rollout_world_size} rollout workers; prepare must return one entry for each"
        )


def check_devices(metadata: Sequence[Mapping[str, Any]], what: str, hint: str = "") -> None:
    """Refuse two workers on one physical device, for transports that cannot serve that.

    Args:
        metadata: one mapping per group rank; its "device" is a unique id, or None on CPU. Where both
            have a true "shares_device", their transport can serve them.
        what: the transport, for the message.
        hint: what else can be done, for the message.

    Raises:
        TopologyError: naming both group ranks.
    """
    seen: dict[str, int] = {}
    for rank, entry in enumerate(metadata):
        device = entry.get("device")
        if device is None:
            continue
        other = seen.get(device)
        if other is not None and not (
            entry.get("shares_device") and metadata[other].get("shares_device")
        ):
            raise TopologyError(
                f"group ranks {other} and {rank} are both on device {device}; {what} needs one "
                "device per rank: give each worker its own, or use backend 'naive' on a shared one"
                + hint
            )
        seen[device] = rank


def group_ranks(actor_wg_world_size: int, rollout_world_size: int) -> tuple[list[int], list[int]]:
    """Return the group ranks of the actors and of the rollout workers."""
    actors = [0] + [OUTSIDE] * (actor_wg_world_size - 1)
    return actors, list(range(1, rollout_world_size + 1))


def members(actor_wg_world_size: int, metadata: Sequence[T]) -> list[T]:
    """Return the metadata of the group's members, indexed by group rank."""
    return [metadata[0], *metadata[actor_wg_world_size:]]


def ring(world_size: int) -> list[tuple[int | None, int | None]]:
    """Return (previous, next) of each group rank; the first has no previous, the last no next."""
    return [
        (rank - 1 if rank > 0 else None, rank + 1 if rank + 1 < world_size else None)
        for rank in range(world_size)
    ]


def relay(hosts: Sequence[str]) -> list[Relay]:
    """Assign one leader per host; the leaders form a chain in order of first appearance.

    Args:
        hosts: a name for the host of each group rank, the source first.
    """
    on_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        on_host.setdefault(host, []).append(rank)
    groups = list(on_host.values())
    result = [Relay() for _ in hosts]
    for position, ranks in enumerate(groups):
        leader, *readers = ranks
        result[leader] = Relay(
            upstream=groups[position - 1][0] if position else None,
            downstream=groups[position + 1][0] if position + 1 < len(groups) else None,
            readers=tuple(readers),
            behind=tuple(rank for later in groups[position + 1 :] for rank in later),
        )
        for reader in readers:
            result[reader] = Relay(owner=leader)
    return result


def spread(
    actor_wg_world_size: int, per_rank: Mapping[str, Sequence[Any]], outside: Mapping[str, Any]
) -> tuple[Kwargs, Kwargs]:
    """Turn values by group rank into the two dicts of lists that `build_topology` returns.

    Args:
        actor_wg_world_size: number of actor workers.
        per_rank: for each keyword, one value per group rank.
        outside: for each keyword, the value of the actors that are not in the group.
    """
    actors: Kwargs = {}
    rollouts: Kwargs = {}
    for key, values in per_rank.items():
        actors[key] = [values[0], *([outside[key]] * (actor_wg_world_size - 1))]
        rollouts[key] = list(values[1:])
    return actors, rollouts


def check_lists(kwargs: Mapping[str, object], world_size: int, who: str) -> None:
    """Refuse a topology whose lists do not have one entry per worker.

    Raises:
        TopologyError: naming the list.
    """
    for key, values in kwargs.items():
        if not isinstance(values, list) or len(values) != world_size:
            found = (
                f"a list of {len(values)}" if isinstance(values, list) else type(values).__name__
            )
            raise TopologyError(
                f"build_topology returned {found} for {key!r} of the {who}; "
                f"it must be a list with one entry for each of its {world_size} workers"
            )


def common_kwargs(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rank, world size, session and generation by group rank.

    The generation is the present one where every member reports that it is connected in the very
    place that it would get again; else it is the new one that the master offers.

    Args:
        entries: metadata of the members, the source first.

    Raises:
        TopologyError: the first actor is not the master.
    """
    world_size = len(entries)
    session, generation = entries[0].get("session"), entries[0].get("generation")
    if not session or generation is None:
        raise TopologyError(
            "the first actor is not the master; create the engine of actor rank 0 with is_master=True"
        )
    kept = entries[0].get("connected")
    if kept and all(
        list(entry.get("connected") or ()) == [session, kept[1], rank, world_size]
        for rank, entry in enumerate(entries)
    ):
        generation = kept[1]
    return {
        "rank": list(range(world_size)),
        "world_size": [world_size] * world_size,
        "session": [session] * world_size,
        "generation": [generation] * world_size,
    }


def outside(common: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return what the actors outside the group get for the keywords of `common_kwargs`."""
    return {key: OUTSIDE if key == "rank" else values[0] for key, values in common.items()}
