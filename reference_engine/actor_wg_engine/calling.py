"""How the driver calls many workers at once: without blocking its loop, with deadlines, and cancel-safe."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, ParamSpec, TypeVar

import ray

from actor_wg_engine.errors import PeerLostError, ReceiverError, SyncAbortedError

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)

#: Errors that a worker raises because of another one.
_CONSEQUENCES = (PeerLostError, ReceiverError, SyncAbortedError)


def awaitable_or_blocking(
    function: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Any]:
    """Make a coroutine function callable from plain code.

    Where an event loop runs in this thread, the call returns the coroutine, to be awaited. Where
    none runs, it blocks and returns the result.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        coroutine = function(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            running = False
        else:
            running = True
        return coroutine if running else asyncio.run(coroutine)

    return call


class Lock:
    """One at a time, first come first served, over all threads and event loops of the driver."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        """Wait for the turn; a cancelled wait passes the turn on."""
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            with self._guard:
                had_turn = turn.done() and not turn.cancelled()
                if not had_turn and turn in self._waiting:
                    self._waiting.remove(turn)
            if had_turn:
                self._pass_on()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        """Let the next one in."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._held = False


class Kind(Enum):
    """Why a call did not succeed; the order says how much it tells about the cause."""

    DEAD = 0
    """The process is gone."""
    RAISED = 1
    """The worker raised an error of its own."""
    LATE = 2
    """No answer within the deadline: slow, frozen or stuck."""
    VICTIM = 3
    """It stopped because a peer was lost or the sync was aborted."""


@dataclass(frozen=True)
class Failure:
    """One call that did not succeed."""

    kind: Kind
    reason: str


@dataclass
class Outcome(Generic[K]):
    """What became of the calls of one fan-out."""

    results: dict[K, Any]
    failures: dict[K, Failure]


class FanOut(Generic[K]):
    """Calls that are under way in many workers.

    Args:
        calls: Ray object references (or other awaitables), by whom they were sent to.
    """

    def __init__(self, calls: Mapping[K, Awaitable[Any]]) -> None:
        self._tasks = {key: asyncio.ensure_future(_awaited(call)) for key, call in calls.items()}
        for task in self._tasks.values():
            # Some are left behind when the driver is cancelled; their errors are then no news.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._late: dict[K, Failure] = {}

    async def first_failure(self, seconds: float) -> bool:
        """Wait until all are done, one has failed, or the time is up; say whether all succeeded."""
        if not self._tasks:
            return True
        done, pending = await asyncio.wait(
            self._tasks.values(), timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        return not pending and all(task.exception() is None for task in done)

    async def rest(self, seconds: float) -> None:
        """Wait for those that are still under way, failed or not."""
        pending = [task for task in self._tasks.values() if not task.done()]
        if pending:
            await asyncio.wait(pending, timeout=seconds)

    def give_up(self, reason: str) -> None:
        """Count those that are still under way as late, for the given reason. They run on."""
        for key, task in self._tasks.items():
            if not task.done():
                self._late.setdefault(key, Failure(Kind.LATE, reason))

    def forget(self) -> None:
        """Stop waiting; nobody wants the results. The calls run on."""
        for task in self._tasks.values():
            task.cancel()

    def pending(self) -> list[K]:
        """Return those that are still under way."""
        return [key for key, task in self._tasks.items() if not task.done()]

    def peek(self) -> dict[K, Failure]:
        """Return the failures so far."""
        return {
            key: classify(error)
            for key, task in self._tasks.items()
            if task.done() and not task.cancelled() and (error := task.exception()) is not None
        }

    def outcome(self) -> Outcome[K]:
        """Return the results and failures; what is still under way is late."""
        results: dict[K, Any] = {}
        failures: dict[K, Failure] = dict(self._late)
        for key, task in self._tasks.items():
            if not task.done():
                task.cancel()
                failures.setdefault(key, Failure(Kind.LATE, "did not answer"))
            elif task.cancelled():
                failures.setdefault(key, Failure(Kind.LATE, "cancelled"))
            elif (error := task.exception()) is not None:
                failures.setdefault(key, classify(error))
            elif key not in failures:
                results[key] = task.result()
        return Outcome(results, failures)


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


async def call_all(calls: Mapping[K, Awaitable[Any]], seconds: float, what: str) -> Outcome[K]:
    """Wait for all calls and return what became of each."""
    fan_out = FanOut(calls)
    await fan_out.rest(seconds)
    fan_out.give_up(f"no answer to {what} within {seconds:g} s")
    return fan_out.outcome()


def classify(error: BaseException) -> Failure:
    """Say what kind of failure an error is that came back from a worker."""
    if isinstance(error, ray.exceptions.RayActorError):
        return Failure(Kind.DEAD, "its process died")
    cause = getattr(error, "cause", None) or error
    kind = Kind.VICTIM if isinstance(cause, _CONSEQUENCES) else Kind.RAISED
    return Failure(kind, f"{type(cause).__name__}: {cause}")
