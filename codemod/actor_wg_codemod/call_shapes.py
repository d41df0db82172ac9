"""Does a call fit a signature? What Python's own binding would say, from the two trees alone."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """What a call gives. `open`: it can give more than is seen (`*args`, `**kwargs`, `partial`)."""

    positional: int
    keywords: tuple[str, ...]
    open: bool = False


def shape_of(call: ast.Call, *, skip: int = 0, incomplete: bool = False) -> Shape:
    """The shape of a call.

    Args:
        call: the call.
        skip: how many leading positional arguments belong to somebody else (`partial`'s target).
        incomplete: whether the rest of the arguments comes later.
    """
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    splatted = any(keyword.arg is None for keyword in call.keywords)
    positional = sum(not isinstance(argument, ast.Starred) for argument in call.args) - skip
    keywords = tuple(keyword.arg for keyword in call.keywords if keyword.arg is not None)
    return Shape(max(positional, 0), keywords, starred or splatted or incomplete)


def misfit(arguments: ast.arguments, shape: Shape, *, bound: int = 0) -> str | None:
    """Why a call does not fit a signature, as the end of a sentence about the callee; None where it does.

    Args:
        arguments: the callee's parameters.
        shape: what the call gives.
        bound: how many leading parameters are given by Python itself (`self`, `cls`).
    """
    only = [a.arg for a in arguments.posonlyargs]
    both = [a.arg for a in arguments.args]
    positional = [*only, *both][bound:]
    named = [
        name
        for name in [*both, *(a.arg for a in arguments.kwonlyargs)]
        if name in _rest(positional, arguments)
    ]
    if shape.positional > len(positional) and arguments.vararg is None:
        return f"takes {_count(len(positional), 'positional argument')} and gets {shape.positional}"
    filled = positional[: shape.positional]
    for keyword in shape.keywords:
        if keyword in filled and keyword in named:
            return f"gets {keyword} twice"
        if keyword not in named and arguments.kwarg is None:
            return f"takes no {keyword}=; it takes {', '.join(positional + _only(arguments)) or 'nothing'}"
    if shape.open:
        return None
    missing = [
        n for n in _required(positional, arguments) if n not in filled and n not in shape.keywords
    ]
    if missing:
        return f"needs {', '.join(missing)} too"
    return None


def _only(arguments: ast.arguments) -> list[str]:
    return [a.arg for a in arguments.kwonlyargs]


def _rest(positional: list[str], arguments: ast.arguments) -> list[str]:
    return [*positional, *_only(arguments)]


def _required(positional: list[str], arguments: ast.arguments) -> list[str]:
    optional = len(arguments.defaults)
    required = positional[: len(positional) - optional] if optional else list(positional)
    defaults = arguments.kw_defaults
    return required + [
        a.arg for a, default in zip(arguments.kwonlyargs, defaults, strict=True) if default is None
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
