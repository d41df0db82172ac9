"""Finds a project's root, the files that can matter, and which of them to report on.

In a git checkout git itself says which files there are (https://git-scm.com/docs/git-ls-files);
elsewhere a walk leaves out virtual environments, build output and caches.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg")
_SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".tox", ".nox", ".eggs", ".mypy_cache", ".pytest_cache",
        ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", "__pycache__", "__pypackages__",
        "node_modules", "site-packages",
    }
)  # fmt: skip
_BUILD_FOLDERS = frozenset({"build", "dist"})  # unless they are packages


@dataclass(frozen=True)
class Target:
    """A file to report on: `shown` is its name as given on the command line."""

    shown: str
    path: str


@dataclass(frozen=True)
class Tree:
    """A project as found on disk; paths are relative to `root`, with forward slashes.

    `problems` name files as `Target.shown` does. `skipped` counts the links to files that stand
    in the tree under their own name, and named files of kinds that cannot have findings.
    """

    root: Path
    files: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    problems: tuple[Problem, ...] = ()
    skipped: int = 0


class UsageError(Exception):
    """What the user asked for cannot be done; the text is one line that says why."""


def discover(paths: Sequence[str], exclude: Sequence[str] = ()) -> Tree:
    """Finds the project that holds `paths` and the files below them.

    Args:
        paths: files and folders as given on the command line.
        exclude: globs of files and folders to leave out, on top of what git ignores.

    Raises:
        UsageError: a path does not exist, or the paths belong to different projects.
    """
    given = [(shown, _resolve(shown)) for shown in paths]
    root, marked = _common_root(given)
    listing = _Listing(root, _excluder(root, exclude))
    if marked:
        listing.collect(root)
    else:
        for _, path in given:
            listing.collect(path if path.is_dir() else path.parent)
    targets: dict[str, Target] = {}
    problems: dict[str, Problem] = {}
    skipped = 0
    for shown, path in given:
        relative = _relative(path, root)
        if path.is_dir():
            for name in listing.below(relative) or listing.collect(path):
                if name.endswith(REPORTED):
                    targets.setdefault(name, Target(_joined(shown, relative, name), name))
            for problem in listing.problems:
                if _is_below(problem.path, relative):
                    name = _joined(shown, relative, problem.path)
                    problems.setdefault(problem.path, Problem(name, problem.reason))
            skipped += sum(_is_below(link, relative) for link in listing.links)
        elif path.name.endswith(REPORTED):
            listing.files.add(relative)
            targets[relative] = Target(shown, relative)
        else:  # a shell's * names all kinds of files
            skipped += 1
    ordered = tuple(target for _, target in sorted(targets.items()))
    return Tree(root, tuple(sorted(listing.files)), ordered, tuple(problems.values()), skipped)


def for_stdin(name: str | None, exclude: Sequence[str] = ()) -> Tree:
    """The project of a file that is read from standard input; its one target is that file.

    Args:
        name: what the file is called, existing or not; without one it is Python in this folder.
        exclude: as for `discover`.

    Raises:
        UsageError: the name says that the file is of a kind that cannot have findings.
    """
    shown = name or "<stdin>"
    path = Path(shown if name else "<stdin>.py").absolute()
    if not path.name.endswith(REPORTED):
        raise UsageError(f"{shown}: not Python, a notebook, YAML, Markdown or reStructuredText")
    folder = path.parent.resolve() if path.parent.is_dir() else Path.cwd().resolve()
    root = project_root(folder)
    listing = _Listing(root, _excluder(root, exclude))
    listing.collect(root)
    relative = _relative(folder / path.name, root)
    return Tree(root, tuple(sorted({*listing.files, relative})), (Target(shown, relative),))


def project_root(folder: Path) -> Path:
    """The git top level, else the nearest ancestor with project metadata, else the folder."""
    return _project_root(folder) or folder


def _project_root(folder: Path) -> Path | None:
    above = [folder, *folder.parents]
    checkout = git.top(folder)
    if checkout is not None:
        return checkout
    for candidate in above:
        if any((candidate / marker).is_file() for marker in _MARKERS):
            return candidate
    return None


def _resolve(shown: str) -> Path:
    try:
        if "\0" in shown:
            raise UsageError(f"{shown!r}: no such file or folder")
        path = Path(shown).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        if Path(shown).is_symlink():
            raise UsageError(f"{shown}: a link to something that does not exist") from None
        raise UsageError(f"{shown}: no such file or folder") from None
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before 3.13
        reason = error.strerror if isinstance(error, OSError) else "too many levels of links"
        raise UsageError(f"{shown}: {reason}") from None
    if not path.is_dir() and not path.is_file():
        raise UsageError(f"{shown}: neither a file nor a folder")
    return path


def _common_root(given: Iterable[tuple[str, Path]]) -> tuple[Path, bool]:
    """The one project of all paths, True; without a marker, the folder above them all, False."""
    marked: dict[Path, str] = {}
    plain: dict[Path, str] = {}
    for shown, path in given:
        folder = path if path.is_dir() else path.parent
        found = _project_root(folder)
        (plain if found is None else marked).setdefault(found or folder, shown)
    if marked:
        root = min(marked, key=lambda candidate: len(candidate.parts))
    else:
        root = Path(os.path.commonpath(list(plain)))
    for other, shown in {**marked, **plain}.items():
        if other != root and root not in other.parents:
            raise UsageError(f"{shown}: outside of the project at {root}; run it there on its own")
    return root, bool(marked)


def _relative(path: Path, root: Path) -> str:
    return "" if path == root else path.relative_to(root).as_posix()


def _is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(folder + "/")


def _joined(shown: str, folder: str, path: str) -> str:
    """The name of a file below a folder, the way the folder was given."""
    inside = path[len(folder) + 1 :] if folder else path
    return inside if shown == "." else f"{shown.rstrip('/')}/{inside}"


class _Excluder:
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


def _excluder(root: Path, globs: Sequence[str]) -> _Excluder | None:
    if not globs:
        return None
    here = Path.cwd().resolve()
    inside = root in here.parents
    absolute = [os.path.relpath(g, root) if Path(g).is_absolute() else g for g in globs]
    return _Excluder(absolute, here.relative_to(root).as_posix() + "/" if inside else "")


class _Listing:
    """Collects files, links that need no look, and problems, all named relative to the root."""

    def __init__(self, root: Path, excluded: _Excluder | None) -> None:
        self._root = root
        self._excluded = excluded
        self.files: set[str] = set()
        self.links: set[str] = set()
        self.problems: list[Problem] = []

    def below(self, folder: str) -> list[str]:
        """The collected files below a folder ('' is the root)."""
        return [path for path in self.files if _is_below(path, folder)]

    def collect(self, folder: Path) -> list[str]:
        """Adds the files below `folder`; returns them all."""
        entries = None
        if (folder / ".git").exists():
            # Where git cannot say, a walk finds the files as well, and some that git would ignore.
            with contextlib.suppress(git.GitError):
                entries = git.files(folder)
        if entries is None:
            self._walk(_relative(folder, self._root))
        else:
            for path, is_link in entries:
                if is_link is None:
                    is_link = (self._root / path).is_symlink()
                if self._excluded and self._excluded(path):
                    continue
                if is_link:
                    self._link(path)
                elif wanted(path):
                    self.files.add(path)
        return self.below(_relative(folder, self._root))

    def _walk(self, start: str) -> None:
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
