"""A: names, signatures and metadata are those of verl 0.9's `verl.checkpoint_engine`."""

from __future__ import annotations

import inspect
import pickle
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.results import CheckFailed
from actor_wg_engine.conformance.session import Session, describe
from actor_wg_engine.conformance.weights import recipe

METHODS = {
    "prepare": (),
    "build_topology": ("actor_wg_world_size", "rollout_world_size", "metadata"),
    "init_process_group": (),
    "finalize": (),
    "send_weights": ("weights", "global_steps"),
    "receive_weights": ("global_steps",),
}


def registries() -> Iterator[Any]:
    """The registries that know backends in this process: ours, and verl's where it is loaded."""
    from actor_wg_engine.registry import CheckpointEngineRegistry

    yield CheckpointEngineRegistry
    module = sys.modules.get("verl.checkpoint_engine")
    theirs = getattr(module, "CheckpointEngineRegistry", None)
    if theirs is not None and theirs is not CheckpointEngineRegistry:
        yield theirs


def parameters(function: Any) -> list[str]:
    """Names of the parameters of a method, without the bound one."""
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@check("A1")
def check_registered(factory: EngineFactory) -> None:
    """The backend resolves through the registry, and an unknown name is answered with the known ones."""
    cls = factory.engine_class()
    for registry in registries():
        names = [name for name, value in registry._registry.items() if value is cls]
        if not names:
            continue
        if registry.get(names[0]) is not cls:
            raise CheckFailed(f"the registry gives another class for {names[0]!r}")
        try:
            registry.get("no-such-backend")
        except ValueError as error:
            if names[0] not in str(error):
                raise CheckFailed(
                    f"the error for an unknown name does not list {names[0]!r}"
                ) from error
            return
        raise CheckFailed("an unknown backend name is not refused")
    raise CheckFailed(
        f"{cls.__name__} is in no CheckpointEngineRegistry after its module is imported"
    )


@check("A2")
def check_methods(factory: EngineFactory) -> None:
    """The six methods exist, with the parameter names of verl 0.9."""
    cls = factory.engine_class()
    for name, expected in METHODS.items():
        method = getattr(cls, name, None)
        if not callable(method):
            raise CheckFailed(f"{cls.__name__} has no method {name}")
        if getattr(method, "__isabstractmethod__", False):
            raise CheckFailed(f"{cls.__name__}.{name} is abstract")
        found = parameters(method)
        for position, parameter in enumerate(expected):
            if parameter not in found:
                old = " (the name before verl 0.9)" if "trainer_world_size" in found else ""
                raise CheckFailed(f"{name} takes {found}{old}, not {parameter}")
            if found.index(parameter) != position:
                raise CheckFailed(
                    f"{name} takes {found}; {parameter} is argument {position + 1} in verl 0.9"
                )


@check("A3")
def check_topology_is_pure(factory: EngineFactory) -> None:
    """build_topology is a class method, gives the same answer twice, and leaves its input alone."""
    cls = factory.engine_class()
    kind = inspect.getattr_static(cls, "build_topology")
    if not isinstance(kind, (classmethod, staticmethod)):
        raise CheckFailed("build_topology must be callable on the class")
    with Session(factory, actors=2, rollouts=3) as session:
        metadata = session.prepare()
        before = pickle.dumps(metadata)
        first = pickle.dumps(cls.build_topology(2, 3, metadata))
        if pickle.dumps(metadata) != before:
            raise CheckFailed("build_topology changed the metadata it was given")
        if pickle.dumps(cls.build_topology(2, 3, pickle.loads(before))) != first:
            raise CheckFailed("build_topology gives two answers for one input")


@check("A4")
def check_constructor(factory: EngineFactory) -> None:
    """The constructor takes bucket_size and is_master, and names an argument that it does not know."""
    factory(bucket_size=1 << 20)
    factory(bucket_size=1 << 20, is_master=True)
    try:
        factory(bucket_size=1 << 20, no_such_argument=1)
    except (TypeError, ValueError) as error:
        if "no_such_argument" not in str(error):
            raise CheckFailed(f"the error does not name the argument: {describe(error)}") from error
        return
    raise CheckFailed("an unknown constructor argument is swallowed")


@check("A5")
def check_global_steps(factory: EngineFactory) -> None:
    """send_weights and receive_weights take global_steps; receive_weights gives an iterator."""
    cls = factory.engine_class()
    for name in ("send_weights", "receive_weights"):
        parameter = inspect.signature(getattr(cls, name)).parameters.get("global_steps")
        if parameter is None or parameter.default is not None:
            raise CheckFailed(f"{name} must take global_steps=None")
    with Session(factory) as session:
        session.expect(recipe("mixed"), 1)
        session.expect(recipe("mixed"), None)


@check("A6")
def check_manager_calls(factory: EngineFactory) -> None:
    """The manager takes (config, actor_wg, replicas); update_weights works with and without a loop."""
    from actor_wg_engine import CheckpointEngineManager

    found = parameters(CheckpointEngineManager.__init__)
    if found[:3] != ["config", "actor_wg", "replicas"]:
        raise CheckFailed(f"the manager takes {found}, not config, actor_wg, replicas")
    with Fleet(factory, replicas=(1, 1)) as fleet:
        fleet.manager.update_weights(global_steps=1)
        fleet.require_served(1)
        fleet.run(_update(fleet, 2))
        fleet.require_served(2)


async def _update(fleet: Fleet, step: int) -> None:
    await fleet.manager.update_weights(global_steps=step)


@check("A7")
def check_custom_module(factory: EngineFactory) -> None:
    """custom_backend_module is imported in the driver and in every worker before the look-up."""
    module, _, name = factory.target.partition(":")
    with tempfile.TemporaryDirectory(prefix="actor-wg-") as folder:
        source = f"""\
            from actor_wg_engine.registry import CheckpointEngineRegistry
            from {module} import {name}
            CheckpointEngineRegistry.register("conformance-custom")({name})
        """
        Path(folder, "conformance_custom_backend.py").write_text(textwrap.dedent(source))
        sys.path.insert(0, folder)
        try:
            with Fleet(
                factory,
                replicas=(1,),
                backend="conformance-custom",
                custom_backend_module="conformance_custom_backend",
                path=folder,
            ) as fleet:
                fleet.manager.update_weights(global_steps=1)
                fleet.require_served(1)
        finally:
            sys.path.remove(folder)


@check("A8")
def check_metadata_outlives_its_process(factory: EngineFactory) -> None:
    """prepare() returns plain data: it survives pickling, and holds no tensor and no handle."""
    import torch

    with Session(factory, actors=1, rollouts=1) as session:
        metadata = session.prepare()
        for worker in session.workers:
            worker.kill()
        for entry in metadata:
            again = pickle.loads(pickle.dumps(entry))
            for value in _walk(again, 0):
                if isinstance(value, torch.Tensor):
                    raise CheckFailed(f"the metadata holds a tensor: {value!r:.80}")


def _walk(value: Any, depth: int) -> Iterator[Any]:
    yield value
    if depth > 6:
        return
    if isinstance(value, dict):
        inner: list[Any] = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set)):
        inner = list(value)
    elif hasattr(value, "__dict__"):
        inner = list(vars(value).values())
    else:
        return
    for one in inner:
        yield from _walk(one, depth + 1)
