"""A worker process of the sync tests: `gpu_worker.py SOCKET` takes commands until its socket closes.

Needs neither Ray nor pytest. One process plays an actor or a rollout worker with one engine.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import traceback
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import torch
from gpu_weights import digest, weights

from actor_wg_engine import CheckpointEngineRegistry

#: torch does not declare the types of these.
cuda: Any = torch.cuda
# Long enough that a copy which should have been waited for has not happened yet.
_SLEEP_CYCLES = 50_000_000


class Worker:
    """One engine on one device; each public method is a command."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.engine: Any = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def create(self, backend: str, is_master: bool, kwargs: dict[str, Any]) -> None:
        """Make the engine."""
        self.engine = CheckpointEngineRegistry.new(backend, is_master=is_master, **kwargs)

    def prepare(self) -> Any:
        """The engine's metadata."""
        return self.engine.prepare()

    def init_process_group(self, kwargs: dict[str, Any]) -> None:
        """Join the group."""
        self.engine.init_process_group(**kwargs)

    def finalize(self) -> None:
        """End the sync."""
        self.engine.finalize()

    def send(self, source: str, version: int, overwrite: bool = False) -> dict[str, str]:
        """Send a version; with `overwrite`, the sources are wiped as soon as the engine returns."""
        named = dict(weights(source, version, self.device))
        digests = {name: digest(tensor) for name, tensor in named.items()}
        asyncio.run(self.engine.send_weights(iter(named.items()), global_steps=version))
        if overwrite:
            for tensor in named.values():
                tensor.zero_()
        return digests

    def receive(
        self, version: int, side_stream: bool = False, die_after: int | None = None
    ) -> dict[str, str]:
        """Receive a version; with `side_stream`, copy it late on another stream than the engine's."""
        return asyncio.run(self._receive(version, side_stream, die_after))

    async def _receive(
        self, version: int, side_stream: bool, die_after: int | None
    ) -> dict[str, str]:
        received: dict[str, torch.Tensor] = {}
        stream = cuda.Stream() if side_stream and self.device.type == "cuda" else None
        async for name, tensor in self.engine.receive_weights(global_steps=version):
            if tensor.device.type != self.device.type:
                raise AssertionError(f"{name} arrived on {tensor.device}, not on {self.device}")
            if stream is None:
                received[name] = tensor
            else:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    cuda._sleep(_SLEEP_CYCLES)
                    received[name] = tensor.clone()
                tensor.record_stream(stream)
            if len(received) == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        if stream is not None:
            stream.synchronize()
        return {name: digest(tensor) for name, tensor in received.items()}

    def resources(self) -> dict[str, int]:
        """What must not grow: memory on the device and in the host, descriptors."""
        found = {
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "host MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info()
            found["device MB"] = (total - free) >> 20
            found["tensors MB"] = torch.cuda.memory_allocated() >> 20
        return found


def serve(connection: Connection) -> None:
    """Answer ("name", arguments) with (True, result) or (False, (kind, text, trace))."""
    worker: Worker | None = None
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            if worker is None:
                worker, result = Worker(*arguments), None
            else:
                result = getattr(worker, name)(*arguments)
            connection.send((True, result))
        except Exception as error:  # noqa: BLE001 - the parent judges it
            connection.send((False, (type(error).__name__, str(error), traceback.format_exc())))


if __name__ == "__main__":
    serve(Client(sys.argv[1], authkey=bytes.fromhex(os.environ["GPU_FLEET_KEY"])))
