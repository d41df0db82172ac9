"""Backend "naive": actor and rollout on one host, or in one process.

Between processes, buckets in shared memory (CPU) or CUDA IPC (one GPU). Within one process, without
any group, `send_weights` puts the weights down and `receive_weights` takes them up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from typing import Any

import torch

from actor_wg_engine import topology
from actor_wg_engine.bucket_engine import BucketEngine
from actor_wg_engine.contract import Capabilities, Kwargs, Weights
from actor_wg_engine.errors import EngineError, TopologyError
from actor_wg_engine.host import host_id
from actor_wg_engine.host_ring import HostRing, RingListener, RingReader
from actor_wg_engine.link import Link
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.relay import RelayLink
from actor_wg_engine.topology import Relay
from actor_wg_engine.waiting import AbortFlag, Deadline
from actor_wg_engine.wire import Stream

STAGING_BYTES = 4 << 20


@CheckpointEngineRegistry.register("naive")
class ColocatedCheckpointEngine(BucketEngine):
    """Hands weights over within one host; see the module.

    Args:
        bucket_size: upper bound of a bucket in bytes.
        is_master: this is the engine of actor rank 0.
        staging_bytes: the buckets are this large at most; what stays in the cache is fastest.
        **kwargs: as `BucketEngine`.
    """

    capabilities = Capabilities(
        devices=("cpu",),
        keeps_group=True,
        can_abort=True,
        survives_receiver_loss=True,
        one_host=True,
        in_place=True,
        carries_version=True,
    )

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        staging_bytes: int = STAGING_BYTES,
        **kwargs: Any,
    ) -> None:
        super().__init__(bucket_size, is_master, **kwargs)
        self._staging = min(bucket_size, staging_bytes)
        self._listener: RingListener | None = None
        self._put_down: Weights | None = None

    def describe(self) -> dict[str, Any]:
        """Name the host and the socket where readers connect."""
        if self._listener is None:
            self._listener = RingListener()
        return {"host": host_id(), "ring": self._listener.name}

    def withdraw(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Make the source the owner of the buckets and all rollout workers its readers.

        Raises:
            TopologyError: an empty world, or a rollout worker on another host than the source.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        entries = topology.members(actor_wg_world_size, metadata)
        for rank, entry in enumerate(entries):
            if entry["host"] != entries[0]["host"]:
                raise TopologyError(
                    f"rollout worker {rank - 1} is on host {entry['host']}, the source on "
                    f"{entries[0]['host']}; backend 'naive' needs one host: use 'nccl' across hosts"
                )
        common = topology.common_kwargs(entries)
        common["ring"] = [entries[0]["ring"]] * len(entries)
        return topology.spread(
            actor_wg_world_size, common, {**topology.outside(common), "ring": ""}
        )

    def connect(
        self,
        flag: AbortFlag,
        deadline: Deadline,
        *,
        rank: int,
        world_size: int,
        stream: Stream,
        ring: str,
    ) -> Link:
        """Wait for the readers, or connect to the owner."""
        if rank > 0:
            return RingReader(0, ring, rank, stream, flag, deadline)
        relay = Relay(readers=tuple(range(1, world_size)))
        memory = HostRing.open(self._listener, relay.readers, stream, self._staging, flag, deadline)
        return RelayLink(rank, relay, memory, None, None, flag)

    def send_weights(  # type: ignore[override]
        self, weights: Weights, global_steps: int | None = None
    ) -> Awaitable[dict[str, Any]]:
        """Send to the group; without one, put the weights down for `receive_weights`."""
        if self._thread is None:
            self._put_down = weights
            return _Nothing()
        return super().send_weights(weights, global_steps)

    def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Receive from the group; without one, take up what was put down, also with plain `for`."""
        if self._thread is not None:
            return super().receive_weights(global_steps)
        if self._put_down is None:
            raise EngineError("nothing to receive: call send_weights before, or build a group")
        weights, self._put_down = self._put_down, None
        return _Handover(weights)


class _Nothing(Awaitable[dict[str, Any]]):
    """What an in-process `send_weights` returns: awaiting it is allowed and not needed."""

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        yield from ()
        return {}


class _Handover(AsyncIterator[tuple[str, torch.Tensor]]):
    """Weights of the same process, for `for` and for `async for`."""

    def __init__(self, weights: Weights) -> None:
        self._iterator = iter(weights)

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._iterator

    async def __anext__(self) -> tuple[str, torch.Tensor]:
        for item in self._iterator:
            return item
        raise StopAsyncIteration
