"""An engine on top of a link: everything about streaming that does not depend on the transport.

A transport of buckets is a `Link` (how buckets travel) and a `BucketEngine` (how a link is set up:
`describe`, `build_topology`, `connect`). Packing, headers, reassembly, versions, statuses, failure
and cleanup are here, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import torch

from actor_wg_engine import wire
from actor_wg_engine.buckets import (
    Destination,
    Packer,
    Reassembler,
    check_bucket_size,
    dense,
)
from actor_wg_engine.contract import TensorMeta, Weights
from actor_wg_engine.errors import (
    EngineError,
    PeerLostError,
    ReceiverError,
    StaleBucketError,
    SyncAbortedError,
    SyncTimeoutError,
)
from actor_wg_engine.link import Link
from actor_wg_engine.membership import GroupMember
from actor_wg_engine.topology import OUTSIDE
from actor_wg_engine.waiting import Deadline

_GONE = (PeerLostError, SyncAbortedError, SyncTimeoutError)


class BucketEngine(GroupMember):
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
        super().__init__(bucket_size, is_master, rebuild_group=rebuild_group, timeout_s=timeout_s)
        self._checksum = checksum
        self._lend_views = lend_views
        self._cast = rollout_dtype
        self._drain_s = drain_s
        self._bodies = wire.Bodies()
        self._held = 0
        self._saw_last = False

    # The contract.

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
        first = self._sequence

        def publish(
            bucket: torch.Tensor, segments: list[TensorMeta], tensors: int, last: bool
        ) -> None:
            checked = self._checksum and bucket.device.type == "cpu"
            body = self._bodies.of(self._sequence - first, tensors, segments)
            frame = wire.encode(
                stream, version, self._sequence, segments, bucket,
                tensors=tensors, last=last, checked=checked, body=body,
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


def _reason(error: BaseException) -> str:
    if isinstance(error, GeneratorExit):
        return "the consumer stopped before the end"
    return f"{type(error).__name__}: {error}"
