"""Where this worker is: its host's identity, its address, its device."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
from pathlib import Path


@functools.cache
def host_id() -> str:
    """Return the same text in all processes that can share memory, another one elsewhere.

    Under Ray this is the node's id, so several raylets on one machine count as several hosts.
    """
    with contextlib.suppress(ImportError):
        import ray

        if ray.is_initialized():
            return str(ray.get_runtime_context().get_node_id())
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()


def address() -> str:
    """Return the one address on which this worker listens; IPv6 without brackets."""
    try:
        import ray
    except ImportError:
        return "127.0.0.1"
    if not ray.is_initialized():
        return "127.0.0.1"
    found = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return str(ipaddress.ip_address(found.strip("[]")))


def device_id(device: str) -> str | None:
    """Return a unique id of the physical device, or None on CPU."""
    if device == "cpu":
        return None
    import torch

    if device == "cuda":
        return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return f"{host_id()}:{device}:{torch.get_device_module(device).current_device()}"
