"""What one flake8 process knows: each project it meets, found and analyzed once."""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from flake8.exceptions import ExecutionError

from actor_wg_codemod import renames
from actor_wg_codemod.discovery import Tree, UsageError, discover, for_stdin, project_root
from actor_wg_codemod.model import Finding
from actor_wg_codemod.selection import Selection
from actor_wg_codemod.settings import Settings, SettingsError, load, valid_root
from actor_wg_codemod.source import SourceError, decode
from flake8_actor_wg.placing import placed
from flake8_actor_wg.plugin import chosen

if TYPE_CHECKING:
    from actor_wg_codemod.analysis import Analysis

NAMING, ADVICE = "AWG1", "AWG2"
SUFFIXES = (".py", ".pyi")
STDIN = "-"


@dataclass(frozen=True)
class Workspace:
    """A project, its analysis, and which of its findings are wanted.

    `paths` are the files to report on: where a file lies on disk -> its path in the project.
    """

    analysis: Analysis
    settings: Settings
    paths: dict[str, str]
    entries: tuple[str, ...]

    def shows(self, finding: Finding) -> bool:
        """Whether a finding goes to flake8, which then applies its own `ignore`.

        AWG1xx, AWG2xx and AWG901 need an entry of flake8's `select` or `extend-select` that is
        longer than the common prefix, so that neither a bare `AWG` there nor a list of other
        codes under `ignore` (which replaces flake8's default one) turns them on unasked.
        """
        if finding.code.startswith(self.entries):
            return True
        settings = self.settings
        selection = Selection(settings.select, settings.ignore, naming=settings.naming)
        return selection.shows(finding)


class Session:
    """Finds a file's project the way `actor-wg check` does for the same arguments."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._entries = chosen(options)
        self._exclude = tuple(options.actor_wg_exclude)
        self._roots = tuple(options.actor_wg_verl_root)
        self._given = tuple(options.filenames) or (".",)
        self._stdin_name = options.stdin_display_name if STDIN in self._given else None
        self._loaded: dict[Path, Settings] = {}
        self._others: dict[tuple[Path, Settings], Workspace] = {}
        for name in self._roots:
            if not valid_root(name):
                raise ExecutionError(
                    f"--actor-wg-verl-root: {name!r} is not an import path like a.verl"
                )

    @cached_property
    def advises(self) -> bool:
        """Whether AWG2xx is wanted for any of the arguments, before their project is looked for.

        Raises:
            ExecutionError: the settings cannot be used.
        """
        names = (self._stdin_name if name == STDIN else name for name in self._given)
        folders = dict.fromkeys(_folder(name) for name in names if name)
        try:
            return any(self._wants(ADVICE, self._settings_in(folder)) for folder in folders)
        except SettingsError as error:
            raise ExecutionError(str(error)) from None

    def findings(
        self, filename: str, tree: ast.Module, lines: Sequence[str], text: str
    ) -> Iterator[Finding]:
        """The wanted findings of a file.

        Args:
            filename: as flake8 names it.
            tree: what flake8 made of the lines; it is not changed.
            lines: the text, line by line.
            text: all of it.

        Raises:
            ExecutionError: the settings of the file's project cannot be used.
        """
        try:
            workspace, path = self._locate(filename, text)
        except SettingsError as error:
            raise ExecutionError(str(error)) from None
        if path is None or not workspace.analysis.relevant(path):
            return
        try:
            decode(workspace.analysis.project.read(path))
        except SourceError:
            return  # no Python either, whatever flake8 made of the bytes
        with _uncollected():
            own = placed(tree, lines, tuple(renames.FORWARD.table))
            result = workspace.analysis.findings(path, own, text)
        if result.problem is not None:
            raise ExecutionError(f"{filename}: {result.problem.reason}")
        yield from filter(workspace.shows, result.findings)

    def _locate(self, filename: str, text: str) -> tuple[Workspace, str | None]:
        if filename == self._stdin_name:
            return self._from_stdin(filename, text)
        place = _place(filename)
        workspace = self._common or self._other(Path(place))
        return workspace, workspace.paths.get(place)

    @cached_property
    def _common(self) -> Workspace | None:
        """The one project of all arguments; None where they have no one in common."""
        try:
            tree = discover(self._given, (*self._settings.exclude, *self._exclude))
        except UsageError:  # flake8 can go on: every file has a project of its own
            return None
        return self._workspace(tree, self._settings)

    @cached_property
    def _settings(self) -> Settings:
        return self._settings_in(_folder(self._given[0]))

    def _settings_in(self, folder: Path) -> Settings:
        if folder not in self._loaded:
            self._loaded[folder] = load(folder)
        return self._loaded[folder]

    def _wants(self, group: str, settings: Settings) -> bool:
        return any(e.startswith(group) for e in (*self._entries, *(settings.select or ())))

    def _other(self, place: Path) -> Workspace:
        settings = self._settings_in(place.parent)
        root = project_root(place.parent.resolve())
        key = (root, settings)
        if key not in self._others:
            tree = discover([str(root)], (*settings.exclude, *self._exclude))
            self._others[key] = self._workspace(tree, settings)
        return self._others[key]

    def _from_stdin(self, name: str, text: str) -> tuple[Workspace, str | None]:
        named = name.endswith(SUFFIXES)  # flake8 calls it "stdin" where nobody gave it a name
        settings = self._settings_in(Path(name).absolute().parent)
        tree = for_stdin(name if named else None, (*settings.exclude, *self._exclude))
        path = tree.targets[0].path
        return self._workspace(tree, settings, {path: text.encode()}), path

    def _workspace(
        self, tree: Tree, settings: Settings, overlay: dict[str, bytes] | None = None
    ) -> Workspace:
        from actor_wg_codemod.analysis import Analysis

        analysis = Analysis(
            tree.root,
            tree.files,
            verl_roots=(*settings.verl_roots, *self._roots),
            naming=settings.naming or self._wants(NAMING, settings),
            advice=self._wants(ADVICE, settings),
            overlay=overlay,
        )
        paths = {
            _place(target.shown): target.path
            for target in tree.targets
            if target.path.endswith(SUFFIXES)
        }
        return Workspace(analysis, settings, paths, self._entries)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector off what is made inside, then and later.

    An analysis keeps nearly all that it makes to the end of the run. Walking over it each time
    that flake8 has made enough objects of its own would cost more than the analysis itself.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _folder(name: str) -> Path:
    path = Path(name).absolute()
    return path if path.is_dir() else path.parent


def _place(name: str) -> str:
    """Where a name leads from here; links keep their own names, as `check` has it."""
    return os.path.abspath(name)  # noqa: PTH100
