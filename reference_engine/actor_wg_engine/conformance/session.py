"""One group of fresh workers around an engine, and the phases of a sync as the manager drives them."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actor_wg_engine.conformance import nursery
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.probe import Consume, Produce, Received, Sent, Surroundings
from actor_wg_engine.conformance.processes import Ref, WorkerHandle, gather, settle
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped
from actor_wg_engine.conformance.weights import Print, Recipe, fingerprints

MIB = 1 << 20
PLAIN_PRODUCE = Produce()
PLAIN_CONSUME = Consume()
PROBE = "actor_wg_engine.conformance.probe:EngineProbe"


@dataclass(frozen=True)
class Outcome:
    """How a sync ended on every worker: what it saw, or the exception."""

    sent: tuple[Sent | BaseException, ...]
    received: tuple[Received | BaseException, ...]

    @property
    def errors(self) -> list[str]:
        """The exceptions, as text that names the worker."""
        named: list[tuple[str, object]] = [(f"actor {i}", one) for i, one in enumerate(self.sent)]
        named += [(f"rollout {i}", one) for i, one in enumerate(self.received)]
        return [f"{who}: {describe(one)}" for who, one in named if isinstance(one, BaseException)]

    def require_success(self) -> Outcome:
        """Fail the check when any worker raised."""
        if self.errors:
            raise CheckFailed("the sync failed: " + "; ".join(self.errors))
        return self

    def receivers(self) -> list[Received]:
        """What the rollout workers saw, when all succeeded."""
        self.require_success()
        return [one for one in self.received if isinstance(one, Received)]

    def senders(self) -> list[Sent]:
        """What the actor workers saw, when all succeeded."""
        self.require_success()
        return [one for one in self.sent if isinstance(one, Sent)]


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0][:400]


class Session:
    """A set of actor and rollout workers that live as long as the `with` block.

    Args:
        factory: Which engine.
        actors: How many actor workers.
        rollouts: How many rollout workers.
        bucket_size: Bytes of a bucket.
        poison: Fill fresh memory of the receivers with a pattern.
        timeout: Seconds for each phase.
        network: A network namespace that the workers join (see `links.own_network`).
        env: Environment variables of the workers.
        extra: Further constructor arguments of every engine.
    """

    def __init__(
        self,
        factory: EngineFactory,
        actors: int = 1,
        rollouts: int = 2,
        bucket_size: int = MIB,
        *,
        poison: bool = False,
        timeout: float = 15.0,
        network: str | None = None,
        env: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        self.factory = factory
        self._surroundings = Surroundings(network, tuple((env or {}).items()))
        self.timeout = timeout
        self._bucket_size = bucket_size
        self._extra = extra
        self._own_nursery: nursery.Nursery | None = None
        self._address = os.environ.get(nursery.ADDRESS, "")
        if not self._address:
            self._own_nursery = nursery.Nursery(["torch", __name__, factory.module])
            self._address = self._own_nursery.address
        self.actors: list[WorkerHandle] = []
        self.rollouts: list[WorkerHandle] = []
        self.opened = False
        try:
            self.actors = [self.start(f"actor {i}", is_master=i == 0) for i in range(actors)]
            self.rollouts = [self.start(f"rollout {i}") for i in range(rollouts)]
            gather([worker.ready for worker in self.workers], 60)
            if poison:
                gather([worker.submit("poison") for worker in self.rollouts], 10)
        except BaseException:
            self.close()
            raise

    def start(self, name: str, *, is_master: bool = False) -> WorkerHandle:
        """Start one more worker process; it is in no group until it is in `actors` or `rollouts`."""
        return WorkerHandle(
            self._address,
            name,
            PROBE,
            self.factory,
            self._bucket_size,
            is_master,
            self._surroundings,
            **self._extra,
        )

    @property
    def workers(self) -> list[WorkerHandle]:
        """All workers, actors first."""
        return [*self.actors, *self.rollouts]

    def close(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.close()
        if self._own_nursery is not None:
            self._own_nursery.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> list[Any]:
        """Run prepare everywhere; the metadata, actors first.

        Raises:
            CheckSkipped: The engine has no groups (verl's own colocated engine).
        """
        answers = settle([worker.submit("prepare") for worker in self.workers], self.timeout)
        if all(isinstance(answer, NotImplementedError) for answer in answers):
            raise CheckSkipped("the engine forms no group: prepare is not implemented")
        for worker, answer in zip(self.workers, answers, strict=True):
            if isinstance(answer, BaseException):
                raise CheckFailed(f"prepare on {worker.name}: {describe(answer)}") from answer
        return [pickle.loads(answer) for answer in answers]

    def topology(
        self, metadata: Sequence[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The engine's topology for this session's workers."""
        actor_kwargs, rollout_kwargs = self.factory.engine_class().build_topology(
            len(self.actors), len(self.rollouts), list(metadata)
        )
        return actor_kwargs, rollout_kwargs

    def init(self) -> list[Ref]:
        """Prepare, plan, and start init_process_group everywhere."""
        metadata = self.prepare()
        sides = self.topology(metadata)
        refs = []
        for workers, kwargs in zip((self.actors, self.rollouts), sides, strict=True):
            for index, worker in enumerate(workers):
                own = {key: values[index] for key, values in kwargs.items()}
                refs.append(worker.submit("init_process_group", **own))
        return refs

    def open(self) -> None:
        """Form the group."""
        gather(self.init(), self.timeout)
        self.opened = True

    def transfer(
        self,
        recipe: Recipe,
        step: int | None = None,
        *,
        produce: Produce | Sequence[Produce] = PLAIN_PRODUCE,
        consume: Consume | Sequence[Consume] = PLAIN_CONSUME,
        expect: Sequence[int | None] | None = None,
    ) -> tuple[list[Ref], list[Ref]]:
        """Start send_weights and receive_weights everywhere.

        Args:
            recipe: The stream.
            step: Its global step.
            produce: How generators behave, for all or one per actor.
            consume: How consumers behave, for all or one per rollout worker.
            expect: The step that each rollout worker asks for, when they differ.
        """
        produces = [produce] * len(self.actors) if isinstance(produce, Produce) else produce
        consumes = [consume] * len(self.rollouts) if isinstance(consume, Consume) else consume
        steps = [step] * len(self.rollouts) if expect is None else expect
        receiving = [
            worker.submit("receive", steps[i], consumes[i])
            for i, worker in enumerate(self.rollouts)
        ]
        sending = [
            worker.submit("send", recipe, step, produces[i]) for i, worker in enumerate(self.actors)
        ]
        return sending, receiving

    def outcome(
        self, sending: Sequence[Ref], receiving: Sequence[Ref], timeout: float | None = None
    ) -> Outcome:
        """Wait for a transfer."""
        ends = time.monotonic() + (timeout or self.timeout)
        sent = settle(sending, ends - time.monotonic())
        received = settle(receiving, max(ends - time.monotonic(), 0.1))
        return Outcome(tuple(sent), tuple(received))

    def finalize(self) -> list[Any]:
        """Run finalize on every worker that lives; exceptions are returned, not raised."""
        self.opened = False
        living = [worker for worker in self.workers if worker.alive]
        return settle([worker.submit("finalize") for worker in living], self.timeout)

    def sync(
        self,
        recipe: Recipe,
        step: int | None = None,
        *,
        timeout: float | None = None,
        keep_open: bool = False,
        **behavior: Any,
    ) -> Outcome:
        """All phases of one sync; finalize runs whatever happened."""
        try:
            if not self.opened:
                self.open()
            return self.outcome(*self.transfer(recipe, step, **behavior), timeout)
        finally:
            if not keep_open:
                for answer in self.finalize():
                    if isinstance(answer, Exception):
                        raise CheckFailed(f"finalize: {describe(answer)}") from answer

    def expect(self, recipe: Recipe, step: int | None = None, **behavior: Any) -> Outcome:
        """One sync that must bring exactly the recipe to every rollout worker."""
        outcome = self.sync(recipe, step, **behavior)
        for index, received in enumerate(outcome.receivers()):
            require_same(received.prints, fingerprints(recipe.stream()), f"rollout {index}")
        return outcome


def require_same(got: Sequence[Print], expected: Sequence[Print], who: str) -> None:
    """Fail unless the two lists of prints are equal, order included; says what differs."""
    if list(got) == list(expected):
        return
    by_name = {one.name: one for one in got}
    missing = [one.name for one in expected if one.name not in by_name]
    unknown = sorted(set(by_name) - {one.name for one in expected})
    problems = []
    if missing:
        problems.append(f"misses {_some(missing)}")
    if unknown:
        problems.append(f"got unknown {_some(unknown)}")
    for one in expected:
        found = by_name.get(one.name)
        if found is not None and found != one:
            what = (
                f"dtype {found.dtype} instead of {one.dtype}"
                if found.dtype != one.dtype
                else f"shape {found.shape} instead of {one.shape}"
                if found.shape != one.shape
                else "other bytes"
            )
            problems.append(f"{one.name[:60]} has {what}")
    if not problems:
        problems.append("the order or the number of the tensors differs")
    raise CheckFailed(f"{who} " + "; ".join(problems[:6]))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(name[:60] for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def frozen_topology(
    factory: EngineFactory, actors: int, rollouts: int, metadata: list[Any]
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Build a topology on a copy of the metadata, so that a check can compare it afterwards."""
    sides: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
        factory.engine_class().build_topology(actors, rollouts, copy.deepcopy(metadata))
    )
    return sides
