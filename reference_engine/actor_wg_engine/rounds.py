"""The participants of one sync, and how the driver starts, awaits and ends a phase in all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from actor_wg_engine import topology
from actor_wg_engine.calling import Failure, FanOut, Kind, Outcome, call_all
from actor_wg_engine.contract import Kwargs, capabilities_of
from actor_wg_engine.errors import TopologyError
from actor_wg_engine.replicas import Member, Tracked
from actor_wg_engine.worker_group import WorkerGroup

logger = logging.getLogger(__name__)

ACTOR = "actor"
SOURCE = Member(ACTOR, 0)
Calls = dict[Member, Awaitable[Any]]


@dataclass(frozen=True)
class Deadlines:
    """How long the driver waits, in seconds."""

    sync_s: float = 600.0
    """One `update_weights`, unless the call says otherwise."""
    connect_s: float = 60.0
    """prepare and init_process_group, each."""
    replica_s: float = 60.0
    """One request to a replica, such as releasing its KV cache."""
    settle_s: float = 1.0
    """After a receiver is lost: for the other workers to complete by themselves."""
    abort_s: float = 2.0
    """After `abort`, and for commit, finalize and probes: for the workers to answer."""


def actors_of(actor_wg: Any) -> tuple[Member, ...]:
    """Name the workers of the actor worker group."""
    return tuple(Member(ACTOR, rank) for rank in range(actor_wg.world_size))


def named(members: Sequence[Member], references: Sequence[Any]) -> Calls:
    """Pair the references that a worker group returned with its workers.

    Raises:
        TopologyError: there is not one for each.
    """
    if len(references) != len(members):
        raise TopologyError(
            f"a worker group of world size {len(members)} returned {len(references)} references; "
            "world_size must be the number of its workers"
        )
    return dict(zip(members, references, strict=True))


@dataclass(frozen=True)
class Round:
    """The participants of one sync: who they are, and how long to wait for them."""

    engine: type[Any]
    deadlines: Deadlines
    actor_wg: Any
    rollout: Any
    actors: tuple[Member, ...]
    rollouts: tuple[Member, ...]

    @classmethod
    def of(
        cls, engine: type[Any], deadlines: Deadlines, actor_wg: Any, replicas: Sequence[Tracked]
    ) -> Round:
        """Let all workers of some replicas take part, numbered in their order."""
        workers = [worker for entry in replicas for worker in entry.workers]
        members = tuple(member for entry in replicas for member in entry.members)
        return cls(engine, deadlines, actor_wg, WorkerGroup(workers), actors_of(actor_wg), members)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal keys mean that the same workers are in the same places."""
        return (self.actor_wg, self.actor_wg.world_size, *self.rollout.workers)

    async def connect(self) -> Outcome[Member]:
        """Run the phases that build the group.

        Raises:
            TopologyError: the worlds do not fit, or the topology has lists of a wrong length.
        """
        seconds = self.deadlines.connect_s
        outcome = await self._conclude(self.call("prepare"), seconds, "prepare")
        if outcome.failures:
            return outcome
        metadata = [outcome.results[member] for member in (*self.actors, *self.rollouts)]
        sizes = len(self.actors), len(self.rollouts)
        topology.check_worlds(*sizes, metadata)
        actors, rollouts = self.engine.build_topology(*sizes, metadata)
        topology.check_lists(actors, sizes[0], "actor worker group")
        topology.check_lists(rollouts, sizes[1], "rollout workers")
        calls = self.call("init_process_group", actors, rollouts)
        return await self._conclude(calls, seconds, "init_process_group")

    async def move(self, version: int | None, mode: str, seconds: float) -> Outcome[Member]:
        """Send and receive."""
        calls = {
            **named(self.actors, self.actor_wg.update_weights(global_steps=version, mode=mode)),
            **named(self.rollouts, self.rollout.update_weights(global_steps=version)),
        }
        return await self._conclude(calls, seconds, "update_weights", self.deadlines.settle_s)

    async def abort(self) -> None:
        """Wake all workers that are inside a phase, where the engine can."""
        if capabilities_of(self.engine).can_abort:
            await call_all(self.call("abort"), self.deadlines.abort_s, "abort")

    async def finalize(self, outcome: Outcome[Member] | None = None) -> None:
        """End the sync in all workers, but do not wait for those known to be gone or frozen."""
        failures = outcome.failures if outcome else {}
        silent = {m for m, f in failures.items() if f.kind in (Kind.DEAD, Kind.LATE)}
        calls = {m: call for m, call in self.call("finalize").items() if m not in silent}
        ended = await call_all(calls, self.deadlines.abort_s, "finalize")
        for member, failure in ended.failures.items():
            logger.warning("finalize: %s: %s", member, failure.reason)

    def call(
        self, method: str, actors: Kwargs | None = None, rollouts: Kwargs | None = None
    ) -> Calls:
        """Start one method of the engine in all workers.

        Args:
            method: its name.
            actors: keyword arguments for the actors, as lists by rank.
            rollouts: the same for the rollout workers.
        """
        to_actors = {**(actors or {}), "method": [method] * len(self.actors)}
        to_rollouts = {**(rollouts or {}), "method": [method] * len(self.rollouts)}
        return {
            **named(self.actors, self.actor_wg.execute_checkpoint_engine(**to_actors)),
            **named(self.rollouts, self.rollout.execute_checkpoint_engine(**to_rollouts)),
        }

    async def _conclude(
        self, calls: Calls, seconds: float, what: str, patience: float = 0.0
    ) -> Outcome[Member]:
        """Wait for calls in all workers; after a failure or the deadline, end them.

        Args:
            calls: what is under way.
            seconds: the deadline.
            what: its name.
            patience: how long the others may go on by themselves when a receiver is lost, where the
                transport survives that.
        """
        fan_out = FanOut(calls)
        if await fan_out.first_failure(seconds):
            return fan_out.outcome()
        failures = fan_out.peek()
        engine = capabilities_of(self.engine)
        if failures and SOURCE not in failures and engine.survives_receiver_loss:
            await fan_out.rest(patience)
        aborted = bool(fan_out.pending()) and engine.can_abort
        if fan_out.pending():
            # Waited for as well, lest an abort that is still on its way ends the next phase.
            aborts = FanOut(self.call("abort") if engine.can_abort else {})
            seconds_left = self.deadlines.abort_s
            await asyncio.gather(fan_out.rest(seconds_left), aborts.rest(seconds_left))
            aborts.forget()
        fan_out.give_up("did not stop after abort: frozen, or stuck in code of its own")
        outcome = fan_out.outcome()
        if aborted and what != "update_weights":
            # An engine that answered just before the abort is aborted all the same.
            ended = Failure(Kind.VICTIM, "aborted with the others")
            outcome.failures.update(dict.fromkeys(outcome.results, ended))
            outcome.results.clear()
        if not failures:
            late = f"{what} took more than {seconds:g} s"
            outcome.failures.update(
                {m: Failure(f.kind, f"{late}: {f.reason}") for m, f in outcome.failures.items()}
            )
        return outcome


def culprits(failures: dict[Member, Failure]) -> dict[Member, Failure]:
    """Leave out those that failed because another did, unless there are no others."""
    causes = {member: f for member, f in failures.items() if f.kind is not Kind.VICTIM}
    return causes or failures
