"""The rows of `actor-wg verify`: what was checked, how it ended, where and why; as text and as JSON."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from actor_wg_codemod.progress import Paint


class Status(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    ADVISORY = "advisory"
    """Worth a look, but not proven to fail, or not in the release that is asked about."""
    SKIPPED = "skipped"


_WORST = (Status.FAILED, Status.ADVISORY, Status.PASSED, Status.SKIPPED)
_COLORS = {Status.PASSED: "green", Status.FAILED: "red", Status.ADVISORY: "yellow"}


@dataclass(frozen=True)
class Row:
    """One thing that was checked.

    Args:
        part: "static" or "dynamic".
        check: the check's id, such as "V2" or "C18".
        title: what the check asks.
        status: how it ended.
        subject: what it was about: a class, a call, an engine.
        reason: why it did not pass, and what to do; empty where it passed.
        path: the file, as given on the command line; empty where there is none.
        line: its line, from 1.
        column: its column, from 1.
    """

    part: str
    check: str
    title: str
    status: Status
    subject: str = ""
    reason: str = ""
    path: str = ""
    line: int = 0
    column: int = 0

    @property
    def place(self) -> str:
        """`path:line:column`, as far as it is known."""
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


def failed(rows: Iterable[Row]) -> bool:
    """Whether any row is a failure."""
    return any(row.status is Status.FAILED for row in rows)


def text(rows: Sequence[Row], *, color: bool = False, verbose: bool = False) -> str:
    """A table: a line for each check, below it what did not pass (all of it when verbose)."""
    paint = Paint(enabled=color)
    lines: list[str] = []
    heading: object = None
    for group in _groups(rows):
        first = group[0]
        if (first.part, _about(first)) != heading:
            heading = (first.part, _about(first))
            of = f": {first.subject}" if _about(first) else ""
            lines.append(paint(f"{first.part}{of}", "bold"))
        status = next(s for s in _WORST if any(row.status is s for row in group))
        word = f"{status.value:<8}"
        word = paint(word, _COLORS[status]) if status in _COLORS else word
        counted = ""
        if len(group) > 1:
            good = sum(row.status is Status.PASSED for row in group)
            counted = f" ({good} of {len(group)} passed)" if good else f" ({len(group)})"
        lines.append(f"  {first.check:<5} {word}  {first.title}{counted}")
        for row in group:
            static = row.part == "static"
            if row.status is Status.PASSED and not (verbose and row.subject and static):
                continue
            lines += _detail(row, many=len(group) > 1)
    return "".join(line + "\n" for line in lines)


def _about(row: Row) -> str:
    return row.subject if row.part == "dynamic" else ""


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.part, _about(row), row.check), []).append(row)
    return list(found.values())


def _detail(row: Row, *, many: bool) -> list[str]:
    kind = f"{row.status.value}: " if many and row.status is not Status.FAILED else ""
    place = f"{row.place}: " if row.path else ""
    subject = f"{row.subject}" if row.part == "static" else ""
    words = ": ".join(part for part in (subject, row.reason.strip()) if part)
    if not words:
        return []
    head, *rest = f"{place}{kind}{words}".splitlines()
    return [f"          {head}", *(f"            {line}" for line in rest[:8])]


def as_json(rows: Iterable[Row]) -> str:
    """A list of objects, one for each row."""
    return json.dumps([_object(row) for row in rows], indent=2) + "\n"


def _object(row: Row) -> dict[str, Any]:
    return {
        "part": row.part,
        "check": row.check,
        "title": row.title,
        "status": row.status.value,
        "subject": row.subject,
        "reason": row.reason,
        "filename": row.path or None,
        "location": {"row": row.line, "column": row.column} if row.line else None,
    }


def summary(rows: Sequence[Row]) -> str:
    """How many rows ended which way, in one line."""
    parts = []
    for status in (Status.PASSED, Status.FAILED, Status.ADVISORY, Status.SKIPPED):
        number = sum(row.status is status for row in rows)
        parts.append(f"{number} {status.value}")
    return ", ".join(parts)
