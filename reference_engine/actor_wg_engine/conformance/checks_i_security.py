"""I: strangers cannot run code in a worker, nor get at the weights, nor bring a sync down."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.links import dotted, listeners
from actor_wg_engine.conformance.probe import Produce
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped
from actor_wg_engine.conformance.session import Session
from actor_wg_engine.conformance.sources import engine_modules, unpickling
from actor_wg_engine.conformance.weights import recipe


@check("I64", advisory=True)
def check_nothing_is_unpickled(factory: EngineFactory) -> None:
    """Nothing in the engine's code unpickles bytes, and a pickle sent to its ports is not executed."""
    for module in engine_modules(factory.engine_class()):
        for line, what in unpickling(module):
            raise CheckFailed(f"{module.__name__} line {line} calls {what}")
    with tempfile.TemporaryDirectory(prefix="actor-wg-") as folder:
        sentinel = Path(folder, "executed")
        for _ in attack(factory, pickle.dumps(_Bomb(str(sentinel)))):
            if sentinel.exists():
                raise CheckFailed("a pickle that a stranger sent was executed")


class _Bomb:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._path, "w")


def attack(factory: EngineFactory, payload: bytes) -> Iterator[None]:
    """Send a payload to every port that the workers listen on, in every phase; the sync must survive."""
    with Session(factory, rollouts=2, bucket_size=64 << 10) as session:
        session.prepare()
        _shout(session, payload)
        yield
        for answer in session.finalize():
            if isinstance(answer, Exception):
                raise CheckFailed(f"finalize after prepare: {answer}") from answer
        session.open()
        _shout(session, payload)
        yield
        refs = session.transfer(recipe("mixed"), 1, produce=Produce(gate_at=5))
        session.actors[0].wait_event("producer waits")
        _shout(session, payload)
        session.actors[0].call("release", "producer")
        session.outcome(*refs).require_success()
        session.finalize()
        yield
        session.expect(recipe("mixed", seed=2), 2)


def _shout(session: Session, payload: bytes) -> None:
    for worker in session.workers:
        for listener in listeners(worker.pid):
            host = "127.0.0.1" if listener.is_wildcard else dotted(listener)
            for data in (payload, struct.pack("!Q", len(payload)) + payload):
                with contextlib.suppress(OSError):
                    _say(host, listener.port, data)


def _say(host: str, port: int, data: bytes) -> None:
    with socket.create_connection((host, port), 1) as stranger:
        stranger.settimeout(0.2)
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        stranger.recv(64)


@check("I64b")
def check_methods_by_name(factory: EngineFactory) -> None:
    """A worker refuses to call by name what is not a phase of a sync."""
    with Fleet(factory, replicas=(1,)) as fleet:
        for name in ("send_weights", "__init__", "__reduce__", "build_topology"):
            try:
                fleet.rollouts[0].call("execute_checkpoint_engine", name)
            except ValueError as error:
                if name in str(error):
                    continue
                raise CheckFailed(f"the error does not name {name}: {error}") from error
            except Exception as error:
                raise CheckFailed(f"{name} was called by name: {error}") from error
            raise CheckFailed(f"{name} was called by name")
        fleet.update(1)
        fleet.require_served(1)


@check("I65", advisory=True)
def check_listeners(factory: EngineFactory) -> None:
    """Listeners answer on one address and a port of the system's choice, not on every address."""
    with Session(factory, rollouts=2) as session:
        session.open()
        found = {worker.name: listeners(worker.pid) for worker in session.workers}
        for name, sockets in found.items():
            for listener in sockets:
                if listener.is_wildcard:
                    raise CheckFailed(f"{name} listens on every address, port {listener.port}")
        ports = {one.port for sockets in found.values() for one in sockets}
        session.finalize()
    with Session(factory, rollouts=2) as again:
        again.open()
        fixed = ports & {one.port for worker in again.workers for one in listeners(worker.pid)}
        if fixed:
            raise CheckFailed(f"the ports {sorted(fixed)} are the same in every run")


@check("I65b", advisory=True)
def check_strangers_are_refused(factory: EngineFactory) -> None:
    """A stranger who connects, talks nonsense and hangs up does not disturb a sync."""
    for _ in attack(factory, b"GET / HTTP/1.1\r\nHost: stranger\r\n\r\n"):
        continue


@check("I66", advisory=True)
def check_garbage_is_refused(factory: EngineFactory) -> None:
    """Random bytes to every port bring no process down; broken headers are refused before any write."""
    noise = random.Random(66).randbytes(4096)
    for _ in attack(factory, noise):
        continue
    if any(
        module.__name__ == "actor_wg_engine.wire"
        for module in engine_modules(factory.engine_class())
    ):
        fuzz_headers(rounds=3000)


def fuzz_headers(rounds: int) -> None:
    """Flip, cut and extend real headers of our wire format: each is refused with a WireError."""
    import torch

    from actor_wg_engine import wire
    from actor_wg_engine.contract import TensorMeta
    from actor_wg_engine.errors import EngineError

    chance = random.Random(7)
    payload = torch.arange(512, dtype=torch.int64).view(torch.uint8)
    meta = TensorMeta("w", torch.Size((512,)), torch.int64, 0, 4096, 0)
    stream = wire.Stream(bytes(range(16)), 3)
    frame = wire.encode(stream, 5, 0, [meta], payload, tensors=1, last=True, checked=True)
    wire.decode(frame, stream, 0, 5, 1 << 20)
    for _ in range(rounds):
        broken = bytearray(frame)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            broken = broken[: chance.randrange(len(broken))]
        if bytes(broken) == frame:
            continue
        try:
            wire.decode(bytes(broken), stream, 0, 5, 1 << 20)
        except EngineError:
            continue
        raise CheckFailed("a header with flipped bits was accepted")


@check("I67", deadline=40)
def check_nothing_is_left(factory: EngineFactory) -> None:
    """No file is left in the home folder, the temporary folder or shared memory, also after SIGKILL."""
    home = Path.home()
    with tempfile.TemporaryDirectory(prefix="actor-wg-") as folder:
        temporary = Path(folder)
        before = {"home": _names(home), "shm": _names(Path("/dev/shm"))}
        os.environ["TMPDIR"] = folder
        for graceful in (True, False):
            with Session(factory, rollouts=2, env={"TMPDIR": folder}) as session:
                if graceful:
                    session.expect(recipe("mixed"), 1)
                else:
                    session.open()
                    session.transfer(recipe("mixed"), 1, produce=Produce(gate_at=5))
                    session.actors[0].wait_event("producer waits")
                pids = {str(worker.pid) for worker in session.workers}
            left = sorted(path.name for path in temporary.rglob("*"))
            new = sorted(_names(Path("/dev/shm")) - before["shm"])
            ours = [name for name in new if _is_of(name, pids)]
            if left or ours:
                raise CheckFailed(f"left behind: {', '.join([*left, *ours][:5])}")
        if factory.is_own and (fresh := sorted(_names(home) - before["home"])):
            raise CheckFailed(f"new in the home folder: {', '.join(fresh)}")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _is_of(name: str, pids: set[str]) -> bool:
    """Other programs use shared memory too: only names with a process id of ours, or our prefix."""
    return any(pid in name for pid in pids) or "actor" in name


@check("I67b")
def check_expandable_segments(factory: EngineFactory) -> None:
    """Expandable segments and permuted devices do not matter (CUDA only)."""
    if factory.device != "cuda":
        raise CheckSkipped("needs CUDA; this run is on " + factory.device)
    for setting in ("expandable_segments:True", "expandable_segments:False"):
        with Session(factory, rollouts=1, env={"PYTORCH_CUDA_ALLOC_CONF": setting}) as session:
            session.expect(recipe("mixed"), 1)
