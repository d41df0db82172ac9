"""The bare transfers that the backends are compared with: the same packages, no engine.

Each primitive moves `total` bytes from one process to another in pieces of `piece` bytes through a
few registered slots, and waits until the other side has confirmed the last one. The memory is touched
before. There is no packing, no header, no checksum.
"""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

SLOTS = 4
_SLEEP = 20e-6


class Raw(Protocol):
    """One end of a bare transfer."""

    def meet(self, connection: Connection) -> None:
        """Exchange addresses with the other end."""

    def push(self, total: int, piece: int) -> float:
        """Source: move the bytes; returns the seconds."""

    def take(self, total: int, piece: int) -> None:
        """Receiver: confirm each piece."""


class RawNixl:
    """WRITEs with a notification each, confirmed by notifications."""

    def __init__(self, name: str, piece: int) -> None:
        from actor_wg_engine.transports.nixl import load_api

        api = load_api()
        self._name = name
        config = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self._agent = api.nixl_agent(name, config)
        self._memory = torch.zeros(SLOTS * piece, dtype=torch.uint8)
        self._agent.register_memory(
            [(self._memory.data_ptr(), self._memory.numel(), 0, "")], "DRAM"
        )
        self._peer = ""
        self._address = 0

    def meet(self, connection: Connection) -> None:
        """Exchange metadata."""
        connection.send((self._agent.get_agent_metadata(), self._memory.data_ptr()))
        metadata, self._address = connection.recv()
        self._peer = self._agent.add_remote_agent(metadata)

    def push(self, total: int, piece: int) -> float:
        """Write piece after piece, a slot again when it was confirmed."""
        agent, count = self._agent, -(-total // piece)
        handles: dict[int, Any] = {}
        confirmed = 0
        began = time.perf_counter()
        for index in range(count):
            while index - confirmed >= SLOTS:
                confirmed += self._news(handles)
            slot = index % SLOTS * piece
            handle = agent.initialize_xfer(
                "WRITE",
                agent.get_xfer_descs([(self._memory.data_ptr() + slot, piece, 0)], "DRAM"),
                agent.get_xfer_descs([(self._address + slot, piece, 0)], "DRAM"),
                self._peer,
                b"piece",
            )
            if agent.transfer(handle) == "ERR":
                raise RuntimeError("the write could not be started")
            handles[index] = handle
        while confirmed < count:
            confirmed += self._news(handles)
        return time.perf_counter() - began

    def take(self, total: int, piece: int) -> None:
        """Confirm each notification."""
        left = -(-total // piece)
        while left:
            notes = self._agent.get_new_notifs()
            for name, messages in notes.items():
                for _ in messages:
                    self._agent.send_notif(name, b"taken")
                    left -= 1
            if not notes:
                time.sleep(_SLEEP)

    def _news(self, handles: dict[int, Any]) -> int:
        for index in list(handles):
            state = self._agent.check_xfer_state(handles[index])
            if state == "ERR":
                raise RuntimeError("a write failed")
            if state == "DONE":
                handles.pop(index).release()
        count = sum(len(messages) for messages in self._agent.get_new_notifs().values())
        if not count:
            time.sleep(_SLEEP)
        return count


class RawMooncake:
    """Submitted writes; completion is the other side's acknowledgment, so nobody has to confirm."""

    def __init__(self, name: str, piece: int) -> None:
        from actor_wg_engine.transports.mooncake import load_class

        os.environ.setdefault("MC_FORCE_TCP", "1")
        self._name = name
        self._engine = load_class()()
        if self._engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("the Transfer Engine does not start")
        self._memory = torch.zeros(SLOTS * piece, dtype=torch.uint8)
        if self._engine.register_memory(self._memory.data_ptr(), self._memory.numel()) != 0:
            raise RuntimeError("the memory cannot be registered")
        self._peer = ""
        self._address = 0

    def meet(self, connection: Connection) -> None:
        """Exchange session names and addresses."""
        connection.send((f"127.0.0.1:{self._engine.get_rpc_port()}", self._memory.data_ptr()))
        self._peer, self._address = connection.recv()

    def push(self, total: int, piece: int) -> float:
        """Keep two writes in flight, as many as let the engine's two sides work at once."""
        pending: list[int] = []
        began = time.perf_counter()
        for index in range(-(-total // piece)):
            if len(pending) == SLOTS:
                self._wait(pending.pop(0))
            slot = index % SLOTS * piece
            batch = self._engine.transfer_submit_write(
                self._peer, self._memory.data_ptr() + slot, self._address + slot, piece
            )
            if not batch:
                raise RuntimeError("the write could not be submitted")
            pending.append(batch)
        for batch in pending:
            self._wait(batch)
        return time.perf_counter() - began

    def take(self, total: int, piece: int) -> None:
        """Nothing to do."""

    def _wait(self, batch: int) -> None:
        while (code := self._engine.transfer_check_status(batch)) == 0:
            time.sleep(_SLEEP)
        if code != 1:
            raise RuntimeError(f"a write ended with code {code}")


RAW: dict[str, Any] = {"nixl": RawNixl, "mooncake": RawMooncake}
