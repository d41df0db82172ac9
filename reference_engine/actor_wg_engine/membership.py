"""A worker's membership of a process group: its place, its link, its thread and its state.

What the phases around a sync have in common for every transport is here: who belongs to which
generation, when a group is kept, how an abort reaches what blocks, and what is released when.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from actor_wg_engine import wire
from actor_wg_engine.contract import CheckpointEngine
from actor_wg_engine.errors import EngineError
from actor_wg_engine.link import Link
from actor_wg_engine.topology import OUTSIDE
from actor_wg_engine.views import ViewCache
from actor_wg_engine.waiting import AbortFlag, Deadline, EngineThread

#: torch does not declare the types of all of it.
cuda: Any = torch.cuda


class GroupMember(CheckpointEngine):
    """The part of an engine that joins, keeps and leaves groups.

    Args:
        bucket_size: capacity of a bucket in bytes.
        is_master: this is the engine of actor rank 0.
        rebuild_group: connect anew for every sync.
        timeout_s: the longest that one phase may take.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        rebuild_group: bool = False,
        timeout_s: float = 300.0,
    ) -> None:
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.rebuild_group = rebuild_group
        self.rank: int | None = None
        self.world_size: int | None = None
        self._timeout_s = timeout_s
        self._session = secrets.token_bytes(16) if is_master else b""
        self._generation = 0
        self._sequence = 0
        self._stream: wire.Stream | None = None
        self._link: Link | None = None
        self._thread: EngineThread | None = None
        self._flag: AbortFlag | None = None
        self._views = ViewCache()
        self._state = "idle"
        self._moved = 0
        self._since = time.monotonic()

    # What a transport supplies.

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return this worker's part of the metadata; open what the others will connect to."""

    @abstractmethod
    def connect(self, *args: Any, **kwargs: Any) -> Link:
        """Connect to the peers and return the link. Runs on the engine's thread.

        Called as `connect(flag, deadline, rank=, world_size=, stream=, **peers)`, where `flag` wakes
        every wait with SyncAbortedError, `stream` goes into the headers, and `peers` is what
        `build_topology` adds to the common keywords.
        """

    def withdraw(self) -> None:
        """Close what `describe` opened and `connect` did not take over."""

    # The contract.

    def prepare(self) -> dict[str, Any]:
        """Describe this worker. A group that is whole stays usable; `build_topology` decides."""
        if self._state == "failed":
            self._close()
        described = self.describe()
        if self._thread is None:
            self._thread = _start_thread(type(self).__name__)
        if self.is_master:
            self._generation += 1
        connected = None
        if self._stream is not None and self._link is not None and not self.rebuild_group:
            connected = [
                self._stream.session.hex(),
                self._stream.generation,
                self.rank,
                self.world_size,
            ]
        return {
            "session": self._session.hex() if self.is_master else None,
            "generation": self._generation,
            "connected": connected,
            **described,
        }

    def init_process_group(
        self, rank: int, world_size: int, session: str, generation: int, **peers: Any
    ) -> None:
        """Join the group, or keep the present one where session and generation are the same.

        Args:
            rank: group rank; -1 stays outside and drains the weights.
            world_size: ranks in the group.
            session: the master's token, in hexadecimal.
            generation: counts the groups of the session.
            **peers: what the transport's `connect` takes.
        """
        stream = wire.Stream(bytes.fromhex(session), generation)
        if self._link is not None and stream == self._stream and rank == self.rank:
            self.withdraw()
            return
        self._close_link()
        self.rank, self.world_size, self._stream, self._sequence = rank, world_size, stream, 0
        if rank == OUTSIDE:
            self.withdraw()
            self._enter("connected")
            return
        if self._thread is None:
            raise EngineError("init_process_group before prepare")
        self._enter("connecting")
        flag = self._flag = AbortFlag()
        deadline = Deadline(self._timeout_s)
        job = self._thread.submit(
            lambda: self.connect(
                flag, deadline, rank=rank, world_size=world_size, stream=stream, **peers
            )
        )
        try:
            self._link = job.result()
        except BaseException:
            self._state = "failed"
            flag.close()
            raise
        finally:
            self.withdraw()
        self._enter("connected")

    def finalize(self) -> None:
        """End a sync: keep the group if it is whole and may be kept, else release everything."""
        self.withdraw()
        if self.rebuild_group or self._state not in ("connected", "prepared"):
            self._close()

    def abort(self) -> None:
        """Wake whatever waits, with SyncAbortedError; only `finalize` may follow."""
        self._state = "failed"
        flag, link = self._flag, self._link
        if flag is not None:
            flag.set()
        if link is not None:
            link.abort()

    def status(self) -> dict[str, Any]:
        """Say what the engine does, since when, and how much it moved."""
        return {
            "state": self._state,
            "seconds": time.monotonic() - self._since,
            "rank": self.rank,
            "generation": self._stream.generation if self._stream else None,
            "buckets": self._sequence,
            "bytes": self._moved,
        }

    # State and threads.

    def _hang_up(self) -> None:
        """Close the link at once, so that the peers need not wait for what will not come."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _connected(self) -> tuple[Link, wire.Stream]:
        link, stream = self._link, self._stream
        if self._flag is not None:
            self._flag.check()
        if link is None or stream is None:
            raise EngineError("not connected: prepare and init_process_group come first")
        return link, stream

    def _submit(self, job: Callable[[], Any]) -> Any:
        if self._thread is None or self._state == "failed":
            raise EngineError(
                f"the engine is {self._state}: prepare and init_process_group come first"
            )
        return self._thread.submit(_on_this_stream(job))

    async def _on_thread(self, job: Callable[[], Any]) -> Any:
        if self._thread is None:
            return None
        return await asyncio.wrap_future(self._thread.submit(_on_this_stream(job)))

    async def _run(self, state: str, job: Callable[[], Any]) -> Any:
        future = self._submit(job)
        self._enter(state)
        try:
            result = await asyncio.wrap_future(future)
        except BaseException:
            self.abort()
            raise
        self._enter("connected")
        return result

    def _enter(self, state: str) -> None:
        self._state = state
        self._since = time.monotonic()

    def _close_link(self) -> None:
        link, self._link, self._stream = self._link, None, None
        self._views.clear()
        if link is not None:
            link.close()
        if self._flag is not None:
            self._flag.close()
            self._flag = None

    def _close(self) -> None:
        """Release everything; a thread that is stuck in the user's code is left behind."""
        if self._flag is not None:
            self._flag.set()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join(1.0)
            self._thread = None
        self._close_link()
        self.rank = self.world_size = None
        self._enter("idle")


def _start_thread(name: str) -> EngineThread:
    """Start the engine's thread with one core for copies and the device of the caller."""
    threads = torch.get_num_threads()
    # Where nobody has used CUDA so far, nobody needs a context of some hundred megabytes.
    device = torch.cuda.current_device() if cuda.is_initialized() else None

    def setup() -> None:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        if device is not None:
            torch.cuda.set_device(device)

    thread = EngineThread(name, setup)
    thread.submit(lambda: None).result()
    # The call above also set the number that threads started later get; put it back.
    torch.set_num_threads(threads)
    return thread


def _on_this_stream(job: Callable[[], Any]) -> Callable[[], Any]:
    """Let a job use the stream that is current for its caller.

    What the caller computed before is then ordered before our copies, what it does with received
    tensors behind them, and memory goes back to the allocator in that order as well.
    """
    if not cuda.is_initialized():
        return job
    stream = torch.cuda.current_stream()

    def run() -> Any:
        with torch.cuda.stream(stream):
            return job()

    return run
