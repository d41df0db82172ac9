"""Deadlines, an abort flag that wakes every wait, and the one thread on which an engine blocks."""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from actor_wg_engine.errors import SyncAbortedError, SyncTimeoutError

T = TypeVar("T")


class Deadline:
    """A point in time by which something must be done."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self, what: str) -> float:
        """Return the seconds that are left.

        Args:
            what: what is being waited for, for the message.

        Raises:
            SyncTimeoutError: none are left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise SyncTimeoutError(f"no {what} within {self._seconds:g} s")
        return left

    def at_most(self, seconds: float) -> Deadline:
        """Return the earlier of this deadline and one in so many seconds."""
        return Deadline(max(0.0, min(seconds, self._end - time.monotonic())))


class AbortFlag:
    """Set once, from any thread; wakes whoever waits in `readable`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._set = False

    def set(self) -> None:
        """Raise SyncAbortedError in all waits, now and later."""
        with self._lock:
            self._set = True
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def check(self) -> None:
        """Raise SyncAbortedError where the flag is set."""
        if self._set:
            raise SyncAbortedError("aborted")

    def close(self) -> None:
        """Give the descriptor back; the flag counts as set from now on."""
        with self._lock:
            self._set = True
            if self._event >= 0:
                os.close(self._event)
                self._event = -1

    def readable(self, descriptors: Iterable[int], deadline: Deadline, what: str) -> list[int]:
        """Block until one of the descriptors can be read, or was hung up by its peer.

        Raises:
            SyncAbortedError: the flag is or was set.
            SyncTimeoutError: the deadline passed.
        """
        self.check()
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        while True:
            events = poll.poll(deadline.remaining(what) * 1000)
            self.check()
            ready = [descriptor for descriptor, _ in events if descriptor != self._event]
            if ready:
                return ready


class EngineThread:
    """One daemon thread that runs jobs in order. A job that never returns is left behind with it.

    Copies on it use one core: the other cores belong to the training and the inference.
    """

    def __init__(self, name: str, setup: Callable[[], None] = lambda: None) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, args=(setup,), name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job and return its future."""
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def stop(self) -> None:
        """Let the thread end after the jobs queued so far. Does not wait."""
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the end and say whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, setup: Callable[[], None]) -> None:
        setup()
        while (item := self._jobs.get()) is not None:
            future, job = item
            # Not kept while waiting: a future holds the tensors of its result.
            del item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - it goes to whoever waits for the job
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del future, job
