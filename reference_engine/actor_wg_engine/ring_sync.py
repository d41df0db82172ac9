"""One sync over a ring, as the source and as a receiver see it; runs on the engine's thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from actor_wg_engine import wire
from actor_wg_engine.buckets import Packer, Reassembler
from actor_wg_engine.contract import TensorMeta
from actor_wg_engine.errors import EngineError, SyncAbortedError
from actor_wg_engine.ring import Ring

NamedTensors = list[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Place:
    """What one rank needs to take part in the syncs of a group."""

    rank: int
    ring: Ring
    stream: wire.Stream
    slots: tuple[torch.Tensor, ...]
    slot_bytes: int
    checked: bool

    def wait_for_copies(self) -> None:
        """Wait until the copies that this thread started are done; only a GPU has such."""
        device = self.slots[0].device
        if device.type == "cuda":
            torch.cuda.current_stream(device).record_event().synchronize()


def send(place: Place, weights: Iterator[tuple[str, torch.Tensor]], version: int | None) -> None:
    """Send a stream of named tensors from the source to all other ranks.

    Raises:
        EngineError: the ring broke, or receivers report that they do not have everything.
    """
    ring = place.ring
    sequence = 0

    def acquire() -> torch.Tensor:
        ring.wait_for_slot()
        return place.slots[ring.slot]

    def publish(
        payload: torch.Tensor, segments: list[TensorMeta], tensors: int, last: bool
    ) -> None:
        nonlocal sequence
        place.wait_for_copies()
        header = wire.encode(
            place.stream, version, sequence, segments, payload,
            tensors=tensors, last=last, checked=place.checked,
        )  # fmt: skip
        ring.post(header, payload.numel())
        ring.advance()
        sequence += 1

    packer = Packer(place.slot_bytes, acquire, publish, wire.body_size, wire.MAX_BODY_BYTES)
    for name, tensor in weights:
        packer.add(name, tensor)
    packer.close()
    failures = ring.gather({})
    if failures:
        listed = "; ".join(f"{who}: {why}" for who, why in sorted(failures.items()))
        raise EngineError(f"{len(failures)} receivers do not have all weights: {listed}")


def exhaust(weights: Iterator[object], aborted: threading.Event) -> None:
    """Consume a generator whose weights nobody wants, as its other ranks wait for this one.

    Raises:
        SyncAbortedError: `aborted` was set meanwhile.
    """
    for _ in weights:
        if aborted.is_set():
            raise SyncAbortedError("aborted while exhausting the generator")


class Reception:
    """The receiving side of one sync.

    Args:
        place: this rank's part in the ring.
        version: the version that is due; None accepts any.
        reassembler: puts the tensors together.
    """

    def __init__(self, place: Place, version: int | None, reassembler: Reassembler) -> None:
        self._place = place
        self._version = version
        self._reassembler = reassembler
        self._sequence = 0
        self._held = False
        self.rank = place.rank
        self.last = False

    def step(self) -> NamedTensors:
        """Wait for the next bucket, pass it on, and return the tensors that it completes.

        Views into the bucket are valid until `release`.

        Raises:
            ReassemblyError: this receiver cannot use the bucket; the ring itself is sound.
            EngineError: the ring broke.
        """
        header, payload = self._take()
        if header.flags & wire.CHECKED and payload.device.type == "cpu":
            wire.verify_payload(header, payload)
        return self._reassembler.feed(header, payload)

    def release(self, event: torch.cuda.Event | None = None) -> None:
        """Give the slot of the bucket back.

        Args:
            event: on a GPU, the point in the consumer's stream after which the slot is unused.

        Raises:
            EngineError: the ring broke.
        """
        if not self._held:
            return
        if event is not None:
            event.synchronize()
        self._place.wait_for_copies()
        self._place.ring.advance()
        self._held = False
        self._sequence += 1

    def finish(self) -> None:
        """Report success, once every rank behind this one has reported.

        Raises:
            EngineError: the ring broke.
        """
        self.release()
        self._place.ring.gather({})

    def drop_out(self, why: str) -> None:
        """Receive and pass on the rest without looking at it, and report the failure.

        Raises:
            EngineError: the ring broke.
        """
        self.release()
        while not self.last:
            self._take()
            self.release()
        self._place.ring.gather({f"group rank {self.rank}": why})

    def _take(self) -> tuple[wire.Header, torch.Tensor]:
        place = self._place
        frame = place.ring.wait_for_bucket()
        header = wire.decode(frame, place.stream, self._sequence, self._version, place.slot_bytes)
        place.ring.post(frame, header.payload_bytes)
        self._held = True
        self.last = header.last
        return header, place.slots[place.ring.slot][: header.payload_bytes]


def close_generator(weights: object) -> None:
    """Close a generator; other iterators have nothing to close."""
    with contextlib.suppress(AttributeError):
        weights.close()  # type: ignore[attr-defined]
