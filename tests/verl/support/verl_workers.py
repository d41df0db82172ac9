"""Workers, replicas and worker groups of verl, with weights that need no model."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import ray
import torch
from verl.checkpoint_engine import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.import_utils import import_external_libs
from verl.workers.config import CheckpointEngineConfig, RolloutConfig
from verl.workers.rollout import BaseRollout, RolloutReplica

SHAPES = (
    ("embed", (3000, 64), torch.bfloat16),
    ("norm", (64,), torch.float32),
    ("odd", (7,), torch.uint8),
    ("wide", (33, 9), torch.float64),
    ("ids", (5,), torch.int64),
    ("mlp", (700, 500), torch.float32),
    ("scale", (), torch.float32),
)


def weights_at(step: int) -> Any:
    """The weights of a step; `odd` leaves what follows it unaligned."""
    generator = torch.Generator().manual_seed(step)
    for name, shape, dtype in SHAPES:
        yield name, torch.randint(0, 200, shape, generator=generator).to(dtype)


def digest(weights: Any) -> str:
    """A hash of names, types, shapes and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights, key=lambda item: item[0]):
        total.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class ActorWorker(Worker):
    """verl's side of the actor: an engine that sends."""

    def __init__(self, config: CheckpointEngineConfig) -> None:
        super().__init__()
        self.checkpoint_engine = new_engine(config, self.rank == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def use_engine(self, config: CheckpointEngineConfig) -> None:
        self.checkpoint_engine = new_engine(config, self.rank == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        return await self.checkpoint_engine.send_weights(
            weights_at(global_steps or 0), global_steps=global_steps
        )

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)


class MemoryServer(BaseRollout):
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.held: dict[str, torch.Tensor] = {}
        self.replica_rank = 0
        self.is_leader_rank = True

    async def resume(self, tags: list[str]) -> None:
        raise NotImplementedError

    async def release(self) -> None:
        raise NotImplementedError

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "", **_: Any
    ) -> None:
        self.held = {name: tensor.clone() async for name, tensor in weights}


class RolloutWorker(CheckpointEngineWorker):
    """verl's own rollout worker around such a server."""

    def __init__(self, rollout_config: RolloutConfig) -> None:
        super().__init__(rollout_config, None, MemoryServer())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def use_engine(self, config: CheckpointEngineConfig) -> None:
        self.checkpoint_engine = new_engine(config, is_master=False)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def digest(self) -> str:
        return digest(self.server_adapter.held.items())


class Replica(RolloutReplica):
    """A replica of verl without servers."""

    def get_ray_class_with_init_args(self) -> RayClassWithInitArgs:
        raise NotImplementedError

    async def launch_servers(self) -> None:
        return None


class Fleet:
    """verl's worker groups, started once; `use` gives all workers another backend.

    Args:
        actors: How many actor workers, each with one CPU.
        rollouts: How many rollout workers.
        module: The module that registers the backends.
    """

    def __init__(self, actors: int, rollouts: int, module: str) -> None:
        self._module = module
        self._groups: list[RayWorkerGroup] = []
        config = self._config("naive", {})
        self._actors = self._start(ActorWorker, actors, config=config)
        rollout_config = self._rollout_config(config)
        self._rollouts = self._start(RolloutWorker, rollouts, rollout_config=rollout_config)

    def use(
        self, backend: str, actors: int, rollouts: int, **engine_kwargs: Any
    ) -> tuple[CheckpointEngineConfig, RayWorkerGroup, RayWorkerGroup, list[Replica]]:
        """The first workers of each group, with new engines of a backend.

        Returns:
            Configuration, actor worker group, rollout worker group, and a replica per rollout.
        """
        config = self._config(backend, engine_kwargs)
        actor_wg, rollout_wg = (
            RayWorkerGroup(
                worker_handles=group.workers[:size], ray_cls_with_init=group.ray_cls_with_init
            )
            for group, size in ((self._actors, actors), (self._rollouts, rollouts))
        )
        actor_wg.use_engine(config)
        rollout_wg.use_engine(config)
        rollout_config = self._rollout_config(config)
        replicas = [Replica(rank, rollout_config, None) for rank in range(rollouts)]
        asyncio.run(_attach(replicas, rollout_wg))
        return config, actor_wg, rollout_wg, replicas

    def stop(self) -> None:
        """Kill all workers and give their CPUs back."""
        for group in self._groups:
            for worker in group.workers:
                ray.kill(worker)
            for placement_group in group.resource_pool.pgs:
                ray.util.remove_placement_group(placement_group)

    def _config(self, backend: str, engine_kwargs: dict[str, Any]) -> CheckpointEngineConfig:
        return CheckpointEngineConfig(
            backend=backend,
            update_weights_bucket_megabytes=1,
            engine_kwargs={backend: engine_kwargs},
            custom_backend_module=self._module,
        )

    def _rollout_config(self, config: CheckpointEngineConfig) -> RolloutConfig:
        return RolloutConfig(name="vllm", tensor_model_parallel_size=1, checkpoint_engine=config)

    def _start(self, cls: type, size: int, **kwargs: Any) -> RayWorkerGroup:
        pool = RayResourcePool([size], use_gpu=False, max_colocate_count=1)
        init = RayClassWithInitArgs(cls=ray.remote(cls), **kwargs)
        group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=init, device_name="cpu")
        self._groups.append(group)
        return group


async def _attach(replicas: list[Replica], rollout_wg: RayWorkerGroup) -> None:
    await asyncio.gather(*[replica.init_hybrid(rollout_wg) for replica in replicas])


def new_engine(config: CheckpointEngineConfig, is_master: bool) -> Any:
    """An engine as verl's own workers make it."""
    import_external_libs(config.custom_backend_module)
    kwargs = dict(config.engine_kwargs.get(config.backend, {}))
    if is_master:
        kwargs["is_master"] = True
    return CheckpointEngineRegistry.new(
        config.backend, bucket_size=config.update_weights_bucket_megabytes << 20, **kwargs
    )
