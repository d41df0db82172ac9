"""The inside of a worker process: one object, driven over a socket pair by the process that forked it.

Every call runs as a task of one event loop, like in an async Ray actor: a method that blocks holds up
the loop. Methods marked `immediate` run on the reading thread instead, whatever the loop is doing.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from actor_wg_engine.conformance.factory import resolve

F = TypeVar("F", bound=Callable[..., Any])
_LENGTH = struct.Struct("!Q")


def immediate(function: F) -> F:
    """Mark a method that must answer while the event loop is busy."""
    function.__dict__["immediate"] = True
    return function


def is_immediate(target: Any, method: str) -> bool:
    """Whether a method answers beside the event loop, as one of a Ray concurrency group does."""
    if getattr(getattr(target, method, None), "immediate", False):
        return True
    return method in getattr(target, "immediate_methods", ())


class RemoteError(RuntimeError):
    """Stands for an exception of a worker that cannot be pickled; keeps its type's name and text."""


class RemoteTraceback(Exception):  # noqa: N818 - shown as the cause of the real one
    """Where in the worker an exception came from."""


def write_message(connection: socket.socket, message: object) -> None:
    """Send one pickled message; both ends are processes of the same run on one socket pair."""
    data = pickle.dumps(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def read_message(connection: socket.socket) -> Any:
    """Receive one message.

    Raises:
        EOFError: The other end is gone.
    """
    (length,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size))
    return pickle.loads(_read_exactly(connection, length))


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(min(size - len(data), 1 << 20))
        except ConnectionError as error:
            raise EOFError(str(error)) from error
        if not part:
            raise EOFError("connection closed")
        data += part
    return bytes(data)


class Host:
    """Serves one object; `emit` sends an event to the driver out of turn."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._write_lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._target: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, name: str, value: object = None) -> None:
        """Tell the driver something while a call is still running. Any thread."""
        self._write(("event", name, value))

    def run(self) -> None:
        """Serve until the driver closes its end."""
        threading.Thread(target=self._read, name="conformance-host", daemon=True).start()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _write(self, message: tuple[object, ...]) -> None:
        try:
            with self._write_lock:
                write_message(self._connection, message)
        except OSError:
            os._exit(0)  # nobody is listening any more

    def _read(self) -> None:
        while True:
            try:
                ident, method, args, kwargs = read_message(self._connection)
            except EOFError:
                os._exit(0)
            if method != "__init__" and is_immediate(self._target, method):
                self._answer_now(ident, getattr(self._target, method), args, kwargs)
            else:
                self._loop.call_soon_threadsafe(self._start, ident, method, args, kwargs)

    def _answer_now(self, ident: int, function: Any, args: Any, kwargs: Any) -> None:
        try:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
            self._write(("result", ident, value))
        except Exception as error:  # noqa: BLE001 - carried to the driver
            self._fail(ident, error)

    def _start(self, ident: int, method: str, args: Any, kwargs: Any) -> None:
        task = self._loop.create_task(self._call(ident, method, args, kwargs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, ident: int, method: str, args: Any, kwargs: Any) -> None:
        try:
            if method == "__init__":
                self._target = resolve(args[0])(*args[1:], **kwargs)
                self._target.emit = self.emit
                self._write(("result", ident, None))
                return
            value = getattr(self._target, method)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - carried to the driver
            self._fail(ident, error)
            return
        try:
            self._write(("result", ident, value))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._fail(ident, TypeError(f"the result of {method} cannot be pickled: {error}"))

    def _fail(self, ident: int, error: BaseException) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - whatever a foreign exception does when it is pickled
            error = RemoteError(f"{type(error).__name__}: {error}")
        self._write(("error", ident, error, text))


def serve(connection: socket.socket) -> None:
    """Entry of a worker process."""
    Host(connection).run()
