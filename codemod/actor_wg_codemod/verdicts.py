"""What the static half of `verify` says about one node, and what a class is to verl."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from actor_wg_codemod import signatures
from actor_wg_codemod.bindings import path_of
from actor_wg_codemod.values import Function
from actor_wg_codemod.verdict_rows import Status

OLD_NAMES, CONSTRUCTIONS, MANAGERS, ENGINES, CALLS, ROLLOUTS, REPLICAS, NCCL = (
    f"V{number}" for number in range(1, 9)
)


@dataclass(frozen=True)
class Verdict:
    """What one check says about one node of a module."""

    check: str
    node: ast.AST
    status: Status
    subject: str
    reason: str = ""


@dataclass(frozen=True)
class Kin:
    """What a class is to verl: `owner` is the class of verl's that it stands for or derives from."""

    owner: str
    proven: bool
    named: bool = False


def bound_parameters(method: Function) -> int:
    """How many leading parameters of a method Python gives itself."""
    decorators = getattr(method.node, "decorator_list", [])
    names = {(path_of(d) or "").rpartition(".")[2] for d in decorators}
    return 0 if "staticmethod" in names else 1


def since(release: str) -> str:
    """How a message names the releases from one on."""
    return f">= {release}" if release != signatures.LATEST else release
