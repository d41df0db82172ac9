"""Which engine a run of the checks is about; travels to every worker process."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

MANAGER = "actor_wg_engine.manager:CheckpointEngineManager"
OWN_PACKAGE = "actor_wg_engine"


def resolve(target: str) -> Any:
    """The object that "package.module:name" stands for.

    Raises:
        ValueError: The text has no colon, or the module has no such name.
        ImportError: The module cannot be imported.
    """
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f"{target!r} should read package.module:Name")
    value: Any = importlib.import_module(module_name)
    for part in name.split("."):
        if not hasattr(value, part):
            raise ValueError(f"module {module_name} has no {name}")
        value = getattr(value, part)
    return value


@dataclass(frozen=True)
class EngineFactory:
    """Makes engines of one class, in whichever process it is called.

    Args:
        target: The engine class as "package.module:Class".
        device: "cpu", "cuda" or "npu": where weights live.
        engine_kwargs: Passed to the constructor besides `bucket_size` and `is_master`.
        setup: "package.module:function" called once in every process before anything else.
        own: Binding where others are only advised; by default, whether the class is ours.
    """

    target: str
    device: str = "cpu"
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: str | None = None
    own: bool | None = None

    @property
    def is_own(self) -> bool:
        """True when every check is binding."""
        if self.own is not None:
            return self.own
        return self.target.partition(".")[0] == OWN_PACKAGE

    @property
    def module(self) -> str:
        """The module of the engine class."""
        return self.target.partition(":")[0]

    def prepare_process(self) -> None:
        """Run `setup`, if there is one; every process calls this first."""
        if self.setup:
            resolve(self.setup)()

    def engine_class(self) -> Any:
        """The engine class itself."""
        return resolve(self.target)

    def __call__(self, *, bucket_size: int, is_master: bool = False, **extra: Any) -> Any:
        """One engine.

        Args:
            bucket_size: Bytes of a bucket.
            is_master: True on actor rank 0, where the keyword is passed at all.
            extra: Further constructor arguments, over those of the factory.
        """
        kwargs: dict[str, Any] = {**self.engine_kwargs, **extra}
        if is_master:
            kwargs["is_master"] = True
        return self.engine_class()(bucket_size=bucket_size, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "engine_kwargs": dict(self.engine_kwargs)}

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine_kwargs", MappingProxyType(dict(self.engine_kwargs)))
