"""Where the processes of one group find each other: a store of the master's, for one generation.

The store listens on one address, on a port that the system chose, and lives only until everybody is
connected. Its keys begin with the session, which strangers cannot guess. No default process group is
made, used or destroyed.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed

from actor_wg_engine.errors import SyncTimeoutError
from actor_wg_engine.waiting import AbortFlag, Deadline
from actor_wg_engine.wire import Stream

#: torch does not declare the types of these.
c10d: Any = torch.distributed

_SLICE_S = 0.2


def listen(address: str) -> socket.socket:
    """Return a socket that listens on one address, on a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


class Rendezvous:
    """One process's access to the store of a generation.

    Args:
        address: address and port of the master's listener.
        stream: session and generation.
        flag: ends every wait.
        deadline: when to give up.
        listener: the master's listening socket, which the store takes over; None elsewhere.
    """

    def __init__(
        self,
        address: Sequence[object],
        stream: Stream,
        flag: AbortFlag,
        deadline: Deadline,
        listener: socket.socket | None = None,
    ) -> None:
        self._flag = flag
        self._deadline = deadline
        host, port = str(address[0]), int(str(address[1]))
        self._store = self._open(host, port, listener)
        self._prefix = f"{stream.session.hex()}/{stream.generation}"

    def _open(self, host: str, port: int, listener: socket.socket | None) -> Any:
        if listener is not None:
            return c10d.TCPStore(
                host,
                port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
        while True:
            self._flag.check()
            seconds = min(1.0, self._deadline.remaining(f"answer from the store at {host}"))
            try:
                return c10d.TCPStore(
                    host, port, is_master=False, timeout=timedelta(seconds=seconds)
                )
            except (c10d.DistNetworkError, c10d.DistStoreError):
                continue

    def store(self, name: str) -> Any:
        """Return a part of the store for one process group."""
        return c10d.PrefixStore(f"{self._prefix}/{name}", self._store)

    def meet(self, name: str, me: int, others: Sequence[int]) -> None:
        """Block until the others have come to the place of that name too.

        Raises:
            SyncAbortedError: the flag was set.
            SyncTimeoutError: somebody did not come; the message names the group ranks.
        """
        place = self.store(f"meet/{name}")
        place.set(str(me), "here")
        missing = list(others)
        while missing:
            self._flag.check()
            try:
                self._deadline.remaining(f"arrival of group ranks {missing} at {name}")
            except SyncTimeoutError:
                missing = [rank for rank in missing if not place.check([str(rank)])]
                if missing:
                    raise SyncTimeoutError(
                        f"group ranks {missing} did not come to {name} in time"
                    ) from None
                return
            try:
                place.wait([str(missing[0])], timedelta(seconds=_SLICE_S))
            except (c10d.DistStoreError, RuntimeError):
                continue
            missing.pop(0)
