"""Conformance checks for checkpoint engines: what holds, and what does not, for any backend.

Run them on a backend of your own:

    pytest --pyargs actor_wg_engine.conformance --engine my.module:MyEngine [--device cpu|cuda]

or call a check yourself; each is a plain function that takes an `EngineFactory`:

    from actor_wg_engine.conformance import EngineFactory, run
    for result in run(EngineFactory("my.module:MyEngine")):
        print(result.line())
"""

from __future__ import annotations

from actor_wg_engine.conformance.catalog import Check, check, load
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.results import CheckResult, CheckSkipped, Status

__all__ = [
    "Check",
    "CheckResult",
    "CheckSkipped",
    "EngineFactory",
    "Status",
    "check",
    "load",
    "run",
]


def run(factory: EngineFactory, only: str | None = None) -> list[CheckResult]:
    """Run the checks on an engine, each in fresh processes under its deadline.

    Args:
        factory: Says which engine, on which device.
        only: Letters or ids separated by commas ("B,C18"); everything when absent.

    Raises:
        ValueError: `only` names no check.
    """
    from actor_wg_engine.conformance.runner import Runner

    with Runner(factory) as runner:
        return [runner.run(one) for one in load(only)]
