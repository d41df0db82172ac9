"""Forks fresh worker processes in milliseconds: torch is imported once, in the nursery, and nowhere twice.

A client connects to the nursery's Unix socket, passes one end of a socket pair and says what to run
on it; the nursery forks, and the fresh process serves its end. When a process ends, everything that
was forked on its behalf is killed; when the client that started the nursery ends, all of it is.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ADDRESS = "ACTOR_WG_NURSERY"
_MAX_REQUEST = 1 << 16


class Nursery:
    """A running nursery process; use as a context manager.

    Args:
        preload: Modules to import before the first fork. One that fails to import is left to the
            process that needs it, whose error is then reported.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="actor-wg-")
        self.address = str(Path(self._folder.name) / "nursery")
        self.logs = Path(self._folder.name)
        path = os.pathsep.join([entry for entry in sys.path if entry] + [str(Path.cwd())])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for CUDA must not poison the forks
            "OMP_NUM_THREADS": "1",
        }
        with (self.logs / "nursery.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.address, *preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            reason = (self.logs / "nursery.log").read_text(errors="replace")
            self.close()
            raise RuntimeError(f"the nursery process did not start:\n{reason}")

    def close(self) -> None:
        """End the nursery and every process it forked."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fork(address: str, entry: str, name: str) -> tuple[int, socket.socket]:
    """Ask the nursery at `address` for a process that runs `entry(socket)`.

    Args:
        address: The nursery's socket.
        entry: "package.module:function".
        name: For the log file's name.

    Returns:
        The process id and our end of its socket pair.
    """
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as request:
        request.connect(address)
        message = json.dumps({"entry": entry, "name": name, "owner": os.getpid()}).encode()
        socket.send_fds(request, [message], [theirs.fileno()])
        answer = request.recv(64)
    if not answer:
        ours.close()
        raise RuntimeError("the nursery process is gone")
    return int(answer), ours


def log_of(address: str, name: str, pid: int) -> str:
    """What a forked process wrote to its standard streams."""
    path = Path(address).parent / f"{name}-{pid}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def _serve(address: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    wake_read, wake_write = socket.socketpair()
    for end in (wake_read, wake_write):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_write.fileno())
    selector = selectors.DefaultSelector()
    for source in (listener, wake_read, sys.stdin):
        selector.register(source, selectors.EVENT_READ)
    owners: dict[int, int] = {}
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                _kill(list(owners))
                return
            if key.fileobj is wake_read:
                wake_read.recv(4096)
                _reap(owners)
            else:
                _answer(listener, address, owners, (wake_read, wake_write))


def _reap(owners: dict[int, int]) -> None:
    while owners:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        owners.pop(pid, None)
        _kill([child for child, owner in owners.items() if owner == pid])


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _answer(
    listener: socket.socket,
    address: str,
    owners: dict[int, int],
    inherited: Sequence[socket.socket],
) -> None:
    connection, _ = listener.accept()
    with connection:
        message, fds, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 1)
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            for end in (listener, *inherited):
                end.close()
            connection.close()
            _become(request, address, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        owners[pid] = int(request["owner"])
        connection.send(str(pid).encode())


def _become(request: dict[str, Any], address: str, connection: socket.socket) -> None:
    """Turn a fork of the nursery into the process that was asked for. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(
            str(Path(address).parent / f"{request['name']}-{os.getpid()}.log"),
            os.O_CREAT | os.O_WRONLY | os.O_APPEND,
            0o600,
        )
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        os.environ[ADDRESS] = address
        module, _, function = request["entry"].partition(":")
        getattr(importlib.import_module(module), function)(connection)
        code = 0
    except BaseException:  # noqa: BLE001 - the last frame of a forked process
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> None:
    """Run the nursery: an address to listen at, then modules to import first."""
    address, *preload = arguments
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - reported by the process that needs the module
            print(f"{name}: {error!r}", file=sys.stderr)
    _serve(address)


if __name__ == "__main__":
    main(sys.argv[1:])
