"""One process of a benchmark: an engine, the model's memory, and the raw primitives beside it.

Every method that moves bytes returns `Timing`: begin and end on the clock that all processes of a
machine share, and the CPU seconds that this process used.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed

from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.links import join_network
from actor_wg_engine.contract import TensorMeta, capabilities_of

c10d: Any = torch.distributed
ADDRESS = "ACTOR_WG_BENCH_ADDRESS"
_TIMEOUT = datetime.timedelta(seconds=300)


@dataclass(frozen=True)
class Timing:
    """When something began and ended here, and what it cost."""

    begin: float
    end: float
    cpu: float


class BenchWorker:
    """Actor rank 0 or a rollout worker.

    Args:
        is_source: This is the actor.
    """

    emit: Callable[..., None]

    def __init__(self, is_source: bool) -> None:
        torch.set_num_threads(1)
        self.is_source = is_source
        self.model: dict[str, torch.Tensor] = {}
        self.engine: Any = None
        self._group: Any = None
        self._raw = torch.empty(0, dtype=torch.uint8)
        self._copy = torch.empty(0, dtype=torch.uint8)
        self._listener: socket.socket | None = None

    def enter_network(self, path: str, address: str) -> None:
        """Move into a network namespace, in which this process has an address of its own."""
        join_network(path)
        os.environ[ADDRESS] = address

    def load(self, shapes: Sequence[tuple[str, tuple[int, ...]]], seed: int) -> int:
        """Allocate the model, its pages touched; the bytes it has."""
        self.model = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes}
        for index, tensor in enumerate(self.model.values()):
            tensor.view(torch.int16).fill_((seed * 7919 + index) % 32768)
        return sum(tensor.nbytes for tensor in self.model.values())

    def digest(self) -> int:
        """A sum over all bytes, to see that what arrived is what was sent."""
        return sum(int(tensor.view(torch.int16).sum()) for tensor in self.model.values())

    # The engine.

    def make_engine(self, factory: EngineFactory, bucket_size: int) -> None:
        """Replace the engine."""
        if self.engine is not None:
            self.engine.finalize()
        factory.prepare_process()
        self.engine = factory(bucket_size=bucket_size, is_master=self.is_source)

    def prepare(self) -> Any:
        """Phase 1."""
        return self.engine.prepare()

    async def init_process_group(self, **kwargs: Any) -> None:
        """Phase 3, on a thread: it blocks until the others are there."""
        await asyncio.to_thread(self.engine.init_process_group, **kwargs)

    def finalize(self) -> None:
        """The last phase."""
        self.engine.finalize()

    async def send(self, step: int) -> Timing:
        """Send the model."""
        begin, cpu = time.monotonic(), time.process_time()
        value = self.engine.send_weights(iter(self.model.items()), global_steps=step)
        if value is not None:
            await value
        return Timing(begin, time.monotonic(), time.process_time() - cpu)

    async def receive(self, step: int) -> Timing:
        """Receive into the model, as a server does that writes in place."""
        begin, cpu = time.monotonic(), time.process_time()
        if capabilities_of(self.engine).in_place:
            await self.engine.receive_into(self._destination, step)
        else:
            async for name, tensor in self.engine.receive_weights(global_steps=step):
                self.model[name].copy_(tensor)
        return Timing(begin, time.monotonic(), time.process_time() - cpu)

    def _destination(self, meta: TensorMeta) -> torch.Tensor | None:
        return self.model.get(meta.name)

    # Raw primitives, on one persistent buffer.

    def copy_once(self, nbytes: int) -> Timing:
        """One single-thread copy of the payload."""
        if self._copy.numel() < 2 * nbytes:
            self._copy = torch.ones(2 * nbytes, dtype=torch.uint8)
        begin, cpu = time.monotonic(), time.process_time()
        self._copy[:nbytes].copy_(self._copy[nbytes : 2 * nbytes])
        return Timing(begin, time.monotonic(), time.process_time() - cpu)

    def drop_copy(self) -> None:
        """Free the memory of `copy_once`."""
        self._copy = torch.empty(0, dtype=torch.uint8)

    def raw_listen(self, host: str) -> int:
        """Open a listener for `raw_socket`; the port."""
        self._listener = socket.create_server((host, 0))
        port: int = self._listener.getsockname()[1]
        return port

    def raw_socket(self, host: str, port: int, nbytes: int, bucket: int) -> Timing:
        """Send (the source) or receive the payload over one TCP connection."""
        buffer: Any = self._persistent(bucket).numpy()
        if self._listener is not None:
            connection, _ = self._listener.accept()
        else:
            connection = socket.create_connection((host, port))
        with connection:
            begin, cpu = time.monotonic(), time.process_time()
            left = nbytes
            while left > 0:
                size = min(left, bucket)
                if self.is_source:
                    connection.sendall(buffer[:size])
                else:
                    done = 0
                    while done < size:
                        done += connection.recv_into(buffer[done:size])
                left -= size
            timing = Timing(begin, time.monotonic(), time.process_time() - cpu)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        return timing

    def gloo_host(self, host: str) -> int:
        """Start the store of the raw group (the source only); its port."""
        self._store = c10d.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    async def gloo_join(
        self, host: str, port: int, rank: int, world_size: int, own_host: str
    ) -> None:
        """Make the raw group; each process binds its own address."""
        if not self.is_source:
            self._store = c10d.TCPStore(host, port, is_master=False)
        options = c10d.ProcessGroupGloo._Options()
        options._timeout = _TIMEOUT
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=own_host)]
        store = c10d.PrefixStore(f"raw/{world_size}", self._store)
        self._group = await asyncio.to_thread(
            c10d.ProcessGroupGloo, store, rank, world_size, options
        )

    def gloo_leave(self) -> None:
        """Drop the raw group."""
        self._group = self._store = None

    def raw_broadcast(self, nbytes: int, bucket: int) -> Timing:
        """Broadcast the payload from the source, bucket by bucket."""
        buffer = self._persistent(bucket)
        begin, cpu = time.monotonic(), time.process_time()
        left = nbytes
        while left > 0:
            self._broadcast(buffer[: min(left, bucket)])
            left -= bucket
        return Timing(begin, time.monotonic(), time.process_time() - cpu)

    def _broadcast(self, tensor: torch.Tensor) -> None:
        options = c10d.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()

    def _persistent(self, nbytes: int) -> torch.Tensor:
        if self._raw.numel() < nbytes:
            self._raw = torch.ones(nbytes, dtype=torch.uint8)
        return self._raw[:nbytes]

    # verl's own path, where verl is installed.

    async def verl_path(self, bucket: int) -> Timing:
        """verl 0.9's split and merge over the same gloo broadcast, packed as its engines pack."""
        from verl.checkpoint_engine.base import (  # type: ignore[import-not-found]
            merge_weight_chunks,
            split_weight_chunks,
        )

        begin, cpu = time.monotonic(), time.process_time()
        if self.is_source:
            await self._verl_send(split_weight_chunks, bucket)
        else:
            async for name, tensor in merge_weight_chunks(self._verl_chunks(bucket), bucket):
                self.model[name].copy_(tensor)
        return Timing(begin, time.monotonic(), time.process_time() - cpu)

    async def _verl_send(self, split: Any, bucket: int) -> None:
        buffer, used = self._persistent(bucket), 0
        entries: list[Any] = []
        async for meta, chunk in split(iter(self.model.items()), bucket):
            if used + meta.chunk_size > bucket:
                self._verl_bucket(buffer[:used], entries, last=False)
                entries, used = [], 0
            meta.offset = used
            entries.append(meta)
            buffer[used : used + meta.chunk_size] = chunk
            used += meta.chunk_size
        self._verl_bucket(buffer[:used], entries, last=True)

    def _verl_bucket(self, payload: torch.Tensor, entries: list[Any], *, last: bool) -> None:
        import pickle

        header = pickle.dumps((entries, payload.numel(), last))
        size = torch.tensor([len(header)])
        self._broadcast(size)
        self._broadcast(torch.frombuffer(bytearray(header), dtype=torch.uint8))
        self._broadcast(payload)

    async def _verl_chunks(self, bucket: int) -> Any:
        import pickle

        buffer = self._persistent(bucket)
        size = torch.zeros(1, dtype=torch.int64)
        last = False
        while not last:
            self._broadcast(size)
            header = torch.empty(int(size), dtype=torch.uint8)
            self._broadcast(header)
            # Both ends of this group are processes of the benchmark; verl's engines do the same.
            entries, used, last = pickle.loads(header.numpy().tobytes())
            self._broadcast(buffer[:used])
            for meta in entries:
                yield meta, buffer[meta.offset : meta.offset + meta.chunk_size]
