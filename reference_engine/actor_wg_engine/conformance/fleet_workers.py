"""The worker processes of a `Fleet`: an actor that sends, and our rollout worker around a server.

The server writes in place, as inference engines do, or stages a version beside the old one; in both
cases it can say what it holds, so that a mix of two versions is seen.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable
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
from actor_wg_engine.conformance.station import Station, recipe_of
from actor_wg_engine.conformance.weights import Print, Recipe, fingerprint
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.worker import CheckpointEngineWorker


class FleetActor(EngineProbe):
    """An actor worker: sends the recipe of the step, or a planned one."""

    def __init__(self, station: Station, rank: int) -> None:
        station.enter()
        super().__init__(_Registered(station), station.bucket_size, rank == 0)
        self._produce = Produce()
        self._recipe: Recipe | None = None
        self._sending = 0

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
        self._sending += 1
        try:
            await self.send(self._recipe or recipe_of(global_steps), global_steps, self._produce)
        finally:
            self._sending -= 1

    @immediate
    def busy(self) -> bool:
        """Whether a send is under way."""
        return self._sending > 0

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
        super().__init__(
            station.factory.target, station.factory.device, station.factory.engine_kwargs
        )
        object.__setattr__(self, "backend", station.backend)
        object.__setattr__(self, "custom", station.custom_backend_module)

    def engine_class(self) -> Any:
        if self.__dict__["custom"]:
            importlib.import_module(self.__dict__["custom"])
        return CheckpointEngineRegistry.get(self.__dict__["backend"])


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

    immediate_methods = frozenset({"control", "process_id", "commit_weights", "settle_weights"})
    emit: Callable[..., None]

    def __init__(self, station: Station) -> None:
        import torch

        torch.set_num_threads(1)
        config = station.enter()
        self._gates: dict[str, threading.Event] = {}
        self.server = Server(self) if station.in_place else StagingServer(self)
        super().__init__(SimpleNamespace(checkpoint_engine=config), None, self.server)

    def gate(self, name: str) -> threading.Event:
        """An event that `release` sets."""
        return self._gates.setdefault(name, threading.Event())

    def behave(self, consume: Consume) -> None:
        """How the consumer behaves from now on."""
        self.server.consume = consume
        self.gate("consumer").clear()

    async def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """The worker's own, except where it is to miss the rendezvous."""
        if method == "init_process_group" and self.server.consume.stall_init:
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
        held = list(self.server.held.values())
        return self.server.global_steps, held

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
