"""The manager: the order of the phases, what is refused before a worker is touched, and its lock."""

from __future__ import annotations

import asyncio
import threading

import pytest

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from actor_wg_engine import CheckpointEngineConfig, CheckpointEngineManager, SyncError  # noqa: E402
from actor_wg_engine.calling import Lock, awaitable_or_blocking  # noqa: E402
from actor_wg_engine.errors import TopologyError  # noqa: E402


class Untouched:
    """A worker group that must not be called."""

    world_size = 1

    def __getattr__(self, name):
        raise AssertionError(f"{name} was called")


class Handles:
    """A replica that must not be called either."""

    def __init__(self, workers, rank=0):
        self.workers = workers
        self.replica_rank = rank


def manager(replicas, **config):
    return CheckpointEngineManager(CheckpointEngineConfig(**config), Untouched(), replicas)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"backend": "carrier pigeon"}, r"'carrier pigeon' is not available; available: "),
        ({"update_weights_bucket_megabytes": 0}, "bucket size is 0"),
        ({"update_weights_bucket_megabytes": -1}, "bucket size is -1"),
        ({"custom_backend_module": "no_such_module"}, "does not import"),
    ],
)
def test_a_bad_configuration_is_refused_at_once(config, message):
    with pytest.raises(ValueError, match=message):
        manager([], **config)


def test_the_same_replica_twice_is_refused():
    one = Handles(["a"])
    with pytest.raises(TopologyError, match="was given twice"):
        manager([one, one])
    with pytest.raises(TopologyError, match="was given twice"):
        manager([one]).add_replicas([one])


def test_a_worker_of_two_replicas_is_refused():
    with pytest.raises(TopologyError, match="also belongs to replica 0"):
        manager([Handles(["a", "b"], 0), Handles(["b"], 1)])


def test_without_any_replica_there_is_a_hint():
    with pytest.raises(TopologyError, match="call add_replicas"):
        manager([]).update_weights(global_steps=1)


def test_when_all_replicas_were_removed_nothing_happens():
    one = Handles(["a"])
    m = manager([one], backend="nccl")
    m.remove_replicas([one])
    m._retired.clear()
    assert m.update_weights(global_steps=1) == {}


def test_a_lower_version_needs_force():
    m = manager([Handles(["a"])])
    m.version = 5
    with pytest.raises(ValueError, match=r"version 4 is lower than 5, .* force=True"):
        m.update_weights(global_steps=4)


def test_a_world_size_that_is_not_the_number_of_workers_is_refused(world):
    w = world("naive", 1, [1])
    w.manager.actor_wg = Lying(w.actor_wg)
    with pytest.raises(TopologyError, match="world size 2 returned 1 references"):
        w.manager.update_weights(global_steps=1)
    assert all(replica.serving for replica in w.replicas)


class Lying:
    world_size = 2

    def __init__(self, group):
        self._group = group

    def execute_checkpoint_engine(self, method, **lists):
        return self._group.execute_checkpoint_engine(method[:1], **lists)


def test_a_sync_runs_in_order_on_every_replica(world):
    w = world("naive", 1, [1, 1])
    w.manager.update_weights(global_steps=1)
    due = ["abort_all_requests", "release_kv_cache", "resume_kv_cache", "resume_generation"]
    for rank in (0, 1):
        assert [what for who, what in w.log if who == rank] == due


class Recording:
    """A backend as a user of verl would write one; it writes down what it is asked for."""

    def __init__(self, bucket_size, is_master=False, fail_in=None):
        self.calls = []
        self.fail_in = fail_in if is_master else None

    def _note(self, what):
        self.calls.append(what)
        if what == self.fail_in:
            raise RuntimeError(f"{what} went wrong")

    def prepare(self):
        self._note("prepare")
        return {"calls": len(self.calls)}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        return (
            {"rank": list(range(actor_wg_world_size))},
            {"rank": list(range(rollout_world_size))},
        )

    def init_process_group(self, rank):
        self._note("init_process_group")

    async def send_weights(self, weights, global_steps=None):
        for _ in weights:
            pass
        self._note("send_weights")

    async def receive_weights(self, global_steps=None):
        self._note("receive_weights")
        yield "w", torch.ones(1)

    def finalize(self):
        self._note("finalize")

    def status(self):
        return self.calls


@pytest.fixture
def recording(world, tmp_path, monkeypatch):
    """A world whose backend comes from a module of the user's, named in the configuration."""
    module = tmp_path / "recording_backend.py"
    module.write_text(
        "import base64, pickle\n"
        "from actor_wg_engine.registry import CheckpointEngineRegistry\n"
        f"make = pickle.loads(base64.b64decode({pickled(Recording)!r}))\n"
        "CheckpointEngineRegistry.register('recording')(make)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(**kwargs):
        return world(
            "recording",
            2,
            [1],
            custom_backend_module="recording_backend",
            pythonpath=str(tmp_path),
            **kwargs,
        )

    return make


def pickled(cls):
    import base64

    return base64.b64encode(ray.cloudpickle.dumps(cls)).decode()


def calls_of(w):
    return ray.get(
        [worker.control.remote("status") for worker in [*w.actor_wg.workers, *w.rollouts]]
    )


def test_a_backend_that_declares_nothing_goes_through_all_phases_each_time(recording):
    w = recording()
    for version in (1, 2):
        w.manager.update_weights(global_steps=version)
    first = ["prepare", "init_process_group", "send_weights", "finalize"]
    then = ["prepare", "init_process_group", "receive_weights", "finalize"]
    assert calls_of(w) == [first * 2, first * 2, then * 2]


@pytest.mark.parametrize("phase", ["prepare", "init_process_group", "send_weights"])
def test_finalize_and_the_replicas_are_not_forgotten_after_a_failure(recording, phase):
    w = recording(fail_in=phase)
    with pytest.raises(SyncError, match=f"actor rank 0: RuntimeError: {phase} went wrong"):
        w.manager.update_weights(global_steps=1)
    assert {calls[-1] for calls in calls_of(w)} == {"finalize"}
    assert all(replica.serving for replica in w.replicas)
    assert all(replica.cached for replica in w.replicas)


def test_only_methods_of_the_contract_can_be_called_by_name(world):
    w = world("naive", 1, [1])
    for worker in (w.actor_wg.workers[0], w.rollouts[0]):
        with pytest.raises(ValueError, match="not a method of the contract"):
            ray.get(worker.execute_checkpoint_engine.remote("__init__"))
        with pytest.raises(ValueError, match="not a method of the contract"):
            ray.get(worker.control.remote("finalize"))


def test_replicas_come_and_go(world):
    w = world("naive", 1, [1, 1])
    w.manager.update_weights(global_steps=1)
    first = w.replicas[0]
    w.manager.remove_replicas([first])
    w.manager.update_weights(global_steps=2)
    w.manager.add_replicas([first])
    assert w.manager.versions == {"replica 1": 2, "replica 0": None}
    w.manager.update_weights(global_steps=3)
    assert w.manager.versions == {"replica 1": 3, "replica 0": 3}
    assert w.wrong(3) == [[], []]


def test_the_lock_lets_one_in_at_a_time_over_loops_and_threads():
    lock = Lock()
    inside = []
    most = []

    async def visit():
        async with lock:
            inside.append(1)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.pop()

    async def many():
        await asyncio.gather(*(visit() for _ in range(50)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1] * 200


def test_who_gives_up_waiting_for_the_lock_does_not_keep_it():
    async def main():
        lock = Lock()
        await lock.__aenter__()
        waiting = asyncio.create_task(lock.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await lock.__aexit__()
        await asyncio.wait_for(lock.__aenter__(), 1)

    asyncio.run(main())


def test_a_decorated_coroutine_blocks_without_a_loop_and_is_awaited_within_one():
    @awaitable_or_blocking
    async def answer():
        return 42

    async def main():
        return await answer()

    assert answer() == 42
    assert asyncio.run(main()) == 42
