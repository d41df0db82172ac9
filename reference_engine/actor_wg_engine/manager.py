"""`CheckpointEngineManager`: the order of the phases, deadlines, and what happens on failure.

It runs in the driver and knows no transport. A sync is

    stop      abort requests, release the KV cache        every replica that can be reached
    connect   prepare, build_topology, init_process_group where the group is not there already
    move      update_weights                              all workers
    publish   commit_weights                              replicas of which every worker succeeded
    restore   KV cache, then generation                   replicas that hold exactly one version

and `restore` happens whatever came before. A replica that failed is put into quarantine and named:
one that can be reached takes part in the next sync, which brings it back; one whose process is gone
is passed over until it is removed or replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from actor_wg_engine.buckets import check_bucket_size
from actor_wg_engine.calling import (
    Failure,
    Lock,
    awaitable_or_blocking,
    call_all,
)
from actor_wg_engine.contract import CheckpointEngineConfig, capabilities_of
from actor_wg_engine.errors import SyncError, TopologyError
from actor_wg_engine.registry import CheckpointEngineRegistry, import_backend_module
from actor_wg_engine.replicas import Member, Tracked
from actor_wg_engine.roster import Roster
from actor_wg_engine.rounds import (
    ACTOR,
    Deadlines,
    Round,
    actors_of,
    culprits,
    named,
)
from actor_wg_engine.worker_group import WorkerGroup

logger = logging.getLogger(__name__)


class CheckpointEngineManager:
    """Brings the weights of an actor worker group into all rollout replicas.

    Args:
        config: the backend and its options.
        actor_wg: has `world_size`, `update_weights(global_steps=, mode=)` and
            `execute_checkpoint_engine(method=[...], **lists)`, which return Ray object references.
        replicas: each has `workers` (Ray handles) and the coroutines `sleep`, `wake_up`,
            `abort_all_requests`, `resume_generation`, `release_kv_cache`, `resume_kv_cache`.
        deadlines: how long to wait for what.

    Raises:
        ValueError: unknown backend, bad bucket size.
        TopologyError: the same replica or worker twice.
    """

    def __init__(
        self,
        config: CheckpointEngineConfig,
        actor_wg: Any,
        replicas: Sequence[Any],
        *,
        deadlines: Deadlines | None = None,
    ) -> None:
        check_bucket_size(config.update_weights_bucket_megabytes)
        import_backend_module(config.custom_backend_module)
        self.config = config
        self.backend = config.backend
        self.backend_cls = CheckpointEngineRegistry.get(config.backend)
        self.actor_wg = actor_wg
        self.deadlines = deadlines or Deadlines()
        self.version: int | None = None
        self._roster = Roster(replicas, self.deadlines)
        self._had_replicas = bool(self._roster.entries)
        self._retired: list[Any] = []
        self._retiring: list[tuple[Any, tuple[Awaitable[Any], ...]]] = []
        self._connected: tuple[object, ...] | None = None
        self._lock = Lock()

    @property
    def replicas(self) -> list[Any]:
        """The replicas, in the order of their ranks."""
        return [entry.replica for entry in self._roster.entries]

    @property
    def quarantined(self) -> dict[str, str]:
        """The replicas that must not be served, by label, with the reason."""
        return self._roster.quarantined

    @property
    def versions(self) -> dict[str, int | None]:
        """The version that each replica serves, by label; None before its first sync."""
        return {entry.label: entry.version for entry in self._roster.entries}

    def add_replicas(self, replicas: Sequence[Any]) -> None:
        """Add replicas; the next sync gives them the full set.

        Raises:
            TopologyError: a replica or worker is there already.
        """
        back = self._roster.add(replicas)
        self._retired = [old for old in self._retired if not any(old is new for new in back)]
        self._had_replicas = self._had_replicas or bool(back)

    def remove_replicas(self, replicas: Sequence[Any]) -> None:
        """Remove replicas, dead or alive. Waits for nothing; the ranks change with the next sync."""
        self._retired += self._roster.remove(replicas)

    @awaitable_or_blocking
    async def build_process_group(self, rollout: Any) -> None:
        """Connect the actor worker group with a rollout worker group.

        Raises:
            TopologyError: the topology does not fit the worlds.
            SyncError: a worker failed or did not come.
        """
        members = tuple(Member("rollout", rank) for rank in range(rollout.world_size))
        round_ = Round(
            self.backend_cls,
            self.deadlines,
            self.actor_wg,
            rollout,
            actors_of(self.actor_wg),
            members,
        )
        outcome = await round_.connect()
        if outcome.failures:
            raise _error("build_process_group", outcome.failures)

    @awaitable_or_blocking
    async def sleep_replicas(self) -> None:
        """Free the device memory of all replicas: weights and KV cache."""
        await self._roster.ask_all("sleep")

    @awaitable_or_blocking
    async def wake_up_replicas(self) -> None:
        """Undo `sleep_replicas`."""
        await self._roster.ask_all("wake_up")

    @awaitable_or_blocking
    async def abort_replicas(self, reject_request: bool = False) -> None:
        """Abort the requests under way on all replicas.

        Args:
            reject_request: refuse new requests instead of keeping them until generation resumes.
        """
        await self._roster.ask_all("abort_all_requests", reject_request=reject_request)

    @awaitable_or_blocking
    async def resume_generation_replicas(self) -> None:
        """Resume generation on all replicas."""
        await self._roster.ask_all("resume_generation")

    @awaitable_or_blocking
    async def release_kv_cache_replicas(self) -> None:
        """Free the KV cache of all replicas; the weights stay."""
        await self._roster.ask_all("release_kv_cache")

    @awaitable_or_blocking
    async def resume_kv_cache_replicas(self) -> None:
        """Undo `release_kv_cache_replicas`."""
        await self._roster.ask_all("resume_kv_cache")

    @awaitable_or_blocking
    async def update_weights(
        self,
        global_steps: int | None = None,
        *,
        timeout_s: float | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Bring the actors' present weights into all replicas, and publish them as one version.

        Concurrent calls run one after the other. A cancelled call frees all workers first. In any
        case the KV cache and generation are restored on every replica that holds one version.

        Args:
            global_steps: the version.
            timeout_s: deadline of this sync; None takes `deadlines.sync_s`.
            force: allow a version lower than the last one.

        Returns:
            The figures of the senders, merged.

        Raises:
            ValueError: a version lower than the last one, without `force`.
            TopologyError: there never was a replica, or the worlds do not fit.
            SyncError: not every replica has the version now; it names replicas and ranks, and says
                who serves what. The next sync starts afresh.
        """
        async with self._lock:
            self._check_version(global_steps, force)
            if self._in_process():
                return await self._update_in_process(
                    global_steps, timeout_s or self.deadlines.sync_s
                )
            if not self._roster.entries:
                if not self._had_replicas:
                    raise TopologyError(
                        "there are no replicas; call add_replicas before update_weights"
                    )
                logger.warning("all replicas were removed; nothing to update")
                return {}
            await self._retire()
            return await self._sync(global_steps, timeout_s or self.deadlines.sync_s)

    def _check_version(self, version: int | None, force: bool) -> None:
        if version is None or self.version is None or force or version >= self.version:
            return
        raise ValueError(
            f"version {version} is lower than {self.version}, which is being served; "
            "pass force=True to go back"
        )

    # One sync.

    async def _sync(self, version: int | None, seconds: float) -> dict[str, Any]:
        failures: dict[Member, Failure] = {}
        results: dict[Member, Any] = {}
        committed: list[str] = []
        everyone = await self._reachable()
        moving = False
        try:
            active = await self._roster.stop(everyone, failures)
            if not active:
                raise self._sync_error(version, failures)
            round_, active = await self._connect(active, version, failures)
            moving = True
            outcome = await round_.move(version, self.backend, seconds)
            results = outcome.results
            if not outcome.failures and self._keeps_group():
                self._connected = round_.key
            else:
                self._connected = None
                await round_.finalize(outcome)
            committed = await self._roster.publish(active, version, outcome)
            failures.update(outcome.failures)
        except BaseException:
            # Cancelled, nobody left, or a fault of the topology: leave no worker inside a sync.
            self._connected = None
            await asyncio.shield(self._clean_up(everyone, moving))
            raise
        finally:
            await asyncio.shield(self._restore(everyone))
        if committed:
            self.version = version
        if failures:
            raise self._sync_error(version, failures, committed)
        metrics: dict[str, Any] = {}
        for member, result in results.items():
            if member.label == ACTOR and isinstance(result, dict):
                metrics.update(result)
        return metrics

    async def _reachable(self) -> list[Tracked]:
        """Return the replicas to sync, unless there are none."""
        active = await self._roster.reachable()
        if not active:
            raise SyncError(
                "no replica can be reached; remove the dead ones and add replacements",
                quarantined=tuple(self.quarantined),
            )
        return active

    async def _connect(
        self, active: list[Tracked], version: int | None, failures: dict[Member, Failure]
    ) -> tuple[Round, list[Tracked]]:
        """Connect all, or if some replicas cannot, the others."""
        while True:
            round_ = self._round(active)
            if self._connected == round_.key:
                return round_, active
            self._connected = None
            outcome = await round_.connect()
            if not outcome.failures:
                return round_, active
            await round_.finalize(outcome)
            causes = culprits(outcome.failures)
            failures.update(causes)
            out = {member.label for member in causes}
            for entry in active:
                if entry.label in out:
                    self._roster.quarantine(entry, causes)
            if ACTOR in out or out.issuperset(entry.label for entry in active):
                raise self._sync_error(version, failures)
            active = [entry for entry in active if entry.label not in out]

    async def _restore(self, active: list[Tracked]) -> None:
        await self._roster.restore(active)

    async def _clean_up(self, active: list[Tracked], moving: bool) -> None:
        """After a cancel: end everything, and let no replica be served that is not whole."""
        round_ = self._round(active)
        await round_.abort()
        await round_.finalize()
        if moving:
            for entry in active:
                entry.shut_out("the sync was interrupted", dead=False)

    async def _retire(self) -> None:
        """Let workers of removed replicas release what they hold.

        Nobody waits for them, unless they are back in the next sync: no old abort may hit that one.
        """
        present = self._roster.workers()
        returned = {
            (position, order): call
            for position, (worker, calls) in enumerate(self._retiring)
            if any(worker is other for other in present)
            for order, call in enumerate(calls)
        }
        await call_all(returned, self.deadlines.abort_s, "the end of an earlier sync")
        workers, self._retired, self._retiring = self._retired, [], []
        if workers and capabilities_of(self.backend_cls).can_abort:
            group = WorkerGroup(workers)
            calls = [
                group.execute_checkpoint_engine(method=[method] * len(workers))
                for method in ("abort", "finalize")
            ]
            self._retiring = list(zip(workers, zip(*calls, strict=True), strict=True))

    # Without a group: actor and rollout in the same processes.

    def _in_process(self) -> bool:
        """Whether every rollout worker is an actor worker, so that no bytes need to travel."""
        if self.backend != "naive" or not self._roster.entries:
            return False
        actors = getattr(self.actor_wg, "workers", [])
        return all(any(worker == actor for actor in actors) for worker in self._roster.workers())

    async def _update_in_process(self, version: int | None, seconds: float) -> dict[str, Any]:
        started = self.actor_wg.update_weights(global_steps=version, mode=self.backend)
        calls = named(actors_of(self.actor_wg), started)
        outcome = await call_all(calls, seconds, "update_weights")
        if outcome.failures:
            raise self._sync_error(version, outcome.failures)
        for entry in self._roster.entries:
            entry.version = version
        self.version = version
        return {}

    # Small parts.

    def _round(self, active: list[Tracked]) -> Round:
        return Round.of(self.backend_cls, self.deadlines, self.actor_wg, active)

    def _keeps_group(self) -> bool:
        kwargs = self.config.engine_kwargs.get(self.backend, {})
        return capabilities_of(self.backend_cls).keeps_group and not kwargs.get(
            "rebuild_group", False
        )

    def _sync_error(
        self, version: int | None, failures: dict[Member, Failure], committed: Sequence[str] = ()
    ) -> SyncError:
        return _error(f"version {version}", failures, tuple(committed), tuple(self.quarantined))


def _error(
    what: str,
    failures: dict[Member, Failure],
    committed: tuple[str, ...] = (),
    quarantined: tuple[str, ...] = (),
) -> SyncError:
    order = sorted(failures.items(), key=lambda item: (item[1].kind.value, item[0]))
    lines = tuple((str(member), failure.reason) for member, failure in order)
    text = "; ".join(f"{label}: {reason}" for label, reason in lines)
    return SyncError(
        f"{what} did not reach every replica: {text}. Serving it: {', '.join(committed) or 'none'}. "
        f"Quarantined: {', '.join(quarantined) or 'none'}; call update_weights again, or remove_replicas "
        "and add_replicas for those whose process is gone",
        lines, committed, quarantined,
    )  # fmt: skip
