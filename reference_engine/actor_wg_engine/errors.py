"""What can go wrong in a sync; every class takes one message, so Ray can carry it between processes."""

from __future__ import annotations


class EngineError(RuntimeError):
    """Base of everything this package raises on purpose."""


class TopologyError(EngineError, ValueError):
    """The worlds, the metadata or the lists of a topology do not fit together."""


class TensorError(EngineError, ValueError):
    """A tensor cannot be sent: sparse, meta, quantized, of an unknown dtype, or named twice."""


class WireError(EngineError):
    """Bytes that arrived are not the header or bucket that was due; nothing was written."""


class StaleBucketError(WireError):
    """A header of an older generation; it is skipped, not an end of the sync."""


class ReassemblyError(EngineError):
    """The stream of segments has a gap, an overlap, a duplicate, or ended too early."""


class SyncTimeoutError(EngineError, TimeoutError):
    """A deadline passed while waiting for a peer that is slow, frozen or gone."""


class PeerLostError(EngineError):
    """The connection to a peer broke; its process is most likely dead."""


class SyncAbortedError(EngineError):
    """`abort()` was called while the operation was running."""


class ReceiverError(EngineError):
    """The source is fine, but not every receiver got everything; it names them."""


class SyncError(EngineError):
    """One `update_weights` did not reach every replica.

    Attributes:
        failures: what failed, as `(label, reason)`; a label names the replica and the rank.
        committed: labels of the replicas that serve the new version all the same.
        quarantined: labels of the replicas that must not be served.
    """

    def __init__(
        self,
        message: str,
        failures: tuple[tuple[str, str], ...] = (),
        committed: tuple[str, ...] = (),
        quarantined: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.failures = failures
        self.committed = committed
        self.quarantined = quarantined

    def __reduce__(self) -> tuple[type[SyncError], tuple[object, ...]]:
        """Keep the fields when the error crosses a process border."""
        return type(self), (str(self), self.failures, self.committed, self.quarantined)
