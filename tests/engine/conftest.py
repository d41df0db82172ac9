"""One Ray for the whole session, and the smallest worlds to sync in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")

from actor_wg_engine import CheckpointEngineConfig, CheckpointEngineManager, Deadlines, WorkerGroup  # noqa: E402
from actor_wg_engine.serving import WeightStore  # noqa: E402
from actor_wg_engine.worker import ActorWorker, CheckpointEngineWorker  # noqa: E402

# Workers cannot import the tests, so what they need of this file travels by value.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

MEGABYTE = 1 << 20


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A local Ray with room for many small workers; it outlives all tests of the session."""
    started = not ray.is_initialized()
    if started:
        ray.init(
            num_cpus=64,
            include_dashboard=False,
            object_store_memory=200 * MEGABYTE,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={
                "env_vars": {"OMP_NUM_THREADS": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
            },
        )
    yield
    if started:
        ray.shutdown()


def weights_of(version: int | None, count: int = 12, numel: int = 50_000) -> Any:
    """Named tensors that differ in every byte from those of another version."""
    generator = torch.Generator().manual_seed(1000 + (version or 0))
    yield "scalar", torch.rand((), dtype=torch.float64, generator=generator)
    yield "empty", torch.empty(0, 3)
    yield "odd", torch.randint(0, 255, (7,), dtype=torch.uint8, generator=generator)
    for index in range(count):
        yield f"layer.{index}.weight", torch.rand(numel + index, generator=generator)
    yield "bfloat", torch.rand(33, 3, generator=generator).to(torch.bfloat16).t()
    yield "large", torch.rand(3 * MEGABYTE // 2, generator=generator)


class Rollout(CheckpointEngineWorker):
    """A rollout worker whose weights can be compared, and that can be made to fail."""

    def __init__(self, config: Any, server_adapter: Any = None) -> None:
        super().__init__(_Config(config), None, server_adapter)

    def matches(self, version: int | None, make: Any = weights_of) -> list[str]:
        """Names whose bytes differ from those of a version, or that are missing or surplus."""
        due = dict(make(version))
        have = self.server_adapter.weights
        wrong = sorted(set(due) ^ set(have))
        return wrong + [name for name in set(due) & set(have) if not same(due[name], have[name])]

    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()


class _Config:
    def __init__(self, checkpoint_engine: Any) -> None:
        self.checkpoint_engine = checkpoint_engine


def same(left: Any, right: Any) -> bool:
    """Whether two tensors agree in dtype, shape and every bit."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)]
    return torch.equal(*as_bytes)


class Replica:
    """A rollout replica that records what it is asked for."""

    def __init__(
        self, workers: list[Any], rank: int, log: list[tuple[int, str]] | None = None
    ) -> None:
        self.workers = workers
        self.replica_rank = rank
        self.log = log if log is not None else []
        self.serving = True
        self.cached = True

    async def _note(self, what: str) -> None:
        self.log.append((self.replica_rank, what))
        await asyncio.sleep(0)

    async def sleep(self) -> None:
        await self._note("sleep")

    async def wake_up(self) -> None:
        await self._note("wake_up")

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self.serving = False
        await self._note("abort_all_requests")

    async def resume_generation(self) -> None:
        self.serving = True
        await self._note("resume_generation")

    async def release_kv_cache(self) -> None:
        self.cached = False
        await self._note("release_kv_cache")

    async def resume_kv_cache(self) -> None:
        self.cached = True
        await self._note("resume_kv_cache")


class World:
    """An actor worker group, replicas and a manager, in real processes."""

    def __init__(
        self,
        backend: str,
        actors: int,
        tp: list[int],
        *,
        weights: Any = weights_of,
        adapter: Any = None,
        bucket_megabytes: int = 1,
        deadlines: Deadlines | None = None,
        custom_backend_module: str | None = None,
        pythonpath: str = "",
        **engine_kwargs: Any,
    ) -> None:
        self.options: dict[str, Any] = {"num_cpus": 0.1}
        if pythonpath:
            self.options["runtime_env"] = {"env_vars": {"PYTHONPATH": pythonpath}}
        self.config = CheckpointEngineConfig(
            backend=backend,
            update_weights_bucket_megabytes=bucket_megabytes,
            engine_kwargs={backend: engine_kwargs},
            custom_backend_module=custom_backend_module,
        )
        self.weights = weights
        self.adapter = adapter
        self.log: list[tuple[int, str]] = []
        self.actor_wg = self.spawn_actors(actors)
        self.replicas = [self.spawn_replica(rank, size) for rank, size in enumerate(tp)]
        self.manager = CheckpointEngineManager(
            config=self.config,
            actor_wg=self.actor_wg,
            replicas=self.replicas,
            deadlines=deadlines or Deadlines(sync_s=60, connect_s=60, replica_s=10),
        )

    def spawn_actors(self, count: int) -> WorkerGroup:
        return WorkerGroup.spawn(
            ActorWorker,
            [
                {"config": self.config, "weights": self.weights, "is_master": rank == 0}
                for rank in range(count)
            ],
            **self.options,
        )

    def spawn_replica(self, rank: int, size: int) -> Replica:
        arguments = [{"config": self.config, "server_adapter": self.adapter} for _ in range(size)]
        group = WorkerGroup.spawn(Rollout, arguments, **self.options)
        return Replica(group.workers, rank, self.log)

    @property
    def rollouts(self) -> list[Any]:
        return [worker for replica in self.manager.replicas for worker in replica.workers]

    def wrong(self, version: int | None) -> list[list[str]]:
        return ray.get([w.matches.remote(version, self.weights) for w in self.rollouts], timeout=60)

    def pids(self) -> list[int]:
        return ray.get([w.process_id.remote() for w in self.rollouts], timeout=60)

    def close(self) -> None:
        for worker in [*self.actor_wg.workers, *self.rollouts]:
            ray.kill(worker)


def by_value(module_name: str) -> None:
    """Let classes and functions of a test module travel to the workers."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[module_name])


@pytest.fixture(autouse=True, scope="module")
def _module_by_value(request: Any) -> None:
    by_value(request.module.__name__)


def stop(pid: int) -> None:
    """Freeze a process."""
    os.kill(pid, signal.SIGSTOP)


@pytest.fixture
def world(ray_session: None) -> Iterator[Any]:
    """A factory of worlds, which are torn down after the test."""
    made: list[World] = []

    def make(*args: Any, **kwargs: Any) -> World:
        made.append(World(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()


__all__ = ["Replica", "Rollout", "WeightStore", "World", "same", "stop", "weights_of"]
