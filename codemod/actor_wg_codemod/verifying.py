"""The command `actor-wg verify`: both halves, the table, the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from actor_wg_codemod import trying_out, verdict_rows, verification
from actor_wg_codemod.candidates import Candidate
from actor_wg_codemod.discovery import discover
from actor_wg_codemod.progress import wants_color
from actor_wg_codemod.runner import Options

if TYPE_CHECKING:
    import argparse

    from actor_wg_codemod.settings import Settings


def run(arguments: argparse.Namespace, settings: Settings, say: Callable[[str], None]) -> int:
    """Verifies a repository and prints the table.

    Args:
        arguments: as `arguments.parse` gives them.
        settings: of the nearest project.
        say: writes a line to standard error.

    Returns:
        0 nothing failed, 1 something did, 2 a file could not be read or parsed.

    Raises:
        UsageError: the path does not exist.
    """
    tree = discover([arguments.path], (*settings.exclude, *arguments.exclude))
    options = Options(verl_roots=(*settings.verl_roots, *arguments.verl_root))
    static = verification.verify(tree, options, arguments.release)
    rows = list(static.rows)
    if not arguments.static:
        candidates = static.candidates
        if arguments.engine:
            candidates = _named(arguments.engine, static.candidates, arguments.path)
        wishes = trying_out.Wishes(
            devices=tuple(arguments.device) or ("auto",),
            checks=arguments.checks,
            engine_kwargs=arguments.engine_kwargs,
            against=arguments.against,
            deadline=arguments.deadline,
            say=(lambda _: None) if arguments.quiet else say,
        )
        rows += trying_out.try_out(candidates, wishes)
    if arguments.output_format == "json":
        sys.stdout.write(verdict_rows.as_json(rows))
    else:
        color = wants_color(sys.stdout)
        sys.stdout.write(verdict_rows.text(rows, color=color, verbose=arguments.verbose))
    sys.stdout.flush()
    if not arguments.quiet:
        say(verdict_rows.summary(rows))
    if static.unread:
        return 2
    return 1 if verdict_rows.failed(rows) else 0


def _named(targets: list[str], known: list[Candidate], path: str) -> list[Candidate]:
    """The classes that were asked for by name; one that the repository does not show is taken for an engine."""
    by_target = {candidate.target: candidate for candidate in known}
    given = Path(path).resolve()
    root = given if given.is_dir() else given.parent
    found = []
    for target in targets:
        module, _, name = target.partition(":")
        source = root / "src"
        start = source if (source / module.partition(".")[0]).exists() else root
        found.append(
            by_target.get(target) or Candidate("engine", str(start), str(root), module, name)
        )
    return found
