"""A Ray cluster of three nodes on this machine: sync over all, kill a node, sync over the rest.

Runs in a process of its own, as it brings its own Ray. Writes what happened as JSON to the file that it is given.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actor_wg_engine import (
    CheckpointEngineConfig,
    CheckpointEngineManager,
    Deadlines,
    EngineError,
    WorkerGroup,
)
from actor_wg_engine.worker import ActorWorker, CheckpointEngineWorker


def weights(version: int | None) -> Any:
    for index in range(24):
        yield f"w{index}", torch.full((300_000 + index,), float((version or 0) * 100 + index))


class Slow:
    """Weights that take their time, so that a kill falls into the middle."""

    def __call__(self, version: int | None) -> Any:
        for name, tensor in weights(version):
            if version == 2:
                time.sleep(0.15)
            yield name, tensor


class Config:
    def __init__(self, checkpoint_engine: Any) -> None:
        self.checkpoint_engine = checkpoint_engine


class Rollout(CheckpointEngineWorker):
    def __init__(self, config: Any) -> None:
        super().__init__(Config(config))

    def wrong(self, version: int) -> list[str]:
        held = self.server_adapter.weights
        return [
            name for name, due in weights(version) if not torch.equal(held.get(name, due[:0]), due)
        ]

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


class Replica:
    def __init__(self, rank: int, workers: list[Any]) -> None:
        self.replica_rank, self.workers = rank, workers
        self.serving = self.cached = True

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self.serving = False

    async def resume_generation(self) -> None:
        self.serving = True

    async def release_kv_cache(self) -> None:
        self.cached = False

    async def resume_kv_cache(self) -> None:
        self.cached = True


def main() -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
        },
    )
    nodes = [cluster.add_node(num_cpus=4, object_store_memory=100 << 20) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        run(cluster, nodes)
    finally:
        ray.shutdown()
        cluster.shutdown()


def run(cluster: Cluster, nodes: list[Any]) -> None:
    """Sync, kill a node, sync; write down what happened."""
    group = placement_group([{"CPU": 3}] * 3, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=90)
    where_bundles = placement_group_table(group)["bundles_to_node_id"]
    joined = [node.node_id for node in nodes]
    # The actor goes to the head, so that the node to be killed is one that joined.
    bundles = sorted(where_bundles, key=lambda bundle: where_bundles[bundle] in joined)

    def spawn(cls: type, arguments: list[dict[str, Any]], place: int) -> list[Any]:
        strategy = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=bundles[place]
        )
        return WorkerGroup.spawn(cls, arguments, num_cpus=0.5, scheduling_strategy=strategy).workers

    config = CheckpointEngineConfig(backend="nccl", update_weights_bucket_megabytes=1)
    actor_wg = WorkerGroup(
        spawn(ActorWorker, [{"config": config, "weights": Slow(), "is_master": True}], 0)
    )
    # Replica 0 spans two nodes; 1 and 2 have one each; 3 shares the actor's.
    places = [[1, 2], [1], [2], [0]]
    replicas = [
        Replica(rank, [spawn(Rollout, [{"config": config}], place)[0] for place in spots])
        for rank, spots in enumerate(places)
    ]
    manager = CheckpointEngineManager(
        config, actor_wg, replicas, deadlines=Deadlines(sync_s=60, connect_s=60, replica_s=20)
    )
    manager.update_weights(global_steps=1)
    rollouts = [worker for replica in replicas for worker in replica.workers]
    first = ray.get([worker.wrong.remote(1) for worker in rollouts], timeout=60)
    where = ray.get([worker.node.remote() for worker in rollouts], timeout=60)
    doomed = next(node for node in nodes if node.node_id == where[3])

    killer = threading.Timer(1.0, lambda: cluster.remove_node(doomed, allow_graceful=False))
    killer.start()
    began = time.monotonic()
    error = ""
    try:
        manager.update_weights(global_steps=2)
    except EngineError as raised:
        error = str(raised)
    seconds = time.monotonic() - began
    killer.join()
    served = {
        replica.replica_rank: manager.versions[f"replica {replica.replica_rank}"]
        for replica in replicas
        if replica.serving and replica.cached
    }
    mixes = [
        (rank, ray.get(worker.wrong.remote(version), timeout=30))
        for rank, version in served.items()
        for worker in replicas[rank].workers
        if rank in (1, 3)
    ]
    gone = [replicas[0], replicas[2]]
    manager.remove_replicas(gone)
    asyncio.run(_update(manager, 3))
    last = [
        ray.get(worker.wrong.remote(3), timeout=30)
        for rank in (1, 3)
        for worker in replicas[rank].workers
    ]
    seen = {
        "nodes": len(set(where)),
        "first": first,
        "error": error,
        "seconds": seconds,
        "served": served,
        "mixes": mixes,
        "quarantined": sorted(manager.quarantined),
        "last": last,
    }
    Path(sys.argv[1]).write_text(json.dumps(seen))


async def _update(manager: Any, step: int) -> None:
    await manager.update_weights(global_steps=step)


if __name__ == "__main__":
    main()
