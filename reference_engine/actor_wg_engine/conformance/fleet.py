"""Our manager over a fleet of fresh processes: an actor worker group and replicas with gates.

No Ray is started: the manager's references and handles only need to be awaitable, and those of
`processes` are. What a replica is told is written down, and what its servers hold can be read at any
time, so a check can see whether anything was served while it was a mix.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from actor_wg_engine.conformance import nursery
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.processes import RemoteMethod, WorkerHandle, gather
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped
from actor_wg_engine.conformance.session import describe, require_same
from actor_wg_engine.conformance.station import BACKEND, Station, recipe_of
from actor_wg_engine.conformance.weights import Recipe, fingerprints

T = TypeVar("T")
_WORKERS = "actor_wg_engine.conformance.fleet_workers"


class FleetHandle(WorkerHandle):
    """A handle whose death looks like that of a Ray actor."""

    def __getattr__(self, name: str) -> RemoteMethod:
        if name == "__ray_ready__":
            return RemoteMethod(self, "process_id")
        return super().__getattr__(name)

    def _death(self) -> Exception:
        from actor_wg_engine.conformance.fleet_workers import ProcessDiedError

        return ProcessDiedError(f"{self.name} (process {self.pid}) died")


class ActorGroup:
    """The actor worker group, as the manager sees it."""

    def __init__(self, workers: Sequence[FleetHandle]) -> None:
        self.workers = list(workers)

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return len(self.workers)

    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> list[Any]:
        """Start update_weights on all."""
        return [
            worker.submit("update_weights", global_steps=global_steps, mode=mode)
            for worker in self.workers
        ]

    def execute_checkpoint_engine(self, method: list[str], **lists: list[Any]) -> list[Any]:
        """Start one phase on all."""
        refs = []
        for rank, worker in enumerate(self.workers):
            name = method[rank]
            kwargs = {key: values[rank] for key, values in lists.items()}
            if name in ("abort", "status"):
                refs.append(worker.submit("control", name))
            else:
                refs.append(worker.submit("execute_checkpoint_engine", name, **kwargs))
        return refs


class FleetReplica:
    """One replica: its workers, and the gates that the manager opens and closes."""

    def __init__(self, replica_rank: int, handles: Sequence[FleetHandle]) -> None:
        self.replica_rank = replica_rank
        self.handles = list(handles)
        self.serving = True
        self.kv_cache = True
        self.calls: list[str] = []
        self.versions_at_resume: list[int | None] = []
        self.mixed: list[str] = []

    @property
    def workers(self) -> list[FleetHandle]:
        """The handles, by rank."""
        return self.handles

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Stop serving."""
        del reject_request
        self.calls.append("abort_all_requests")
        self.serving = False

    async def resume_generation(self) -> None:
        """Serve, and note what is served from now on."""
        self.calls.append("resume_generation")
        self.mixed += await asyncio.to_thread(self.find_mix)
        self.serving = True

    async def release_kv_cache(self) -> None:
        """Free the cache."""
        self.calls.append("release_kv_cache")
        self.kv_cache = False

    async def resume_kv_cache(self) -> None:
        """Have a cache again."""
        self.calls.append("resume_kv_cache")
        self.kv_cache = True

    async def sleep(self) -> None:
        """Free everything."""
        self.serving = self.kv_cache = False

    async def wake_up(self) -> None:
        """Undo sleep."""
        self.serving = self.kv_cache = True

    def find_mix(self) -> list[str]:
        """What is wrong with what the workers hold now; empty when it is one whole version."""
        found, versions = [], set()
        for worker in self.handles:
            version, held = worker.call("holds", timeout=5)
            versions.add(version)
            if version is None and not held:
                continue
            expected = sorted(map(str, fingerprints(recipe_of(version).stream())))
            if self._planned is None and sorted(map(str, held)) != expected:
                found.append(f"{worker.name} says {version} and holds something else")
        if len(versions) > 1:
            found.append(f"replica {self.replica_rank} serves {sorted(map(str, versions))} at once")
        self.versions_at_resume += list(versions)
        return found

    _planned: Recipe | None = None


class Fleet:
    """A manager and its workers; use as a context manager.

    Args:
        factory: Which engine.
        replicas: The number of workers of each replica.
        actors: How many actor workers.
        bucket_size: Bytes of a bucket.
        backend: The backend's name; with `custom_backend_module`, the one that it registers.
        custom_backend_module: Imported by the manager and every worker.
        path: A folder that every process imports from.
        in_place: Servers write over the old version instead of beside it.
        timeout: Seconds for one sync, and for connecting.

    Raises:
        CheckSkipped: The manager needs Ray, which is not installed.
    """

    def __init__(
        self,
        factory: EngineFactory,
        replicas: Sequence[int] = (1, 1),
        *,
        actors: int = 1,
        bucket_size: int = 1 << 20,
        backend: str = BACKEND,
        custom_backend_module: str | None = None,
        path: str | None = None,
        in_place: bool = False,
        timeout: float = 15.0,
    ) -> None:
        try:
            from actor_wg_engine import CheckpointEngineManager, Deadlines
        except ModuleNotFoundError as error:
            raise CheckSkipped(f"the manager cannot be imported here: {error}") from error
        self.timeout = timeout
        self._own_nursery: nursery.Nursery | None = None
        self._address = os.environ.get(nursery.ADDRESS, "")
        if not self._address:
            self._own_nursery = nursery.Nursery(["torch", __name__, factory.module])
            self._address = self._own_nursery.address
        self._station = Station(
            factory, bucket_size, backend, custom_backend_module, path, in_place
        )
        self._started = 0
        self._replica_ranks = 0
        self._everyone: list[FleetHandle] = []
        self._strike: threading.Thread | None = None
        self._planned: Recipe | None = None
        try:
            self.actors = [self._start(f"actor {i}", "FleetActor", i) for i in range(actors)]
            self.replicas: list[FleetReplica] = []
            for size in replicas:
                self.replicas.append(self._replica(size))
            gather([worker.ready for worker in self._everyone], 60)
            config = self._station.enter()
            self.manager = CheckpointEngineManager(
                config,
                ActorGroup(self.actors),
                list(self.replicas),
                deadlines=Deadlines(
                    sync_s=timeout, connect_s=timeout, replica_s=5, settle_s=1, abort_s=2
                ),
            )
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, kind: str, *args: Any) -> FleetHandle:
        handle = FleetHandle(self._address, name, f"{_WORKERS}:{kind}", self._station, *args)
        self._everyone.append(handle)
        return handle

    def _replica(self, size: int) -> FleetReplica:
        handles = []
        for _ in range(size):
            handles.append(self._start(f"rollout {self._started}", "FleetRollout"))
            self._started += 1
        self._replica_ranks += 1
        return FleetReplica(self._replica_ranks - 1, handles)

    @property
    def rollouts(self) -> list[FleetHandle]:
        """The rollout workers of all replicas, in order."""
        return [worker for replica in self.replicas for worker in replica.handles]

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._everyone:
            worker.close()
        if self._own_nursery is not None:
            self._own_nursery.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What a check does.

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop of its own."""
        return asyncio.run(coroutine)

    def plan(self, planned: Recipe | None) -> None:
        """Send this recipe instead of the one of the step."""
        self._planned = planned
        for replica in self.replicas:
            replica._planned = planned
        gather([worker.submit("plan", planned) for worker in self.actors], 10)

    def during(self, strike: Callable[[], object]) -> None:
        """Run `strike` on a thread beside the next sync."""
        self._strike = threading.Thread(target=strike, daemon=True)

    def update(self, step: int) -> None:
        """One sync that must succeed."""
        self.manager.update_weights(global_steps=step)

    def fail(self, step: int, names: Sequence[str]) -> BaseException:
        """One sync that must end with an error that contains one of `names`."""
        if self._strike is not None:
            self._strike.start()
        try:
            self.manager.update_weights(global_steps=step)
        except Exception as error:
            if not any(name in str(error) for name in names):
                raise CheckFailed(
                    f"the error names none of {', '.join(names)}: {describe(error)}"
                ) from error
            return error
        finally:
            if self._strike is not None:
                self._strike.join(1)
                self._strike = None
        raise CheckFailed("the sync ended as if nothing had happened")

    def require_idle(self, seconds: float) -> None:
        """No actor is still inside a send after so many seconds."""
        ends = time.monotonic() + seconds
        busy = list(self.actors)
        while busy and time.monotonic() < ends:
            time.sleep(0.05)
            busy = [worker for worker in busy if worker.call("busy")]
        if busy:
            raise CheckFailed(f"{busy[0].name} is still inside the sync after {seconds:g} s")

    def add(self, size: int) -> FleetReplica:
        """Start a replica and add it."""
        replica = self._replica(size)
        gather([worker.ready for worker in replica.handles], 60)
        self.add_again(replica)
        return replica

    def add_again(self, replica: FleetReplica) -> None:
        """Add a replica that exists."""
        self.manager.add_replicas([replica])
        self.replicas.append(replica)

    def remove(self, index: int) -> FleetReplica:
        """Remove the replica at a place of `replicas`."""
        replica = self.replicas.pop(index)
        self.manager.remove_replicas([replica])
        return replica

    def replace(self, index: int) -> None:
        """Remove a replica, kill what is left of it, and add a fresh one."""
        gone = self.remove(index)
        for worker in gone.handles:
            worker.kill()
        self.add(len(gone.handles))

    def recover(self, index: int | None, step: int) -> None:
        """Sync again; a replica that the manager holds for dead is taken out and put back first."""
        if index is not None:
            self.add_again(self.remove(index))
        self.update(step)

    # What must hold.

    def require_served(self, step: int, workers: int | None = None) -> None:
        """Every rollout worker serves exactly the weights of `step`, and is as many as expected."""
        rollouts = self.rollouts
        if workers is not None and len(rollouts) != workers:
            raise CheckFailed(f"{len(rollouts)} rollout workers instead of {workers}")
        expected = fingerprints((self._planned or recipe_of(step)).stream())
        order = {one.name: place for place, one in enumerate(expected)}
        for worker in rollouts:
            version, held = worker.call("holds")
            if version != step:
                raise CheckFailed(f"{worker.name} serves global step {version} instead of {step}")
            held.sort(key=lambda one: order.get(one.name, -1))
            require_same(held, expected, worker.name)

    def require_never_mixed(self) -> None:
        """No replica was, or is, told to serve while it held anything but one whole version."""
        for replica in self.replicas:
            found = list(replica.mixed)
            if replica.serving and all(worker.alive for worker in replica.handles):
                found += replica.find_mix()
            if found:
                raise CheckFailed("served a mix of versions: " + "; ".join(found))

    def require_not_serving(self, index: int) -> None:
        """A replica is not served unless it holds a whole version, and is named as such."""
        replica = self.replicas[index]
        label = f"replica {replica.replica_rank}"
        if not replica.serving and label not in self.manager.quarantined:
            raise CheckFailed(f"{label} is neither served nor named as quarantined")

    def require_gates_open(self, but: int | None = None) -> None:
        """Every replica that can serve does, with a KV cache; the others are named as quarantined."""
        for index, replica in enumerate(self.replicas):
            if index == but:
                continue
            label = f"replica {replica.replica_rank}"
            if label in self.manager.quarantined and self._station.in_place:
                continue
            if not (replica.serving and replica.kv_cache):
                raise CheckFailed(f"{label} was left without generation or without a KV cache")
