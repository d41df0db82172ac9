"""Which bindings of a name reach a use: source order, branches, loops and early exits considered."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from actor_wg_codemod.bindings import LOOPS, Binding, Frame, Order, Place, leaves, path_of

HARMLESS = frozenset({"augment"})
SWALLOWING = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex"})
"""Context managers that end an exception."""


def reaching(bindings: Sequence[Binding], use: Place) -> list[Binding]:
    """The bindings (all of one scope, in source order) that can be in force at `use` in that scope."""
    found, _ = _before(bindings, use.order, use.frames)
    loop = _loop(use.frames)
    if loop is not None and not any(
        b.place.frames[: len(loop)] == loop and _dominates(b, use) for b in found
    ):
        found += [b for b in bindings if b not in found and b.place.frames[: len(loop)] == loop]
    return found


def at_end(bindings: Sequence[Binding], order: Order) -> list[Binding]:
    """The bindings in force when a module or function has run to `order`."""
    return _before(bindings, order, ())[0]


def later(bindings: Sequence[Binding], use: Place) -> list[Binding]:
    """What a nested function can see: what reaches its definition, and everything bound afterwards."""
    found = reaching(bindings, use)
    return found + [b for b in bindings if b.place.order > use.order and b not in found]


def _before(
    bindings: Sequence[Binding], order: Order, frames: tuple[Frame, ...]
) -> tuple[list[Binding], bool]:
    found: list[Binding] = []
    bound: set[tuple[int, object]] = set()
    for binding in reversed(bindings):
        if binding.place.order > order or binding.kind in HARMLESS:
            continue
        own = binding.place.frames
        shared = _shared(own, frames)
        if _exclusive(own, frames, shared) or _left(own, frames, shared):
            continue
        if binding.kind != "delete":
            found.append(binding)
        if not _broken_off(own, frames, shared) and _kills(own, shared, bound):
            return found, True
    return found, False


def _shared(own: Sequence[Frame], frames: Sequence[Frame]) -> int:
    size = 0
    for a, b in zip(own, frames, strict=False):
        if a[0] is not b[0] or a[1] != b[1]:
            break
        size += 1
    return size


def _exclusive(own: Sequence[Frame], frames: Sequence[Frame], shared: int) -> bool:
    """Whether binding and use stand in two arms of which only one is run."""
    if shared >= len(own) or shared >= len(frames):
        return False
    (control, arm), (other, use_arm) = own[shared], frames[shared]
    if control is not other:
        return False
    if isinstance(control, (ast.If, ast.Match)):
        return True
    if isinstance(control, ast.Try) or type(control).__name__ == "TryStar":
        handlers = (isinstance(arm, int), isinstance(use_arm, int))
        return all(handlers) or (handlers[0] and use_arm == "orelse")
    return False


def _broken_off(own: Sequence[Frame], frames: Sequence[Frame], shared: int) -> bool:
    """Whether the use stands where an exception leads to that can come before the binding is made."""
    if shared >= len(own) or shared >= len(frames) or own[shared][0] is not frames[shared][0]:
        return False
    arm = frames[shared][1]
    return own[shared][1] in ("body", "orelse") and (isinstance(arm, int) or arm == "finalbody")


def _left(own: Sequence[Frame], frames: Sequence[Frame], shared: int) -> bool:
    """Whether the arm of the binding always returns, raises or leaves the loop turn after it."""
    for control, arm in own[shared:]:
        how = leaves(_body(control, arm))
        if how == "hard" or (how == "soft" and _loop(tuple(frames[:shared])) is not None):
            return True
    return False


def _body(control: ast.AST, arm: object) -> list[ast.stmt]:
    if isinstance(arm, int):
        for part in (*getattr(control, "handlers", ()), *getattr(control, "cases", ())):
            if id(part) == arm:
                return list(part.body)
        return []
    return list(getattr(control, str(arm), []))


def _kills(own: Sequence[Frame], shared: int, bound: set[tuple[int, object]]) -> bool:
    """Notes that all of `own` is bound; True where nothing earlier can reach the use any more."""
    depth = len(own)
    while depth > shared:
        control, arm = own[depth - 1]
        bound.add((id(control), arm))
        if not _complete(control, bound):
            return False
        depth -= 1
    return True


def _complete(control: ast.AST, bound: set[tuple[int, object]]) -> bool:
    def has(arm: object) -> bool:
        return (id(control), arm) in bound or leaves(_body(control, arm)) == "hard"

    if isinstance(control, ast.If):
        return bool(control.orelse) and has("body") and has("orelse")
    if isinstance(control, (ast.With, ast.AsyncWith)):
        return not any(_swallows(item.context_expr) for item in control.items)
    if isinstance(control, ast.While):
        return isinstance(control.test, ast.Constant) and bool(control.test.value) and has("body")
    if isinstance(control, ast.Try) or type(control).__name__ == "TryStar":
        handlers = getattr(control, "handlers", [])
        if (id(control), "finalbody") in bound:
            return True
        main = has("body") or (bool(getattr(control, "orelse", [])) and has("orelse"))
        return main and all(has(id(h)) for h in handlers)
    if isinstance(control, ast.Match):
        last = control.cases[-1]
        wild = (
            isinstance(last.pattern, ast.MatchAs)
            and last.pattern.pattern is None
            and not last.guard
        )
        return wild and all(has(id(case)) for case in control.cases)
    return False


def _swallows(manager: ast.expr) -> bool:
    """Whether a `with` goes on after an exception that its body did not come to its end for."""
    called = path_of(manager.func) if isinstance(manager, ast.Call) else None
    return (called or "").rpartition(".")[2] in SWALLOWING


def _dominates(binding: Binding, use: Place) -> bool:
    own = binding.place.frames
    return use.frames[: len(own)] == own and binding.place.order <= use.order


def _loop(frames: Sequence[Frame]) -> tuple[Frame, ...] | None:
    """The frames up to and with the innermost loop body, if there is one."""
    for depth in range(len(frames), 0, -1):
        control, arm = frames[depth - 1]
        if isinstance(control, LOOPS) and arm == "body":
            return tuple(frames[:depth])
    return None
