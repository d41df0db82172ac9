"""What the engine-level checks run in a worker process: one engine, and instruments around it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import os
import pickle
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actor_wg_engine.conformance.factory import EngineFactory, resolve
from actor_wg_engine.conformance.host import immediate
from actor_wg_engine.conformance.links import join_network
from actor_wg_engine.conformance.weights import Print, Recipe, fingerprint

_M_PERTURB = -6  # glibc: fill every allocation with the complement of a byte
_M_MMAP_THRESHOLD = -3  # glibc: larger allocations get pages of their own, given back when freed


class ConsumerError(Exception):
    """Raised on purpose by a consumer or a generator."""


@dataclass(frozen=True)
class Surroundings:
    """What a worker process is put into before its engine is made.

    Args:
        network: The file of a network namespace to join.
        env: Environment variables.
    """

    network: str | None = None
    env: tuple[tuple[str, str], ...] = ()

    def enter(self) -> None:
        """Put this process into them."""
        os.environ.update(dict(self.env))
        if self.network is not None:
            join_network(self.network)


@dataclass(frozen=True)
class Produce:
    """How the generator behaves.

    Args:
        gate_at: Before this tensor, tell "producer waits" and wait for `release("producer")`.
        raise_at: Raise `ConsumerError` instead of this tensor.
        spoil: Overwrite the sources as soon as `send_weights` returned.
        collective: Take part in an all-reduce of the default process group before every tensor.
        pause: Seconds that it takes to make every tensor.
        reuse: Give every tensor in the same memory, overwritten when the next is asked for.
    """

    gate_at: int | None = None
    raise_at: int | None = None
    spoil: bool = False
    collective: bool = False
    pause: float = 0.0
    reuse: bool = False


@dataclass(frozen=True)
class Consume:
    """How the consumer behaves.

    Args:
        gate_at: Before it asks for this tensor, tell "consumer waits" and wait for `release("consumer")`.
        raise_at: Raise `ConsumerError` when it gets this tensor.
        keep: Keep every tensor until the end and take its print again then.
        recheck: Take the print again just before the next tensor is asked for, after a pause.
        pause: Seconds of a pause before every next tensor.
        count_only: Take no prints.
        stall_init: Never return from init_process_group, and never enter it (see `fleet`).
    """

    gate_at: int | None = None
    raise_at: int | None = None
    keep: bool = False
    recheck: bool = False
    pause: float = 0.0
    count_only: bool = False
    stall_init: bool = False


@dataclass
class Sent:
    """What the sender saw."""

    pulled: list[tuple[float, int]] = field(default_factory=list)
    exhausted_at: float | None = None
    closed: bool = False
    seconds: float = 0.0
    gap: float = 0.0
    peak: int = 0


@dataclass
class Received:
    """What a receiver saw."""

    prints: list[Print] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    first_at: float | None = None
    count: int = 0
    seconds: float = 0.0
    gap: float = 0.0
    peak: int = 0


@dataclass(frozen=True)
class Resources:
    """What a process holds."""

    descriptors: int
    threads: int
    resident: int
    """Bytes in memory, without those of mapped files: which pages of a library are in is up to the kernel."""
    sockets: int
    segments: int


_HELD = ("RssAnon", "RssShmem")  # of proc_pid_status(5)


def resources() -> Resources:
    """Count what this process holds now, after a garbage collection."""
    gc.collect()
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue  # the descriptor of the listing itself
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Resources(
        descriptors=len(links),
        threads=int(status["Threads"]),
        resident=sum(int(status[kind].split()[0]) for kind in _HELD) * 1024,
        sockets=sum(link.startswith("socket:") for link in links),
        segments=len(
            {line.split()[-1] for line in maps if "/dev/shm/" in line or "memfd:" in line}
        ),
    )


def reset_peak() -> int:
    """Start measuring this process's peak of resident memory anew; returns what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The peak of resident memory in bytes since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


class Ticker:
    """Measures the longest time that the event loop did not come round to a 10 ms timer."""

    def __init__(self) -> None:
        self.gap = 0.0
        self._task: asyncio.Task[None] | None = None
        self._last = 0.0

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self._note()

    def _note(self) -> None:
        now = time.monotonic()
        self.gap = max(self.gap, now - self._last - 0.01)
        self._last = now

    async def __aenter__(self) -> Ticker:
        self._last = time.monotonic()
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._note()
        self._task.cancel()


async def as_async(iterable: Any) -> AsyncIterator[Any]:
    """Iterate over either kind, as verl's `ensure_async_iterator` does."""
    if inspect.isawaitable(iterable):
        iterable = await iterable
    if hasattr(iterable, "__aiter__"):
        async for item in iterable:
            yield item
    else:
        for item in iterable:
            yield item


class EngineProbe:
    """One engine in one worker process."""

    emit: Callable[..., None]

    def __init__(
        self,
        factory: EngineFactory,
        bucket_size: int,
        is_master: bool,
        surroundings: Surroundings = Surroundings(),
        **extra: Any,
    ) -> None:
        surroundings.enter()
        factory.prepare_process()
        import torch

        torch.set_num_threads(1)
        _mallopt(_M_MMAP_THRESHOLD, 1 << 18)  # or what the allocator hoards hides what is held
        self.device = factory.device
        self.engine: Any = factory(bucket_size=bucket_size, is_master=is_master, **extra)
        self._gates: dict[str, threading.Event] = {}

    def poison(self) -> None:
        """Make fresh memory hold a pattern, so that bytes nobody wrote are seen."""
        _mallopt(_M_PERTURB, 0x5A)

    def prepare(self) -> Any:
        """The engine's metadata, pickled as Ray would."""
        return pickle.dumps(self.engine.prepare())

    def init_process_group(self, **kwargs: Any) -> None:
        """Enter the group."""
        self.engine.init_process_group(**kwargs)

    def finalize(self) -> None:
        """Leave it."""
        self.engine.finalize()

    @immediate
    def release(self, gate: str) -> None:
        """Open a gate."""
        self._gate(gate).set()

    @immediate
    def close_gate(self, gate: str) -> None:
        """Make a gate hold again."""
        self._gate(gate).clear()

    @immediate
    def abort(self) -> None:
        """The engine's abort, from another thread than the loop's."""
        self.engine.abort()

    @immediate
    def status(self) -> Any:
        """The engine's status, from another thread than the loop's."""
        return self.engine.status()

    @immediate
    def pulled(self) -> int:
        """How many bytes the engine has taken from the generator so far."""
        return sum(nbytes for _, nbytes in self._sent.pulled)

    @immediate
    def generator_ended(self) -> bool:
        """Whether the last generator was exhausted or closed."""
        return self._sent.closed

    def resources(self) -> Resources:
        """What the process holds."""
        return resources()

    def call(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """Call `target(engine, ...)` in this process."""
        return resolve(target)(self.engine, *args, **kwargs)

    def _gate(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())

    def _stream(self, recipe: Recipe, produce: Produce, sent: Sent) -> Iterator[tuple[str, Any]]:
        import torch
        import torch.distributed as dist

        scratch = None
        try:
            for index, (name, made) in enumerate(recipe.stream()):
                if produce.gate_at == index:
                    self.emit("producer waits")
                    self._gate("producer").wait(60)
                if produce.raise_at == index:
                    raise ConsumerError(f"the generator broke before {name}")
                if produce.collective:
                    token = torch.ones(1)
                    dist.all_reduce(token)
                    if int(token) != dist.get_world_size():
                        raise ConsumerError("the generator's own collective went wrong")
                if produce.pause:
                    time.sleep(produce.pause)
                tensor = made if self.device == "cpu" else made.to(self.device)
                if produce.reuse:
                    if scratch is not None:
                        scratch.fill_(0)
                    scratch = tensor
                if produce.spoil:
                    self._sources.append(tensor)
                sent.pulled.append((time.monotonic(), tensor.numel() * tensor.element_size()))
                yield name, tensor
            sent.exhausted_at = time.monotonic()
        finally:
            sent.closed = True

    async def send(
        self, recipe: Recipe, step: int | None, produce: Produce = Produce(), gap: bool = False
    ) -> Sent:
        """Send a recipe's stream."""
        sent = self._sent = Sent()
        self._sources: list[Any] = []
        before = reset_peak()
        started = time.monotonic()
        self.emit("send starts")
        async with Ticker() as ticker:
            value = self.engine.send_weights(self._stream(recipe, produce, sent), global_steps=step)
            if inspect.isawaitable(value):
                await value
        for tensor in self._sources:
            tensor.zero_()
        sent.seconds, sent.gap = time.monotonic() - started, ticker.gap
        sent.peak = peak() - before
        return sent

    async def receive(self, step: int | None, consume: Consume = Consume()) -> Received:
        """Receive a stream."""
        received = self._received = Received()
        kept: list[tuple[Print, Any]] = []
        before = reset_peak()
        started = time.monotonic()
        async with Ticker() as ticker:
            index = -1
            async for index, (name, tensor) in _enumerate(
                as_async(self.engine.receive_weights(global_steps=step))
            ):
                if received.first_at is None:
                    received.first_at = time.monotonic()
                    self.emit("first tensor")
                await self._take(index, name, tensor, consume, received, kept)
            received.count = index + 1
        received.changed += [old.name for old, now in kept if fingerprint(old.name, now) != old]
        received.seconds, received.gap = time.monotonic() - started, ticker.gap
        received.peak = peak() - before
        return received

    async def _take(
        self,
        index: int,
        name: str,
        tensor: Any,
        consume: Consume,
        received: Received,
        kept: list[tuple[Print, Any]],
    ) -> None:
        if consume.raise_at == index:
            raise ConsumerError(f"the consumer broke at {name}")
        if not consume.count_only:
            taken = fingerprint(name, tensor)
            received.prints.append(taken)
            if consume.keep:
                kept.append((taken, tensor))
        if consume.gate_at == index:
            self.emit("consumer waits")
            await asyncio.get_running_loop().run_in_executor(None, self._gate("consumer").wait, 60)
        if consume.pause:
            await asyncio.sleep(consume.pause)
        if consume.recheck and fingerprint(name, tensor) != received.prints[-1]:
            received.changed.append(name)


def _mallopt(parameter: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(parameter, value)


async def _enumerate(items: AsyncIterator[Any]) -> AsyncIterator[tuple[int, Any]]:
    index = 0
    async for item in items:
        yield index, item
        index += 1
