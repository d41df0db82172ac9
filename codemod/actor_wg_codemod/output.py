"""What a run prints: findings as text or JSON for standard output, the rest for standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from actor_wg_codemod.model import Edit, FileResult, Finding, Problem, Safety, Span
from actor_wg_codemod.progress import Paint

if TYPE_CHECKING:
    from typing import Any

    from actor_wg_codemod.runner import Run

FORMATS = ("text", "json", "github", "sarif")


def results(run: Run) -> list[FileResult]:
    """The listed findings and the problems, with files named as given on the command line."""
    found = [FileResult(o.target.shown, list(o.findings)) for o in run.outcomes if o.findings]
    return found + [FileResult(problem.path, [], problem) for problem in run.problems]


def findings(run: Run, output_format: str, *, color: bool = False) -> str:
    """The listed findings in one of `FORMATS`; only text can have colors."""
    if output_format == "text":
        return text(results(run), color=color)
    if output_format == "json":
        return as_json(results(run))
    from actor_wg_codemod import formats

    return (
        formats.github(results(run)) if output_format == "github" else formats.sarif(results(run))
    )


def text(listed: Iterable[FileResult], *, color: bool = False) -> str:
    """One line for each finding; `[*]` marks those that have a fix."""
    paint = Paint(enabled=color)
    lines = []
    for result in listed:
        path = paint(result.path, "bold")
        for finding in result.findings:
            fixable = f"[{paint('*', 'cyan')}] " if finding.fix else ""
            cell = f"cell {finding.cell}:" if finding.cell is not None else ""
            place = f"{path}:{cell}{finding.span.line}:{finding.span.column + 1}"
            code = paint(finding.code, "bold", "red")
            lines.append(f"{place}: {code} {fixable}{finding.message}\n")
    return "".join(lines)


def as_json(listed: Iterable[FileResult]) -> str:
    """A list of objects with ruff's field names."""
    import json

    objects = [_object(result.path, f) for result in listed for f in result.findings]
    return json.dumps(objects, indent=2) + "\n"


def problem_line(problem: Problem) -> str:
    """What stands on standard error for a file that failed."""
    return f"error: {problem.path}: {problem.reason}"


def summary(run: Run, *, writes: bool) -> str:
    """How many files were read, changed, skipped, and what is left, in one line."""
    edits = sum(len(edits_of(outcome.fixed)) for outcome in run.changed)
    changed = f"{'changed' if writes else 'would change'} {len(run.changed)}"
    if edits:
        changed += f" ({_count(edits, 'edit')})"
    with_findings = sum(bool(outcome.findings) for outcome in run.outcomes)
    left = f"{_count(run.left, 'finding')} left"
    if run.left:
        left += f" in {_count(with_findings, 'file')}"
    return f"{_count(run.read, 'file')} read, {changed}, {run.skipped} skipped, {left}"


def hints(run: Run, *, migrating: bool, flags: Sequence[str] = ()) -> Iterator[str]:
    """What the user can do next, a line each; `flags` are those that `migrate` needs, too."""
    fixable = sum(bool(f.fix) for outcome in run.outcomes for f in outcome.findings)
    if fixable and not migrating:
        yield f"{_count(fixable, 'finding')} [*] fixable with `{' '.join(['actor-wg migrate', *flags])}`"
    if run.hidden:
        verb = "is" if run.hidden == 1 else "are"
        yield (
            f"{_count(run.hidden, 'more finding')} {verb} not proven to be about verl "
            "(AWG901): `--unsafe-fixes` includes them"
        )


def edits_of(fixed: Iterable[Finding]) -> set[tuple[int | None, Edit]]:
    """The edits of all fixes, each once."""
    return {(f.cell, edit) for f in fixed if f.fix for edit in f.fix.edits}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _object(path: str, finding: Finding) -> dict[str, Any]:
    fix = None
    if finding.fix is not None:
        unsafe = finding.safety is Safety.UNSAFE
        fix = {
            "applicability": "unsafe" if unsafe else "safe",
            "message": finding.fix.message,
            "edits": [
                {"content": edit.text, **_places(edit.span)} for edit in sorted(finding.fix.edits)
            ],
        }
    return {
        "code": finding.code,
        "message": finding.message,
        "filename": path,
        **_places(finding.span),
        "fix": fix,
        "noqa_row": finding.span.line,
        "url": None,
        "cell": finding.cell,
    }


def _places(span: Span) -> dict[str, dict[str, int]]:
    return {
        "location": {"row": span.line, "column": span.column + 1},
        "end_location": {"row": span.end_line, "column": span.end_column + 1},
    }
