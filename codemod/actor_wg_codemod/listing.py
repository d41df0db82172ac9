"""Lists the files of a folder: what git says they are, or a walk without environments and caches.

In a checkout git decides (https://git-scm.com/docs/git-ls-files), but for untracked files in
folders that nobody means to migrate.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from fnmatch import translate
from pathlib import Path

from actor_wg_codemod import git
from actor_wg_codemod.model import Problem

REPORTED = (".py", ".pyi", ".ipynb", ".yaml", ".yml", ".md", ".markdown", ".rst", ".rest")
"""Kinds of files that can have findings."""
_SETTINGS = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch")
_METADATA = re.compile(
    r"(?:.*/)?(?:pyproject\.toml|setup\.cfg|Pipfile|Pipfile\.lock|(?:poetry|uv|pdm)\.lock|pylock\.toml|"
    r"[^/]*(?:requirements|constraints)[^/]*\.(?:txt|in)|requirements/.*\.(?:txt|in))"
)
_ENVIRONMENTS = (".yml", ".yaml")
_SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".tox", ".nox", ".eggs", ".mypy_cache", ".pytest_cache",
        ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", "__pycache__", "__pypackages__",
        "node_modules", "site-packages",
    }
)  # fmt: skip
_BUILD_FOLDERS = frozenset({"build", "dist"})  # unless they are packages


class Excluder:
    """Matches globs against a relative path, each folder above it, and their last names."""

    def __init__(self, globs: Sequence[str], prefix: str) -> None:
        patterns = []
        for glob in globs:
            cleaned = glob.removeprefix("./").rstrip("/")
            patterns += [cleaned, prefix + cleaned] if prefix else [cleaned]
        self._match = re.compile("|".join(translate(pattern) for pattern in patterns)).match
        self._known: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        if path not in self._known:
            folder, _, name = path.rpartition("/")
            hit = bool(self._match(path) or self._match(name))
            self._known[path] = hit or (bool(folder) and self(folder))
        return self._known[path]


def excluder(root: Path, globs: Sequence[str]) -> Excluder | None:
    if not globs:
        return None
    here = Path.cwd().resolve()
    inside = root in here.parents
    absolute = [os.path.relpath(g, root) if Path(g).is_absolute() else g for g in globs]
    return Excluder(absolute, here.relative_to(root).as_posix() + "/" if inside else "")


class Listing:
    """Collects files, links that need no look, and problems, all named relative to the root."""

    def __init__(self, root: Path, excluded: Excluder | None) -> None:
        self._root = root
        self._excluded = excluded
        self.files: set[str] = set()
        self.links: set[str] = set()
        self.problems: list[Problem] = []

    def below(self, folder: str) -> list[str]:
        """The collected files below a folder ('' is the root)."""
        return [path for path in self.files if is_below(path, folder)]

    def collect(self, folder: Path, *, packages_only: bool = False) -> list[str]:
        """Adds the files below `folder`; returns them all.

        With `packages_only`, a walk goes down only into folders that Python can import from.
        """
        entries = None
        if (folder / ".git").exists():
            # Where git cannot say, a walk finds the files as well, and some that git would ignore.
            with contextlib.suppress(git.GitError):
                entries = git.files(folder)
        if entries is None:
            self._walk(relative(folder, self._root), packages_only)
        else:
            untracked = {path for path, is_link in entries if is_link is None}
            left_out = _LeftOut(untracked)
            for path, is_link in entries:
                if is_link is None:
                    if left_out(path):
                        continue
                    is_link = (self._root / path).is_symlink()
                if self._excluded and self._excluded(path):
                    continue
                if is_link:
                    self._link(path)
                elif wanted(path):
                    self.files.add(path)
        return self.below(relative(folder, self._root))

    def _walk(self, start: str, packages_only: bool) -> None:
        folders = [start]
        while folders:
            folder = folders.pop()
            prefix = folder + "/" if folder else ""
            try:
                with os.scandir(self._root / folder) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                reason = f"folder cannot be read: {error.strerror}"
                self.problems.append(Problem(folder or ".", reason))
                continue
            names = {entry.name for entry in listed}
            if folder != start and _is_left_out(folder.rpartition("/")[2], names):
                continue
            if folder != start and packages_only and "__init__.py" not in names:
                continue
            for entry in listed:
                path = prefix + entry.name
                if self._excluded and self._excluded(path):
                    continue
                if entry.is_symlink():
                    self._link(path)
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED_FOLDERS:
                        folders.append(path)
                elif wanted(path) and entry.is_file(follow_symlinks=False):
                    self.files.add(path)

    def _link(self, path: str) -> None:
        """Links are never followed: what they lead to inside the tree has its own name there."""
        full = self._root / path
        reason = None
        try:
            target = full.resolve(strict=True)
        except FileNotFoundError:
            reason = "a link to something that does not exist" if wanted(path) else None
            if full.name.startswith(".#"):  # an editor's lock
                return
        except (OSError, RuntimeError):
            reason = "a loop of links"
        else:
            is_folder = target.is_dir()
            if is_folder and (target == full.parent or target in full.parents):
                reason = f"a loop of links: leads back to {target}"
            elif target != self._root and self._root not in target.parents:
                if is_folder or wanted(path):
                    reason = f"a link out of the tree, to {target}; not followed"
            elif not is_folder and wanted(path):
                self.links.add(path)
        if reason is not None:
            self.problems.append(Problem(path, reason))


def wanted(path: str) -> bool:
    """Whether any part of the analysis reads this kind of file."""
    return path.endswith(REPORTED) or path.endswith(_SETTINGS) or bool(_METADATA.fullmatch(path))


def is_metadata(path: str) -> bool:
    """Whether a file may say which versions a project depends on."""
    return bool(_METADATA.fullmatch(path)) or path.endswith(("setup.py", *_ENVIRONMENTS))


def _is_left_out(name: str, names: set[str]) -> bool:
    return "pyvenv.cfg" in names or (name in _BUILD_FOLDERS and "__init__.py" not in names)


class _LeftOut:
    """Which untracked files stand in folders that a walk would leave out."""

    def __init__(self, untracked: set[str]) -> None:
        self._untracked = untracked
        marks = (path for path in untracked if path.endswith("/pyvenv.cfg"))
        self._environments = {path.rpartition("/")[0] for path in marks}

    def __call__(self, path: str) -> bool:
        folder = path.rpartition("/")[0]
        while folder:
            name = folder.rpartition("/")[2]
            if name in _SKIPPED_FOLDERS or folder in self._environments:
                return True
            if name in _BUILD_FOLDERS and f"{folder}/__init__.py" not in self._untracked:
                return True
            folder = folder.rpartition("/")[0]
        return False


def is_below(path: str, folder: str) -> bool:
    """Whether a relative path is a folder ('' is the root) or stands in it."""
    return not folder or path == folder or path.startswith(folder + "/")


def relative(path: Path, root: Path) -> str:
    """The path below the root with forward slashes; empty for the root itself."""
    return "" if path == root else path.relative_to(root).as_posix()
