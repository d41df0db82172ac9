"""Backend "mooncake": a ring of Mooncake Transfer Engines; RDMA on GPUs, TCP on a CPU.

A bucket is one write of the Transfer Engine into the next rank's slot. Its header follows on the line
to that rank, when the Transfer Engine reports the write as completed, which is when the bytes are
there. The next rank credits slots by writing a word into memory that holds nothing but words: neither
side ever writes an acknowledgment into a data slot.

Every call's return code is checked; Mooncake raises nothing itself. Its own listener takes writes from
anyone who knows an address inside the registered memory, and over TCP it binds all addresses: run it
in a network that you trust. The payload's checksum finds a stranger's writes, the lines' token keeps
strangers out of the protocol.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import struct
from typing import Any

import torch

from actor_wg_engine.errors import EngineError, PeerLostError, SyncTimeoutError, WireError
from actor_wg_engine.host import address
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.ring_engine import Neighbor, RingEngine
from actor_wg_engine.slots import allocate
from actor_wg_engine.waiting import Deadline
from actor_wg_engine.wire import Stream

INSTALL = (
    "pip install mooncake-transfer-engine-non-cuda (on a GPU: mooncake-transfer-engine); both need "
    "Debian's libibverbs1 librdmacm1 libnuma1"
)

_COMPLETED, _IN_PROGRESS, _TIMED_OUT = 1, 0, -2
_NUMBER = struct.Struct("<Q")
_LINE_SECONDS = 10.0
_WORD_BYTES = 8
#: Words apart from the slots: the next rank writes its credits into the first; ours are written from
#: the last, a cache line away.
_WORDS = 9
_COUNT_BITS = 40
_GENERATIONS = 1 << 22


def load_class() -> Any:
    """Import Mooncake's Transfer Engine.

    Raises:
        ImportError: it, or a library that it needs, is not installed; the message says which.
    """
    if importlib.util.find_spec("mooncake") is None:
        raise ImportError(f"backend 'mooncake' needs Mooncake, which is missing here: {INSTALL}")
    # Read when the library is loaded; by default it tells of every start and every transfer.
    os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
    try:
        return importlib.import_module("mooncake.engine").TransferEngine
    except ImportError as error:
        raise ImportError(f"backend 'mooncake' cannot load Mooncake: {error}. {INSTALL}") from error


@functools.cache
def transfer_engine(protocol: str, device_name: str, host: str) -> Any:
    """Return this process's Transfer Engine, started; ending one takes a second, so it is kept.

    Raises:
        EngineError: it does not start.
    """
    if protocol == "tcp":
        os.environ.setdefault("MC_FORCE_TCP", "1")  # else it looks for RDMA devices first
    engine = load_class()()
    code = engine.initialize(host, "P2PHANDSHAKE", protocol, device_name)
    if code != 0:
        raise EngineError(
            f"Mooncake does not start on {host} with protocol {protocol!r} (code {code}); without RDMA "
            "devices set engine_kwargs protocol='tcp'"
        )
    return engine


@CheckpointEngineRegistry.register("mooncake")
class MooncakeCheckpointEngine(RingEngine):
    """Weights over Mooncake's Transfer Engine.

    Args:
        bucket_size: upper bound of a slot in bytes.
        is_master: this is the engine of actor rank 0.
        protocol: "tcp" or "rdma"; by default RDMA where the slots are on a GPU.
        device_name: Mooncake's filter of network devices; all by default.
        **kwargs: as `ring_engine.RingEngine`.

    Raises:
        ImportError: Mooncake is not installed here.
    """

    transport = "mooncake"

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        protocol: str | None = None,
        device_name: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(bucket_size, is_master, **kwargs)
        self._protocol = protocol or ("rdma" if self.device.type == "cuda" else "tcp")
        self._device_name = device_name
        load_class()

    def open_station(self, slots: int, slot_bytes: int) -> MooncakeStation:
        """Start the Transfer Engine and register the slots with it."""
        host = address()
        engine = transfer_engine(self._protocol, self._device_name, host)
        return MooncakeStation(engine, host, slots, slot_bytes, self.device)


class MooncakeStation:
    """Slots and words, registered with the process's Transfer Engine.

    Args:
        engine: the Transfer Engine.
        host: the address with which it was started.
        count: number of slots.
        slot_bytes: size of each.
        device: where the slots are; the words are in host memory.

    Raises:
        EngineError: the memory cannot be registered.
    """

    def __init__(
        self, engine: Any, host: str, count: int, slot_bytes: int, device: torch.device
    ) -> None:
        self.engine = engine
        bracketed = f"[{host}]" if ":" in host else host
        self.name = f"{bracketed}:{engine.get_rpc_port()}"
        self._memory = allocate(count * slot_bytes, device)
        self.slots = tuple(self._memory.view(count, slot_bytes))
        self.words = torch.zeros(_WORDS, dtype=torch.int64)
        self.writes: dict[int, int] = {}
        self.word_write: int | None = None
        for memory in (self._memory, self.words):
            code = engine.register_memory(memory.data_ptr(), memory.nbytes)
            if code != 0:
                raise EngineError(f"Mooncake cannot register {memory.nbytes} bytes (code {code})")

    def describe(self) -> dict[str, Any]:
        """Return the session's name and where slots and words are."""
        return {
            "name": self.name,
            "addresses": [slot.data_ptr() for slot in self.slots],
            "word": self.words.data_ptr(),
        }

    def connect(
        self, stream: Stream, previous: Neighbor | None, following: Neighbor | None
    ) -> MooncakeMover:
        """Return the mover of a new group; Mooncake itself connects with the first write."""
        return MooncakeMover(self, stream, previous, following)

    def submit(self, peer: dict[str, Any], source: int, target: int, nbytes: int) -> int | None:
        """Start a write and return its batch, or None where Mooncake refuses it."""
        batch = self.engine.transfer_submit_write(peer["name"], source, target, nbytes)
        return int(batch) or None

    def busy(self) -> bool:
        """Tell whether a write still reads from the slots or the words."""
        for sequence, batch in list(self.writes.items()):
            if self.engine.transfer_check_status(batch) != _IN_PROGRESS:
                del self.writes[sequence]
        word = self.word_write
        if word is not None and self.engine.transfer_check_status(word) != _IN_PROGRESS:
            self.word_write = None
        return bool(self.writes) or self.word_write is not None

    def close(self) -> None:
        """Unregister the memory."""
        for memory in (self._memory, self.words):
            code = self.engine.unregister_memory(memory.data_ptr())
            if code != 0:
                raise EngineError(f"Mooncake cannot unregister {memory.nbytes} bytes (code {code})")


class MooncakeMover:
    """Writes, headers and credits of one group; see `ring.Mover` for the methods."""

    def __init__(
        self,
        station: MooncakeStation,
        stream: Stream,
        previous: Neighbor | None,
        following: Neighbor | None,
    ) -> None:
        self._station = station
        self._previous = previous
        self._following = following
        # A word of an earlier group must not count in this one.
        self._tag = stream.generation % _GENERATIONS
        self._waiting: dict[int, bytes] = {}
        self._headers: dict[int, bytes] = {}
        self._credit_due = self._credit_sent = 0

    def progress(self) -> None:
        """See which writes are over, send their headers and the credit that is due, take headers in."""
        station = self._station
        for sequence in [s for s, batch in station.writes.items() if self._over(batch, "bucket")]:
            del station.writes[sequence]
            self._send_header(sequence, self._waiting.pop(sequence))
        if station.word_write is not None and self._over(station.word_write, "credit"):
            station.word_write = None
        self._write_credit()
        if self._previous is not None:
            while (message := self._previous.line.header()) is not None:
                if len(message) < _NUMBER.size:
                    raise WireError(f"{self._previous.line.peer} sent a header without a number")
                (sequence,) = _NUMBER.unpack_from(message)
                self._headers[sequence] = message[_NUMBER.size :]

    def post(self, sequence: int, header: bytes, nbytes: int) -> None:
        """Write our slot into the next rank's; the header follows when that is done."""
        if self._following is None:
            raise EngineError("the last rank of a ring posts nothing")
        if nbytes == 0:
            self._send_header(sequence, header)
            return
        station, peer = self._station, self._following.station
        slot = sequence % len(station.slots)
        source = station.slots[slot].data_ptr()
        batch = station.submit(peer, source, peer["addresses"][slot], nbytes)
        if batch is None:
            raise PeerLostError(f"{self._following.line.peer} cannot be reached at {peer['name']}")
        station.writes[sequence] = batch
        self._waiting[sequence] = header

    def posted(self, sequence: int) -> bool:
        """Tell whether the write of a bucket is over."""
        return sequence not in self._station.writes

    def arrived(self, sequence: int) -> bytes | None:
        """Take the header of a bucket that is here."""
        return self._headers.pop(sequence, None)

    def credit(self, count: int) -> None:
        """Write our progress into the previous rank's word, now or as soon as a word is free."""
        self._credit_due = count
        self._write_credit()

    def credited(self) -> int:
        """Read our word: how far the next rank is."""
        tag, count = divmod(int(self._station.words[0]), 1 << _COUNT_BITS)
        return count if tag == self._tag else 0

    def quiet(self) -> bool:
        """Tell whether all our writes are over."""
        station = self._station
        return not station.writes and station.word_write is None

    def _write_credit(self) -> None:
        # One at a time: two writes on two connections could arrive in the wrong order.
        station, previous = self._station, self._previous
        if previous is None or station.word_write or self._credit_due == self._credit_sent:
            return
        station.words[-1] = (self._tag << _COUNT_BITS) + self._credit_due
        source = station.words[-1:].data_ptr()
        batch = station.submit(previous.station, source, previous.station["word"], _WORD_BYTES)
        if batch is None:
            raise PeerLostError(f"{previous.line.peer} cannot be reached for a credit")
        station.word_write = batch
        self._credit_sent = self._credit_due

    def _send_header(self, sequence: int, header: bytes) -> None:
        if self._following is not None:
            self._following.line.send_header(
                _NUMBER.pack(sequence) + header, Deadline(_LINE_SECONDS)
            )

    def _over(self, batch: int, what: str) -> bool:
        code = self._station.engine.transfer_check_status(batch)
        if code in (_IN_PROGRESS, _COMPLETED):
            return bool(code == _COMPLETED)
        neighbor = self._following if what == "bucket" else self._previous
        peer = "a neighbor" if neighbor is None else neighbor.line.peer
        if code == _TIMED_OUT:
            raise SyncTimeoutError(f"{peer}: Mooncake's write of a {what} timed out")
        raise PeerLostError(f"{peer}: Mooncake's write of a {what} failed (code {code})")
