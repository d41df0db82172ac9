"""The worker processes of a `Fleet`: an actor that sends, and our rollout worker around a server.

The server writes in place, as inference engines do, or stages a version beside the old one; in both
cases it can say what it holds, so that a mix of two versions is seen.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ray

from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.host import immediate
from actor_wg_engine.conformance.probe import (
    Consume,
    ConsumerError,
    EngineProbe,
    Produce,
    Resources,
    resources,
)
from actor_wg_engine.conformance.weights import Print, Recipe, fingerprint, recipe
from actor_wg_engine.contract import CheckpointEngineConfig
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.worker import CheckpointEngineWorker

BACKEND = "conformance"


@dataclass(frozen=True)
class Station:
    """What every process of a fleet is told.

    Args:
        factory: Which engine.
        bucket_size: Bytes of a bucket.
        backend: The name under which the engine is asked for.
        custom_backend_module: Imported before the look-up; without one the engine is registered
            under `BACKEND` by us.
        path: A folder to import from.
        in_place: Servers write over the old version.
    """

    factory: EngineFactory
    bucket_size: int
    backend: str = BACKEND
    custom_backend_module: str | None = None
    path: str | None = None
    in_place: bool = False

    def enter(self) -> CheckpointEngineConfig:
        """Set this process up; the configuration that manager and workers get."""
        self.factory.prepare_process()
        if self.path:
            sys.path.insert(0, self.path)
            importlib.invalidate_caches()
        if self.custom_backend_module is None:
            cls = with_bucket_size(self.factory.engine_class(), self.bucket_size)
            CheckpointEngineRegistry.register(self.backend)(cls)
        return CheckpointEngineConfig(
            backend=self.backend,
            update_weights_bucket_megabytes=1,
            engine_kwargs={self.backend: dict(self.factory.engine_kwargs)},
            custom_backend_module=self.custom_backend_module,
        )


def with_bucket_size(cls: type[Any], bucket_size: int) -> type[Any]:
    """The engine class with a bucket size of its own: the configuration knows only megabytes."""

    def __init__(self: Any, bucket_size: int, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        cls.__init__(self, own, *args, **kwargs)

    own = bucket_size
    return type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__})


class FleetActor(EngineProbe):
    """An actor worker: sends the recipe of the step, or a planned one."""

    def __init__(self, station: Station, rank: int) -> None:
        station.enter()
        super().__init__(_Registered(station), station.bucket_size, rank == 0)
        self._produce = Produce()
        self._recipe: Recipe | None = None

    def behave(self, produce: Produce) -> None:
        """How the generator behaves from now on."""
        self._produce = produce
        self._gate("producer").clear()

    def plan(self, planned: Recipe | None) -> None:
        """What is sent from now on; None goes back to the recipe of the step."""
        self._recipe = planned

    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> None:
        """Send one version."""
        del mode
        await self.send(self._recipe or recipe_of(global_steps), global_steps, self._produce)

    async def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a phase by name, on a thread, as our workers do."""
        return await asyncio.to_thread(getattr(self.engine, method), *args, **kwargs)

    @immediate
    def control(self, method: str) -> Any:
        """abort or status, whatever the loop does."""
        return getattr(self.engine, method)()


class _Registered(EngineFactory):
    """Makes the engine that the registry has, which has the fleet's bucket size."""

    def __init__(self, station: Station) -> None:
        super().__init__(station.factory.target, station.factory.device, station.factory.engine_kwargs)
        object.__setattr__(self, "backend", station.backend)
        object.__setattr__(self, "custom", station.custom_backend_module)

    def engine_class(self) -> Any:
        if self.__dict__["custom"]:
            importlib.import_module(self.__dict__["custom"])
        return CheckpointEngineRegistry.get(self.__dict__["backend"])


def recipe_of(step: int | None) -> Recipe:
    """What the weights of a global step are."""
    return recipe("mixed", seed=step or 0)


class Server:
    """The inference engine's side: holds tensors, and knows what it holds."""

    def __init__(self, worker: FleetRollout) -> None:
        self.held: dict[str, Print] = {}
        self.global_steps: int | None = None
        self.consume = Consume()
        self._worker = worker

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, **_: object
    ) -> None:
        """Take a version in, over the old one."""
        await self._take_in(weights, self.held)
        self.global_steps = global_steps

    async def _take_in(self, weights: Any, into: dict[str, Print]) -> None:
        index = 0
        async for name, tensor in weights:
            if self.consume.raise_at == index:
                raise ConsumerError(f"the consumer broke at {name}")
            if self.consume.gate_at == index:
                self._worker.emit("consumer waits")
                await asyncio.get_running_loop().run_in_executor(
                    None, self._worker.gate("consumer").wait, 60
                )
            if self.consume.pause:
                await asyncio.sleep(self.consume.pause)
            into[name] = (
                Print(name, "", tuple(tensor.shape), "")
                if self.consume.count_only
                else fingerprint(name, tensor)
            )
            index += 1


class StagingServer(Server):
    """The same, with the new version beside the old one until it is committed."""

    _staged: dict[str, Print] | None = None

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, **_: object
    ) -> None:
        """Take a version in, beside the old one."""
        staged: dict[str, Print] = {}
        await self._take_in(weights, staged)
        self._staged = staged

    def commit_update(self, global_steps: int | None = None) -> None:
        """Serve the new version."""
        if self._staged is not None:
            self.held, self.global_steps = self._staged, global_steps
        self._staged = None

    def discard_update(self) -> None:
        """Forget it."""
        self._staged = None


class FleetRollout(CheckpointEngineWorker):
    """Our rollout worker around a server with instruments."""

    emit: Callable[..., None]

    def __init__(self, station: Station) -> None:
        import threading

        import torch

        torch.set_num_threads(1)
        config = station.enter()
        self._gates: dict[str, threading.Event] = {}
        self._make_event = threading.Event
        adapter = Server(self) if station.in_place else StagingServer(self)
        super().__init__(SimpleNamespace(checkpoint_engine=config), None, adapter)

    def gate(self, name: str) -> Any:
        """An event that `release` sets."""
        return self._gates.setdefault(name, self._make_event())

    def behave(self, consume: Consume) -> None:
        """How the consumer behaves from now on."""
        self.server_adapter.consume = consume
        self.gate("consumer").clear()

    async def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """The worker's own, except where it is to miss the rendezvous."""
        if method == "init_process_group" and self.server_adapter.consume.stall_init:
            await asyncio.get_running_loop().run_in_executor(None, self.gate("consumer").wait, 60)
            raise ConsumerError("came too late to the rendezvous")
        return await super().execute_checkpoint_engine(method, *args, **kwargs)

    @immediate
    def release(self, gate: str) -> None:
        """Open a gate."""
        self.gate(gate).set()

    @immediate
    def holds(self) -> tuple[int | None, list[Print]]:
        """The version that the server believes in, and what it really holds."""
        held = list(self.server_adapter.held.values())
        return self.server_adapter.global_steps, held

    def resources(self) -> Resources:
        """What the process holds."""
        return resources()


class ProcessDiedError(ray.exceptions.RayActorError):
    """What a handle answers when its process is gone: the error that Ray would give."""

    def __init__(self, text: str = "the process died") -> None:
        super().__init__()
        self.base_error_msg = text

    def __str__(self) -> str:
        return self.base_error_msg
