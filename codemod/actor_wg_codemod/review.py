"""Writes the page to review a migration by, from what the run came to."""

from __future__ import annotations

from pathlib import Path

from actor_wg_codemod import report
from actor_wg_codemod.discovery import UsageError
from actor_wg_codemod.runner import Outcome, Run


def write(path: Path, run: Run, *, wrote: bool) -> None:
    """Writes the page.

    Args:
        path: the page.
        run: what `runner.migrate` gave.
        wrote: whether the files were written.

    Raises:
        UsageError: the page cannot be written.
    """
    files = [_reported(outcome) for outcome in run.outcomes]
    files += [report.ReportedFile(p.path, "", "", problem=p.reason) for p in run.problems]
    try:
        report.write(path, files, wrote=wrote)
    except OSError as error:
        raise UsageError(f"--report {path}: cannot be written: {error.strerror}") from None


def _reported(outcome: Outcome) -> report.ReportedFile:
    before = after = ""
    if outcome.source is not None:
        before = after = outcome.source.text
        if outcome.new is not None:
            after = outcome.new.decode(outcome.source.encoding).removeprefix("\ufeff")
    return report.ReportedFile(outcome.target.shown, before, after, outcome.fixed, outcome.findings)
