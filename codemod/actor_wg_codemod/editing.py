"""One file's new text from its findings: applied, proven, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from actor_wg_codemod import source as reading
from actor_wg_codemod.model import Edit, Finding, Span
from actor_wg_codemod.source import Source

PYTHON = (".py", ".pyi")


class RefusedError(Exception):
    """The file is left alone; the text says why."""


@dataclass(frozen=True)
class Job:
    """What one file needs: its path, its text as analyzed, and the findings to fix."""

    path: str
    source: Source
    findings: tuple[Finding, ...]


def edited(job: Job) -> bytes:
    """The file's new bytes.

    Raises:
        RefusedError: an edit does not fit the text, or the result is not proven right.
    """
    text = _edited_python(job) if job.path.endswith(PYTHON) else _edited_document(job)
    try:
        return reading.encode(job.source, text)
    except reading.SourceError as error:
        raise RefusedError(str(error)) from None


def moved(finding: Finding, fixed: Sequence[Finding]) -> Finding:
    """The finding where it stands after the fixes of `fixed`; they never change lines."""

    def column(line: int, place: int) -> int:
        return place + sum(
            len(edit.text) - (edit.span.end_column - edit.span.column)
            for edit in edits
            if edit.span.line == line and edit.span.end_column <= place
        )

    edits = _edits([other for other in fixed if other.cell == finding.cell])
    span = finding.span
    return replace(
        finding,
        span=Span(
            span.line,
            column(span.line, span.column),
            span.end_line,
            column(span.end_line, span.end_column),
        ),
    )


def _edits(findings: Sequence[Finding]) -> set[Edit]:
    return {edit for finding in findings if finding.fix for edit in finding.fix.edits}


def _edited_python(job: Job) -> str:
    from actor_wg_codemod import proof, splicing, transformer

    edits = _edits(job.findings)
    try:
        changes = splicing.replacements(job.source, edits)
        words = sorted({change.old for change in changes})
        tree = reading.parse(job.source.text, job.path, words=words)
        text = transformer.apply(job.source, tree, edits)
        proof.prove(job.source, tree, text, changes)
    except (splicing.EditError, proof.ProofError, reading.SourceError) as error:
        raise RefusedError(str(error)) from None
    return text


def _edited_document(job: Job) -> str:
    from actor_wg_codemod import documents

    try:
        return documents.apply(job.path, job.source.text, job.findings)
    except (documents.DocumentError, documents.EditError) as error:
        raise RefusedError(str(error)) from None
