"""Reads the source of an engine: which modules it is written in, and what they call."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

UNPICKLING = {
    ("pickle", "loads"),
    ("pickle", "load"),
    ("pickle", "Unpickler"),
    ("cloudpickle", "loads"),
    ("marshal", "loads"),
    ("dill", "loads"),
}
UNPICKLING_METHODS = {
    "recv_pyobj",
    "recv_object_list",
    "broadcast_object_list",
    "all_gather_object",
}
NOT_THE_ENGINE = (
    "torch",
    "numpy",
    "ray",
    "abc",
    "typing",
    "builtins",
    "verl.checkpoint_engine.base",
)


def engine_modules(cls: Any) -> Iterator[ModuleType]:
    """The modules in which the engine's classes are written, and those of its package they import."""
    package = cls.__module__.split(".")[0]
    pending = [base.__module__ for base in cls.__mro__]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        skipped = any(name == other or name.startswith(f"{other}.") for other in NOT_THE_ENGINE)
        if module is None or name in seen or skipped or ".conformance" in name:
            continue
        seen.add(name)
        yield module
        if name.split(".")[0] == package and package == "actor_wg_engine":
            pending += [
                value.__name__
                if isinstance(value, ModuleType)
                else getattr(value, "__module__", "")
                for value in vars(module).values()
            ]
            pending = [other for other in pending if str(other).startswith(package)]


def unpickling(module: ModuleType) -> Iterator[tuple[int, str]]:
    """Calls in a module's source that turn bytes into objects of any type."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if (owner, node.func.attr) in UNPICKLING or node.func.attr in UNPICKLING_METHODS:
            yield node.lineno, f"{owner}.{node.func.attr}".lstrip(".")
