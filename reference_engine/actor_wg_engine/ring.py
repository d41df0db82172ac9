"""A link over a ring of one-sided writes: when to write, forward, credit and report.

Every rank owns equal slots, each as large as a bucket. A rank writes bucket `n` into slot `n % slots`
of the next rank once that rank has credited bucket `n - slots`; a rank in the middle forwards from
the slot in which the bucket arrived. It credits a slot when its consumer has released it and the
next rank has the bytes. At the end of a sync the statuses travel back to the source, each rank
adding its own, so that the source returns when every rank has consumed everything.

A `Mover` moves bytes, headers and credits; the lines to both neighbors tell of failures. An error of
one rank ends the sync in all ranks, with the text of the rank where it began.

During a sync a second thread keeps things moving while the engine's thread has nothing to do, as it
waits for its consumer: buckets that were posted must arrive, and failures must be passed on, all the
same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import torch

from actor_wg_engine import wire
from actor_wg_engine.bucket_engine import Link
from actor_wg_engine.errors import EngineError, PeerLostError
from actor_wg_engine.lines import Line
from actor_wg_engine.waiting import AbortFlag, Deadline

T = TypeVar("T")

_SHORTEST_SLEEP = 20e-6
_LONGEST_SLEEP = 1e-3


class Mover(Protocol):
    """What a transport does for a ring. Every call returns at once; no two run at the same time.

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
        self._sequence = 0  # buckets published, or handed out
        self._released = 0
        self._credited = 0
        self._lock = threading.Lock()
        self._broken: EngineError | None = None
        self._running = threading.Event()
        self._closed = False
        self._pump = threading.Thread(target=self._keep_moving, name="ring", daemon=True)
        self._pump.start()

    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Wait until the slot has left for the next rank."""
        self._begin()
        with self._failing():
            self._wait(
                lambda: self._mover.posted(self._sequence - len(self._slots)),
                self._following, deadline, "departure of a bucket",
            )  # fmt: skip
        return self._slots[self._sequence % len(self._slots)]

    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Start to write the bucket to the next rank, as soon as it has the slot free."""
        with self._failing():
            _wait_for_copies(bucket)
            self._post(frame, bucket.numel(), deadline)
        self._sequence += 1

    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Wait for the next bucket and pass it on."""
        self._begin()
        with self._failing():
            frame = self._wait(
                lambda: self._mover.arrived(self._sequence), self.previous, deadline, "bucket"
            )
            _, nbytes = wire.sizes(frame, self.bucket_size)
            self._post(frame, nbytes, deadline)
        slot = self._slots[self._sequence % len(self._slots)]
        self._sequence += 1
        return frame, slot[:nbytes]

    def release(self) -> None:
        """Credit the oldest slot, at once or when it has been passed on."""
        _wait_for_copies(self._slots[0])
        with self._failing(), self._lock:
            self._released += 1
            self._credit()

    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """Gather the statuses of the ranks behind, add the own one and hand them on."""
        statuses: dict[int, str] = {}
        with self._failing():
            following = self._following
            if following is not None:
                statuses = self._wait(following.statuses, following, deadline, "status")
            self._wait(self._quiet, self.previous or following, deadline, "completion")
            if self.previous is not None:
                self.previous.send_statuses({**statuses, self._rank: status}, deadline)
        self._running.clear()
        self.idle = True
        return statuses if self.previous is None else {}

    def abort(self) -> None:
        """Wake whatever waits."""
        self._flag.set()

    def close(self) -> None:
        """Say good-bye to both neighbors, or that we leave in the middle of a sync.

        The line to the previous rank of an unfinished sync stays open: it tells when that rank has
        stopped writing into our slots.
        """
        self._flag.set()
        self._closed = True
        self._running.set()
        self._pump.join()
        for line in self._lines:
            line.end(None if self.idle else EngineError(f"group rank {self._rank} left the sync"))
            if self.idle or line is not self.previous:
                line.close()

    def _begin(self) -> None:
        self.idle = False
        self._running.set()

    def _keep_moving(self) -> None:
        while True:
            self._running.wait()
            if self._closed:
                return
            with self._lock:
                try:
                    self._move()
                except EngineError as error:
                    self._broken = self._tell(error)
                    self._running.clear()
            time.sleep(_LONGEST_SLEEP)

    def _move(self) -> None:
        # Lines first: what a dead peer left behind must not be taken for its answer.
        for line in self._lines:
            line.poll()
        self._mover.progress()
        self._credit()

    def _post(self, frame: bytes, nbytes: int, deadline: Deadline) -> None:
        if self._following is not None:
            due = self._sequence - len(self._slots) + 1
            self._wait(
                lambda: self._mover.credited() >= due, self._following, deadline, "free slot"
            )
            with self._lock:
                self._mover.post(self._sequence, frame, nbytes)

    def _credit(self) -> None:
        done = self._credited
        while done < self._released and self._mover.posted(done):
            done += 1
        if done > self._credited:
            self._mover.credit(done)
            self._credited = done

    def _quiet(self) -> bool:
        return self._credited == self._released and self._mover.quiet()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Tell both neighbors why no more comes from here; they pass it on."""
        try:
            yield
        except EngineError as error:
            self._running.clear()
            with self._lock:
                told = self._tell(error)
            raise told from error.__cause__

    def _tell(self, error: EngineError) -> EngineError:
        text = str(error)
        if not text.startswith("group rank"):
            error = type(error)(f"group rank {self._rank}: {text}")
        for line in self._lines:
            line.end(error)
        return error

    def _wait(
        self, ready: Callable[[], T | None], peer: Line | None, deadline: Deadline, what: str
    ) -> T:
        whom = "nobody" if peer is None else peer.peer
        sleep = _SHORTEST_SLEEP
        while True:
            self._flag.check()
            with self._lock:
                if self._broken is not None:
                    raise self._broken
                self._move()
                answer = ready()
            if answer is not None and answer is not False:
                return answer
            if peer is not None and peer.gone:
                raise PeerLostError(f"{whom} left in the middle of a sync")
            time.sleep(min(sleep, deadline.remaining(f"{what} from {whom}")))
            sleep = min(2 * sleep, _LONGEST_SLEEP)


def _wait_for_copies(memory: torch.Tensor) -> None:
    if memory.device.type == "cuda":
        torch.cuda.current_stream(memory.device).record_event().synchronize()
