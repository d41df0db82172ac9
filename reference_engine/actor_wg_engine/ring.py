"""The order of steps in a ring of one-sided transports: pack, post, forward, credit, report.

Every rank owns a few slots, each as large as a bucket. A rank writes bucket `n` into slot
`n % slots` of the next rank once that rank has credited bucket `n - slots`; a rank in the middle
forwards from the slot in which the bucket arrived. It credits a slot when its consumer is done with
it and the next rank has it. After the last bucket the statuses travel back to the source, each rank
adding its own, so the source returns only when every rank has consumed everything.

A `Link` moves bytes, headers and credits; this file decides when. It runs on the engine's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from actor_wg_engine.errors import EngineError, PeerLostError, SyncAbortedError, SyncTimeoutError
from actor_wg_engine.lines import Line, Statuses

T = TypeVar("T")

_SHORTEST_SLEEP = 20e-6
_LONGEST_SLEEP = 1e-3


class Link(Protocol):
    """What a transport does for a ring. One thread calls it, and every call returns at once.

    Sequence numbers count the buckets of a group from 0, over all its syncs.
    """

    def progress(self) -> None:
        """Take in what has arrived or completed; called before every question below.

        Raises:
            EngineError: a write failed, or a neighbor sent what no engine sends.
        """

    def post(self, sequence: int, header: bytes, nbytes: int) -> None:
        """Start to write the first `nbytes` of our slot into the same slot of the next rank.

        The header must not be seen there before the bytes.

        Raises:
            EngineError: the write could not be started.
        """

    def posted(self, sequence: int) -> bool:
        """Tell whether a bucket has left our slot; buckets that were never posted have."""

    def arrived(self, sequence: int) -> bytes | None:
        """Take the header of a bucket whose bytes are in our slot; None: not yet."""

    def credit(self, count: int) -> None:
        """Tell the previous rank that we are done with the first `count` buckets."""

    def credited(self) -> int:
        """Tell with how many buckets the next rank is done."""


class Ring:
    """One rank's part in one group.

    Args:
        link: moves the bytes.
        previous: the line to the previous rank; None at the source.
        following: the line to the next rank; None at the end of the ring.
        slots: how many slots every rank has.
        timeout: longest wait for any single step of a neighbor, in seconds.
        aborted: set by another thread to end every wait.
    """

    def __init__(
        self,
        link: Link,
        previous: Line | None,
        following: Line | None,
        slots: int,
        timeout: float,
        aborted: threading.Event,
    ) -> None:
        self._link = link
        self._previous = previous
        self._following = following
        self._lines = [line for line in (previous, following) if line is not None]
        self._slots = slots
        self._timeout = timeout
        self._aborted = aborted
        self._sequence = 0

    @property
    def slot(self) -> int:
        """The slot of the bucket that is due."""
        return self._sequence % self._slots

    def wait_for_slot(self) -> None:
        """Wait until the slot that is due may be overwritten (the source calls this, then packs).

        Raises:
            EngineError: a rank failed, is gone or too slow, or `aborted` was set.
        """
        if self._following is not None:
            self._wait(lambda: self._link.posted(self._sequence - self._slots), self._following)

    def post(self, header: bytes, nbytes: int) -> None:
        """Hand the bucket that is due to the next rank, if there is one.

        Raises:
            EngineError: as for `wait_for_slot`.
        """
        if self._following is not None:
            due = self._sequence - self._slots + 1
            self._wait(lambda: self._link.credited() >= due, self._following)
            self._link.post(self._sequence, header, nbytes)

    def wait_for_bucket(self) -> bytes:
        """Wait for the bucket that is due and return its header.

        Raises:
            EngineError: as for `wait_for_slot`; also at the source, to which nobody sends.
        """
        if self._previous is None:
            raise EngineError("the source of a ring receives nothing")
        return self._wait(lambda: self._link.arrived(self._sequence), self._previous)

    def advance(self) -> None:
        """Be done with the bucket that is due; ranks that received it give its slot back.

        Raises:
            EngineError: as for `wait_for_slot`.
        """
        if self._previous is not None:
            if self._following is not None:
                self._wait(lambda: self._link.posted(self._sequence), self._following)
            self._link.credit(self._sequence + 1)
        self._sequence += 1

    def gather(self, own: Statuses) -> Statuses:
        """Wait for the statuses of the ranks behind us, add our own and pass them on.

        Returns:
            What went wrong, by rank; at the source, of all ranks.

        Raises:
            EngineError: as for `wait_for_slot`.
        """
        statuses = dict(own)
        if self._following is not None:
            following = self._following
            statuses |= self._wait(following.statuses, following)
        if self._previous is not None:
            self._previous.send_statuses(statuses, time.monotonic() + self._timeout)
        return statuses

    def fail(self, error: EngineError) -> None:
        """Tell both neighbors why no more comes from here; they pass it on."""
        for line in self._lines:
            line.end(error)

    def leave(self) -> None:
        """Say good-bye to both neighbors."""
        for line in self._lines:
            line.end()

    def _wait(self, ready: Callable[[], T | None], peer: Line) -> T:
        sleep = _SHORTEST_SLEEP
        started = time.monotonic()
        while True:
            # Lines first: what a dead peer left in memory must not be taken for its answer.
            for line in self._lines:
                line.poll()
            if self._aborted.is_set():
                raise SyncAbortedError("the sync was aborted")
            self._link.progress()
            answer = ready()
            if answer is not None and answer is not False:
                return answer
            if peer.gone:
                raise PeerLostError(f"{peer.peer} left in the middle of a sync")
            if time.monotonic() - started > self._timeout:
                raise SyncTimeoutError(f"{peer.peer} made no progress for {self._timeout:g} s")
            time.sleep(sleep)
            sleep = min(2 * sleep, _LONGEST_SLEEP)
