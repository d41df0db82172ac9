"""Handles of worker processes: call a method, get a reference; kill, freeze, and notice a death."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import signal
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from actor_wg_engine.conformance import nursery
from actor_wg_engine.conformance.host import RemoteTraceback, read_message, write_message
from actor_wg_engine.conformance.results import CheckFailed


class WorkerDiedError(RuntimeError):
    """The process behind a handle ended before it answered."""


class DeadlineError(CheckFailed):
    """A worker did not answer in time; the text says which one and what it was doing."""


class Ref:
    """A pending answer: awaitable like a Ray object reference, and waitable from plain code."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.pending: Future[Any] = Future()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.pending).__await__()

    def result(self, timeout: float) -> Any:
        """The answer.

        Raises:
            DeadlineError: There is none after `timeout` seconds.
        """
        try:
            return self.pending.result(timeout)
        except FutureTimeoutError as error:
            if self.pending.done():
                raise  # the worker itself answered with a timeout
            raise DeadlineError(f"{self.what} did not return within {timeout:.0f} s") from error

    def _settle(self, value: Any = None, error: BaseException | None = None) -> None:
        with contextlib.suppress(InvalidStateError):  # a cancelled waiter does not want it
            if error is None:
                self.pending.set_result(value)
            else:
                self.pending.set_exception(error)


class RemoteMethod:
    """`handle.method`, with Ray's `.remote(...)` and `.options(...).remote(...)`."""

    def __init__(self, handle: WorkerHandle, name: str) -> None:
        self._handle = handle
        self._name = name

    def options(self, **_: object) -> RemoteMethod:
        """Accept Ray's options, which mean nothing here."""
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Ref:
        """Start the call."""
        return self._handle.submit(self._name, *args, **kwargs)


class WorkerHandle:
    """One fresh process that holds one object.

    Args:
        address: The nursery's address.
        name: How messages call this worker, such as "rollout 1".
        target: "package.module:Class" of the object.
        args: Its constructor's arguments.
    """

    def __init__(self, address: str, name: str, target: str, *args: Any, **kwargs: Any) -> None:
        self.name = name
        self._address = address
        self.pid, self._connection = nursery.fork(
            address, "actor_wg_engine.conformance.host:serve", name.replace(" ", "-")
        )
        self._refs: dict[int, Ref] = {}
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._dead = False
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._kept: list[tuple[str, Any]] = []
        threading.Thread(target=self._read, name=f"reader of {name}", daemon=True).start()
        self.ready = self.submit("__init__", target, *args, **kwargs)

    def __getattr__(self, name: str) -> RemoteMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteMethod(self, name)

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Ref:
        """Start a call and return the reference to its answer."""
        ref = Ref(f"{method} on {self.name}")
        with self._lock:
            if self._dead:
                ref._settle(error=self._death())
                return ref
            ident = next(self._ids)
            self._refs[ident] = ref
            try:
                write_message(self._connection, (ident, method, args, kwargs))
            except OSError:
                ref._settle(error=self._death())
        return ref

    def call(self, method: str, *args: Any, timeout: float = 20.0, **kwargs: Any) -> Any:
        """Call and wait."""
        return self.submit(method, *args, **kwargs).result(timeout)

    def wait_event(self, name: str, timeout: float = 20.0) -> Any:
        """Wait until the worker emits an event of that name.

        Raises:
            DeadlineError: It does not within `timeout` seconds.
        """
        ends = time.monotonic() + timeout
        for index, (kept, value) in enumerate(self._kept):
            if kept == name:
                del self._kept[index]
                return value
        while True:
            try:
                got, value = self._events.get(timeout=max(ends - time.monotonic(), 0.001))
            except queue.Empty as error:
                raise DeadlineError(
                    f"{self.name} did not come to {name!r} in {timeout:.0f} s"
                ) from error
            if got == name:
                return value
            self._kept.append((got, value))

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Send a signal to the process; nothing when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    @property
    def alive(self) -> bool:
        """True until the process's end of the socket pair is closed."""
        return not self._dead

    def log(self) -> str:
        """What the process wrote to its standard streams."""
        return nursery.log_of(self._address, self.name.replace(" ", "-"), self.pid)

    def close(self) -> None:
        """Kill the process and let go of it."""
        self.kill(signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._connection.shutdown(2)

    def _death(self) -> Exception:
        return WorkerDiedError(f"{self.name} (process {self.pid}) died")

    def _read(self) -> None:
        while True:
            try:
                kind, *rest = read_message(self._connection)
            except (EOFError, OSError):
                break
            if kind == "event":
                self._events.put((rest[0], rest[1]))
                continue
            ref = self._refs.pop(rest[0], None)
            if ref is None:
                continue
            if kind == "result":
                ref._settle(rest[1])
            else:
                rest[1].__cause__ = RemoteTraceback(f"in {self.name}:\n{rest[2]}")
                ref._settle(error=rest[1])
        with self._lock:
            self._dead = True
            waiting = list(self._refs.values())
            self._refs.clear()
        for ref in waiting:
            ref._settle(error=self._death())
        self._connection.close()


def settle(refs: Iterable[Ref], timeout: float) -> list[Any]:
    """Wait for all; the answers in order, an exception where the call ended in one."""
    ends = time.monotonic() + timeout
    answers: list[Any] = []
    for ref in refs:
        try:
            answers.append(ref.result(max(ends - time.monotonic(), 0.01)))
        except Exception as error:  # noqa: BLE001 - the caller judges each
            answers.append(error)
    return answers


def gather(refs: Iterable[Ref], timeout: float) -> list[Any]:
    """Wait for all; raises the first exception, after all had their time."""
    answers = settle(refs, timeout)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
