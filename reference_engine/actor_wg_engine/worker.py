"""What runs in a worker process: `CheckpointEngineWorker` beside a rollout, `ActorWorker` in an actor.

Both are plain classes; `ray.remote` turns them into Ray actors, and so does `WorkerGroup.spawn`. Long
work runs on the default event loop of the Ray actor without blocking it. Spawned workers have the
`CONTROL_GROUP` in a concurrency group of its own, so it answers even if a server adapter blocks that
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from actor_wg_engine.contract import (
    CONTRACT_METHODS,
    CONTROL_METHODS,
    CheckpointEngine,
    CheckpointEngineConfig,
    Weights,
    capabilities_of,
)
from actor_wg_engine.errors import EngineError
from actor_wg_engine.registry import CheckpointEngineRegistry, import_backend_module
from actor_wg_engine.serving import WeightStore

#: What the driver needs while a sync is stuck, and after a failure.
CONTROL_GROUP = ("control", "process_id", "commit_weights", "settle_weights")


def new_engine(
    config: CheckpointEngineConfig, *, is_master: bool | None = None
) -> CheckpointEngine:
    """Create the engine that a configuration names.

    Args:
        config: any object with the fields of `CheckpointEngineConfig`.
        is_master: passed on where it is not None; rollout workers leave it to the default.

    Raises:
        ValueError: unknown backend, bad bucket size, or a custom module that does not import.
        TypeError: the backend does not take one of its `engine_kwargs`.
    """
    import_backend_module(config.custom_backend_module)
    kwargs = dict(config.engine_kwargs.get(config.backend, {}))
    if is_master is not None:
        kwargs["is_master"] = is_master
    bucket_size = config.update_weights_bucket_megabytes << 20
    return CheckpointEngineRegistry.new(config.backend, bucket_size=bucket_size, **kwargs)


class _EngineWorker:
    """The part that both sides share: an engine whose contract can be called by name."""

    checkpoint_engine: CheckpointEngine

    async def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the contract, on a thread, as it may block.

        Raises:
            ValueError: the name is not in the contract.
        """
        _check_method(method, CONTRACT_METHODS)
        return await asyncio.to_thread(getattr(self.checkpoint_engine, method), *args, **kwargs)

    async def control(self, method: str) -> Any:
        """Call `abort` or `status` while anything else is going on.

        Raises:
            ValueError: the name is neither.
        """
        _check_method(method, CONTROL_METHODS)
        return getattr(self.checkpoint_engine, method)()

    async def process_id(self) -> int:
        """Return the id of this process."""
        return os.getpid()


class CheckpointEngineWorker(_EngineWorker):
    """A rollout worker: receives weights and gives them to a server adapter.

    A version counts only after `commit_weights`, which the driver calls when every worker of the
    replica has it. Until then an adapter with `discard_update` keeps the old version and can go on
    serving it after a failure; any other adapter is dirty from the first tensor on.

    Args:
        rollout_config: has `checkpoint_engine`, a `CheckpointEngineConfig`.
        model_config: passed by; the adapter may want it.
        server_adapter: has `update_weights(weights, global_steps=, wire_format=)` and, if it can
            keep two versions, `commit_update(global_steps)` and `discard_update()`. None: a
            `WeightStore`.
    """

    def __init__(
        self, rollout_config: Any, model_config: Any = None, server_adapter: Any = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        self.rollout_config = rollout_config
        self.model_config = model_config
        self.server_adapter = WeightStore() if server_adapter is None else server_adapter
        self.extra_rollout_args = args
        self.extra_rollout_kwargs = kwargs
        self.checkpoint_engine = new_engine(rollout_config.checkpoint_engine)
        self.version: int | None = None
        self._state = "ready"
        self._update: asyncio.Task[Any] | None = None

    async def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        """Receive one version and give it to the adapter. Not served before `commit_weights`.

        Raises:
            EngineError: the version did not arrive whole.
            Exception: whatever the adapter raised; the source and the driver are told.
        """
        keeps_old = hasattr(self.server_adapter, "discard_update") and not getattr(
            self.server_adapter, "in_place", False
        )
        before, self._state = self._state, "updating" if keeps_old else "dirty"
        try:
            await self._receive(global_steps)
        except BaseException:
            if keeps_old:
                self.server_adapter.discard_update()
                self._state = before
            raise
        self._state = "complete" if keeps_old else "dirty"
        return {"version": global_steps}

    async def commit_weights(self, global_steps: int | None = None) -> None:
        """Publish the version that `update_weights` has received."""
        commit = getattr(self.server_adapter, "commit_update", None)
        if commit is not None:
            commit(global_steps)
        self.version = global_steps
        self._state = "ready"

    async def settle_weights(self) -> dict[str, Any]:
        """Drop what was received and not committed, and say what is left: "ready" or "dirty"."""
        if self._state == "complete":
            self.server_adapter.discard_update()
            self._state = "ready"
        return {"state": self._state, "version": self.version}

    async def _receive(self, global_steps: int | None) -> None:
        engine, adapter = self.checkpoint_engine, self.server_adapter
        direct = getattr(adapter, "weight_destination", lambda: None)()
        if direct is not None and capabilities_of(engine).in_place:
            await engine.receive_into(direct, global_steps)  # type: ignore[attr-defined]
            return
        weights = engine.receive_weights(global_steps=global_steps)
        try:
            await adapter.update_weights(
                weights,
                global_steps=global_steps,
                wire_format=getattr(engine, "wire_format", "named_tensors"),
            )
        finally:
            close = getattr(weights, "aclose", None)
            if close is not None:
                with contextlib.suppress(EngineError):
                    await close()


class ActorWorker(_EngineWorker):
    """An actor worker: sends the weights that a callable yields.

    Args:
        config: a `CheckpointEngineConfig`.
        weights: called once per sync with the version; returns the pairs to send.
        is_master: this is actor rank 0.
    """

    def __init__(
        self,
        config: CheckpointEngineConfig,
        weights: Callable[[int | None], Weights],
        is_master: bool,
    ) -> None:
        self.weights = weights
        self.checkpoint_engine = new_engine(config, is_master=is_master)

    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        """Send one version. `mode` is what verl's workers take; it changes nothing here."""
        del mode
        return await self.checkpoint_engine.send_weights(
            self.weights(global_steps), global_steps=global_steps
        )


def _check_method(method: str, allowed: frozenset[str]) -> None:
    if method not in allowed:
        raise ValueError(f"{method!r} is not a method of the contract; allowed: {sorted(allowed)}")
