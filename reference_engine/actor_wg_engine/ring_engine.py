"""A checkpoint engine over a ring of one-sided writes; a transport adds a `Station` and its name.

    source: pack a slot -> post it -> next slot ... -> gather statuses
    others: bucket arrives in a slot -> forward it -> copy it out -> credit it ... -> gather statuses

A station (the package's agent with the registered slots) is used in sync after sync. After a failure
the engine takes a new one: a neighbor that is not known to have ended may still write into the old
slots, so these are kept until its line says that it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import torch

from actor_wg_engine import ring_sync, topology
from actor_wg_engine.buckets import Destination, Reassembler, ViewCache, check_bucket_size
from actor_wg_engine.contract import Capabilities, CheckpointEngine, Kwargs, Weights
from actor_wg_engine.errors import EngineError, ReassemblyError, TopologyError
from actor_wg_engine.lines import Hello, Line, LineListener, dial
from actor_wg_engine.ring import Link, Ring
from actor_wg_engine.ring_sync import NamedTensors, Place, Reception
from actor_wg_engine.wire import Stream

T = TypeVar("T")
#: Default size of a slot: large enough to hide the cost of a step, small enough to overlap packing,
#: moving and unpacking, whatever the bucket size.
SLOT_BYTES = {"cpu": 16 << 20, "cuda": 256 << 20}


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
    ) -> Link:
        """Return the link of a new group.

        Raises:
            EngineError: a neighbor cannot be used.
        """

    def busy(self) -> bool:
        """Tell whether a write of ours still reads from the slots."""

    def close(self) -> None:
        """Take the registration back and free the slots."""


class RingEngine(CheckpointEngine):
    """Base of the engines whose transport is one-sided.

    Args:
        bucket_size: upper limit of a slot, in bytes.
        is_master: whether this is the engine of actor rank 0.
        device: where the slots are, "cpu" or "cuda"; weights from elsewhere are copied there.
        host: address to listen on and to be reached at; by default Ray's address of this node, and
            the loopback address without Ray.
        timeout: longest wait for any single step of a neighbor, in seconds.
        checked: send checksums of the payload; by default where the slots are in host memory.
        lend: yield views of the slots, valid until the next tensor is asked for.
        slots: number of slots; at least two, so that one is filled while another is in flight.
        slot_bytes: size of a slot, at most `bucket_size`; see `SLOT_BYTES`.
        persistent: keep the registered slots in `finalize`; False frees them, for GPUs whose memory
            is needed between two syncs.

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
        device: str = "cpu",
        host: str | None = None,
        timeout: float = 60.0,
        checked: bool | None = None,
        lend: bool = False,
        slots: int = 4,
        slot_bytes: int | None = None,
        persistent: bool = True,
    ) -> None:
        check_bucket_size(bucket_size)
        if slots < 2 or timeout <= 0 or (slot_bytes is not None and slot_bytes <= 0):
            raise ValueError(
                f"slots={slots}, timeout={timeout}, slot_bytes={slot_bytes}: too small"
            )
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.device = torch.device(device)
        self._host = host
        self._timeout = timeout
        self._checked = self.device.type == "cpu" if checked is None else checked
        self._lend = lend
        self._slot_count = slots
        wanted = SLOT_BYTES.get(self.device.type, bucket_size) if slot_bytes is None else slot_bytes
        self._slot_bytes = min(bucket_size, wanted)
        self._persistent = persistent
        self._session = secrets.token_bytes(16)
        self._generation = 0
        self._aborted = threading.Event()
        self._thread: ThreadPoolExecutor | None = None
        self._views = ViewCache()
        self._listener: LineListener | None = None
        self._station: Station | None = None
        self._retired: list[tuple[Station, Line | None]] = []
        self._lines: dict[str, Line] = {}
        self._place: Place | None = None
        self._rank: int | None = None
        self._clean = True

    @abstractmethod
    def _open_station(self, count: int, slot_bytes: int, host: str) -> Station:
        """Create the agent and register `count` slots of `slot_bytes`.

        Raises:
            EngineError: the transport's package cannot do that here.
        """

    def prepare(self) -> dict[str, Any]:
        """Open a listener, register the slots unless they are, and describe both."""
        return self._run(self._prepare)

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Arrange actor rank 0 and all rollout workers in a ring.

        Raises:
            TopologyError: an empty world, or workers that do not fit together.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        members = topology.members(actor_wg_world_size, metadata)
        for rank, entry in enumerate(members):
            for key in ("transport", "slot_bytes", "slots"):
                found = entry.get(key) if isinstance(entry, dict) else None
                due = cls.transport if key == "transport" else members[0][key]
                if found != due:
                    raise TopologyError(
                        f"group rank {rank} has {key} {found!r}; the others have {due!r}: "
                        "configure all workers alike"
                    )
        ring = topology.ring(len(members))
        return topology.spread(
            actor_wg_world_size,
            {
                "rank": range(len(members)),
                "world_size": [len(members)] * len(members),
                "session": [members[0]["session"]] * len(members),
                "generation": [members[0]["generation"]] * len(members),
                "previous": [None if p is None else members[p] for p, _ in ring],
                "following": [None if n is None else members[n] for _, n in ring],
            },
            {
                "rank": topology.OUTSIDE,
                "world_size": len(members),
                "session": members[0]["session"],
                "generation": members[0]["generation"],
                "previous": None,
                "following": None,
            },
        )

    def init_process_group(
        self,
        rank: int,
        world_size: int,
        session: str,
        generation: int,
        previous: dict[str, Any] | None,
        following: dict[str, Any] | None,
    ) -> None:
        """Open the lines to both neighbors and connect the stations.

        Args:
            rank: this worker's group rank; -1 when it is not in the group.
            world_size: number of ranks in the group.
            session: the master's session, hexadecimal.
            generation: number of the group within the session.
            previous: metadata of the previous rank; None at the source.
            following: metadata of the next rank; None at the end.

        Raises:
            EngineError: a neighbor is not there within the timeout.
        """
        if rank >= world_size or (previous is None) != (rank <= 0):
            raise TopologyError(f"group rank {rank} of {world_size} does not fit its neighbors")
        self._run(
            self._connect, rank, Stream(bytes.fromhex(session), generation), previous, following
        )

    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> None:
        """Send all weights; returns when every receiver has consumed them.

        Raises:
            EngineError: the ring broke, or receivers do not have everything.
        """
        try:
            await self._start(self._send, weights, global_steps)
        except asyncio.CancelledError:
            self.abort()
            raise

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield the weights; see the contract for who owns a yielded tensor.

        Raises:
            EngineError: the stream broke or was wrong.
        """
        reception = self._begin(global_steps, Reassembler(lend=self._lend, views=self._views))
        ahead = self._start(self._step, reception, self._lend)
        last = False
        try:
            while not last:
                tensors, last = await ahead
                if not (self._lend or last):
                    # The next bucket is copied out while the consumer works on this one.
                    ahead = self._start(self._step, reception, False)
                for pair in tensors:
                    yield pair
                if self._lend and not last:
                    await self._start(self._release, reception, self._consumed())
                    ahead = self._start(self._step, reception, True)
        except GeneratorExit:
            await asyncio.wait([ahead])
            if ahead.exception() is None:
                await self._start(self._drop_out, reception, "its consumer stopped early")
            raise
        except asyncio.CancelledError:
            self.abort()
            raise
        await self._start(self._finish, reception, self._consumed())

    async def receive_into(self, destination: Destination, global_steps: int | None = None) -> None:
        """Write all weights straight into the tensors that `destination` returns.

        Raises:
            ReassemblyError: a weight has no destination, or one of another shape or dtype.
            EngineError: the stream broke or was wrong; the destinations are a mix now.
        """
        reception = self._begin(global_steps, Reassembler(destination, views=self._views))
        try:
            await self._start(self._receive_all, reception)
        except asyncio.CancelledError:
            self.abort()
            raise

    def finalize(self) -> None:
        """Leave the group; what is still running ends with an error."""
        thread = self._thread
        if thread is None:
            return
        self._aborted.set()
        try:
            thread.submit(self._leave).result(self._timeout)
        except FutureTimeoutError:
            # The thread is stuck in the generator's own code. Nobody can take the thread's lines
            # and slots away from it, so they stay with it.
            self._station, self._place, self._lines = None, None, {}
            self._clean = True
        thread.shutdown(wait=False)
        self._thread = None

    def abort(self) -> None:
        """End whatever runs with `SyncAbortedError`, within a few milliseconds."""
        self._aborted.set()

    def status(self) -> dict[str, Any]:
        """Say in which group and state this engine is."""
        state = "idle" if self._place is None else "connected" if self._clean else "syncing"
        return {
            "state": "aborted" if self._aborted.is_set() and not self._clean else state,
            "engine": type(self).__name__,
            "rank": self._rank,
            "generation": None if self._place is None else self._place.stream.generation,
            "retired": len(self._retired),
        }

    # Everything below runs on the engine's thread, unless it says otherwise.

    def _prepare(self) -> dict[str, Any]:
        self._aborted.clear()
        self._sweep()
        host = self._host or _own_address()
        if self._listener is None:
            self._listener = LineListener(host)
        if self._station is None:
            self._station = self._open_station(self._slot_count, self._slot_bytes, host)
        self._generation += 1
        return {
            "transport": self.transport,
            "slots": self._slot_count,
            "slot_bytes": self._slot_bytes,
            "host": host,
            "port": self._listener.port,
            "token": self._listener.token,
            "session": self._session.hex(),
            "generation": self._generation,
            "station": self._station.describe(),
        }

    def _connect(
        self,
        rank: int,
        stream: Stream,
        previous: dict[str, Any] | None,
        following: dict[str, Any] | None,
    ) -> None:
        listener, station = self._listener, self._station
        if listener is None or station is None:
            raise EngineError("init_process_group before prepare")
        self._rank = rank
        deadline = time.monotonic() + self._timeout
        group = f"{stream.session.hex()}:{stream.generation}"
        before = after = None
        try:
            if following is not None:
                hello = Hello(following["token"], group, rank)
                line = dial(following["host"], following["port"], hello, rank + 1, deadline)
                self._lines["following"] = line
                after = Neighbor(following["station"], line)
            if previous is not None:
                line = listener.accept(group, rank - 1, deadline, self._aborted)
                self._lines["previous"] = line
                before = Neighbor(previous["station"], line)
            if rank >= 0:
                ring = Ring(
                    station.connect(stream, before, after),
                    self._lines.get("previous"), self._lines.get("following"),
                    self._slot_count, self._timeout, self._aborted,
                )  # fmt: skip
                self._place = Place(
                    rank, ring, stream, station.slots, self._slot_bytes, self._checked
                )
        except BaseException as error:
            for line in self._lines.values():
                line.end(_as_engine_error(error, rank))
            raise
        finally:
            self._listener = None
            listener.close()

    def _send(self, weights: Weights, version: int | None) -> None:
        stream = iter(weights)
        try:
            if self._rank is None or self._rank > 0:
                raise EngineError("send_weights on a worker that is not an actor in a group")
            if self._rank == topology.OUTSIDE:
                ring_sync.exhaust(stream, self._aborted)
                return
            self._clean = False
            ring_sync.send(self._joined(), stream, version)
            self._clean = True
        except BaseException as error:
            self._fail(error)
            # The generator may run collectives, so the other actors need it to run to its end.
            with contextlib.suppress(Exception):
                ring_sync.exhaust(stream, self._aborted)
            raise
        finally:
            ring_sync.close_generator(stream)

    def _step(self, reception: Reception, lend: bool) -> tuple[NamedTensors, bool]:
        try:
            tensors = reception.step()
            if not lend:
                reception.release()
        except ReassemblyError as error:
            self._drop_out(reception, str(error))
            raise
        except BaseException as error:
            self._fail(error)
            raise
        return tensors, reception.last

    def _release(self, reception: Reception, consumed: torch.cuda.Event | None) -> None:
        with self._failing():
            reception.release(consumed)

    def _finish(self, reception: Reception, consumed: torch.cuda.Event | None) -> None:
        with self._failing():
            reception.release(consumed)
            reception.finish()
            self._clean = True

    def _drop_out(self, reception: Reception, why: str) -> None:
        with self._failing():
            reception.drop_out(why)
            self._clean = True

    def _receive_all(self, reception: Reception) -> None:
        last = False
        while not last:
            last = self._step(reception, lend=False)[1]
        self._finish(reception, None)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        if self._place is not None:
            self._place.ring.fail(_as_engine_error(error, self._place.rank))

    def _leave(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        place, self._place, self._rank = self._place, None, None
        if place is not None and self._clean:
            place.ring.leave()
        elif place is not None:
            place.ring.fail(
                EngineError(f"group rank {place.rank} finalized in the middle of a sync")
            )
        previous = self._lines.get("previous")
        if self._clean:
            self._close_lines()
            if not self._persistent:
                self._close_station()
        elif self._station is not None:
            self._views.clear()
            self._retired.append((self._station, previous))
            self._station = None
            self._lines.pop("previous", None)
            self._close_lines()
        self._clean = True
        self._sweep()

    def _close_lines(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def _close_station(self) -> None:
        self._views.clear()
        if self._station is not None:
            self._station.close()
            self._station = None

    def _sweep(self) -> None:
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

    def _joined(self) -> Place:
        if self._place is None:
            raise EngineError("not in a group: prepare and init_process_group come first")
        return self._place

    # From here on: called on the event loop.

    def _begin(self, version: int | None, reassembler: Reassembler) -> Reception:
        reception = Reception(self._joined(), version, reassembler)
        if reception.rank < 1:
            raise EngineError("receive_weights on the source")
        self._clean = False
        return reception

    def _consumed(self) -> torch.cuda.Event | None:
        if self.device.type != "cuda" or not self._lend:
            return None
        return torch.cuda.current_stream(self.device).record_event()

    def _executor(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"{self.transport}-engine", self._enter_thread)
        return self._thread

    def _enter_thread(self) -> None:
        torch.set_num_threads(1)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def _run(self, work: Callable[..., T], *args: Any) -> T:
        return self._executor().submit(work, *args).result()

    def _start(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.wrap_future(self._executor().submit(work, *args))


def _as_engine_error(error: BaseException, rank: int) -> EngineError:
    """What the other ranks are told; a reason that names its rank is passed on as it is."""
    text = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    kind = type(error) if isinstance(error, EngineError) else EngineError
    return kind(text if text.startswith("group rank") else f"group rank {rank}: {text}")


def _own_address() -> str:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return str(ray.util.get_node_ip_address()).strip("[]")
    return "127.0.0.1"
