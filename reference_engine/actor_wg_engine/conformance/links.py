"""A network of the check's own, whose bytes can be counted, and the sockets that a process listens on."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from actor_wg_engine.conformance.results import CheckSkipped

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_RUNNING = 0x41
_LISTEN = "0A"


def own_network() -> str:
    """Move this thread into a fresh network namespace with nothing but a loopback device.

    Returns:
        The namespace's file, for `join_network` in other processes.

    Raises:
        CheckSkipped: This needs a permission (CAP_SYS_ADMIN) that the process does not have.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise CheckSkipped(f"counting bytes needs a network namespace: {reason}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14s", b"lo", _IFF_UP_RUNNING, b"")
        fcntl.ioctl(control.fileno(), _SIOCSIFFLAGS, request)
    return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"


def join_network(path: str) -> None:
    """Move this thread, and all that it starts, into a network namespace.

    Raises:
        OSError: The namespace is gone or may not be joined.
    """
    with Path(path).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot join the network {path}")


def loopback_bytes() -> int:
    """Bytes that the loopback device of this thread's network has carried so far."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket of a process."""

    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """True when it answers on every address of the machine."""
        return not self.host.strip("0")


def listeners(pid: int) -> list[Listener]:
    """The TCP sockets that a process listens on, hosts as the kernel's hexadecimal."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            link = str(entry.readlink())
        except OSError:
            continue  # closed in between
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                host, _, port = fields[1].rpartition(":")
                found.append(Listener(host, int(port, 16)))
    return found


def dotted(listener: Listener) -> str:
    """The host of a listener as an address that can be connected to."""
    raw = bytes.fromhex(listener.host)
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw[::-1])
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, 16, 4))
    return socket.inet_ntop(socket.AF_INET6, words)
