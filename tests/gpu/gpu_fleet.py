"""The plain launcher of the sync tests: worker processes, a sync across them, and a kill timer."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from actor_wg_engine import CheckpointEngineRegistry

START_SECONDS = 180.0


class WorkerError(AssertionError):
    """A worker answered with an error; `kind` is the class of the error there."""

    def __init__(self, who: str, kind: str, text: str, trace: str = "") -> None:
        super().__init__(f"{who}: {kind}: {text}\n{trace}")
        self.kind = kind
        self.text = text


class Process:
    """One worker process."""

    def __init__(self, name: str, device: str, environment: Mapping[str, str]) -> None:
        self.name = name
        key = secrets.token_bytes(16)
        self._folder = tempfile.TemporaryDirectory(prefix="actor-wg-gpu-")
        self._log = Path(self._folder.name, "log")
        self._connection: Connection | None = None
        with (
            Listener(str(Path(self._folder.name, "socket")), authkey=key) as listener,
            self._log.open("wb") as log,
        ):
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("gpu_worker.py")), listener.address],
                env={**os.environ, **environment, "GPU_FLEET_KEY": key.hex()},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            listener._listener._socket.settimeout(1.0)  # type: ignore[attr-defined]
            end = time.monotonic() + START_SECONDS
            while self._connection is None:
                try:
                    self._connection = listener.accept()
                except TimeoutError:
                    if self._process.poll() is not None or time.monotonic() > end:
                        raise self._lost("did not start") from None
        self.start("create", device)

    def start(self, command: str, *arguments: Any) -> None:
        """Send a command; a process that is gone is noticed by `result`."""
        try:
            assert self._connection is not None
            self._connection.send((command, arguments))
        except OSError:
            return

    def result(self, end: float) -> Any:
        """The answer to the oldest command.

        Raises:
            WorkerError: an error, a death, or nothing until `end`; then the process is killed.
        """
        assert self._connection is not None
        if not self._connection.poll(max(0.0, end - time.monotonic())):
            self.kill()
            raise self._lost("did not answer in time and was killed")
        try:
            good, value = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.wait(10)
            raise self._lost(f"ended with status {self._process.returncode}") from None
        if not good:
            raise WorkerError(self.name, *value)
        return value

    def kill(self) -> None:
        """End the process by force."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and remove its files."""
        if self._connection is not None:
            self._connection.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()

    def _lost(self, what: str) -> WorkerError:
        tail = self._log.read_text(errors="replace")[-2000:]
        return WorkerError(self.name, "Lost", what, tail)


class Fleet:
    """Actors and rollout workers with one backend; use as a context manager.

    Args:
        backend: name of the backend.
        actors: a device for each actor.
        rollouts: a device for each rollout worker.
        seconds: the kill timer of every step.
        environments: environment variables, for actors then rollouts; none by default.
        **engine_kwargs: arguments of the engine.
    """

    def __init__(
        self,
        backend: str,
        actors: Sequence[str],
        rollouts: Sequence[str],
        *,
        seconds: float = 120.0,
        environments: Sequence[Mapping[str, str]] = (),
        **engine_kwargs: Any,
    ) -> None:
        self.backend = backend
        self.seconds = seconds
        self.actors: list[Process] = []
        self.rollouts: list[Process] = []
        self._engine_kwargs = {"bucket_size": 1 << 20, **engine_kwargs}
        self._environments = list(environments)
        self._devices = (list(actors), list(rollouts))

    def __enter__(self) -> Fleet:
        try:
            for side, devices in zip((self.actors, self.rollouts), self._devices, strict=True):
                for device in devices:
                    side.append(self.spawn(device, is_actor=side is self.actors))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def spawn(self, device: str, *, is_actor: bool = False) -> Process:
        """Start a worker with an engine."""
        index = len(self.actors) + len(self.rollouts)
        environment = self._environments[index] if index < len(self._environments) else {}
        name = f"actor {len(self.actors)}" if is_actor else f"rollout {len(self.rollouts)}"
        process = Process(name, device, environment)
        process.result(time.monotonic() + START_SECONDS)
        process.start("create", self.backend, is_actor and not self.actors, self._engine_kwargs)
        process.result(time.monotonic() + self.seconds)
        return process

    def close(self) -> None:
        """End all workers."""
        for process in [*self.actors, *self.rollouts]:
            process.close()

    def ask(self, command: str, *arguments: Any) -> list[Any]:
        """Run a command in all workers and return the answers, actors first."""
        return self.gather([(process, (command, *arguments)) for process in self.workers])

    def gather(self, calls: Sequence[tuple[Process, tuple[Any, ...]]]) -> list[Any]:
        """Start all calls, then wait for all; the first error is raised when all have ended."""
        for process, call in calls:
            process.start(*call)
        end = time.monotonic() + self.seconds
        answers: list[Any] = []
        for process, _ in calls:
            try:
                answers.append(process.result(end))
            except WorkerError as error:
                answers.append(error)
        for answer in answers:
            if isinstance(answer, WorkerError):
                answer.answers = answers  # type: ignore[attr-defined]
                raise answer
        return answers

    @property
    def workers(self) -> list[Process]:
        """All processes, actors first."""
        return [*self.actors, *self.rollouts]

    def build(self) -> None:
        """prepare, build_topology, init_process_group."""
        metadata = self.ask("prepare")
        cls = CheckpointEngineRegistry.get(self.backend)
        sides = cls.build_topology(len(self.actors), len(self.rollouts), metadata)
        calls = []
        for processes, kwargs in zip((self.actors, self.rollouts), sides, strict=True):
            for index, process in enumerate(processes):
                mine = {key: values[index] for key, values in kwargs.items()}
                calls.append((process, ("init_process_group", mine)))
        self.gather(calls)

    def finalize(self) -> None:
        """Finalize everywhere; a worker that is gone has nothing to finalize."""
        try:
            self.ask("finalize")
        except WorkerError as error:
            if error.kind != "Lost":
                raise

    def transfer(
        self, source: str, version: int, *, send: tuple[Any, ...] = (),
        receive: Mapping[int, tuple[Any, ...]] | None = None, every: tuple[Any, ...] = (),
    ) -> tuple[dict[str, str], list[dict[str, str]]]:  # fmt: skip
        """Send and receive one version; returns the digests of the source and of each rollout."""
        special = receive or {}
        calls = [(process, ("send", source, version, *send)) for process in self.actors]
        calls += [
            (process, ("receive", version, *special.get(index, every)))
            for index, process in enumerate(self.rollouts)
        ]
        answers = self.gather(calls)
        return answers[0], answers[len(self.actors) :]

    def sync(self, source: str, version: int, **options: Any) -> None:
        """A whole sync; every rollout must have the bytes of the source, in its order."""
        self.build()
        try:
            sent, received = self.transfer(source, version, **options)
        except WorkerError:
            self.finalize()
            raise
        self.finalize()
        for process, digests in zip(self.rollouts, received, strict=True):
            if list(digests.items()) != list(sent.items()):
                wrong = [name for name in sent if digests.get(name) != sent[name]]
                raise AssertionError(
                    f"{process.name} differs in {wrong or 'order or surplus names'}"
                )
