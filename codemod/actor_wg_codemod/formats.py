"""Findings as GitHub's workflow commands and as SARIF 2.1.0, the way ruff prints them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from actor_wg_codemod import __version__
from actor_wg_codemod.model import Edit, FileResult, Finding, Problem, Safety, Span

TOOL = "actor-wg"
SUMMARIES = {
    "AWG001": "a call gives the manager its worker group under the old keyword",
    "AWG002": "a manager's constructor still takes its worker group under the old name",
    "AWG003": "the old attribute of a manager is read, written or deleted",
    "AWG011": "a call gives an engine the size of the actor worker group under the old keyword",
    "AWG012": "an engine's override still has the old parameter name",
    "AWG013": "a Kimi engine's old attribute or topology key",
    "AWG021": "a YAML node constructs a manager with the old key",
    "AWG101": "a local still has the old name",
    "AWG102": "text still shows the old name",
    "AWG201": "a blocking Ray call inside a coroutine",
    "AWG901": "an old name whose owner is not proven",
    "AWG902": "an old name that a person has to look at",
}
"""One line on each code, for formats that describe the rules along with what they found."""

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def level(finding: Finding) -> str:
    """`error` for what breaks, `warning` for what only says an old name or is advice."""
    mild = finding.safety is Safety.NAMING or finding.code.startswith(("AWG1", "AWG2"))
    return "warning" if mild else "error"


def github(results: Iterable[FileResult]) -> str:
    """One workflow command for each finding and each problem, which GitHub shows on the line.

    A notebook's rows are those of a cell, so its findings stand on the file's first line, and
    the text says in which cell to look.
    """
    lines = []
    for result in results:
        for finding in result.findings:
            span = finding.span if finding.cell is None else Span(1, 0, 1, 0)
            fields = {
                "title": f"{TOOL} ({finding.code})",
                "file": str(Path(result.path).absolute()),
                "line": span.line,
                "col": span.column + 1,
                "endLine": span.end_line,
                "endColumn": span.end_column + 1,
            }
            lines.append(_command(level(finding), fields, _text(result.path, finding)))
        if result.problem is not None:
            fields = {"title": TOOL, "file": str(Path(result.path).absolute())}
            lines.append(_command("error", fields, f"{result.path}: {result.problem.reason}"))
    return "".join(f"{line}\n" for line in lines)


def sarif(results: Iterable[FileResult]) -> str:
    """A SARIF log of one run: its findings with their fixes, and its problems.

    Columns count characters. Fixes in notebooks are left out, because what SARIF replaces are
    regions of the file, not of a cell.
    """
    listed = list(results)
    found = [(result.path, finding) for result in listed for finding in result.findings]
    problems = [result.problem for result in listed if result.problem is not None]
    run: dict[str, Any] = {
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not problems,
                "toolExecutionNotifications": [_notification(problem) for problem in problems],
            }
        ],
        "results": [_result(path, finding) for path, finding in found],
        "tool": {
            "driver": {
                "name": TOOL,
                "rules": [_rule(code) for code in sorted({finding.code for _, finding in found})],
                "version": __version__,
            }
        },
    }
    log = {"$schema": _SCHEMA, "runs": [run], "version": "2.1.0"}
    return json.dumps(log, indent=2) + "\n"


def _text(path: str, finding: Finding) -> str:
    cell = "" if finding.cell is None else f"cell {finding.cell}:"
    place = f"{path}:{cell}{finding.span.line}:{finding.span.column + 1}"
    fix = f"\n  help: {finding.fix.message}" if finding.fix else ""
    return f"{place}: {finding.code} {finding.message}{fix}"


def _command(name: str, fields: dict[str, Any], text: str) -> str:
    shown = ",".join(f"{key}={_escaped(str(value), ',:')}" for key, value in fields.items())
    return f"::{name} {shown}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    """The text with what would end a workflow command, or a field of it, written as %XX."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _rule(code: str) -> dict[str, Any]:
    text = {"text": SUMMARIES.get(code, code)}
    return {"id": code, "name": code, "shortDescription": text, "help": text}


def _result(path: str, finding: Finding) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(path), "region": _region(finding.span)}
    }
    properties: dict[str, Any] = {"safety": finding.safety.value}
    if finding.cell is not None:
        place["logicalLocations"] = [{"name": f"cell {finding.cell}"}]
        properties["cell"] = finding.cell
    result = {
        "level": level(finding),
        "locations": [place],
        "message": {"text": finding.message},
        "properties": properties,
        "ruleId": finding.code,
    }
    if finding.fix is not None and finding.cell is None:
        change = {
            "artifactLocation": _artifact(path),
            "replacements": [_replacement(edit) for edit in sorted(finding.fix.edits)],
        }
        description = {"text": finding.fix.message}
        result["fixes"] = [{"artifactChanges": [change], "description": description}]
    return result


def _replacement(edit: Edit) -> dict[str, Any]:
    return {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}


def _notification(problem: Problem) -> dict[str, Any]:
    place = {"physicalLocation": {"artifactLocation": _artifact(problem.path)}}
    return {"level": "error", "locations": [place], "message": {"text": problem.reason}}


def _artifact(path: str) -> dict[str, str]:
    return {"uri": Path(path).absolute().as_uri()}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column + 1,
        "endLine": span.end_line,
        "endColumn": span.end_column + 1,
    }
