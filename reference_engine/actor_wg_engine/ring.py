"""A link over a ring of one-sided writes: when to write, forward, credit and report.

Every rank owns equal slots, each as large as a bucket. A rank writes bucket `n` into slot `n % slots`
of the next rank once that rank has credited bucket `n - slots`; a rank in the middle forwards from
the slot in which the bucket arrived. It credits a slot when its consumer has released it and the
next rank has the bytes. At the end of a sync the statuses travel back to the source, each rank
adding its own, so that the source returns when every rank has consumed everything.

A `Mover` moves bytes, headers and credits; the lines to both neighbors tell of failures. An error of
one rank ends the sync in all ranks, with the text of the rank where it began.

All of that happens on a thread of the ring's own. A bucket moves while the engine's thread packs the
next one or copies the last one out, and forwarding and failures do not wait for a consumer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from actor_wg_engine import wire
from actor_wg_engine.errors import EngineError, PeerLostError
from actor_wg_engine.lines import Line, Statuses
from actor_wg_engine.link import Link
from actor_wg_engine.slots import finish_copies
from actor_wg_engine.waiting import AbortFlag, Deadline

T = TypeVar("T")

_SHORTEST_SLEEP = 100e-6
_LONGEST_SLEEP = 1e-3
_LONGEST_WAIT = 0.1
_REPORT_SECONDS = 10.0


class Mover(Protocol):
    """What a transport does for a ring. All calls come from the ring's thread.

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
        """Tell the previous rank that we are done with the first `count` buckets.

        Raises:
            EngineError: it cannot be told.
        """

    def credited(self) -> int:
        """Tell with how many buckets the next rank is done."""

    def quiet(self) -> bool:
        """Tell whether everything that we started has reached its destination."""


class RingLink(Link):
    """One rank's part in a ring.

    Args:
        rank: own group rank.
        slots: own slots.
        mover: moves the bytes.
        previous: the line to the previous rank; None at the source.
        following: the line to the next rank; None at the end of the ring.
        flag: ends every wait.
    """

    def __init__(
        self,
        rank: int,
        slots: tuple[torch.Tensor, ...],
        mover: Mover,
        previous: Line | None,
        following: Line | None,
        flag: AbortFlag,
    ) -> None:
        self.bucket_size = slots[0].numel()
        self.previous = previous
        self.idle = True
        """Whether no sync is running, so that no neighbor writes into our slots."""
        self._rank = rank
        self._slots = slots
        self._mover = mover
        self._following = following
        self._lines = [line for line in (previous, following) if line is not None]
        self._flag = flag
        # The engine's thread writes these:
        self._sequence = 0  # buckets published, or handed out
        self._released = 0
        self._report: Statuses | None = None
        self._gathered = False
        self._outbox: deque[tuple[int, bytes, int]] = deque()
        # The ring's thread writes these, and tells of it through `_changed`:
        self._inbox: deque[bytes] = deque()
        self._arrived = self._posted = self._left = self._credited = 0
        self._told = False
        self._broken: EngineError | None = None
        self._changed = threading.Condition()
        self._work = threading.Event()
        self._running = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_moving, name="ring", daemon=True)
        self._thread.start()

    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Wait until the slot has left for the next rank."""
        self._begin()
        due = self._sequence - len(self._slots) + 1
        self._wait(lambda: self._left >= due, self._following, deadline, "departure of a bucket")
        return self._slots[self._sequence % len(self._slots)]

    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Queue the bucket for the next rank."""
        deadline.remaining("publication of a bucket")
        finish_copies(bucket, self._flag)
        self._pass_on(frame, bucket.numel())

    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Wait for the next bucket and queue it for the next rank, if there is one."""
        self._begin()
        frame = self._wait(
            lambda: self._inbox.popleft() if self._inbox else None,
            self.previous, deadline, "bucket",
        )  # fmt: skip
        _, nbytes = wire.sizes(frame, self.bucket_size)
        slot = self._slots[self._sequence % len(self._slots)]
        self._pass_on(frame, nbytes)
        return frame, slot[:nbytes]

    def release(self) -> None:
        """Let the oldest slot be credited, at once or when it has been passed on."""
        finish_copies(self._slots[0], self._flag)
        self._released += 1
        self._work.set()

    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """Gather the statuses of the ranks behind, add the own one and hand them on."""
        statuses: Statuses = {}
        if self._following is not None:
            following = self._following
            statuses = self._wait(
                lambda: self._take_statuses(following), following, deadline, "status"
            )
        self._report = {**statuses, self._rank: status}
        self._work.set()
        neighbor = self.previous or self._following
        self._wait(lambda: self._report is None, neighbor, deadline, "completion")
        self.idle = True
        return statuses if self.previous is None else {}

    def abort(self) -> None:
        """Wake whatever waits."""
        self._flag.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Say good-bye to both neighbors, or that we leave in the middle of a sync.

        The line to the previous rank of an unfinished sync stays open: it tells when that rank has
        stopped writing into our slots.
        """
        self.abort()
        self._closed = True
        self._work.set()
        self._running.set()
        self._thread.join()
        for line in self._lines:
            line.end(None if self.idle else EngineError(f"group rank {self._rank} left the sync"))
            if self.idle or line is not self.previous:
                line.close()

    def _begin(self) -> None:
        if self.idle:
            self.idle = self._gathered = self._told = False
            self._running.set()

    def _take_statuses(self, following: Line) -> Statuses | None:
        if not following.has_statuses():
            return None
        self._gathered = True  # before they are taken: from here on the neighbor may leave
        return following.statuses()

    def _pass_on(self, frame: bytes, nbytes: int) -> None:
        if self._following is not None:
            self._outbox.append((self._sequence, frame, nbytes))
            self._work.set()
        self._sequence += 1

    def _wait(
        self, ready: Callable[[], T | None], peer: Line | None, deadline: Deadline, what: str
    ) -> T:
        """Wait on the engine's thread for what the ring's thread does."""
        whom = "nobody" if peer is None else peer.peer
        try:
            while True:
                with self._changed:
                    self._flag.check()
                    if self._broken is not None:
                        raise self._broken
                    answer = ready()
                    if answer is not None and answer is not False:
                        return answer
                    left = deadline.remaining(f"{what} from {whom}")
                    self._changed.wait(min(left, _LONGEST_WAIT))
        except EngineError as error:
            self._running.clear()
            raise self._tell(error) from error.__cause__

    def _tell(self, error: EngineError) -> EngineError:
        """Tell both neighbors why no more comes from here; they pass it on."""
        text = str(error)
        if not text.startswith("group rank"):
            error = type(error)(f"group rank {self._rank}: {text}")
        for line in self._lines:
            line.end(error)
        return error

    # The ring's thread.

    def _keep_moving(self) -> None:
        sleep = _SHORTEST_SLEEP
        while True:
            self._running.wait()
            if self._closed:
                return
            self._work.clear()
            try:
                moved = self._move()
            except EngineError as error:
                self._broken = self._tell(error)
                self._running.clear()
                moved = True
            if moved:
                sleep = _SHORTEST_SLEEP
                with self._changed:
                    self._changed.notify_all()
            else:
                self._work.wait(sleep)
                sleep = min(2 * sleep, _LONGEST_SLEEP)

    def _move(self) -> bool:
        """Do whatever can be done now, and return whether that was anything."""
        before = (self._arrived, self._posted, self._left, self._credited)
        mover = self._mover
        # Lines first: what a dead peer left behind must not be taken for its answer.
        for line in self._lines:
            line.poll()
        mover.progress()
        while (frame := mover.arrived(self._arrived)) is not None:
            self._inbox.append(frame)
            self._arrived += 1
        if self._outbox and mover.credited() > self._outbox[0][0] - len(self._slots):
            mover.post(*self._outbox[0])
            self._outbox.popleft()
            self._posted += 1
        while self._left < self._posted and mover.posted(self._left):
            self._left += 1
        released = self._released
        done = released if self._following is None else min(released, self._left)
        if self.previous is not None and done > self._credited:
            mover.credit(done)
            self._credited = done
        moved = before != (self._arrived, self._posted, self._left, self._credited)
        return self._hand_on_report() or self._news() or moved

    def _hand_on_report(self) -> bool:
        """Report when nothing of the sync is under way any more."""
        passed_on = self._following is None or self._left == self._sequence
        given_back = self.previous is None or self._credited == self._released
        if self._report is None or not (passed_on and given_back and self._mover.quiet()):
            return False
        if self.previous is not None:
            self.previous.send_statuses(self._report, Deadline(_REPORT_SECONDS))
        # From here on the neighbors may leave, and the ring rests.
        self._running.clear()
        self._report = None
        return True

    def _news(self) -> bool:
        """Tell whether statuses arrived; notice a neighbor that left while we still need it."""
        told = any(line.has_statuses() for line in self._lines)
        for line in self._lines:
            if line.gone and not (line.has_statuses() or self._gathered or self._report):
                raise PeerLostError(f"{line.peer} left in the middle of a sync")
        news = told and not self._told
        self._told = told
        return news
