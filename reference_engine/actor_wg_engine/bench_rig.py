"""Starts the processes of a benchmark and measures in them, one thing after the other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actor_wg_engine.bench_worker import Timing
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.nursery import Nursery
from actor_wg_engine.conformance.processes import Ref, WorkerHandle, gather

WORKER = "actor_wg_engine.bench_worker:BenchWorker"
HOST = "127.0.0.1"
LONG = 600.0


@dataclass(frozen=True)
class Figure:
    """What one measurement came to: wall seconds from first to last, CPU seconds of all."""

    seconds: float
    cpu: float


def combine(timings: Sequence[Timing]) -> Figure:
    """The figure of one measurement, from all workers; the first timing is the source's."""
    return Figure(
        max(timing.end for timing in timings) - timings[0].begin,
        sum(timing.cpu for timing in timings),
    )


class Rig:
    """One source and some receivers, each a fresh process; use as a context manager.

    Args:
        receivers: How many receivers.
        preload: Modules that the processes need.
    """

    def __init__(self, receivers: int, preload: Sequence[str] = ()) -> None:
        self._nursery = Nursery(["torch", "actor_wg_engine.bench_worker", *preload])
        self.step = 0
        self.nbytes = 0
        self._opened = False
        self._factory: EngineFactory | None = None
        self.source = self._start("source", True)
        self.receivers = [self._start(f"receiver {i}", False) for i in range(receivers)]
        gather([worker.ready for worker in self.workers], 120)

    def _start(self, name: str, is_source: bool) -> WorkerHandle:
        return WorkerHandle(self._nursery.address, name, WORKER, is_source)

    @property
    def workers(self) -> list[WorkerHandle]:
        """All processes, the source first."""
        return [self.source, *self.receivers]

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()
        self._nursery.close()

    def each(self, method: str, *args: Any) -> list[Any]:
        """Call a method in all processes at once."""
        return gather([worker.submit(method, *args) for worker in self.workers], LONG)

    def load(self, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> int:
        """Give the source a model and the receivers another one of the same shapes."""
        refs = [
            worker.submit("load", shapes, int(rank == 0))
            for rank, worker in enumerate(self.workers)
        ]
        self.nbytes = int(gather(refs, LONG)[0])
        return self.nbytes

    # The engine.

    def use(self, factory: EngineFactory, bucket_size: int) -> None:
        """Make fresh engines in all processes."""
        self._factory = factory
        self._opened = False
        self.each("make_engine", factory, bucket_size)

    def open(self) -> None:
        """Form the group."""
        assert self._factory is not None
        metadata = self.each("prepare")
        sides = self._factory.engine_class().build_topology(1, len(self.receivers), metadata)
        refs = [self.source.submit("init_process_group", **_nth(sides[0], 0))]
        refs += [
            worker.submit("init_process_group", **_nth(sides[1], index))
            for index, worker in enumerate(self.receivers)
        ]
        gather(refs, LONG)
        self._opened = True

    def sync(self) -> Figure:
        """One sync over the group that stands."""
        if not self._opened:
            self.open()
        self.step += 1
        receiving = [worker.submit("receive", self.step) for worker in self.receivers]
        return self._figure([self.source.submit("send", self.step), *receiving])

    def close_group(self) -> None:
        """End the engines' group."""
        self.each("finalize")
        self._opened = False

    def require_equal(self) -> None:
        """Every receiver holds the source's bytes.

        Raises:
            RuntimeError: One does not.
        """
        digests = self.each("digest")
        for worker, digest in zip(self.workers, digests, strict=True):
            if digest != digests[0]:
                raise RuntimeError(f"{worker.name} does not hold what was sent")

    # Raw primitives.

    def copy(self) -> Figure:
        """One copy of the payload in the source."""
        return self._figure([self.source.submit("copy_once", self.nbytes)])

    def raw_socket(self, bucket: int) -> Figure:
        """The payload over one TCP connection to the first receiver."""
        port = self.receivers[0].call("raw_listen", HOST)
        receiving = self.receivers[0].submit("raw_socket", HOST, port, self.nbytes, bucket)
        sending = self.source.submit("raw_socket", HOST, port, self.nbytes, bucket)
        return self._figure([sending, receiving])

    def join_gloo(self) -> None:
        """Make the raw gloo group."""
        port = self.source.call("gloo_host", HOST)
        size = len(self.workers)
        refs = [
            worker.submit("gloo_join", HOST, port, rank, size, HOST)
            for rank, worker in enumerate(self.workers)
        ]
        gather(refs, LONG)

    def raw_broadcast(self, bucket: int) -> Figure:
        """The payload by gloo broadcasts of one persistent buffer."""
        return self._everywhere("raw_broadcast", self.nbytes, bucket)

    def verl_path(self, bucket: int) -> Figure:
        """The payload as verl 0.9 packs and splits it, over the same broadcasts."""
        return self._everywhere("verl_path", bucket)

    def _everywhere(self, method: str, *args: Any) -> Figure:
        receiving = [worker.submit(method, *args) for worker in self.receivers]
        return self._figure([self.source.submit(method, *args), *receiving])

    def _figure(self, refs: Sequence[Ref]) -> Figure:
        return combine(gather(refs, LONG))


def _nth(side: dict[str, list[Any]], index: int) -> dict[str, Any]:
    return {key: values[index] for key, values in side.items()}


def middle(figures: Sequence[Figure]) -> Figure:
    """The median of the wall seconds, and of the CPU seconds."""
    return Figure(
        statistics.median(figure.seconds for figure in figures),
        statistics.median(figure.cpu for figure in figures),
    )
