"""Backend name -> engine class, loaded only when asked for, with the reason when that fails."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from actor_wg_engine.contract import CheckpointEngine

# Foreign engines need not derive from our base class, so the registry does not ask for it.
T = TypeVar("T", bound=type[Any])

_TRANSPORTS = "actor_wg_engine.transports"
#: Where the backends of this package live. A module registers its class when it is imported.
BUILT_IN = {
    "naive": f"{_TRANSPORTS}.colocated",
    "nccl": f"{_TRANSPORTS}.torch_distributed",
    "hccl": f"{_TRANSPORTS}.torch_distributed",
    "nixl": f"{_TRANSPORTS}.nixl",
    "mooncake": f"{_TRANSPORTS}.mooncake",
    "kimi_ckpt_engine": f"{_TRANSPORTS}.kimi",
}


class CheckpointEngineRegistry:
    """The backends known to this process."""

    _registry: ClassVar[dict[str, type[Any]]] = {}
    _import_errors: ClassVar[dict[str, ImportError]] = {}

    @staticmethod
    def register(backend: str) -> Callable[[T], T]:
        """Return a class decorator that makes a class known under a backend's name.

        The name of a built-in backend may be taken: the last class registered wins.
        """

        def decorate(cls: T) -> T:
            CheckpointEngineRegistry._registry[backend] = cls
            return cls

        return decorate

    @classmethod
    def record_import_error(cls, module: str, error: ImportError) -> None:
        """Remember why an engine's module could not be imported, for the message of `get`."""
        cls._import_errors[module] = error

    @classmethod
    def get(cls, backend: str) -> type[CheckpointEngine]:
        """Return the class of a backend.

        Raises:
            ValueError: no such backend, or its module does not import here. The message lists
                the backends that can be used and, for the others, the reason.
        """
        if backend not in cls._registry and backend in BUILT_IN:
            cls._load(backend)
        if backend in cls._registry:
            return cls._registry[backend]
        raise ValueError(cls._explain(backend))

    @classmethod
    def new(cls, backend: str, *args: Any, **kwargs: Any) -> CheckpointEngine:
        """Create an engine: `get(backend)(*args, **kwargs)`.

        Raises:
            ValueError: as for `get`.
            TypeError: the backend does not take one of the arguments.
        """
        return cls.get(backend)(*args, **kwargs)

    @classmethod
    def _load(cls, backend: str) -> None:
        module = BUILT_IN[backend]
        try:
            importlib.import_module(module)
        except ImportError as error:
            cls.record_import_error(module, error)

    @classmethod
    def _explain(cls, backend: str) -> str:
        for name in BUILT_IN:
            if name not in cls._registry:
                cls._load(name)
        failed = {name: cls._import_errors.get(module) for name, module in BUILT_IN.items()}
        available = ", ".join(sorted(cls._registry)) or "none"
        lines = [f"checkpoint engine backend {backend!r} is not available; available: {available}"]
        lines += [
            f"{name}: its module {BUILT_IN[name]} failed to import: {error}"
            for name, error in sorted(failed.items())
            if error is not None and name not in cls._registry
        ]
        lines += [
            f"{module} failed to import: {error}"
            for module, error in sorted(cls._import_errors.items())
            if module not in BUILT_IN.values()
        ]
        if backend not in BUILT_IN:
            lines.append(
                "a backend of your own: set custom_backend_module to the module that registers it"
            )
        return "; ".join(lines)


def import_backend_module(custom_backend_module: str | None) -> None:
    """Import the user's module so that its backends register, before any look-up.

    Raises:
        ValueError: the module does not import here; the message says why.
    """
    if not custom_backend_module:
        return
    try:
        importlib.import_module(custom_backend_module)
    except ImportError as error:
        raise ValueError(
            f"custom_backend_module {custom_backend_module!r} does not import: {error}; it must be "
            "importable in the driver and in every worker (runtime_env, PYTHONPATH)"
        ) from error
