"""Backend "nixl": a ring of NIXL agents over UCX; buckets are written, notifications order them.

Each bucket is one WRITE into the next rank's slot with a notification behind it that carries session,
generation, sequence and the bucket's header. Credits are notifications without data. A write into the
memory of a dead process may succeed, so the loss of a peer is noticed by the ring's lines.

UCX reads its environment when the agent is created. UCX_TLS is best left unset; where it is set it
must contain "tcp", over which the notifications of some transports travel.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import struct
import uuid
from pathlib import Path
from typing import Any

import torch

from actor_wg_engine.errors import EngineError, PeerLostError, WireError
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.ring_engine import Neighbor, RingEngine
from actor_wg_engine.slots import allocate
from actor_wg_engine.wire import Stream

PACKAGES = ("nixl_cu12", "nixl_cu13", "nixl")
INSTALL = "pip install --no-deps nixl-cu12"

_NOTE = struct.Struct("<4s16sQQB")  # magic, session, generation, number, kind
_MAGIC = b"AWGN"
_BUCKET, _CREDIT = 1, 2
_KEPT = 64
_INFINIBAND = Path("/sys/class/infiniband")


def load_api() -> Any:
    """Import NIXL's Python interface.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is not None:
            if not (_INFINIBAND.is_dir() and any(_INFINIBAND.iterdir())):
                # UCX's module for it loads the system's libnl next to the wheel's own, and the
                # process crashes at its exit, when one's destructor runs in the other.
                os.environ.setdefault("UCX_MODULES", "^ib")
            return importlib.import_module(f"{package}._api")
    raise ImportError(f"backend 'nixl' needs NIXL, which is not installed here: {INSTALL}")


@CheckpointEngineRegistry.register("nixl")
class NIXLCheckpointEngine(RingEngine):
    """Weights over NIXL. Host memory on a CPU, device memory on a GPU.

    Takes the arguments of `ring_engine.RingEngine`.

    Raises:
        ImportError: NIXL is not installed here.
    """

    transport = "nixl"

    def __init__(self, bucket_size: int, is_master: bool = False, **engine_kwargs: Any) -> None:
        super().__init__(bucket_size, is_master, **engine_kwargs)
        self._api = load_api()

    def open_station(self, slots: int, slot_bytes: int) -> NixlStation:
        """Create the agent and register the slots with it."""
        return NixlStation(self._api, slots, slot_bytes, self.device)


class NixlStation:
    """One NIXL agent and the slots registered with it.

    Args:
        api: NIXL's Python interface.
        count: number of slots.
        slot_bytes: size of each.
        device: where they are.

    Raises:
        EngineError: NIXL has no UCX here, or the memory cannot be registered.
    """

    def __init__(self, api: Any, count: int, slot_bytes: int, device: torch.device) -> None:
        found = [kind for kind in vars(api.nixlBind).values() if isinstance(kind, type)]
        self.errors: tuple[type[Exception], ...] = (
            RuntimeError,
            KeyError,
            *(kind for kind in found if issubclass(kind, Exception)),
        )
        self.name = f"actor-wg-{uuid.uuid4().hex}"
        self.slot_bytes = slot_bytes
        self.kind = "VRAM" if device.type == "cuda" else "DRAM"
        memory = allocate(count * slot_bytes, device)
        self.slots = tuple(memory.view(count, slot_bytes))
        self.device_id = max(0, memory.get_device())
        self.writes: dict[int, Any] = {}
        self._known: dict[str, bytes] = {}
        try:
            # NIXL's progress thread spins: with more agents than cores it is several times slower
            # than our own questions, which drive the progress as well.
            config = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
            self.agent = api.nixl_agent(self.name, config)
            self._registered = self.agent.register_memory(
                [(memory.data_ptr(), memory.numel(), self.device_id, "")], self.kind
            )
        except self.errors as error:
            raise EngineError(f"NIXL cannot register {memory.numel()} bytes: {error!r}") from error

    def describe(self) -> dict[str, Any]:
        """Return the agent's metadata and where the slots are."""
        return {
            "name": self.name,
            "agent": self.agent.get_agent_metadata(),
            "kind": self.kind,
            "device_id": self.device_id,
            "addresses": [slot.data_ptr() for slot in self.slots],
        }

    def connect(
        self, stream: Stream, previous: Neighbor | None, following: Neighbor | None
    ) -> NixlMover:
        """Make the neighbors' agents known.

        Agents that are no neighbors any more stay known, up to a limit: when one comes back after it
        was forgotten, UCX opens another connection without closing the old one.

        Raises:
            EngineError: NIXL does not accept a neighbor's metadata.
        """
        neighbors = [n.station for n in (previous, following) if n is not None]
        wanted = {station["name"]: station["agent"] for station in neighbors}
        try:
            for name in [name for name in wanted if name not in self._known]:
                self.agent.add_remote_agent(wanted[name])
                self._known[name] = wanted[name]
            for name in [name for name in self._known if name not in wanted][:-_KEPT]:
                self.agent.remove_remote_agent(name)
                del self._known[name]
        except self.errors as error:
            raise EngineError(f"NIXL cannot use a neighbor's metadata: {error!r}") from error
        return NixlMover(self, stream, previous, following)

    def busy(self) -> bool:
        """Tell whether a write still reads from the slots."""
        for sequence in list(self.writes):
            with contextlib.suppress(*self.errors):
                if self.agent.check_xfer_state(self.writes[sequence]) == "PROC":
                    continue
            self.release(sequence)
        return bool(self.writes)

    def release(self, sequence: int) -> None:
        """Forget a write that is over."""
        with contextlib.suppress(*self.errors):
            self.writes.pop(sequence).release()

    def close(self) -> None:
        """Deregister the slots and let go of the agent."""
        for name in self._known:
            with contextlib.suppress(*self.errors):
                self.agent.remove_remote_agent(name)
        with contextlib.suppress(*self.errors):
            self.agent.deregister_memory(self._registered)
        del self.agent


class NixlMover:
    """Writes, headers and credits of one group; see `ring.Mover` for the methods."""

    def __init__(
        self,
        station: NixlStation,
        stream: Stream,
        previous: Neighbor | None,
        following: Neighbor | None,
    ) -> None:
        self._station = station
        self._stream = stream
        self._previous = None if previous is None else previous.station["name"]
        self._following = None if following is None else following.station
        self._peer = "nobody" if following is None else following.line.peer
        self._headers: dict[int, bytes] = {}
        self._credited = 0
        station.writes.clear()

    def progress(self) -> None:
        """Sort new notifications; those of other groups and strangers are dropped."""
        station = self._station
        for name, notes in station.agent.get_new_notifs().items():
            for note in notes:
                self._take(name, note)
        for sequence in list(station.writes):
            try:
                state = station.agent.check_xfer_state(station.writes[sequence])
            except station.errors as error:
                raise self._lost(sequence, repr(error)) from error
            if state == "ERR":
                raise self._lost(sequence, "the transfer failed")
            if state == "DONE":
                station.release(sequence)

    def post(self, sequence: int, header: bytes, nbytes: int) -> None:
        """Write our slot into the next rank's; the notification brings the header."""
        station, following = self._station, self._following
        if following is None:
            raise EngineError("the last rank of a ring posts nothing")
        note = self._note(_BUCKET, sequence) + header
        slot = sequence % len(station.slots)
        try:
            if nbytes == 0:
                station.agent.send_notif(following["name"], note)
                return
            local = [(station.slots[slot].data_ptr(), nbytes, station.device_id)]
            remote = [(following["addresses"][slot], nbytes, following["device_id"])]
            handle = station.agent.initialize_xfer(
                "WRITE",
                station.agent.get_xfer_descs(local, station.kind),
                station.agent.get_xfer_descs(remote, following["kind"]),
                following["name"],
                note,
            )
            station.writes[sequence] = handle
            state = station.agent.transfer(handle)
        except station.errors as error:
            raise self._lost(sequence, repr(error)) from error
        if state == "ERR":
            raise self._lost(sequence, "the transfer could not be started")

    def posted(self, sequence: int) -> bool:
        """Tell whether the write of a bucket is over."""
        return sequence not in self._station.writes

    def arrived(self, sequence: int) -> bytes | None:
        """Take the header of a bucket that is here."""
        return self._headers.pop(sequence, None)

    def credit(self, count: int) -> None:
        """Notify the previous rank of our progress."""
        try:
            self._station.agent.send_notif(self._previous, self._note(_CREDIT, count))
        except self._station.errors as error:
            raise PeerLostError(f"the previous rank cannot be notified: {error!r}") from error

    def credited(self) -> int:
        """Tell how far the next rank is."""
        return self._credited

    def quiet(self) -> bool:
        """Tell whether all our writes are over."""
        return not self._station.writes

    def _note(self, kind: int, number: int) -> bytes:
        return _NOTE.pack(_MAGIC, self._stream.session, self._stream.generation, number, kind)

    def _take(self, name: str, note: bytes) -> None:
        if len(note) < _NOTE.size:
            return
        magic, session, generation, number, kind = _NOTE.unpack_from(note)
        if (magic, session, generation) != (_MAGIC, self._stream.session, self._stream.generation):
            return
        if kind == _BUCKET and name == self._previous:
            if number in self._headers:
                raise WireError(f"the notification of bucket {number} came twice")
            self._headers[number] = note[_NOTE.size :]
        elif kind == _CREDIT and self._following is not None and name == self._following["name"]:
            self._credited = max(self._credited, number)

    def _lost(self, sequence: int, why: str) -> PeerLostError:
        return PeerLostError(f"{self._peer} cannot be written to (bucket {sequence}): {why}")
