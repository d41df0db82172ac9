"""A line is a TCP connection between two ring neighbors: it tells at once that the neighbor is gone.

One-sided transports do not notice a dead peer (a write into the shared memory of a killed process
succeeds), so two neighbors keep a line open for as long as their group exists. The kernel closes it
when a process ends, whatever ended it. A line also carries small frames: bucket headers for a
transport that has no messages of its own, statuses at the end of a sync, and the reason of a
failure, which every rank passes on, so that all of them name the rank where it began.

Frames are typed and length-prefixed, their bodies plain bytes or JSON; the side that dials must
present the listener's token first.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import socket
import struct
from collections import deque
from dataclasses import asdict, dataclass

from actor_wg_engine import errors
from actor_wg_engine.errors import EngineError, PeerLostError, SyncTimeoutError
from actor_wg_engine.waiting import AbortFlag, Deadline

_FRAME = struct.Struct("!IB")  # bytes of the body, kind
_HEADER, _STATUS, _FAILURE, _BYE = 1, 2, 3, 4
_FRAME_LIMIT = 1 << 28
_HELLO_LIMIT = 4096
_HELLO_SECONDS = 1.0
_REASON_LIMIT = 1 << 14  # fits into any socket buffer, so that giving a reason never blocks

#: How each rank at and behind a line ended a sync, by group rank; empty text means success.
Statuses = dict[int, str]


@dataclass(frozen=True)
class Hello:
    """What the side that dials says first: the listener's token, and who it is."""

    token: str
    group: str
    rank: int


class LineListener:
    """Accepts the line of the previous neighbor on one address and a port of the system's choice.

    Args:
        host: the address to bind; never a wildcard.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.bind((host, 0))
            self._socket.listen(16)
        except OSError:
            self._socket.close()
            raise
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_hex(16)

    def accept(self, group: str, rank: int, flag: AbortFlag, deadline: Deadline) -> Line:
        """Wait for group rank `rank`; callers with another hello are turned away.

        Raises:
            SyncTimeoutError: it did not come.
            SyncAbortedError: the flag was set.
        """
        what = f"connection from group rank {rank}"
        while True:
            flag.readable([self._socket.fileno()], deadline, what)
            caller, _ = self._socket.accept()
            hello = _read_hello(caller, flag, deadline.at_most(_HELLO_SECONDS))
            known = hello is not None and hmac.compare_digest(hello.token, self.token)
            if hello is not None and known and (hello.group, hello.rank) == (group, rank):
                return Line(caller, f"group rank {rank}")
            caller.close()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def dial(host: str, port: int, hello: Hello, rank: int, deadline: Deadline) -> Line:
    """Open the line to group rank `rank`, which listens at `host`:`port`.

    Raises:
        PeerLostError: nobody listens there.
        SyncTimeoutError: the deadline passed.
    """
    what = f"connection to group rank {rank}"
    try:
        connection = socket.create_connection((host, port), deadline.remaining(what))
    except OSError as error:
        raise PeerLostError(
            f"group rank {rank} cannot be reached at {host}:{port}: {error}"
        ) from error
    try:
        connection.sendall(json.dumps(asdict(hello)).encode() + b"\n")
    except OSError as error:
        connection.close()
        raise PeerLostError(f"group rank {rank} at {host}:{port} hung up: {error}") from error
    return Line(connection, f"group rank {rank}")


def _read_hello(caller: socket.socket, flag: AbortFlag, deadline: Deadline) -> Hello | None:
    data = b""
    try:
        while not data.endswith(b"\n"):
            flag.readable([caller.fileno()], deadline, "hello")
            byte = caller.recv(1)  # not one byte more: what follows is the first frame
            if not byte or len(data) > _HELLO_LIMIT:
                return None
            data += byte
        said = json.loads(data)
        hello = Hello(str(said["token"]), str(said["group"]), int(said["rank"]))
    except (OSError, SyncTimeoutError, ValueError, TypeError, KeyError):
        return None
    return hello if hello.token.isascii() else None


class Line:
    """One end of the connection; used by one thread at a time.

    Args:
        connection: the connected socket, which the line owns from here on.
        peer: how errors name the other end.
    """

    def __init__(self, connection: socket.socket, peer: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.peer = peer
        self.gone = False  # the other end has closed: nothing comes from there any more
        self._left = False  # the other end said good-bye
        self._ended = False  # we said good-bye, or why we failed
        self._socket = connection
        self._input = bytearray()
        self._headers: deque[bytes] = deque()
        self._statuses: deque[Statuses] = deque()

    def send_header(self, header: bytes, deadline: Deadline) -> None:
        """Send the header of a bucket.

        Raises:
            EngineError: a rank failed, the peer is gone, or does not read in time.
        """
        self._send(header, _HEADER, deadline)

    def send_statuses(self, statuses: Statuses, deadline: Deadline) -> None:
        """Send how this rank and those behind it ended the sync.

        Raises:
            EngineError: as for `send_header`.
        """
        self._send(json.dumps(statuses).encode(), _STATUS, deadline)

    def header(self) -> bytes | None:
        """Take the next header that arrived, or None."""
        return self._headers.popleft() if self._headers else None

    def statuses(self) -> Statuses | None:
        """Take the next statuses that arrived, or None."""
        return self._statuses.popleft() if self._statuses else None

    def has_statuses(self) -> bool:
        """Tell whether `statuses` would return some."""
        return bool(self._statuses)

    def poll(self) -> None:
        """Take in what has arrived, without blocking.

        Raises:
            EngineError: the peer says that a rank failed, or closed without a good-bye.
        """
        while not self.gone:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # a reset is an end like any other
                data = b""
            self._input += data
            self._parse()
            if not data:
                self.gone = True
                if not (self._ended or self._left):
                    raise PeerLostError(f"{self.peer} is gone: its process ended")

    def end(self, failure: EngineError | None = None) -> None:
        """Say good-bye, or why we failed, and send no more; only the first call says anything."""
        if self._ended:
            return
        self._ended = True
        kind, body = _BYE, b""
        if failure is not None:
            said = {"kind": type(failure).__name__, "text": str(failure)[: _REASON_LIMIT // 8]}
            kind, body = _FAILURE, json.dumps(said).encode()
        with contextlib.suppress(OSError):  # a peer that is gone needs no good-bye
            self._socket.send(_FRAME.pack(len(body), kind) + body)
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self.gone = self._ended = True
        self._socket.close()

    def _send(self, body: bytes, kind: int, deadline: Deadline) -> None:
        view = memoryview(_FRAME.pack(len(body), kind) + body)
        while view:
            poller = select.poll()
            poller.register(self._socket, select.POLLOUT)
            poller.poll(1000 * deadline.remaining(f"reading by {self.peer}"))
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                continue
            except OSError as error:
                self.poll()  # the reason that the peer gave is better than ours
                raise PeerLostError(f"{self.peer} is gone: {error}") from error

    def _parse(self) -> None:
        while len(self._input) >= _FRAME.size:
            length, kind = _FRAME.unpack_from(self._input)
            if length > _FRAME_LIMIT:
                raise PeerLostError(f"{self.peer} announced a frame of {length} bytes")
            if len(self._input) < _FRAME.size + length:
                return
            body = bytes(self._input[_FRAME.size : _FRAME.size + length])
            del self._input[: _FRAME.size + length]
            if kind == _HEADER:
                self._headers.append(body)
            elif kind == _STATUS:
                self._statuses.append(_statuses(body))
            elif kind == _BYE:
                self._left = True
            elif not self._ended:
                raise _failure(_strings(body))


def _strings(body: bytes) -> dict[str, str]:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise PeerLostError("a neighbor sent a frame that is not what its kind says")
    return {str(key): str(value) for key, value in said.items()}


def _statuses(body: bytes) -> Statuses:
    try:
        return {int(rank): status for rank, status in _strings(body).items()}
    except ValueError as error:
        raise PeerLostError("a neighbor sent statuses of no rank") from error


def _failure(said: dict[str, str]) -> EngineError:
    kind = getattr(errors, said.get("kind", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, EngineError)):
        kind = EngineError
    error: EngineError = kind(said.get("text", "a neighbor failed without a reason"))
    return error
