"""Memory for slots of buckets, and the only file that calls the CUDA driver.

Device memory comes from the driver and not from torch's allocator: what lies in expandable segments can
neither be registered with a network card nor be opened by another process. Another process gets a
ticket, 64 plain bytes, and maps the same memory with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from actor_wg_engine.errors import EngineError
from actor_wg_engine.waiting import AbortFlag

#: torch does not declare the types of all of it.
cuda: Any = torch.cuda

TICKET_BYTES = 64
#: Smaller pieces share a block of the driver's, and a ticket names a whole block.
_GRANULARITY = 2 << 20
_LAZY_PEER_ACCESS = 1
_POLL_S = 50e-6


def allocate(nbytes: int, device: torch.device) -> torch.Tensor:
    """Return `nbytes` of memory that can be registered and shared; every host page has been touched.

    Raises:
        EngineError: the device has not that much memory, or is of a kind we cannot register.
    """
    if device.type == "cpu":
        return torch.zeros(nbytes, dtype=torch.uint8)
    if device.type != "cuda":
        raise EngineError(
            f"device {device.type!r} has no memory for slots here; use 'cpu' or 'cuda'"
        )
    address = ctypes.c_uint64()
    size = -(-nbytes // _GRANULARITY) * _GRANULARITY
    with _context(device) as place:
        _call("cuMemAlloc_v2", f"allocate {size} bytes for buckets", ctypes.byref(address), size)
        return _adopt(address.value, nbytes, place, "cuMemFree_v2")


def ticket_of(memory: torch.Tensor) -> bytes:
    """Return the ticket of device memory that `allocate` returned.

    Raises:
        EngineError: the driver cannot share it.
    """
    handle = _Handle()
    with _context(memory.device):
        _call(
            "cuIpcGetMemHandle", "share memory with other processes",
            ctypes.byref(handle), memory.data_ptr(),
        )  # fmt: skip
    return bytes(handle.data)


def open_ticket(ticket: bytes, nbytes: int, device: torch.device) -> torch.Tensor:
    """Map the device memory of another process; it is unmapped with the last tensor in it.

    Args:
        ticket: from `ticket_of`, on the same physical device.
        nbytes: how much of it is used.
        device: the device.

    Raises:
        EngineError: the driver cannot map it, or it is smaller.
    """
    address, base, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    handle = _Handle(data=(ctypes.c_ubyte * TICKET_BYTES)(*ticket))
    with _context(device) as place:
        _call(
            "cuIpcOpenMemHandle_v2", "open the memory of another process",
            ctypes.byref(address), handle, _LAZY_PEER_ACCESS,
        )  # fmt: skip
        memory = _adopt(address.value, nbytes, place, "cuIpcCloseMemHandle")
        _call(
            "cuMemGetAddressRange_v2", "measure the memory of another process",
            ctypes.byref(base), ctypes.byref(size), address.value,
        )  # fmt: skip
    if size.value < nbytes:
        raise EngineError(f"another process shared {size.value} bytes; its slots need {nbytes}")
    return memory


def finish_copies(memory: torch.Tensor, flag: AbortFlag) -> None:
    """Wait until the current stream is done with memory on a GPU; on a CPU it is anyway.

    An event is asked, so that other streams are not waited for and an abort ends the wait.

    Raises:
        SyncAbortedError: the flag was set.
    """
    if not memory.is_cuda:
        return
    event = cuda.Event()
    event.record(torch.cuda.current_stream(memory.device))
    while not event.query():
        flag.check()
        time.sleep(_POLL_S)


class _Handle(ctypes.Structure):
    """CUipcMemHandle; the driver takes it by value."""

    _fields_ = [("data", ctypes.c_ubyte * TICKET_BYTES)]


class _Mapped:
    """Device memory in the form that torch adopts; it lives as long as the last tensor in it."""

    def __init__(self, address: int, nbytes: int, device: torch.device, release: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }
        # At the end of the process the driver takes everything back by itself.
        weakref.finalize(self, _release, release, address, device).atexit = False


def _adopt(address: int, nbytes: int, device: torch.device, release: str) -> torch.Tensor:
    return torch.as_tensor(_Mapped(address, nbytes, device, release), device=device)


def _release(function: str, address: int, device: torch.device) -> None:
    with _context(device):
        _call(function, "release memory", address)


@contextlib.contextmanager
def _context(device: torch.device) -> Iterator[torch.device]:
    """Make the device's context the current one of this thread; yields the device with its index."""
    with torch.cuda.device(device):
        place = torch.device("cuda", torch.cuda.current_device())
        # The driver's functions want what torch's own calls set up when they need it.
        torch.cuda.current_stream(place).query()
        yield place


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise EngineError(f"the CUDA driver does not load here: {error}") from error
    address, size = ctypes.c_uint64, ctypes.c_size_t
    to_address = ctypes.POINTER(address)
    signatures: dict[str, tuple[Any, ...]] = {
        "cuMemAlloc_v2": (to_address, size),
        "cuMemFree_v2": (address,),
        "cuMemGetAddressRange_v2": (to_address, ctypes.POINTER(size), address),
        "cuIpcGetMemHandle": (ctypes.POINTER(_Handle), address),
        "cuIpcOpenMemHandle_v2": (to_address, _Handle, ctypes.c_uint),
        "cuIpcCloseMemHandle": (address,),
    }
    for name, types in signatures.items():
        function = getattr(driver, name)
        function.argtypes, function.restype = types, ctypes.c_int
    return driver


def _call(function: str, what: str, *args: Any) -> None:
    code = getattr(_driver(), function)(*args)
    if code:
        raise EngineError(f"the GPU cannot {what}: {function} failed with CUDA driver error {code}")
