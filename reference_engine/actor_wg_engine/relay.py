"""Buckets across hosts on CPU: a chain of point-to-point sends between one leader per host.

Each leader receives into its host's shared ring and sends on from there, so a bucket is copied in
user space only by the source and by those who use it. A pair of neighbors is a process group of its
own with two ranks; a bucket and its header are one message, whose tag is its number.
"""

from __future__ import annotations

import contextlib
from collections import deque
from datetime import timedelta
from typing import Any

import msgspec
import torch

from actor_wg_engine import wire
from actor_wg_engine.errors import PeerLostError
from actor_wg_engine.host_ring import HostRing
from actor_wg_engine.link import Link
from actor_wg_engine.rendezvous import Rendezvous, c10d
from actor_wg_engine.ring_memory import FRONT
from actor_wg_engine.slots import finish_copies
from actor_wg_engine.topology import Relay
from actor_wg_engine.waiting import AbortFlag, Deadline

_STATUS_BYTES = 64 * 1024
_STATUS_TAG = 1 << 30
_POKE_TAG = (1 << 30) - 1
_decode_statuses = msgspec.json.Decoder(dict[str, str]).decode


class Pair:
    """The connection of two neighboring leaders over gloo.

    gloo wakes a pending operation only when the pair is closed. An operation that times out closes
    it, so that is how `abort` cancels: by one that times out at once.
    """

    def __init__(
        self,
        meeting: Rendezvous,
        device: Any,
        me: int,
        peer: int,
        flag: AbortFlag,
        deadline: Deadline,
    ) -> None:
        name = f"{min(me, peer)}-{max(me, peer)}"
        meeting.meet(name, me, [peer])
        options = c10d.ProcessGroupGloo._Options()
        options._devices = [device]
        # Both are here, so this takes milliseconds unless one is frozen.
        seconds = min(5.0, deadline.remaining(f"connection to group rank {peer}"))
        options._timeout = timedelta(seconds=seconds)
        self.peer = peer
        self._side = 0 if me < peer else 1
        self._flag = flag
        self._group = c10d.ProcessGroupGloo(meeting.store(name), self._side, 2, options)

    def send(self, message: torch.Tensor, tag: int) -> Any:
        """Start to send; the tensor must stay as it is until `wait`."""
        try:
            return self._group.send([message], 1 - self._side, tag)
        except RuntimeError as error:
            raise self._lost(error) from error

    def receive(self, buffer: torch.Tensor, tag: int) -> Any:
        """Start to receive; the message may be shorter than the buffer."""
        try:
            return self._group.recv([buffer], 1 - self._side, tag)
        except RuntimeError as error:
            raise self._lost(error) from error

    def wait(self, work: Any, deadline: Deadline, what: str) -> None:
        """Wait for a send or receive. After an error the pair is closed, and the peer knows.

        Raises:
            SyncAbortedError, SyncTimeoutError, PeerLostError: as they say.
        """
        self._flag.check()
        try:
            work.wait(timedelta(seconds=deadline.remaining(what)))
        except RuntimeError as error:
            self._flag.check()
            deadline.remaining(f"{what} (group rank {self.peer})")
            raise self._lost(error) from error

    def abort(self) -> None:
        """Close the pair, which ends what is pending here and at the peer."""
        with contextlib.suppress(RuntimeError):
            poke = self._group.recv([torch.empty(1, dtype=torch.uint8)], 1 - self._side, _POKE_TAG)
            poke.wait(timedelta(milliseconds=1))

    def _lost(self, error: RuntimeError) -> PeerLostError:
        return PeerLostError(f"group rank {self.peer} is lost: {str(error).splitlines()[0][-200:]}")


class RelayLink(Link):
    """The link of a source or of a host's leader.

    Args:
        rank: own group rank.
        relay: the place in the chain.
        ring: the buckets, shared with the readers of this host.
        upstream: the pair to receive from; None for the source.
        downstream: the pair to send to; None at the end of the chain.
        flag: ends every wait.
    """

    def __init__(
        self, rank: int, relay: Relay, ring: HostRing, upstream: Pair | None, downstream: Pair | None,
        flag: AbortFlag,
    ) -> None:  # fmt: skip
        self._rank = rank
        self._relay = relay
        self._ring = ring
        self._upstream = upstream
        self._downstream = downstream
        self._flag = flag
        self._sequence = 0
        self._released = 0
        self._posted: deque[Any] = deque()
        self._sends: deque[tuple[int, Any]] = deque()
        self._syncs = 0
        self._cut = ""
        """Why nothing is sent downstream any more."""
        # One slot is in use here and one is leaving; the others may be filling.
        self._ahead = ring.memory.slots - 2 if ring.memory.slots > 3 else 2
        self.bucket_size = ring.memory.bucket_size

    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Wait until the next slot has been sent on and released by the readers."""
        self._wait_free(self._sequence, deadline)
        if not self._ring.read and (self._downstream is None or self._cut):
            lost = {**self._ring.failures, **dict.fromkeys(self._relay.behind, self._cut)}
            raise PeerLostError(f"no receiver is left: {lost}")
        return self._ring.memory.payload(self._sequence)

    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Announce the bucket on this host, and send it downstream with its header."""
        deadline.remaining("announcement")
        finish_copies(bucket, self._flag)
        slot, used = self._ring.memory.slot(self._sequence), bucket.numel()
        body = len(frame) - wire.PREFIX_BYTES
        if self._downstream is not None:
            header = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
            slot[: wire.PREFIX_BYTES].copy_(header[: wire.PREFIX_BYTES])
            slot[FRONT + used : FRONT + used + body].copy_(header[wire.PREFIX_BYTES :])
        self._hand_on(frame, slot[: FRONT + used + body])

    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Receive the next bucket into the ring, and hand it on before it is used here."""
        upstream = self._upstream
        if upstream is None:
            raise NotImplementedError("the source receives nothing")
        self._post(deadline)
        what = f"bucket from group rank {upstream.peer}"
        upstream.wait(self._posted.popleft(), deadline, what)
        slot = self._ring.memory.slot(self._sequence)
        prefix = slot[: wire.PREFIX_BYTES].numpy().tobytes()
        body, used = wire.sizes(prefix, self.bucket_size)
        frame = prefix + slot[FRONT + used : FRONT + used + body].numpy().tobytes()
        self._hand_on(frame, slot[: FRONT + used + body])
        return frame, slot[FRONT : FRONT + used]

    def release(self) -> None:
        """The oldest bucket is not needed here any more."""
        self._released += 1

    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """Gather the statuses of this host and of those behind it, and pass them upstream."""
        statuses = {self._rank: status} if self._upstream is not None else {}
        self._flush(deadline)
        statuses |= self._ring.collect(deadline)
        statuses |= self._statuses_behind(deadline)
        tag = _STATUS_TAG + self._syncs
        self._syncs += 1
        if self._upstream is None:
            return statuses
        text = msgspec.json.encode({str(rank): text for rank, text in statuses.items()})
        message = torch.frombuffer(bytearray(text[:_STATUS_BYTES]), dtype=torch.uint8)
        self._upstream.wait(self._upstream.send(message, tag), deadline, "status to travel on")
        return {}

    def abort(self) -> None:
        """Wake whatever waits; the neighbors see a lost peer."""
        self._flag.set()
        for pair in (self._upstream, self._downstream):
            if pair is not None:
                pair.abort()

    def close(self) -> None:
        """Hang up on everybody."""
        self.abort()
        self._ring.close()
        self._posted.clear()
        self._sends.clear()
        self._upstream = self._downstream = None

    def _wait_free(self, sequence: int, deadline: Deadline) -> None:
        self._ring.wait_free(sequence, deadline)
        while self._sends and self._sends[0][0] <= sequence - self._ring.memory.slots:
            self._wait_sent(deadline)

    def _post(self, deadline: Deadline) -> None:
        """Keep receives posted ahead, where their slots are free; wait for the next one's."""
        upstream = self._upstream
        assert upstream is not None
        while len(self._posted) < self._ahead:
            sequence = self._sequence + len(self._posted)
            if self._posted and not self._is_free(sequence):
                return
            self._wait_free(sequence, deadline)
            self._posted.append(upstream.receive(self._ring.memory.slot(sequence), sequence))

    def _is_free(self, sequence: int) -> bool:
        due = sequence - self._ring.memory.slots + 1
        sent = not self._sends or self._sends[0][0] >= due
        return self._released >= due and sent and self._ring.is_free(sequence)

    def _hand_on(self, frame: bytes, message: torch.Tensor) -> None:
        self._ring.announce(frame)
        if self._downstream is not None and not self._cut:
            try:
                work = self._downstream.send(message, self._sequence)
                self._sends.append((self._sequence, work))
            except PeerLostError as error:
                self._cut = str(error)
        self._sequence += 1

    def _wait_sent(self, deadline: Deadline) -> None:
        """Wait for the oldest send. A lost neighbor cuts the chain; this host goes on."""
        _, work = self._sends.popleft()
        if self._downstream is None or self._cut:
            return
        try:
            self._downstream.wait(
                work, deadline, f"group rank {self._downstream.peer} to take a bucket"
            )
        except PeerLostError as error:
            self._cut = str(error)
            self._sends.clear()

    def _flush(self, deadline: Deadline) -> None:
        while self._sends:
            self._wait_sent(deadline)

    def _statuses_behind(self, deadline: Deadline) -> dict[int, str]:
        if self._downstream is None:
            return {}
        if not self._cut:
            buffer = torch.zeros(_STATUS_BYTES, dtype=torch.uint8)
            work = self._downstream.receive(buffer, _STATUS_TAG + self._syncs)
            try:
                self._downstream.wait(work, deadline, "statuses from the hosts behind")
                text = buffer.numpy().tobytes().rstrip(b"\0")
                return {int(rank): status for rank, status in _decode_statuses(text).items()}
            except (PeerLostError, msgspec.DecodeError, ValueError) as error:
                self._cut = str(error)
        return dict.fromkeys(self._relay.behind, f"cut off: {self._cut}")
