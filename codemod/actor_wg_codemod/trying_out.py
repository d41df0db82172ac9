"""The dynamic half of `actor-wg verify`: runs the engine's checks on the project's classes, each in a process of its own.

Nothing of torch, Ray or the project is imported here. What a class does to its process, a crash or
a hang, is a row of the table.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from actor_wg_codemod import renames
from actor_wg_codemod.candidates import Candidate
from actor_wg_codemod.discovery import UsageError
from actor_wg_codemod.verdict_rows import Row, Status

DYNAMIC = "dynamic"
IMPORT = "I0"
CONFORMANCE = "CE"
CONSTRUCTOR = "M1"
_NEEDED = ("actor_wg_engine", "torch", "ray", "msgspec", "numpy", "xxhash")
_LOG_LINES = 6


@dataclass(frozen=True)
class Wishes:
    """How the classes are to be tried out.

    Args:
        devices: where weights live; "auto" is a GPU where there is one, else the CPU.
        checks: letters or ids of the conformance checks; all of them when empty.
        engine_kwargs: settings for the engine's constructor, as a JSON object.
        against: what answers `import verl`: auto, engine or verl.
        deadline: seconds for all checks of one class.
        import_deadline: seconds for importing it.
        say: told a line when a class's turn comes.
    """

    devices: Sequence[str] = ("auto",)
    checks: str = ""
    engine_kwargs: str = "{}"
    against: str = "auto"
    deadline: float = 900.0
    import_deadline: float = 120.0
    say: Callable[[str], None] = lambda _: None


def missing_extra() -> str:
    """Which packages of the engine extra are not installed, in one line; empty when all are."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return f'needs {", ".join(missing)}: pip install "actor-wg[engine]"'


def try_out(candidates: Sequence[Candidate], wishes: Wishes) -> Iterator[Row]:
    """Rows for every candidate, or one that says why there are none.

    Raises:
        UsageError: the wishes name a check that does not exist.
    """
    reason = missing_extra()
    if reason:
        title = "engines and managers pass the conformance checks"
        yield Row(DYNAMIC, CONFORMANCE, title, Status.SKIPPED, "", reason)
        return
    if not candidates:
        title = "engines and managers pass the conformance checks"
        why = "no engine or manager of its own that could be tried out; --engine module:Class names one"
        yield Row(DYNAMIC, CONFORMANCE, title, Status.SKIPPED, "", why)
        return
    for candidate in candidates:
        devices = wishes.devices if candidate.kind == "engine" else ("cpu",)
        for device in devices:
            yield from _Attempt(candidate, device, wishes).rows()


class _Attempt:
    """One class on one device."""

    def __init__(self, candidate: Candidate, device: str, wishes: Wishes) -> None:
        self.candidate = candidate
        self.wishes = wishes
        self.device = device
        self.subject = f"{candidate.kind} {candidate.target}"
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ended = False

    def rows(self) -> Iterator[Row]:
        """Starts the process, and turns what it says into rows."""
        self.wishes.say(f"trying out the {self.subject}")
        with tempfile.TemporaryFile() as log:
            process = self._start(log)
            reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
            reader.start()
            done = False
            try:
                yield from self._rows(process, log)
                done = self._ended
            finally:
                _end(process, patience=10 if done else 0)
                reader.join(5)

    def _start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "actor_wg_engine.verify", self.candidate.target]
        command += ["--kind", self.candidate.kind, "--root", self.candidate.root]
        if self.candidate.project != self.candidate.root:
            command += ["--root", self.candidate.project]
        command += ["--device", self.device, "--against", self.wishes.against]
        if self.candidate.kind == "engine":
            command += ["--engine-kwargs", self.wishes.engine_kwargs]
        if self.wishes.checks and self.candidate.kind == "engine":
            command += ["--checks", self.wishes.checks]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return subprocess.Popen(
            command,
            cwd=self.candidate.root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def _read(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        for line in stream:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def _rows(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> Iterator[Row]:
        started = time.monotonic()
        limit, doing = self.wishes.import_deadline, "importing it"
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, started + limit - time.monotonic()))
            except queue.Empty:
                yield self._row(
                    IMPORT if limit == self.wishes.import_deadline else CONFORMANCE,
                    Status.FAILED,
                    f"{doing} was not done after {limit:.0f} s; ended by force",
                )
                return
            if line is None:
                yield self._died(process, doing, log)
                return
            event = _parsed(line)
            kind = event.get("event")
            if kind == "end":
                self._ended = True
                return
            if kind == "usage":
                raise UsageError(str(event.get("reason", "")))
            if kind in ("absent", "broken"):
                status = Status.SKIPPED if kind == "absent" else Status.FAILED
                yield self._row(IMPORT, status, str(event.get("reason", "")))
                return
            if kind == "imported":
                self.subject += (
                    f" on {event.get('device')}, verl answered by {event.get('against')}"
                )
                yield self._row(IMPORT, Status.PASSED, "")
                started, limit, doing = time.monotonic(), self.wishes.deadline, "all checks"
            elif kind == "result":
                doing = f"the check after {event.get('id')}"
                yield self._result(event)

    def _result(self, event: dict[str, Any]) -> Row:
        check, reason, status = str(event["id"]), str(event["reason"]), Status(event["status"])
        own = self.candidate.kind == "manager" and not self.candidate.named
        if own and check == CONSTRUCTOR and status is Status.FAILED:
            status = Status.ADVISORY
            reason += f"; no {renames.MANAGER_CLASS_SETTING} setting here names this class, though"
        return Row(DYNAMIC, check, str(event["title"]), status, self.subject, reason)

    def _row(self, check: str, status: Status, reason: str) -> Row:
        title = "it can be imported" if check == IMPORT else "the checks come to an end"
        return Row(DYNAMIC, check, title, status, self.subject, reason)

    def _died(self, process: subprocess.Popen[bytes], doing: str, log: IO[bytes]) -> Row:
        status = process.wait()
        log.seek(0)
        tail = log.read().decode("utf-8", "replace").strip().splitlines()[-_LOG_LINES:]
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        check = IMPORT if doing == "importing it" else CONFORMANCE
        lines = [f"the process ended during {doing} with {how}; its last words:", *tail]
        return self._row(check, Status.FAILED, "\n".join(lines))


def _parsed(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _end(process: subprocess.Popen[bytes], *, patience: float) -> None:
    """Ends the process and whatever it started in its session, after it had time to tidy up."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
