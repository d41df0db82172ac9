"""Finds a project's root, the files that can matter, and which of them to report on.

The root is the top of a git checkout, else the nearest folder with project metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from actor_wg_codemod import git
from actor_wg_codemod.listing import REPORTED, Listing, excluder, is_below, relative
from actor_wg_codemod.model import Problem

_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg")


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
    listing = Listing(root, excluder(root, exclude))
    if marked:
        listing.collect(root)
    else:
        for _, path in given:
            if path.is_dir():
                listing.collect(path)
            else:
                listing.collect(path.parent, packages_only=True)
    targets: dict[str, Target] = {}
    problems: dict[str, Problem] = {}
    skipped = 0
    for shown, path in given:
        below = relative(path, root)
        if path.is_dir():
            for name in listing.below(below) or listing.collect(path):
                if name.endswith(REPORTED):
                    targets.setdefault(name, Target(_joined(shown, below, name), name))
            for problem in listing.problems:
                if is_below(problem.path, below):
                    name = _joined(shown, below, problem.path)
                    problems.setdefault(problem.path, Problem(name, problem.reason))
            skipped += sum(is_below(link, below) for link in listing.links)
        elif path.name.endswith(REPORTED):
            listing.files.add(below)
            targets[below] = Target(shown, below)
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
    marked = _project_root(folder)
    root = marked or folder
    listing = Listing(root, excluder(root, exclude))
    listing.collect(root, packages_only=marked is None)
    name_below = relative(folder / path.name, root)
    return Tree(root, tuple(sorted({*listing.files, name_below})), (Target(shown, name_below),))


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


def _joined(shown: str, folder: str, path: str) -> str:
    """The name of a file below a folder, the way the folder was given."""
    inside = path[len(folder) + 1 :] if folder else path
    return inside if shown == "." else f"{shown.rstrip('/')}/{inside}"
