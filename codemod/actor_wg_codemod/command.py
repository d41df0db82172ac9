"""The fixes as a command of libcst's own tool; `actor-wg migrate` does more checks before it writes.

    python -m libcst.tool codemod -x actor_wg_codemod.command.ActorWgCommand --no-format -j 1 PATH

Without a formatter, so that nothing else changes, and in one process, since what one file needs
depends on others that must not change meanwhile.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import libcst
from libcst.codemod import CodemodCommand, CodemodContext

from actor_wg_codemod import transformer
from actor_wg_codemod.analysis import Analysis
from actor_wg_codemod.discovery import Target, Tree, discover, for_stdin, project_root
from actor_wg_codemod.model import Edit
from actor_wg_codemod.runner import Options, Outcome, analyze, check
from actor_wg_codemod.selection import Selection
from actor_wg_codemod.splicing import EditError


class ActorWgCommand(CodemodCommand):
    """Applies the safe fixes to one module, and warns of what is left."""

    DESCRIPTION = "Moves code that depends on verl to the names of verl 0.9."

    def __init__(
        self,
        context: CodemodContext,
        unsafe_fixes: bool = False,
        naming: bool = False,
        reverse: bool = False,
    ) -> None:
        """Takes the options of `actor-wg migrate` of the same names."""
        super().__init__(context)
        self._selection = Selection(unsafe_fixes=unsafe_fixes, naming=naming)
        self._reverse = reverse

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Adds the options to libcst's command line."""
        for name in ("--unsafe-fixes", "--naming", "--reverse"):
            arg_parser.add_argument(
                name, action="store_true", help=f"as in actor-wg migrate {name}"
            )

    def transform_module_impl(self, tree: libcst.Module) -> libcst.Module:
        """The module with the fixes put in; a warning for each finding that has none.

        Raises:
            EditError: the fixes do not fit the module.
        """
        outcomes = _outcomes(self.context.filename, tree.bytes, self._selection, self._reverse)
        fixes: list[Edit] = []
        for outcome in outcomes:
            for finding in outcome.findings:
                if finding.fix is not None:
                    fixes += finding.fix.edits
                else:
                    place = f"{finding.span.line}:{finding.span.column + 1}"
                    self.warn(f"{outcome.target.shown}:{place}: {finding.code} {finding.message}")
        return transformer.transform(tree, fixes)


@lru_cache(maxsize=1)
def _project(root: Path, selection: Selection, reverse: bool) -> tuple[Tree, Analysis]:
    tree = discover([str(root)])
    return tree, analyze(tree, Options(selection, reverse=reverse))


def _outcomes(
    filename: str | None, data: bytes, selection: Selection, reverse: bool
) -> tuple[Outcome, ...]:
    """What is found in one file; the project around it is analyzed once for all its files."""
    path = Path(filename or "<stdin>.py").resolve()
    options = Options(selection, reverse=reverse)
    if path.is_file() and path.read_bytes() == data:
        tree, analysis = _project(project_root(path.parent), selection, reverse)
        target = Target(str(filename), path.relative_to(tree.root).as_posix())
        run = check(Tree(tree.root, tree.files, (target,)), options, analysis)
    else:
        tree = for_stdin(filename)
        run = check(tree, replace(options, overlay={tree.targets[0].path: data}))
    if run.problems:
        raise EditError(run.problems[0].reason)
    return run.outcomes
