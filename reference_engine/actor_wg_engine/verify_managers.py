"""What `actor-wg verify` asks of a manager class: it is constructed as verl does it, and syncs a small fleet."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from actor_wg_engine.conformance.catalog import Check
from actor_wg_engine.conformance.factory import EngineFactory, resolve
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped

ENGINE = "actor_wg_engine.transports.torch_distributed:TorchDistributedCheckpointEngine"
_DEADLINE = 60.0


@dataclass(frozen=True)
class ManagerFactory(EngineFactory):
    """Our own engine, and the manager class that is asked about.

    Args:
        manager: The manager class as "package.module:Class".
    """

    manager: str = ""

    def manager_class(self) -> Any:
        """The manager class itself."""
        return resolve(self.manager)


def checks() -> list[Check]:
    """The checks of a manager, in order."""
    functions = (
        check_constructor,
        check_group,
        check_sync,
        check_without_a_loop,
        check_replicas,
    )
    return [
        Check(f"M{number}", _title(function), function, False, _DEADLINE)  # type: ignore[arg-type]
        for number, function in enumerate(functions, 1)
    ]


def _title(function: Any) -> str:
    return str(function.__doc__).strip().splitlines()[0].rstrip(".")


def check_constructor(factory: ManagerFactory) -> None:
    """The constructor takes config=, actor_wg= and replicas=."""
    try:
        inspect.signature(factory.manager_class()).bind(config=None, actor_wg=None, replicas=[])
    except TypeError as error:
        own = _own_requirements(factory)
        if own:
            raise CheckSkipped(
                f"it needs {', '.join(own)} too; construct it in a test of your own"
            ) from error
        raise CheckFailed(f"{error}; verl calls it with config=, actor_wg=, replicas=") from error


def _own_requirements(factory: ManagerFactory) -> list[str]:
    """Parameters beyond verl's three that have no default, where the three are there."""
    found = inspect.signature(factory.manager_class()).parameters.values()
    names = [one.name for one in found]
    if not {"config", "actor_wg", "replicas"} <= set(names):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one.name
        for one in found
        if one.default is one.empty
        and one.kind not in kinds
        and one.name not in ("config", "actor_wg", "replicas")
    ]


def _require_ours(factory: ManagerFactory) -> None:
    """Skip where the class stands on verl's own manager, which drives Ray worker groups only."""
    from actor_wg_engine import CheckpointEngineManager

    cls = factory.manager_class()
    if _own_requirements(factory):
        raise CheckSkipped("its constructor needs more than verl gives")
    if not (isinstance(cls, type) and issubclass(cls, CheckpointEngineManager)):
        raise CheckSkipped(
            "it derives from verl's own manager, which drives only Ray worker groups; "
            "--against engine runs it on the reference engine"
        )


def _fleet(factory: ManagerFactory) -> Any:
    """A fleet under a manager of the class."""
    from actor_wg_engine.conformance.fleet import Fleet

    _require_ours(factory)
    fleet = Fleet(EngineFactory(factory.target), replicas=(1, 1), actors=2)
    ours = fleet.manager
    try:
        fleet.manager = factory.manager_class()(
            config=ours.config, actor_wg=ours.actor_wg, replicas=list(ours.replicas)
        )
    except BaseException:
        fleet.close()
        raise
    return fleet


def check_group(factory: ManagerFactory) -> None:
    """It keeps the worker group as .actor_wg."""
    with _fleet(factory) as fleet:
        group = getattr(fleet.manager, "actor_wg", None)
        if group is None or group.world_size != 2:
            raise CheckFailed(f".actor_wg is {group!r}, not the worker group that it was given")


def check_sync(factory: ManagerFactory) -> None:
    """update_weights brings every rollout the weights of the step, three times."""
    with _fleet(factory) as fleet:
        for step in (1, 2, 3):
            fleet.run(_update(fleet, step))
            fleet.require_served(step, workers=2)
        fleet.require_gates_open()


async def _update(fleet: Any, step: int) -> None:
    await fleet.manager.update_weights(global_steps=step)


def check_without_a_loop(factory: ManagerFactory) -> None:
    """update_weights can be called from plain code, with the step by position."""
    with _fleet(factory) as fleet:
        fleet.manager.update_weights(1)
        fleet.require_served(1)


def check_replicas(factory: ManagerFactory) -> None:
    """Replicas can be removed and added between syncs."""
    with _fleet(factory) as fleet:
        fleet.update(1)
        gone = fleet.remove(0)
        fleet.update(2)
        fleet.require_served(2, workers=1)
        fleet.add_again(gone)
        fleet.update(3)
        fleet.require_served(3, workers=2)
