"""The replicas under the manager's care, and what it asks of them around a sync."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from actor_wg_engine.calling import Failure, Kind, Outcome, call_all
from actor_wg_engine.errors import EngineError
from actor_wg_engine.replicas import Member, Tracked, track
from actor_wg_engine.rounds import Deadlines

logger = logging.getLogger(__name__)


class Roster:
    """The replicas in the order of their ranks.

    Args:
        replicas: the first ones.
        deadlines: how long to wait for them.

    Raises:
        TopologyError: the same replica or worker twice.
    """

    def __init__(self, replicas: Sequence[Any], deadlines: Deadlines) -> None:
        self.entries = track(replicas)
        self.deadlines = deadlines

    @property
    def quarantined(self) -> dict[str, str]:
        """The replicas that must not be served, by label, with the reason."""
        return {entry.label: entry.quarantine for entry in self.entries if entry.quarantine}

    def add(self, replicas: Sequence[Any]) -> list[Any]:
        """Track more replicas and return their workers.

        Raises:
            TopologyError: a replica or worker is there already.
        """
        added = track(replicas, self.entries)
        self.entries = [*self.entries, *added]
        return [worker for entry in added for worker in entry.workers]

    def remove(self, replicas: Sequence[Any]) -> list[Any]:
        """Forget replicas and return the workers of those that are alive."""
        gone = [e for e in self.entries if any(e.replica is replica for replica in replicas)]
        self.entries = [entry for entry in self.entries if entry not in gone]
        return [worker for entry in gone if not entry.dead for worker in entry.workers]

    def workers(self) -> list[Any]:
        """Return the workers of all replicas."""
        return [worker for entry in self.entries for worker in entry.workers]

    async def reachable(self) -> list[Tracked]:
        """Return the replicas to sync: all but those that are dead and still do not answer."""
        dead = [entry for entry in self.entries if entry.dead]
        probes = {
            (entry.label, rank): worker.__ray_ready__.remote()
            for entry in dead
            for rank, worker in enumerate(entry.workers)
        }
        outcome = await call_all(probes, self.deadlines.abort_s, "a probe")
        for entry in dead:
            entry.dead = any(label == entry.label for label, _ in outcome.failures)
        active = [entry for entry in self.entries if not entry.dead]
        for entry in self.entries:
            if entry.dead:
                logger.warning("%s is passed over: %s", entry.label, entry.quarantine)
        return active

    async def stop(self, active: list[Tracked], failures: dict[Member, Failure]) -> list[Tracked]:
        """Abort requests, then release the KV cache; return the replicas that did."""
        for method in ("abort_all_requests", "release_kv_cache"):
            outcome = await self._ask(active, method)
            for label, failure in outcome.failures.items():
                entry = next(e for e in active if e.label == label)
                entry.shut_out(f"{method}: {failure.reason}", dead=failure.kind is not Kind.RAISED)
                failures[Member(label, 0)] = failure
            active = [entry for entry in active if entry.label not in outcome.failures]
        return active

    async def publish(
        self, active: list[Tracked], version: int | None, outcome: Outcome[Member]
    ) -> list[str]:
        """Commit where all workers of a replica succeeded; find out what the others hold."""
        whole = [e for e in active if not any(m in outcome.failures for m in e.members)]
        commits = await self._call(whole, "commit_weights", version)
        committed = []
        for entry in active:
            failed = [m for m in entry.members if m in outcome.failures]
            refused = [m for m in entry.members if m in commits.failures]
            if failed:
                self.quarantine(entry, outcome.failures)
            elif refused:
                entry.shut_out(f"commit: {commits.failures[refused[0]].reason}", dead=False)
                outcome.failures.update({m: commits.failures[m] for m in refused})
            else:
                entry.version, entry.quarantine = version, None
                committed.append(entry.label)
        return committed

    async def restore(self, active: list[Tracked]) -> None:
        """Resume the KV cache and generation on every replica that can be served."""
        await self._settle([entry for entry in active if entry.quarantine and not entry.dead])
        for method in ("resume_kv_cache", "resume_generation"):
            servable = [entry for entry in active if entry.quarantine is None]
            outcome = await self._ask(servable, method)
            for entry in servable:
                failure = outcome.failures.get(entry.label)
                if failure is not None:
                    dead = failure.kind is Kind.DEAD
                    entry.shut_out(f"{method}: {failure.reason}", dead=dead)
                    logger.error("%s failed to %s: %s", entry.label, method, failure.reason)

    def quarantine(self, entry: Tracked, failures: dict[Member, Failure]) -> None:
        """Shut a replica out for the gravest failure of its own workers, if any failed."""
        own = {member: failures[member] for member in entry.members if member in failures}
        if own:
            member, failure = min(own.items(), key=lambda item: item[1].kind.value)
            dead = any(f.kind in (Kind.DEAD, Kind.LATE) for f in own.values())
            entry.shut_out(f"rank {member.rank}: {failure.reason}", dead=dead)

    async def ask_all(self, method: str, **kwargs: Any) -> None:
        """Call a method of every replica that is not dead.

        Raises:
            EngineError: one failed; the message names it.
        """
        entries = [entry for entry in self.entries if not entry.dead]
        outcome = await self._ask(entries, method, **kwargs)
        if outcome.failures:
            lines = "; ".join(f"{label}: {f.reason}" for label, f in outcome.failures.items())
            raise EngineError(f"{method} failed: {lines}")

    async def _settle(self, entries: list[Tracked]) -> None:
        """Take out of quarantine whatever still holds its old version, whole."""
        for entry in entries:
            if entry.dead or not all(hasattr(w, "settle_weights") for w in entry.workers):
                continue
            outcome = await self._call([entry], "settle_weights")
            states = list(outcome.results.values())
            if outcome.failures or len(states) != len(entry.workers):
                continue
            versions = {state["version"] for state in states}
            if all(state["state"] == "ready" for state in states) and versions == {entry.version}:
                entry.quarantine = None

    async def _ask(self, entries: list[Tracked], method: str, **kwargs: Any) -> Outcome[str]:
        calls = {entry.label: getattr(entry.replica, method)(**kwargs) for entry in entries}
        return await call_all(calls, self.deadlines.replica_s, method)

    async def _call(self, entries: list[Tracked], method: str, *args: Any) -> Outcome[Member]:
        calls = {
            member: getattr(worker, method).remote(*args)
            for entry in entries
            for member, worker in zip(entry.members, entry.workers, strict=True)
            if hasattr(worker, method)
        }
        return await call_all(calls, self.deadlines.abort_s, method)
