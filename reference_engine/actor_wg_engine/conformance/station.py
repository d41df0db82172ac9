"""What every process of a fleet is told, and how it makes the fleet's engine known under a name."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.weights import Recipe, recipe
from actor_wg_engine.contract import CheckpointEngineConfig
from actor_wg_engine.registry import CheckpointEngineRegistry

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


def recipe_of(step: int | None) -> Recipe:
    """What the weights of a global step are."""
    return recipe("mixed", seed=step or 0)
