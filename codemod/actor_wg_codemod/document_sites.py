"""The sites of files that are not Python: notebooks, YAML, and with the naming findings markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from actor_wg_codemod import documents, renames
from actor_wg_codemod.bindings import Module
from actor_wg_codemod.forwarding import Taking
from actor_wg_codemod.model import FileResult, Finding, Fix, Problem, Safety, Span
from actor_wg_codemod.source import parse
from actor_wg_codemod.values import ClassValue

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator
    from actor_wg_codemod.project import Project
    from actor_wg_codemod.renames import Vocabulary

Judge = Callable[[Module], list[Finding]]
"""All findings of a module, as for a Python file."""

MARKUP = frozenset({"markdown", "rst"})
_TARGET = b"_target_"
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[.:]\w+)+")


def may_have_sites(path: str, data: bytes, project: Project, *, naming: bool) -> bool:
    """Whether a document can have findings, by its bytes."""
    names = project.vocabulary
    kind = documents.kind(path)
    if kind == "yaml":
        return _TARGET in data and names.group.encode() in data
    words = [word.encode() for word in names.table]
    if kind == "notebook":
        plain = data.replace(b'\\"', b'"')
        if renames.MANAGER.encode() in data or (naming and renames.ENGINE.encode() in data):
            return any(word in data for word in (*words, renames.WITHDRAWN_KEYWORD.encode()))
        return project.may_have_sites(plain)
    if kind not in MARKUP or not naming:
        return False
    return any(word in data for word in words)


def findings(path: str, text: str, evaluator: Evaluator, judge: Judge) -> FileResult:
    """The findings of a document, placed in the document.

    Raises:
        DocumentError: the text is not what the file's name says.
        SourceError: the Python of the document does not parse as a whole.
    """
    kind = documents.kind(path)
    if kind == "yaml":
        return FileResult(path, _yaml(path, text, evaluator))
    view = documents.view(path, text)
    tree = parse(view.source, path, words=evaluator.words)
    module = Module(path, view.source, tree)
    evaluator.add(module)
    found = judge(module)
    if kind in MARKUP:
        found = _each_place(found, module, evaluator.names)
    problem = Problem(path, view.problem) if view.problem else None
    return FileResult(path, [view.relocate(f) for f in found], problem)


def _yaml(path: str, text: str, evaluator: Evaluator) -> list[Finding]:
    from actor_wg_codemod.documents import yaml_nodes

    names = evaluator.names

    def is_manager(dotted: str) -> bool:
        values = evaluator.by_name(dotted, path)
        return bool(values) and all(
            isinstance(v, ClassValue)
            and evaluator.link.roles(v.info).manager
            and evaluator.forwarding.takes(v, names.group) is Taking.OURS
            for v in values
        )

    # A look at the names is cheaper than to parse the YAML, and templates are often no YAML at all.
    if not any(map(is_manager, sorted(set(_DOTTED.findall(text))))):
        return []
    return yaml_nodes.findings(text, is_manager, names.group, names.new_group)


def _each_place(found: list[Finding], module: Module, names: Vocabulary) -> list[Finding]:
    """Every place that a proven finding changes, as one naming finding each: prose does not run."""
    places: dict[Span, Finding] = {}
    for finding in found:
        if finding.fix is None or finding.safety not in (Safety.SAFE, Safety.NAMING):
            continue
        for edit in finding.fix.edits:
            span = edit.span
            old = module.lines[span.line - 1][span.column : span.end_column]
            message = f"This code still says {old}, which {names.release} calls {edit.text}."
            fix = Fix(finding.fix.message, (edit,))
            places[span] = Finding("AWG102", span, message, Safety.NAMING, fix)
    return [places[span] for span in sorted(places)]
