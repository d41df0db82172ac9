"""A default process group among workers, as a user's training code has one."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence
from typing import Any

from actor_wg_engine.conformance.processes import WorkerHandle, gather

_HERE = __name__


def start_default_group(workers: Sequence[WorkerHandle]) -> None:
    """Make a gloo default group of these workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    refs = [
        worker.submit("call", f"{_HERE}:_join", port, rank, len(workers))
        for rank, worker in enumerate(workers)
    ]
    gather(refs, 20)


def require_default_group(workers: Sequence[WorkerHandle]) -> None:
    """Run one collective in it; raises where it is gone or wrong."""
    gather([worker.submit("call", f"{_HERE}:_reduce") for worker in workers], 20)


def has_default_group(_: Any) -> bool:
    """True when this process has a default group."""
    import torch.distributed as dist

    return bool(dist.is_initialized())


def _join(_: Any, port: int, rank: int, world_size: int) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=20),
    )


def _reduce(_: Any) -> None:
    import torch
    import torch.distributed as dist

    token = torch.ones(1)
    dist.all_reduce(token)
    if int(token) != dist.get_world_size():
        raise RuntimeError(f"an all-reduce of ones over {dist.get_world_size()} ranks gave {token}")
