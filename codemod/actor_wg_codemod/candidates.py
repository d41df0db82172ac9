"""The engines and managers of a project that the dynamic half of `verify` can try out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import Module
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import ClassValue

_ABSTRACT = frozenset({renames.MANAGER, renames.ENGINE, "CheckpointEngineWithCache"})


@dataclass(frozen=True)
class Candidate:
    """A class for the dynamic half: an engine or a manager of the project that can be imported.

    Args:
        kind: "engine" or "manager".
        root: the folder to import from, absolute.
        project: the project's own folder, which is imported from after that.
        module: the module's dotted name there.
        name: the class's name.
        named: verl itself constructs it: a setting names the manager's class.
    """

    kind: str
    root: str
    project: str
    module: str
    name: str
    named: bool = False

    @property
    def target(self) -> str:
        """`module:Class`."""
        return f"{self.module}:{self.name}"


class Candidates:
    """Finds them in a module."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.project = evaluator.project

    def of(self, module: Module, classes: Iterable[ClassInfo]) -> Iterator[Candidate]:
        """The engines and managers of a module that can be tried out."""
        if module.is_stub or _in_tests(module.path):
            return
        for info in classes:
            kind = self._kind(info)
            if kind and self._exported(module, info):
                folder, name = self._importable(module.path)
                top = self.project.root
                named = self.ev.link.roles(info).named
                yield Candidate(kind, str(top / folder), str(top), name, info.name, named)

    def _exported(self, module: Module, info: ClassInfo) -> bool:
        """Whether the module has the class under its name, also one that a function of it makes."""
        if info.place is not None and info.place.scope is module.scope:
            return True
        found = self.ev.export(module.path, info.name) or ()
        return any(isinstance(v, ClassValue) and v.info is info for v in found)

    def _kind(self, info: ClassInfo) -> str:
        link = self.ev.link
        roles = link.roles(info)
        if info.verl in _ABSTRACT:
            return ""
        if roles.manager and roles.proven:
            return "manager"
        if link.is_engine(info) and (link.registered(info) or not link.subclasses(info)):
            mixin = not roles.engine and not link.registered(info)
            return "" if mixin else "engine"
        return ""

    def _importable(self, path: str) -> tuple[str, str]:
        """(the folder to import from, the dotted name there) of a file."""
        parts = path.rpartition(".")[0].split("/")
        if parts[-1] == "__init__":
            parts.pop()
        start = len(parts) - 1 if parts else 0
        while start > 0 and f"{'/'.join(parts[:start])}/__init__.py" in self.project.files:
            start -= 1
        return "/".join(parts[:start]), ".".join(parts[start:])


def _in_tests(path: str) -> bool:
    *folders, name = path.split("/")
    return (
        name.startswith("test_") or name == "conftest.py" or bool({"tests", "test"} & set(folders))
    )
