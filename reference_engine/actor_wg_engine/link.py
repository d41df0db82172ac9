"""What carries buckets: the interface that a transport of buckets implements once per group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from actor_wg_engine.waiting import Deadline


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
