"""Buckets by collective broadcast: for NCCL and HCCL, which pipeline a broadcast by themselves.

Two buckets a side: one is filled while the other is under way. A bucket is two broadcasts on the
same group, the prefix of its header and then payload with body, so that a receiver knows the size
before it posts the second. On an accelerator nothing waits for the whole device: the current stream
waits for the broadcast, and the host polls an event.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch

from actor_wg_engine import wire
from actor_wg_engine.errors import EngineError, PeerLostError
from actor_wg_engine.link import Link
from actor_wg_engine.rendezvous import c10d
from actor_wg_engine.ring_memory import FRONT
from actor_wg_engine.waiting import AbortFlag, Deadline

_BUCKETS = 2
#: On an error or a late operation NCCL's watchdog would end the whole process; the engine aborts its
#: groups by itself. Read when a group is made.
_OWN_WATCH = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
}
_SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
_SHARING_SINCE = (2, 30)
_ABORT_S = 5.0
_STATUS_BYTES = 1024
_SLICE = timedelta(milliseconds=200)
_POLL_S = 0.0002


def open_group(
    device: str, gloo_device: Any, store: Any, rank: int, size: int, seconds: float
) -> Any:
    """Make a process group of our own for a device type.

    Raises:
        EngineError: torch was built without the collective library.
    """
    timeout = timedelta(seconds=seconds)
    if device == "cpu":
        options = c10d.ProcessGroupGloo._Options()
        options._devices, options._timeout = [gloo_device], timeout
        return c10d.ProcessGroupGloo(store, rank, size, options)
    if device == "cuda":
        if not hasattr(c10d, "ProcessGroupNCCL"):
            raise EngineError("this torch has no NCCL; install a CUDA build, or set device='cpu'")
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout
        with _environment(_OWN_WATCH):
            return c10d.ProcessGroupNCCL(store, rank, size, options)
    import torch_npu  # type: ignore[import-not-found]

    group = torch_npu._C._distributed_c10d.ProcessGroupHCCL
    options = group.Options()
    options._timeout = timeout
    return group(store, rank, size, options)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while; groups that the user makes later are not to be touched by them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def nccl_shares_devices() -> bool:
    """Say whether NCCL lets two ranks use one GPU here: new enough, and told to."""
    if os.environ.get(_SHARING) != "1" or not torch.cuda.is_available():
        return False
    nccl: Any = torch.cuda.nccl
    return tuple(nccl.version()[:2]) >= _SHARING_SINCE


class BroadcastLink(Link):
    """The link of every member of a collective group.

    Args:
        group: the process group; belongs to the link.
        rank: own group rank.
        world_size: ranks in the group.
        bucket_size: capacity of a bucket in bytes.
        device: where the buckets are.
        flag: ends every wait.
    """

    def __init__(
        self, group: Any, rank: int, world_size: int, bucket_size: int, device: torch.device,
        flag: AbortFlag,
    ) -> None:  # fmt: skip
        self.bucket_size = bucket_size
        self._group = group
        self._rank = rank
        self._world_size = world_size
        self._device = device
        self._flag = flag
        self._sequence = 0
        self._slots: list[torch.Tensor] = []
        self._under_way: list[Any] = [None] * _BUCKETS
        self._aborting: threading.Thread | None = None

    def acquire(self, deadline: Deadline) -> torch.Tensor:
        """Wait until the broadcast that used this bucket before is done."""
        slot = self._slot()
        self._wait(self._under_way[self._sequence % _BUCKETS], deadline, "broadcast of a bucket")
        return slot[FRONT : FRONT + self.bucket_size]

    def publish(self, frame: bytes, bucket: torch.Tensor, deadline: Deadline) -> None:
        """Start both broadcasts of a bucket."""
        deadline.remaining("broadcast of a bucket")
        slot, used = self._slot(), bucket.numel()
        header = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
        body = len(frame) - wire.PREFIX_BYTES
        slot[: wire.PREFIX_BYTES].copy_(header[: wire.PREFIX_BYTES])
        slot[FRONT + used : FRONT + used + body].copy_(header[wire.PREFIX_BYTES :])
        self._broadcast(slot[:FRONT])
        started = self._broadcast(slot[FRONT : FRONT + used + body])
        self._under_way[self._sequence % _BUCKETS] = started
        self._sequence += 1

    def next_bucket(self, deadline: Deadline) -> tuple[bytes, torch.Tensor]:
        """Receive a prefix, then what it announces."""
        slot = self._slot()
        self._wait(self._broadcast(slot[:FRONT]), deadline, "header from group rank 0")
        prefix = slot[: wire.PREFIX_BYTES].cpu().numpy().tobytes()
        body, used = wire.sizes(prefix, self.bucket_size)
        rest = slot[FRONT : FRONT + used + body]
        self._wait(self._broadcast(rest), deadline, "bucket from group rank 0")
        self._sequence += 1
        return prefix + rest[used:].cpu().numpy().tobytes(), rest[:used]

    def release(self) -> None:
        """Nothing to do: the next broadcast into a bucket is ordered behind the current stream."""

    def settle(self, status: str, deadline: Deadline) -> dict[int, str]:
        """Gather the statuses on all ranks, and give the buckets back to the allocator."""
        for work in self._under_way:
            self._wait(work, deadline, "broadcast of a bucket")
        mine = torch.zeros(_STATUS_BYTES, dtype=torch.uint8)
        text = status.encode()[: _STATUS_BYTES - 1]
        if text:
            mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        mine = mine.to(self._device)
        everybody = [torch.empty_like(mine) for _ in range(self._world_size)]
        self._wait(self._start("allgather", [everybody], [mine]), deadline, "statuses")
        self._under_way = [None] * _BUCKETS
        if self._device.type != "cpu":
            self._slots = []
        if self._rank != 0:
            return {}
        texts = [entry.cpu().numpy().tobytes().rstrip(b"\0") for entry in everybody]
        return {rank: text.decode(errors="replace") for rank, text in enumerate(texts) if rank}

    def abort(self) -> None:
        """Wake whatever waits; NCCL's own operations are aborted, gloo's are abandoned."""
        self._flag.set()
        if self._device.type == "cpu":
            return
        group, self._group = self._group, None
        if group is not None:
            # It waits for NCCL's kernels to end, and the process must not hang with it.
            self._aborting = threading.Thread(target=_abort, args=(group,), daemon=True)
            self._aborting.start()

    def close(self) -> None:
        """Abort, and drop the group."""
        self.abort()
        if self._aborting is not None:
            self._aborting.join(_ABORT_S)
        self._group = None
        self._slots = []
        self._under_way = [None] * _BUCKETS

    def _slot(self) -> torch.Tensor:
        if not self._slots:
            size = FRONT + self.bucket_size + wire.MAX_BODY_BYTES
            self._slots = [
                torch.zeros(size, dtype=torch.uint8, device=self._device) for _ in range(_BUCKETS)
            ]
        return self._slots[self._sequence % _BUCKETS]

    def _broadcast(self, data: torch.Tensor) -> Any:
        options = c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        return self._start("broadcast", [data], options)

    def _start(self, operation: str, *args: Any) -> Any:
        self._flag.check()
        try:
            work = getattr(self._group, operation)(*args)
            if self._device.type == "cpu":
                return work
            # Orders the current stream behind the operation; does not block the host.
            work.wait()
            event = torch.get_device_module(self._device).Event()
            event.record()
        except (RuntimeError, AttributeError) as error:  # no attributes: aborted a moment ago
            self._flag.check()
            raise PeerLostError(f"the group is broken: {_last_line(error)}") from error
        return event

    def _wait(self, started: Any, deadline: Deadline, what: str) -> None:
        """Wait for a work (gloo) in slices, or poll an event (accelerators)."""
        while started is not None:
            self._flag.check()
            deadline.remaining(what)
            if self._device.type != "cpu":
                if started.query():
                    self._flag.check()  # an aborted broadcast counts as done
                    return
                time.sleep(_POLL_S)
                continue
            try:
                started.wait(_SLICE)
            except RuntimeError as error:
                if "imed out" in str(error):
                    continue
                raise PeerLostError(f"the group is broken: {_last_line(error)}") from error
            return


def _abort(group: Any) -> None:
    with contextlib.suppress(RuntimeError):
        group.abort()


def _last_line(error: Exception) -> str:
    return str(error).splitlines()[0][-200:]
