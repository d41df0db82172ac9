"""Follows chains in code to any depth: what would overflow the stack goes on upon a fresh one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

RESERVE = 400
"""Frames that must be left for what runs between two looks at the stack."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def nearly_full() -> bool:
    """Whether this thread's stack comes close to the interpreter's limit."""
    try:
        sys._getframe(max(sys.getrecursionlimit() - RESERVE, 1))
    except ValueError:
        return False
    return True


def on_a_fresh_one(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """Calls a function on a thread of its own, whose stack is empty, and waits for it.

    The limit is each thread's own, so it need not be raised for the whole program (which may be flake8).
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function, *args, **kwargs).result()
