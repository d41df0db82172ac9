"""Replaces a file's content so that at any moment it is wholly the old one or the new one."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

_HOST = re.sub(r"\W", "-", os.uname().nodename)[:40]
_PREFIX = f".actor-wg-{_HOST}-"
_SUFFIX = ".tmp"
_numbers = itertools.count()


class WriteError(Exception):
    """The file was left as it was; the text says why."""


def write(path: Path, old: bytes, new: bytes) -> None:
    """Replaces `old` by `new`, keeping mode and owner, with one rename at the end.

    Args:
        path: the file itself, never a link to it.
        old: what the file is known to hold.
        new: what it shall hold.

    Raises:
        WriteError: it no longer holds `old`, may not be written, or the disk refused.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise WriteError("is no longer a regular file")
        if path.read_bytes() != old:
            raise WriteError("has changed on disk since it was read; run again")
        if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
            mode = stat.S_IMODE(status.st_mode)
            raise WriteError(f"is read-only (mode {mode:04o}); chmod u+w it and run again")
        _replace(path, new, status)
    except FileNotFoundError:
        raise WriteError("has vanished since it was read") from None
    except OSError as error:
        raise WriteError(f"cannot be written: {error.strerror}") from None


def remove_leftovers(folder: Path) -> None:
    """Deletes temporary files of runs on this machine that were killed."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            process = path.name[len(_PREFIX) :].split("-")[0]
            if process.isdigit() and not _is_running(int(process)):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _replace(path: Path, data: bytes, status: os.stat_result) -> None:
    with _temporary(path.parent) as temporary:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            os.fsync(descriptor)
        os.replace(temporary, path)  # noqa: PTH105
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A name for a new file in the folder, which is gone at the end whatever happens."""
    path = folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}{_SUFFIX}"
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
