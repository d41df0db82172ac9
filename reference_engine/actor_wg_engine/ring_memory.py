"""The slots of a host's ring: one piece of memory that the owner fills and others map.

On a CPU it is a memfd: nothing has a name in the file system, so nothing is left behind, whatever is
killed. On a GPU it is device memory, shared by a ticket of the driver's.
"""

from __future__ import annotations

import mmap
import os

import torch

from actor_wg_engine import wire
from actor_wg_engine.errors import WireError
from actor_wg_engine.slots import TICKET_BYTES, allocate, open_ticket, ticket_of

#: In front of the payload there is room for the prefix of the header, behind it for the body, so
#: that a whole bucket with its header can travel on as one message.
FRONT = 256
_PAGE = 4096
_LARGEST = 1 << 44
CPU = torch.device("cpu")


class Memory:
    """Equal slots in one piece of memory.

    Args:
        whole: the memory.
        slots: how many.
        bucket_size: capacity of each.
        descriptor: the memfd, until `seal`; None on a GPU and where it is not ours.
        ticket: of device memory.
    """

    def __init__(
        self, whole: torch.Tensor, slots: int, bucket_size: int,
        descriptor: int | None = None, ticket: bytes = b"",
    ) -> None:  # fmt: skip
        self.slots = slots
        self.bucket_size = bucket_size
        self.descriptor = descriptor
        self.ticket = ticket
        stride = _stride(bucket_size)
        self._slots = [whole[i * stride : (i + 1) * stride] for i in range(slots)]

    @classmethod
    def create(cls, slots: int, bucket_size: int, device: torch.device = CPU) -> Memory:
        """Make the owner's memory; every page is touched, as fresh pages are slow.

        Raises:
            EngineError: the device has not that much, or cannot share it.
        """
        nbytes = slots * _stride(bucket_size)
        if device.type != "cpu":
            whole = allocate(nbytes, device)
            return cls(whole, slots, bucket_size, ticket=ticket_of(whole))
        descriptor = os.memfd_create("actor-wg", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, nbytes)
        return cls(_map(descriptor, nbytes), slots, bucket_size, descriptor)

    @classmethod
    def attach(
        cls, slots: int, bucket_size: int, device: torch.device, descriptors: list[int],
        ticket: bytes,
    ) -> Memory:  # fmt: skip
        """Map what the owner has sent, after a look at its size.

        Raises:
            WireError: it sent something else than slots on this device.
            EngineError: the device's memory cannot be mapped.
        """
        nbytes = slots * _stride(bucket_size)
        due = (1, 0) if device.type == "cpu" else (0, TICKET_BYTES)
        if (len(descriptors), len(ticket)) != due or not 0 < nbytes < _LARGEST:
            raise WireError(f"the owner of the ring shared no {slots} slots on {device.type!r}")
        if device.type != "cpu":
            return cls(open_ticket(ticket, nbytes, device), slots, bucket_size)
        if os.fstat(descriptors[0]).st_size < nbytes:
            raise WireError("the shared memory is smaller than its slots")
        return cls(_map(descriptors[0], nbytes), slots, bucket_size)

    def slot(self, sequence: int) -> torch.Tensor:
        """Return the whole slot of a bucket, with the room for its header."""
        return self._slots[sequence % self.slots]

    def payload(self, sequence: int) -> torch.Tensor:
        """Return the part of a slot that carries the tensors."""
        return self.slot(sequence)[FRONT : FRONT + self.bucket_size]

    def seal(self) -> None:
        """Share it with no more processes."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _stride(bucket_size: int) -> int:
    return -(-(FRONT + bucket_size + _PAGE + wire.MAX_BODY_BYTES) // _PAGE) * _PAGE


def _map(descriptor: int, nbytes: int) -> torch.Tensor:
    mapped = mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return torch.frombuffer(mapped, dtype=torch.uint8)
