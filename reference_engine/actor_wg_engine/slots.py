"""Slots: the registered memory in which a one-sided transport keeps its buckets."""

from __future__ import annotations

import ctypes
import weakref

import torch

from actor_wg_engine.errors import EngineError


def allocate(nbytes: int, device: torch.device) -> torch.Tensor:
    """Return `nbytes` of memory that a network card can register; every page has been touched.

    On a GPU it comes from the driver and not from torch: memory in expandable segments cannot be
    registered.

    Raises:
        EngineError: the device has not that much memory, or is of a kind we cannot register.
    """
    if device.type == "cpu":
        return torch.zeros(nbytes, dtype=torch.uint8)
    if device.type != "cuda":
        raise EngineError(
            f"device {device.type!r} has no registered memory here; use 'cpu' or 'cuda'"
        )
    with torch.cuda.device(device):
        torch.cuda.synchronize(device)  # makes the device's context the current one
        return torch.as_tensor(_DriverMemory(nbytes), device=device)


class _DriverMemory:
    """Device memory from cuMemAlloc in the form that torch adopts; freed with its last tensor."""

    def __init__(self, nbytes: int) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        code = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
        if code:
            raise EngineError(
                f"the GPU gave no {nbytes} bytes for buckets (CUDA driver error {code})"
            )
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address.value, False),
            "strides": None,
            "version": 3,
        }
        weakref.finalize(self, driver.cuMemFree_v2, address)
