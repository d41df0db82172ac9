"""An engine on top of a link: everything about streaming that does not depend on the transport.

A transport of buckets is a `Link` (how buckets travel) and a `BucketEngine` (how a link is set up:
`describe`, `build_topology`, `connect`). Packing, headers, reassembly, versions, statuses, failure
and cleanup are here, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import torch

from actor_wg_engine import wire
from actor_wg_engine.buckets import (
    Destination,
    Packer,
    Reassembler,
    ViewCache,
    check_bucket_size,
    dense,
)
from actor_wg_engine.contract import CheckpointEngine, TensorMeta, Weights
from actor_wg_engine.errors import (
    EngineError,
    PeerLostError,
    ReceiverError,
    StaleBucketError,
    SyncAbortedError,
    SyncTimeoutError,
)
from actor_wg_engine.topology import OUTSIDE
from actor_wg_engine.waiting import AbortFlag, Deadline, EngineThread

_GONE = (PeerLostError, SyncAbortedError, SyncTimeoutError)


class Link(ABC):
    """Carries buckets, in order, from the source to every receiver of one group.

    All methods except `abort` are called on the engine's thread, one at a time. They block until
    done, and raise SyncTimeoutError, PeerLostError or SyncAbortedError. After such an error only
    `close` follows. A link serves many syncs, one after the other.
    """

    bucket_size: int
    """Capacity of a bucket in bytes."""

    @abstractmethod
    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Source: wait for a free bucket. It belongs to the caller until `publish`."""

    @abstractmethod
    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Source: send a header and the used part of the bucket acquired last.

        May return before the bytes have left; the bucket belongs to the link from now on.
        """

    @abstractmethod
    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Receiver: wait for the next header and payload; the payload may be read until `release`.

        May be called again before `release`. Handing the bucket on to other receivers is done in
        here, so that a slow consumer does not delay them more than the number of buckets demands.
        """

    @abstractmethod
    def release(self) -> None:
        """Receiver: the oldest payload that was handed out may be overwritten."""

    @abstractmethod
    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """End one sync with a gather of statuses; an empty text means success.

        Receiver: report the own status. Source: wait for those of all receivers.

        Returns:
            On the source, the status of every receiver by group rank; elsewhere nothing.
        """

    @abstractmethod
    def abort(self) -> None:
        """Wake whatever waits with SyncAbortedError. Any thread; returns at once."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, whatever the state. Peers that still wait see a lost peer."""


class BucketEngine(CheckpointEngine):
    """Streams buckets over a `Link`.

    Args:
        bucket_size: capacity of a bucket in bytes; on CPU an upper bound, see `staging_bytes`.
        is_master: this is the engine of actor rank 0.
        rebuild_group: connect anew for every sync.
        timeout_s: the longest that one phase may take.
        checksum: protect each payload with xxh3 (host memory only).
        lend_views: yield views of the buckets, valid until the next tensor is asked for, instead of
            tensors that the consumer owns.
        rollout_dtype: cast floating-point weights to this type before sending; None sends them as
            they are.
        drain_s: after a failure the weights are drained for so long, then closed: the other actors
            may be waiting in a collective of the generator.

    Raises:
        ValueError: the bucket size is not positive.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        rebuild_group: bool = False,
        timeout_s: float = 300.0,
        checksum: bool = True,
        lend_views: bool = False,
        rollout_dtype: torch.dtype | None = None,
        drain_s: float = 2.0,
    ) -> None:
        check_bucket_size(bucket_size)
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.rebuild_group = rebuild_group
        self.rank: int | None = None
        self.world_size: int | None = None
        self._timeout_s = timeout_s
        self._checksum = checksum
        self._lend_views = lend_views
        self._cast = rollout_dtype
        self._drain_s = drain_s
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
        self._held = 0
        self._saw_last = False
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
            **self.describe(),
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

    async def send_weights(
        self, weights: Weights, global_steps: int | None = None
    ) -> dict[str, Any]:
        """Send all weights; see the contract.

        Returns:
            Figures of this sync: seconds, bytes, buckets.
        """
        figures: dict[str, Any] = await self._run(
            "sending", lambda: self._send(weights, global_steps)
        )
        return figures

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield each tensor; see the contract."""
        reassembler = Reassembler(lend=self._lend_views, views=self._views)
        async with contextlib.aclosing(self._receive(reassembler, global_steps)) as receiving:
            async for item in receiving:
                yield item

    async def receive_into(
        self, destination: Destination, global_steps: int | None = None
    ) -> list[str]:
        """Write the weights straight into tensors of the caller, and return their names in order.

        Args:
            destination: takes a `TensorMeta`, returns the tensor to fill or None if it knows none.
            global_steps: the version that is due; None accepts any.

        Raises:
            EngineError: as `receive_weights`; the destinations are a mix of versions then.
        """
        reassembler = Reassembler(destination, views=self._views)
        names: list[str] = await self._run(
            "receiving", lambda: self._receive_all(reassembler, global_steps)
        )
        return names

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

    # The source.

    def _send(self, weights: Weights, version: int | None) -> dict[str, Any]:
        iterator = iter(weights)
        began = time.monotonic()
        self._moved = 0
        deadline = Deadline(self._timeout_s)
        try:
            if self.rank == OUTSIDE:
                self._drain(iterator, self._timeout_s)
                return {}
            statuses = self._stream_out(iterator, version, deadline)
        except BaseException:
            self._hang_up()
            self._drain(iterator, self._drain_s)
            raise
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
        failed = {rank: text for rank, text in sorted(statuses.items()) if text}
        if failed:
            self._hang_up()
            lines = "; ".join(f"group rank {rank}: {text}" for rank, text in failed.items())
            raise ReceiverError(f"not every receiver got version {version}: {lines}")
        seconds = time.monotonic() - began
        return {"seconds": seconds, "bytes": self._moved, "buckets": self._sequence}

    def _stream_out(
        self, iterator: Iterator[tuple[str, torch.Tensor]], version: int | None, deadline: Deadline
    ) -> dict[int, str]:
        link, stream = self._connected()

        def publish(
            bucket: torch.Tensor, segments: list[TensorMeta], tensors: int, last: bool
        ) -> None:
            checked = self._checksum and bucket.device.type == "cpu"
            frame = wire.encode(
                stream, version, self._sequence, segments, bucket,
                tensors=tensors, last=last, checked=checked,
            )  # fmt: skip
            link.publish(frame, bucket, deadline)
            self._sequence += 1
            self._moved += bucket.numel()

        packer = Packer(
            link.bucket_size,
            lambda: link.acquire(deadline),
            publish,
            wire.body_size,
            wire.MAX_BODY_BYTES,
            self._views,
        )
        try:
            for name, tensor in iterator:
                packer.add(name, self._converted(name, tensor))
            packer.close()
        except _GONE:
            raise
        except Exception as error:
            # Ours to report: the generator raised, or yielded what cannot be sent.
            self._give_up(
                link, stream, version, packer, f"{type(error).__name__}: {error}", deadline
            )
            raise
        return link.settle("", deadline)

    def _converted(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if self._cast is not None and tensor.is_floating_point():
            return dense(name, tensor).to(self._cast)
        return tensor

    def _give_up(
        self, link: Link, stream: wire.Stream, version: int | None, packer: Packer, reason: str,
        deadline: Deadline,
    ) -> None:  # fmt: skip
        """Tell the receivers that no more comes. The reason is raised anyway, so trouble is dropped."""
        deadline = deadline.at_most(5.0)
        with contextlib.suppress(EngineError):
            frame = wire.encode_failure(stream, version, self._sequence, reason)
            link.publish(frame, packer.current()[:0], deadline)
            link.settle(reason, deadline)

    def _drain(self, iterator: Iterator[tuple[str, torch.Tensor]], seconds: float) -> None:
        """Ask for the remaining weights, so that collectives among the actors stay in step."""
        deadline = Deadline(seconds)
        for name, tensor in iterator:
            if self._state == "failed":
                deadline = deadline.at_most(self._drain_s)
            dense(name, tensor)
            with contextlib.suppress(SyncTimeoutError):
                deadline.remaining("end of the weights")
                continue
            return

    # The receivers.

    async def _receive(
        self, reassembler: Reassembler, version: int | None
    ) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Fetch buckets on the engine's thread, one ahead of the consumer."""
        deadline = Deadline(self._timeout_s)
        self._begin_receiving()
        fetch = self._submit(lambda: self._fetch(reassembler, version, deadline))
        self._enter("receiving")
        settled = False
        try:
            while fetch is not None:
                batch = await asyncio.wrap_future(fetch)
                fetch = None
                if self._lend_views and self._held > 1:
                    # The consumer asked for more, so it is done with the batch before this one.
                    await self._on_thread(self._release)
                if not reassembler.complete:
                    fetch = self._submit(lambda: self._fetch(reassembler, version, deadline))
                for item in batch:
                    yield item
                del batch
            settled = True
            await self._on_thread(lambda: self._settle("", deadline))
            self._enter("connected")
        except BaseException as error:
            self._state = "failed"
            reason = _reason(error)
            if not settled and not isinstance(error, _GONE):
                await self._on_thread(lambda: self._drop_rest(reason, deadline))
            await self._on_thread(self._hang_up)
            raise

    def _receive_all(self, reassembler: Reassembler, version: int | None) -> list[str]:
        """Receive a whole sync without leaving the engine's thread."""
        deadline = Deadline(self._timeout_s)
        self._begin_receiving()
        names: list[str] = []
        try:
            while not reassembler.complete:
                names += [name for name, _ in self._fetch(reassembler, version, deadline)]
            self._settle("", deadline)
        except BaseException as error:
            if not isinstance(error, _GONE):
                self._drop_rest(_reason(error), deadline)
            self._hang_up()
            raise
        return names

    def _begin_receiving(self) -> None:
        self._moved = self._held = 0
        self._saw_last = False

    def _fetch(
        self, reassembler: Reassembler, version: int | None, deadline: Deadline
    ) -> list[tuple[str, torch.Tensor]]:
        link, stream = self._connected()
        while True:
            frame, bucket = link.next_bucket(deadline)
            self._held += 1
            self._saw_last = wire.is_last(frame)
            try:
                header = wire.decode(frame, stream, self._sequence, version, link.bucket_size)
            except StaleBucketError:
                self._release()
                continue
            if header.failure:
                raise EngineError(f"the source gave up: {header.failure}")
            wire.verify_payload(header, bucket)
            batch = reassembler.feed(header, bucket)
            self._sequence += 1
            self._moved += bucket.numel()
            if not self._lend_views:
                self._release()
            return batch

    def _drop_rest(self, reason: str, deadline: Deadline) -> None:
        """Pass the rest of the stream by, so that other receivers complete, and report the reason."""
        with contextlib.suppress(EngineError):
            link, _ = self._connected()
            self._release_all()
            while not self._saw_last:
                frame, _ = link.next_bucket(deadline)
                self._saw_last = wire.is_last(frame)
                link.release()
            link.settle(reason, deadline)

    def _settle(self, status: str, deadline: Deadline) -> None:
        link, _ = self._connected()
        self._release_all()
        link.settle(status, deadline)

    def _release(self) -> None:
        link, _ = self._connected()
        link.release()
        self._held -= 1

    def _release_all(self) -> None:
        while self._held > 0:
            self._release()

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
        return self._thread.submit(job)

    async def _on_thread(self, job: Callable[[], Any]) -> Any:
        if self._thread is None:
            return None
        return await asyncio.wrap_future(self._thread.submit(job))

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
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

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


def _reason(error: BaseException) -> str:
    if isinstance(error, GeneratorExit):
        return "the consumer stopped before the end"
    return f"{type(error).__name__}: {error}"
