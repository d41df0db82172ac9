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
from actor_wg_engine.host import device_id, host_id
from actor_wg_engine.host_ring import SLOTS, HostRing, RingListener, RingReader
from actor_wg_engine.link import Link
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.relay import RelayLink
from actor_wg_engine.ring_memory import Memory
from actor_wg_engine.topology import Relay
from actor_wg_engine.waiting import AbortFlag, Deadline
from actor_wg_engine.wire import Stream

#: On a CPU what stays in the cache is fastest; on a GPU few large buckets are.
STAGING_BYTES = {"cpu": 4 << 20, "cuda": 64 << 20}
_SLOTS = {"cpu": SLOTS, "cuda": 2}


@CheckpointEngineRegistry.register("naive")
class ColocatedCheckpointEngine(BucketEngine):
    """Hands weights over within one host; see the module.

    Args:
        bucket_size: upper bound of a bucket in bytes.
        is_master: this is the engine of actor rank 0.
        device: where the buckets are, "cpu" or "cuda"; by default on a GPU where there is one.
        staging_bytes: the buckets are this large at most; see `STAGING_BYTES`.
        **kwargs: as `BucketEngine`.

    Raises:
        ValueError: a size that makes no sense, or another device.
    """

    capabilities = Capabilities(
        devices=("cpu", "cuda"),
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
        device: str | None = None,
        staging_bytes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bucket_size, is_master, **kwargs)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type not in STAGING_BYTES:
            raise ValueError(f"device is {device!r}; backend 'naive' knows 'cpu' and 'cuda'")
        self._staging = min(bucket_size, staging_bytes or STAGING_BYTES[self.device.type])
        self._memory: Memory | None = None
        self._listener: RingListener | None = None
        self._put_down: Weights | None = None

    def describe(self) -> dict[str, Any]:
        """Name host, device, and the socket where readers connect."""
        if self._listener is None:
            self._listener = RingListener()
        device = device_id(self.device.type)
        return {"host": host_id(), "ring": self._listener.name, "device": device}

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
            TopologyError: an empty world, or a rollout worker on another host or GPU than the source.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        entries = topology.members(actor_wg_world_size, metadata)
        for rank, entry in enumerate(entries):
            if entry["host"] != entries[0]["host"]:
                raise TopologyError(
                    f"rollout worker {rank - 1} is on host {entry['host']}, the source on "
                    f"{entries[0]['host']}; backend 'naive' needs one host: use 'nccl' across hosts"
                )
            if entry["device"] != entries[0]["device"]:
                raise TopologyError(
                    f"rollout worker {rank - 1} is on {entry['device'] or 'a CPU'}, the source on "
                    f"{entries[0]['device'] or 'a CPU'}; backend 'naive' needs one device: use 'nccl' "
                    "across GPUs, or give all workers the same engine_kwargs device"
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
            return RingReader(0, ring, rank, stream, flag, deadline, self.device)
        relay = Relay(readers=tuple(range(1, world_size)))
        memory = self._memory or Memory.create(_SLOTS[self.device.type], self._staging, self.device)
        if self.device.type != "cpu":
            # Kept for the next group: the driver wants it mapped by nobody when it is freed.
            self._memory = memory
        shared = HostRing.open(self._listener, relay.readers, stream, memory, flag, deadline)
        return RelayLink(rank, relay, shared, None, None, flag)

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
