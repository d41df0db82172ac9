"""The value types that every part of the codemod and the lint plugin exchanges."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Safety(enum.Enum):
    """How sure we are of a finding, which decides who may apply its fix."""

    SAFE = "safe"
    """The owner of the name is proven by the code; `migrate` applies the fix."""
    UNSAFE = "unsafe"
    """The shape fits but the owner is not proven; needs `--unsafe-fixes`."""
    NAMING = "naming"
    """Runs either way, only still says the old name; needs `--naming`."""
    MANUAL = "manual"
    """No edit is certain to be right; a person has to look. Carries no fix."""


@dataclass(frozen=True, order=True)
class Span:
    """Where a name stands: lines count from 1, columns from 0 in characters.

    In a notebook the lines are those of the code cell.
    """

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, order=True)
class Edit:
    """One replacement: `span` holds exactly an old name and becomes `text`."""

    span: Span
    text: str


@dataclass(frozen=True)
class Fix:
    """The edits of one finding. All of them lie in the finding's own file (and cell)."""

    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Finding:
    """A reported site.

    `span` covers the old name itself. `cell` is the number of the notebook's code cell,
    counted from 1 over the code cells, else None. A manual finding has no fix.
    """

    code: str
    span: Span
    message: str
    safety: Safety
    fix: Fix | None = None
    cell: int | None = None


@dataclass(frozen=True)
class Problem:
    """Why a file could not be read, parsed, proven or written; never stops other files."""

    path: str
    reason: str


@dataclass
class FileResult:
    """What one file came to: its findings, or the reason why there are none."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    problem: Problem | None = None
