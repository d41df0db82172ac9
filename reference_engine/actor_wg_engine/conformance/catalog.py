"""The list of checks: a decorator that registers them and a loader that puts them in order."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actor_wg_engine.conformance.factory import EngineFactory

CheckFunction = Callable[["EngineFactory"], None]

MODULES = (
    "checks_a_api",
    "checks_b_topology",
    "checks_c_integrity",
    "checks_d_memory",
    "checks_e_versions",
    "checks_f_async",
    "checks_g_elasticity",
    "checks_h_faults",
    "checks_i_security",
)


@dataclass(frozen=True)
class Check:
    """One conformance check.

    Args:
        id: Letter of the group and number, such as "C18".
        title: What it asks, in one line.
        function: The check itself; returns when the engine holds it.
        advisory: verl's own engines fail it, so a foreign backend is only told.
        deadline: Seconds after which the whole check is ended and counts as failed.
    """

    id: str
    title: str
    function: CheckFunction
    advisory: bool
    deadline: float


_CHECKS: dict[str, Check] = {}


def check(
    id: str,
    *,
    advisory: bool = False,
    deadline: float = 30.0,
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check; the first line of its docstring becomes its title.

    Args:
        id: Letter and number, unique.
        advisory: True when verl's own engines are known to fail it.
        deadline: Seconds for the whole check, processes included.

    Raises:
        ValueError: Two checks have the same id.
    """

    def register(function: CheckFunction) -> CheckFunction:
        if id in _CHECKS:
            raise ValueError(f"two checks have the id {id}")
        title = (function.__doc__ or function.__name__).strip().splitlines()[0].rstrip(".")
        _CHECKS[id] = Check(id, title, function, advisory, deadline)
        return function

    return register


def load(only: str | None = None) -> list[Check]:
    """All checks in order, or those that `only` names.

    Args:
        only: Letters ("C") or ids ("C18") separated by commas.

    Raises:
        ValueError: A part of `only` names no check.
    """
    for name in MODULES:
        importlib.import_module(f"actor_wg_engine.conformance.{name}")
    ordered = sorted(_CHECKS.values(), key=lambda one: _order(one.id))
    if only is None:
        return ordered
    parts = [
        part.strip()[:1].upper() + part.strip()[1:] for part in only.split(",") if part.strip()
    ]
    for part in parts:
        if not any(part in (one.id, one.id[0]) for one in ordered):
            known = " ".join(one.id for one in ordered)
            raise ValueError(f"{part!r} is no conformance check; known: {known}")
    return [one for one in ordered if one.id in parts or one.id[0] in parts]


def _order(id: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"([A-Z])(\d+)([a-z]?)", id)
    if match is None:
        raise ValueError(f"a check's id is a letter, a number and perhaps a letter, not {id!r}")
    return match[1], int(match[2]), match[3]
