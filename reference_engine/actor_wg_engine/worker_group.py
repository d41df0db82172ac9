"""The smallest Ray worker group that can play the actor worker group and the rollout world."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ray

from actor_wg_engine.contract import CONTROL_METHODS
from actor_wg_engine.errors import TopologyError
from actor_wg_engine.worker import CONTROL_GROUP

#: Ray runs the calls of this group beside a sync, even where the worker's event loop is stuck.
_GROUP = "control"
_THREADS = 2


class WorkerGroup:
    """Calls the same method in all workers and returns the object references.

    Args:
        worker_handles: Ray actor handles, by rank.
    """

    def __init__(self, worker_handles: Sequence[Any]) -> None:
        self.workers = list(worker_handles)

    @classmethod
    def spawn(
        cls, worker_cls: type[Any], arguments: Sequence[dict[str, Any]], **options: Any
    ) -> WorkerGroup:
        """Start one Ray actor per entry of `arguments`.

        Args:
            worker_cls: `CheckpointEngineWorker`, `ActorWorker`, or a class with their methods.
            arguments: keyword arguments of the constructor, by rank.
            **options: Ray actor options, for example `num_cpus` or `scheduling_strategy`.
        """
        remote = ray.remote(concurrency_groups={_GROUP: _THREADS})(_grouped(worker_cls))  # type: ignore[call-overload]
        return cls([remote.options(**options).remote(**entry) for entry in arguments])

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return len(self.workers)

    def update_weights(self, global_steps: int | None = None, **kwargs: Any) -> list[Any]:
        """Start `update_weights` in all workers."""
        return [w.update_weights.remote(global_steps=global_steps, **kwargs) for w in self.workers]

    def execute_checkpoint_engine(self, method: list[str], **lists: list[Any]) -> list[Any]:
        """Start one method of the engine in each worker.

        Args:
            method: the method's name, once per worker.
            **lists: keyword arguments; each value has one entry per worker.

        Raises:
            TopologyError: a list of another length.
        """
        for key, values in {"method": method, **lists}.items():
            if len(values) != self.world_size:
                raise TopologyError(
                    f"{key!r} has {len(values)} entries for {self.world_size} workers"
                )
        return [
            _engine_call(worker, method[rank], {key: values[rank] for key, values in lists.items()})
            for rank, worker in enumerate(self.workers)
        ]


def _grouped(worker_cls: type[Any]) -> type[Any]:
    """Put the control methods of a worker class into a concurrency group of their own.

    In a subclass, as Ray refuses a class that names a group when it is made remote without groups.
    """
    methods = {
        name: ray.method(concurrency_group=_GROUP)(_passed_on(getattr(worker_cls, name)))
        for name in CONTROL_GROUP
        if hasattr(worker_cls, name)
    }
    return type(worker_cls.__name__, (worker_cls,), methods)


def _passed_on(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await method(self, *args, **kwargs)

    return call


def _engine_call(worker: Any, method: str, kwargs: dict[str, Any]) -> Any:
    if method in CONTROL_METHODS and hasattr(worker, "control"):
        return worker.control.remote(method)
    return worker.execute_checkpoint_engine.remote(method, **kwargs)
