"""What git knows about a checkout: its files, and which of them have uncommitted changes.

https://git-scm.com/docs/git-ls-files, https://git-scm.com/docs/git-status
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

_LINK_MODE = "120000"
_BATCH = 200
# A repository's own settings must not make git run a program.
_OPTIONS = ("-c", "core.fsmonitor=false", "--literal-pathspecs")


class GitError(Exception):
    """git is missing or failed; the text is its reason in one line."""


def top(folder: Path) -> Path | None:
    """The checkout that holds the folder, or None."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return None


def files(root: Path) -> list[tuple[str, bool | None]]:
    """Tracked and untracked-not-ignored files that exist, and whether each is a link.

    None for the second where only the disk can tell.

    Raises:
        GitError: git cannot say.
    """
    found: dict[str, bool | None] = {}
    deleted = set()
    for entry in _run(root, "ls-files", "-z", "-t", "-s", "-c", "-o", "-d", "--exclude-standard"):
        if entry.startswith("? "):
            if not entry.endswith("/"):  # a checkout of its own
                found[entry[2:]] = None
            continue
        head, _, path = entry.partition("\t")
        if head.startswith("R"):
            deleted.add(path)
        else:
            found[path] = head[2:8] == _LINK_MODE
    return [(path, link) for path, link in found.items() if path not in deleted]


def uncommitted(root: Path, paths: Iterable[str]) -> list[str]:
    """Those of `paths`, relative to a checkout's top, that git could not give back.

    Raises:
        GitError: git cannot say.
    """
    found: dict[str, None] = {}
    listed = list(paths)
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        status = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
        entries = _run(root, *status, "--", *batch)
        found.update((entry[3:], None) for entry in entries if entry[2:3] == " ")
    return list(found)


def _run(root: Path, *arguments: str) -> Sequence[str]:
    command = ["git", "-C", str(root), *_OPTIONS, *arguments]
    try:
        run = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise GitError(f"git does not run: {error.strerror}") from None
    if run.returncode:
        lines = os.fsdecode(run.stderr).strip().splitlines() or ["no reason given"]
        raise GitError(f"git {arguments[0]} failed: {lines[0]}")
    return [entry for entry in os.fsdecode(run.stdout).split("\0") if entry]
