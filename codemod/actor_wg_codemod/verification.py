"""The static half of `actor-wg verify`: does what is there bind against verl 0.9, and if not, where and why?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.analysis import Analysis
from actor_wg_codemod.bindings import Module
from actor_wg_codemod.call_binder import Binder
from actor_wg_codemod.candidates import Candidate, Candidates
from actor_wg_codemod.discovery import Tree
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.project import PYTHON
from actor_wg_codemod.runner import Options, analyze, check
from actor_wg_codemod.verdict_rows import Row, Status
from actor_wg_codemod.verdicts import (
    CALLS,
    CONSTRUCTIONS,
    ENGINES,
    MANAGERS,
    NCCL,
    OLD_NAMES,
    REPLICAS,
    ROLLOUTS,
    Verdict,
)
from actor_wg_codemod.verified_classes import Classes
from actor_wg_codemod.verified_constructions import Constructions
from actor_wg_codemod.verified_engine_calls import EngineCalls

STATIC = "static"
TITLES = {
    OLD_NAMES: "no old name is left",
    CONSTRUCTIONS: "constructions of a manager bind",
    MANAGERS: "managers take what verl passes to them",
    ENGINES: "engines take what verl passes to them",
    CALLS: "calls of an engine's build_topology and init_process_group bind",
    ROLLOUTS: "rollouts take what verl passes to update_weights",
    REPLICAS: "replicas and servers take what verl passes to abort_all_requests",
    NCCL: "what builds on the NCCL engine fits its metadata and its process group",
}
_WORDS = re.compile(
    "|".join(
        [
            renames.ENGINE,
            renames.ENGINE_PACKAGE,
            "abort_all_requests",
            signatures.MASTER_METADATA,
            *sorted(set().union(*signatures.FAMILIES.values())),
        ]
    ).encode()
)

_ALIAS = r"^(\w+)[ \t]*=[^=\n]*\b{0}\b(?![.(])|\b{0}[ \t]+as[ \t]+(\w+)"
_SHORTEST = 4
"""Shorter aliases stand in every file."""


@dataclass
class Static:
    """What the static half came to."""

    rows: list[Row] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    unread: bool = False
    """A file could not be read or parsed."""


def verify(tree: Tree, options: Options, release: str) -> Static:
    """Judges the tree's targets against a release of verl; changes nothing and imports nothing of them."""
    analysis = analyze(tree, options)
    result = Static(rows=list(_old_names(tree, options, analysis)))
    result.unread = any(row.status is Status.FAILED and not row.line for row in result.rows)
    found: dict[str, list[Row]] = {check_id: [] for check_id in TITLES if check_id != OLD_NAMES}
    judge = _Judge(analysis, release)
    finder = Candidates(analysis.evaluator)
    for target in tree.targets:
        module = judge.module(target.path)
        if module is None:
            continue
        for verdict in judge.verdicts(module):
            row = _row(verdict, target.shown)
            if row not in found[row.check]:
                found[row.check].append(row)
        result.candidates += finder.of(module, judge.classes.classes(module))
    for check_id, rows in found.items():
        result.rows += rows or [_none(check_id)]
    return result


def _old_names(tree: Tree, options: Options, analysis: Analysis) -> Iterator[Row]:
    title = TITLES[OLD_NAMES]
    run = check(tree, options, analysis)
    for problem in run.problems:
        yield Row(STATIC, OLD_NAMES, title, Status.FAILED, "", problem.reason, problem.path)
    for outcome in run.outcomes:
        for finding in outcome.findings:
            span = finding.span
            cell = f" (cell {finding.cell})" if finding.cell is not None else ""
            advice = " `actor-wg migrate` does it." if finding.fix else ""
            reason = f"{finding.message}{cell}{advice}"
            place = (outcome.target.shown, span.line, span.column + 1)
            yield Row(STATIC, OLD_NAMES, title, Status.FAILED, finding.code, reason, *place)
    if run.hidden:
        many = "site looks" if run.hidden == 1 else "sites look"
        reason = f"{run.hidden} more {many} like an old name and not proven: `actor-wg check --unsafe-fixes`"
        yield Row(STATIC, OLD_NAMES, title, Status.ADVISORY, "AWG901", reason)
    if not (run.outcomes or run.problems or run.hidden):
        yield Row(STATIC, OLD_NAMES, title, Status.PASSED)


class _Judge:
    """Both judges over one analysis."""

    def __init__(self, analysis: Analysis, release: str) -> None:
        self.project = analysis.project
        self.ev = analysis.evaluator
        self.classes = Classes(self.ev, release)
        self._engines: list[ClassInfo] | None = None
        binder = Binder(self.ev, release)
        self.constructions = Constructions(self.ev, binder)
        self.calls = EngineCalls(self.ev, binder, self.engines)
        self.paths = self._concerned()

    def _concerned(self) -> frozenset[str]:
        """Files that name one of verl's classes, or a class or alias that such a file derives from one."""
        found = {path for path in self.project.python if _WORDS.search(self._peek(path))}
        fresh, known = set(found), set[str]()
        for path in sorted(fresh):  # what a module exports is known only of files that are parsed
            self.ev.module(path)
        while fresh:
            names = {name for path in sorted(fresh) for name in self._derived(path)} - known
            known |= names
            wanted = _whole(names)
            fresh = {
                path
                for path in self.project.python
                if path not in found and wanted and wanted.search(self._peek(path))
            }
            found |= fresh
        return frozenset(found)

    def _derived(self, path: str) -> Iterator[str]:
        """The names of a file's classes that have to do with verl's, and what else it calls them."""
        module = self.ev.module(path)
        if module is None:
            return
        kin = {info.name for info in self.classes.classes(module) if self.classes.kin(info)}
        kin |= {name for name in renames.PUBLIC_CLASSES if name in module.text}
        yield from kin - renames.PUBLIC_CLASSES
        for name in kin:
            for match in re.finditer(_ALIAS.format(re.escape(name)), module.text, re.MULTILINE):
                alias = match[1] or match[2]
                if len(alias) >= _SHORTEST:
                    yield alias

    def _peek(self, path: str) -> bytes:
        try:
            return self.project.read(path)
        except OSError:
            return b""  # reported with the old names

    def module(self, path: str) -> Module | None:
        """A module that can have to do with verl's engines; None for others and for what does not parse."""
        if path not in self.paths or not path.endswith(PYTHON):
            return None
        return self.ev.module(path)

    def engines(self) -> list[ClassInfo]:
        """The project's own engines, found when they are first asked for."""
        if self._engines is None:
            self._engines = [
                info
                for path in sorted(self.paths)
                if (module := self.ev.module(path)) is not None
                for info in self.classes.classes(module)
                if self.ev.link.is_engine(info) and not info.verl
            ]
        return self._engines

    def verdicts(self, module: Module) -> Iterator[Verdict]:
        """Everything that is to say about a module."""
        for info in self.classes.classes(module):
            yield from self.classes.verdicts(info)
        yield from self.constructions.verdicts(module)
        yield from self.calls.verdicts(module)


def _whole(names: set[str]) -> re.Pattern[bytes] | None:
    words = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"\b(?:{words})\b".encode()) if words else None


def _row(verdict: Verdict, shown: str) -> Row:
    line = getattr(verdict.node, "lineno", 1)
    column = getattr(verdict.node, "col_offset", 0) + 1
    title = TITLES[verdict.check]
    return Row(
        STATIC,
        verdict.check,
        title,
        verdict.status,
        verdict.subject,
        verdict.reason,
        shown,
        line,
        column,
    )


def _none(check_id: str) -> Row:
    return Row(STATIC, check_id, TITLES[check_id], Status.SKIPPED, "", "there is none here")
