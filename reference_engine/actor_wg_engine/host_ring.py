"""Buckets in shared memory: one owner fills them, the other workers of its host read them in place.

The memory is handed over a Unix socket in the abstract namespace: a memfd, or the ticket of device
memory. The same socket carries the headers to the reader, and releases and the status back. A peer
that dies is seen at once, as its socket closes.

    reader -> owner   hello (token, rank)      once
    owner -> reader   welcome (slots, memory)  once
    owner -> reader   a header per bucket; bucket n lies in slot n % slots
    reader -> owner   "r" for each bucket that may be overwritten; "s" + text at the end of a sync
"""

from __future__ import annotations

import array
import os
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from actor_wg_engine import wire
from actor_wg_engine.errors import PeerLostError, SyncTimeoutError, WireError
from actor_wg_engine.link import Link
from actor_wg_engine.ring_memory import CPU, Memory
from actor_wg_engine.slots import TICKET_BYTES, finish_copies
from actor_wg_engine.waiting import AbortFlag, Deadline

SLOTS = 3
_HELLO = struct.Struct("<4s16sQi")
_WELCOME = struct.Struct("<4sIQ")
_MAGIC = b"AWGR"
_MAX_MESSAGE = wire.PREFIX_BYTES + wire.MAX_BODY_BYTES
_RELEASE = b"r"
_STATUS = b"s"


class RingListener:
    """The address where a worker can be reached by the readers of its host."""

    def __init__(self) -> None:
        self.name = f"actor-wg-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(f"\0{self.name}")
        self.socket.listen(64)

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


@dataclass
class _Reader:
    rank: int
    connection: socket.socket
    released: int = 0
    failure: str | None = None
    status: str | None = None


@dataclass
class HostRing:
    """The owner's side: its memory and the readers of its host.

    A reader that is lost does not stop the others; its failure is its status.
    """

    memory: Memory
    flag: AbortFlag
    _readers: list[_Reader] = field(default_factory=list)

    @classmethod
    def open(
        cls, listener: RingListener | None, readers: tuple[int, ...], stream: wire.Stream,
        memory: Memory, flag: AbortFlag, deadline: Deadline,
    ) -> HostRing:  # fmt: skip
        """Share the memory and wait until every reader has connected and shown the token.

        Raises:
            SyncTimeoutError: a reader did not come; the message names the group ranks.
        """
        ring = cls(memory, flag)
        try:
            missing = set(readers)
            while missing:
                what = f"connection from group ranks {sorted(missing)} on this host"
                if listener is None:
                    raise PeerLostError(f"no listener for the {what}")
                flag.readable([listener.socket.fileno()], deadline, what)
                connection, _ = listener.socket.accept()
                rank = _welcome(connection, memory, stream, missing, flag, deadline)
                if rank is None:
                    connection.close()
                    continue
                missing.discard(rank)
                ring._readers.append(_Reader(rank, connection))
        except BaseException:
            ring.close()
            raise
        finally:
            memory.seal()
        return ring

    @property
    def failures(self) -> dict[int, str]:
        """The readers that are lost, by group rank, with the reason."""
        return {r.rank: r.failure for r in self._readers if r.failure is not None}

    @property
    def read(self) -> bool:
        """Whether anybody still reads."""
        return any(r.failure is None for r in self._readers)

    def wait_free(self, sequence: int, deadline: Deadline) -> None:
        """Block until all readers have released the slot that bucket `sequence` will use."""
        due = sequence - self.memory.slots + 1
        self._until(lambda r: r.released >= due, deadline, "release of a bucket")

    def is_free(self, sequence: int) -> bool:
        """Say whether `wait_free` would return at once."""
        for reader in self._readers:
            _hear(reader)
        due = sequence - self.memory.slots + 1
        return all(r.failure is not None or r.released >= due for r in self._readers)

    def announce(self, frame: bytes) -> None:
        """Tell the readers of a bucket. Never blocks for long: the ring bounds what is under way."""
        for reader in self._readers:
            if reader.failure is None:
                try:
                    reader.connection.sendall(frame)
                except OSError as error:
                    reader.failure = f"lost: {error}"

    def collect(self, deadline: Deadline) -> dict[int, str]:
        """Wait for the statuses of this sync; a lost reader's is its failure."""
        self._until(lambda r: r.status is not None, deadline, "status")
        statuses = {
            r.rank: (r.failure or "") if r.status is None else r.status for r in self._readers
        }
        for reader in self._readers:
            reader.status = None
        return statuses

    def close(self) -> None:
        """Hang up on all readers."""
        for reader in self._readers:
            reader.connection.close()

    def _until(self, done: Callable[[_Reader], bool], deadline: Deadline, what: str) -> None:
        while True:
            waiting = {
                r.connection.fileno(): r for r in self._readers if r.failure is None and not done(r)
            }
            if not waiting:
                self.flag.check()
                return
            ranks = sorted(r.rank for r in waiting.values())
            for descriptor in self.flag.readable(
                waiting, deadline, f"{what} from group ranks {ranks}"
            ):
                _hear(waiting[descriptor])


def _hear(reader: _Reader) -> None:
    """Take in everything a reader has said."""
    while reader.failure is None:
        try:
            message = reader.connection.recv(_MAX_MESSAGE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            reader.failure = f"lost: {error}"
            return
        if not message:
            reader.failure = "lost: it closed the connection, or died"
            return
        if message[:1] == _RELEASE:
            reader.released += 1
        elif message[:1] == _STATUS:
            reader.status = message[1:].decode(errors="replace")
        else:
            reader.failure = "lost: it sent something that is neither release nor status"
            return


def _welcome(
    connection: socket.socket, memory: Memory, stream: wire.Stream, missing: set[int], flag: AbortFlag, deadline: Deadline,
) -> int | None:  # fmt: skip
    """Check a hello and hand over the memory; None for a stranger."""
    try:
        flag.readable([connection.fileno()], deadline.at_most(1.0), "hello")
        hello = connection.recv(_HELLO.size + 1)
        if len(hello) != _HELLO.size:
            return None
        magic, session, generation, rank = _HELLO.unpack(hello)
        known = secrets.compare_digest(session, stream.session)
        if magic != _MAGIC or not known or generation != stream.generation or rank not in missing:
            return None
        message = _WELCOME.pack(_MAGIC, memory.slots, memory.bucket_size) + memory.ticket
        shared = [] if memory.descriptor is None else [memory.descriptor]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", shared))
        connection.sendmsg([message], [rights] if shared else [])
    except (OSError, SyncTimeoutError):
        return None
    return int(rank)


class RingReader(Link):
    """The reader's side: a link that receives from the owner on the same host."""

    def __init__(
        self,
        owner: int,
        name: str,
        rank: int,
        stream: wire.Stream,
        flag: AbortFlag,
        deadline: Deadline,
        device: torch.device = CPU,
    ) -> None:
        self._owner = owner
        self._flag = flag
        self._sequence = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._memory = self._enter(name, rank, stream, deadline, device)
        except BaseException:
            self._socket.close()
            raise
        self.bucket_size = self._memory.bucket_size

    def _enter(
        self, name: str, rank: int, stream: wire.Stream, deadline: Deadline, device: torch.device
    ) -> Memory:
        try:
            self._socket.connect(f"\0{name}")
            self._socket.sendall(_HELLO.pack(_MAGIC, stream.session, stream.generation, rank))
        except OSError as error:
            raise PeerLostError(f"group rank {self._owner} cannot be reached: {error}") from error
        self._flag.readable(
            [self._socket.fileno()], deadline, f"welcome from group rank {self._owner}"
        )
        rights = array.array("i")
        try:
            message, ancillary, *_ = self._socket.recvmsg(
                _WELCOME.size + TICKET_BYTES + 1, socket.CMSG_SPACE(4)
            )
        except OSError as error:
            raise PeerLostError(f"group rank {self._owner} is lost: {error}") from error
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
        try:
            if len(message) < _WELCOME.size:
                raise PeerLostError(
                    f"group rank {self._owner} refused or left during the handshake"
                )
            magic, slots, bucket_size = _WELCOME.unpack_from(message)
            if magic != _MAGIC:
                raise WireError(f"no welcome: it begins with {magic!r}")
            ticket = message[_WELCOME.size :]
            return Memory.attach(slots, bucket_size, device, list(rights), ticket)
        finally:
            for descriptor in rights:
                os.close(descriptor)

    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Refused: this end only receives."""
        raise NotImplementedError("a receiver has no buckets to fill")

    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Refused: this end only receives."""
        raise NotImplementedError("a receiver has nothing to publish")

    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Wait for the next header and return it with its payload, in place."""
        what = f"bucket from group rank {self._owner}"
        self._flag.readable([self._socket.fileno()], deadline, what)
        try:
            frame = self._socket.recv(_MAX_MESSAGE)
        except OSError as error:
            raise PeerLostError(f"group rank {self._owner} is lost: {error}") from error
        if not frame:
            raise PeerLostError(
                f"group rank {self._owner} is lost: it closed the connection, or died"
            )
        _, payload_bytes = wire.sizes(frame, self.bucket_size)
        bucket = self._memory.payload(self._sequence)[:payload_bytes]
        self._sequence += 1
        return frame, bucket

    def release(self) -> None:
        """Let the owner overwrite the oldest bucket, once our copies from it are over."""
        finish_copies(self._memory.slot(0), self._flag)
        self._tell(_RELEASE)

    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """Report the own status to the owner."""
        deadline.remaining("status")
        self._tell(_STATUS + status.encode()[:4096])
        return {}

    def abort(self) -> None:
        """Wake whatever waits."""
        self._flag.set()

    def close(self) -> None:
        """Hang up; the memory goes when the last view of it does."""
        self._flag.set()
        self._socket.close()

    def _tell(self, message: bytes) -> None:
        try:
            self._socket.sendall(message)
        except OSError as error:
            raise PeerLostError(f"group rank {self._owner} is lost: {error}") from error
