"""A bucket engine over a ring of one-sided writes; a transport adds its `Station`.

A station (the package's agent with the registered slots) is used in group after group. After a
failure the engine takes a new one: a neighbor that is not known to have ended may still write into
the old slots, so these are kept until its line says that it is gone.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from actor_wg_engine import topology
from actor_wg_engine.bucket_engine import BucketEngine
from actor_wg_engine.contract import Capabilities, Kwargs
from actor_wg_engine.errors import EngineError, TopologyError
from actor_wg_engine.host import address, device_id
from actor_wg_engine.lines import Hello, Line, LineListener, dial
from actor_wg_engine.link import Link
from actor_wg_engine.ring import Mover, RingLink
from actor_wg_engine.waiting import AbortFlag, Deadline
from actor_wg_engine.wire import Stream

#: Default size of a slot: large enough to hide the cost of a step, small enough that packing, moving
#: and unpacking overlap, whatever the bucket size.
STAGING_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}


@dataclass(frozen=True)
class Neighbor:
    """A neighbor in the ring: what its station said of itself, and the line to it."""

    station: dict[str, Any]
    line: Line


class Station(Protocol):
    """A transport's persistent part: its agent, and slots that it registered. One thread uses it."""

    slots: tuple[torch.Tensor, ...]

    def describe(self) -> dict[str, Any]:
        """Return what neighbors need to write into our slots: plain data."""

    def connect(
        self, stream: Stream, previous: Neighbor | None, following: Neighbor | None
    ) -> Mover:
        """Return the mover of a new group.

        Raises:
            EngineError: a neighbor cannot be used.
        """

    def busy(self) -> bool:
        """Tell whether a write of ours still reads from the slots."""

    def close(self) -> None:
        """Take the registration back and free the slots."""


class RingEngine(BucketEngine):
    """Base of the engines whose transport is one-sided.

    Args:
        bucket_size: upper bound of a slot in bytes.
        is_master: this is the engine of actor rank 0.
        device: where the slots are, "cpu" or "cuda"; by default on a GPU where there is one.
        slots: number of slots; at least two, so that one is filled while another is in flight.
        staging_bytes: the slots are this large at most; see `STAGING_BYTES`.
        persistent: keep the registered slots when a group ends; False frees them, for GPUs whose
            memory is needed between two syncs.
        **kwargs: as `BucketEngine`.

    Raises:
        ValueError: one of these makes no sense.
    """

    capabilities = Capabilities(
        keeps_group=True, can_abort=True, in_place=True, carries_version=True
    )
    transport: ClassVar[str]

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        device: str | None = None,
        slots: int = 4,
        staging_bytes: int | None = None,
        persistent: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(bucket_size, is_master, **kwargs)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if staging_bytes is None:
            staging_bytes = STAGING_BYTES.get(self.device.type, bucket_size)
        if slots < 2 or staging_bytes < 1:
            raise ValueError(
                f"slots={slots}, staging_bytes={staging_bytes}; at least 2 and 1 are due"
            )
        self._slot_count = slots
        self._slot_bytes = min(bucket_size, staging_bytes)
        self._persistent = persistent
        self._listener: LineListener | None = None
        self._station: Station | None = None
        self._ring: RingLink | None = None
        self._retired: list[tuple[Station, Line | None]] = []

    @abstractmethod
    def open_station(self, slots: int, slot_bytes: int) -> Station:
        """Create the agent and register the slots.

        Raises:
            EngineError: the transport's package cannot do that here.
        """

    def describe(self) -> dict[str, Any]:
        """Listen for the previous rank, and register the slots unless they are."""
        if self._ring is not None and self._link is not self._ring:
            self._end_of_ring(self._ring)
        self._sweep()
        if self._listener is None:
            self._listener = LineListener(address())
        if self._station is None:
            self._station = self.open_station(self._slot_count, self._slot_bytes)
        return {
            "transport": self.transport,
            "slots": [self._slot_count, self._slot_bytes],
            "host": self._listener.host,
            "port": self._listener.port,
            "token": self._listener.token,
            "device": device_id(self.device.type),
            "station": self._station.describe(),
        }

    def withdraw(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Arrange actor rank 0 and all rollout workers in a ring.

        Raises:
            TopologyError: an empty world, or workers that do not fit together.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        entries = topology.members(actor_wg_world_size, metadata)
        for rank, entry in enumerate(entries):
            for key, due in (("transport", cls.transport), ("slots", entries[0]["slots"])):
                if entry[key] != due:
                    raise TopologyError(
                        f"group rank {rank} has {key} {entry[key]}, not {due}; give all workers the "
                        "same backend, bucket size and engine_kwargs"
                    )
        common = topology.common_kwargs(entries)
        ring = topology.ring(len(entries))
        common["prev_worker"] = [None if rank is None else entries[rank] for rank, _ in ring]
        common["next_worker"] = [None if rank is None else entries[rank] for _, rank in ring]
        outside = {**topology.outside(common), "prev_worker": None, "next_worker": None}
        return topology.spread(actor_wg_world_size, common, outside)

    def connect(
        self,
        flag: AbortFlag,
        deadline: Deadline,
        *,
        rank: int,
        world_size: int,
        stream: Stream,
        prev_worker: dict[str, Any] | None,
        next_worker: dict[str, Any] | None,
    ) -> Link:
        """Open the lines to both neighbors, then connect the stations."""
        station, listener = self._station, self._listener
        if station is None or listener is None:
            raise EngineError("init_process_group before prepare")
        if (prev_worker is None) != (rank == 0) or (next_worker is None) != (
            rank == world_size - 1
        ):
            raise TopologyError(f"group rank {rank} of {world_size} does not fit its neighbors")
        group = f"{stream.session.hex()}:{stream.generation}"
        lines: list[Line] = []
        before = after = None
        try:
            # The next rank's listener is open since prepare, so this order cannot deadlock.
            if next_worker is not None:
                hello = Hello(next_worker["token"], group, rank)
                lines.append(
                    dial(next_worker["host"], next_worker["port"], hello, rank + 1, deadline)
                )
                after = Neighbor(next_worker["station"], lines[-1])
            if prev_worker is not None:
                lines.append(listener.accept(group, rank - 1, flag, deadline))
                before = Neighbor(prev_worker["station"], lines[-1])
            mover = station.connect(stream, before, after)
        except BaseException:
            for line in lines:
                line.close()
            raise
        self._ring = RingLink(
            rank,
            station.slots,
            mover,
            before.line if before else None,
            after.line if after else None,
            flag,
        )
        return self._ring

    def status(self) -> dict[str, Any]:
        """As `BucketEngine`; also how many stations wait for a neighbor to stop writing."""
        return {**super().status(), "retired": len(self._retired)}

    def _close_link(self) -> None:
        super()._close_link()
        if self._ring is not None:
            self._end_of_ring(self._ring)

    def _end_of_ring(self, ring: RingLink) -> None:
        self._ring = None
        station = self._station
        if station is None:
            return
        if not ring.idle:
            self._station = None
            self._retired.append((station, ring.previous))
        elif not self._persistent:
            self._station = None
            station.close()
        self._sweep()

    def _sweep(self) -> None:
        """Free the slots of failed groups that nobody writes into any more."""
        kept = []
        for station, line in self._retired:
            if line is not None:
                with contextlib.suppress(EngineError):
                    line.poll()
            if (line is None or line.gone) and not station.busy():
                if line is not None:
                    line.close()
                station.close()
            else:
                kept.append((station, line))
        self._retired = kept
