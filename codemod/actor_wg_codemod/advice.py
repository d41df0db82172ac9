"""AWG201: `ray.get` and `ray.wait` called inside `async def`, where they block the event loop.

https://docs.ray.io/en/latest/ray-core/actors/async_api.html says how references are awaited.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import Chain, Module, Place, Scope
from actor_wg_codemod.model import Finding, Safety, Span
from actor_wg_codemod.values import External

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

BLOCKING = {
    "ray.get": "await the reference itself, or `await asyncio.gather(*refs)` for several",
    "ray.wait": "await the references, `await asyncio.gather(*refs)`, or `asyncio.wait` on tasks made of them",
}
_NAMES = tuple(name.rpartition(".")[2] for name in BLOCKING)
_ASYNC = re.compile(rb"\basync[ \t\\\r\n]+def\b")
_CALLED = re.compile(rb"\b(?:get|wait)\b")


def may_block(data: bytes) -> bool:
    """Whether the bytes of a file can hold a call to advise on."""
    return b"ray" in data and _CALLED.search(data) is not None and _ASYNC.search(data) is not None


def findings(evaluator: Evaluator, module: Module) -> list[Finding]:
    """One finding for each blocking call, in source order."""
    found: dict[Span, Finding] = {}
    for word in _words(evaluator, module):
        for chain in module.carriers(word):
            if len(chain) < 2 or not _called(chain):
                continue
            node = chain[-1][0]
            place = module.place(chain)
            if not _in_coroutine(place):
                continue
            name = _blocking(evaluator, node, place)
            span = module.name_span(node, word)
            if name is not None and span is not None:
                message = f"{name} blocks the event loop inside async def: {BLOCKING[name]}."
                found[span] = Finding("AWG201", span, message, Safety.MANUAL)
    return sorted(found.values(), key=lambda f: f.span)


def _words(evaluator: Evaluator, module: Module) -> Iterator[str]:
    """The names by which the functions may be called here: their own, and aliases."""
    pending = list(_NAMES)
    seen: set[str] = set()
    while pending:
        word = pending.pop()
        if word in seen:
            continue
        seen.add(word)
        yield word
        for chain in module.carriers(word):
            node, parent = chain[-1][0], chain[-2][0] if len(chain) > 1 else None
            if isinstance(node, ast.alias) and node.asname:
                pending.append(node.asname)
            elif (
                isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
                and parent.value is node
                and _blocking(evaluator, node, module.place(chain))
            ):
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                pending += [n for t in targets if (n := getattr(t, "attr", getattr(t, "id", "")))]


def _called(chain: Chain) -> bool:
    parent = chain[-2][0]
    return isinstance(parent, ast.Call) and parent.func is chain[-1][0]


def _blocking(evaluator: Evaluator, node: ast.AST, place: Place) -> str | None:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    for value in evaluator.evaluate(node, place):
        if isinstance(value, External):
            name = value.name
            if name not in BLOCKING:
                name = _through(evaluator, name, place.scope.module.path)
            if name in BLOCKING:
                return name
    return None


def _through(evaluator: Evaluator, name: str, importer: str) -> str:
    """What a name of one of the project's own modules is, where that module imports it from Ray.

    Such modules are left unparsed, since they have nothing to do with verl: their text has to do.
    """
    module, _, member = name.rpartition(".")
    path = evaluator.project.modules.resolve(module, importer) if module else None
    if path is None:
        owner, _, alias = module.rpartition(".")
        path = evaluator.project.modules.resolve(owner, importer) if owner else None
        pattern = (
            r"^[ \t]*import ray"
            + ("" if alias == "ray" else rf"[ \t]+as[ \t]+{alias}")
            + r"[ \t]*(?:#.*)?$"
        )
        found = f"ray.{member}"
    else:
        imported = rf"(?:{'|'.join(_NAMES)})[ \t]+as[ \t]+{member}\b|{member}\b(?![ \t]+as\b)"
        pattern = rf"^[ \t]*from ray import[^\n#]*\b({imported})"
        found = ""
    if path is None or path.endswith("/"):
        return ""
    match = re.search(
        pattern, evaluator.project.read(path).decode("utf-8", "replace"), re.MULTILINE
    )
    if match is None:
        return ""
    return found or "ray." + match[1].split()[0]


def _in_coroutine(place: Place) -> bool:
    """Whether code runs in a coroutine itself, not in a plain function that it defines."""
    scope: Scope | None = place.scope
    while scope is not None and not scope.is_function:
        scope = scope.parent
    return scope is not None and isinstance(scope.node, ast.AsyncFunctionDef)
