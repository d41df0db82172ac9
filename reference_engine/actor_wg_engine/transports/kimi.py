"""Backend "kimi_ckpt_engine": offload to host memory, then many senders, each to one rollout rank first.

The weights are dealt out in shares, tensor `n` to share `n % shares`. The actor that owns a share
offloads it to host memory, so the generator ends early, and sends it in a group of its own: to one
rollout rank, another one for every share, and from there to the other rollouts. The rollouts take
tensors from the groups in turn, which restores the order.

This is the plan of Moonshot's checkpoint-engine. Moving a share is left to another backend, which the
registry finds by name. Offloading means that nothing is sent before the last weight was produced, and
that each owner needs host memory for its share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import torch

from actor_wg_engine import topology
from actor_wg_engine.buckets import check_bucket_size, dense
from actor_wg_engine.contract import Capabilities, CheckpointEngine, Kwargs, Weights
from actor_wg_engine.errors import EngineError, ReassemblyError, TopologyError
from actor_wg_engine.registry import CheckpointEngineRegistry

NamedTensor = tuple[str, torch.Tensor]
GroupKwargs = list[dict[str, Any] | None]


@CheckpointEngineRegistry.register("kimi_ckpt_engine")
class KIMICheckpointEngine(CheckpointEngine):
    """Offloads, then sends in shares; see the module.

    Args:
        bucket_size: upper bound of a bucket in bytes.
        is_master: this is the engine of actor rank 0.
        transport: the backend that moves a share, such as "nccl", "nixl" or "mooncake".
        shares: into how many shares the weights are dealt; more than there are actors is allowed.
        device: where the rollouts want the tensors; by default on a GPU where there is one.
        rollout_dtype: cast floating-point weights to this type while offloading; None does not.
        **kwargs: arguments of the other backend.

    Raises:
        ValueError: one of these makes no sense.
    """

    capabilities = Capabilities(keeps_group=True, can_abort=True, carries_version=True)

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        transport: str = "nccl",
        shares: int = 2,
        device: str | None = None,
        rollout_dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        check_bucket_size(bucket_size)
        if shares < 1 or transport == "kimi_ckpt_engine":
            raise ValueError(
                f"shares={shares}, transport={transport!r}: use 1 or more, and another"
            )
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._transport = transport
        self._cast = rollout_dtype
        # Which worker sends which share is known only in build_topology, so all can be the source.
        self._engines: list[Any] = [
            CheckpointEngineRegistry.new(
                transport, bucket_size=bucket_size, is_master=True, device="cpu", **kwargs
            )
            for _ in range(shares)
        ]
        self._joined: list[bool] = [False] * shares
        self._rank: int | None = None

    def prepare(self) -> dict[str, Any]:
        """Prepare to be the source, or a receiver, of every share."""
        return {
            "transport": self._transport,
            "shares": [engine.prepare() for engine in self._engines],
        }

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Give each share an actor and a first rollout rank, both in turn.

        Raises:
            TopologyError: an empty world, or workers that do not fit together.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        transport, shares = metadata[0]["transport"], len(metadata[0]["shares"])
        for index, entry in enumerate(metadata):
            if (entry["transport"], len(entry["shares"])) != (transport, shares):
                raise TopologyError(
                    f"worker {index} moves {len(entry['shares'])} shares over {entry['transport']!r}, "
                    f"the first {shares} over {transport!r}; configure all workers alike"
                )
        inner = CheckpointEngineRegistry.get(transport)
        actors: list[GroupKwargs] = [[None] * shares for _ in range(actor_wg_world_size)]
        rollouts: list[GroupKwargs] = [[None] * shares for _ in range(rollout_world_size)]
        for share in range(shares):
            owner = share % actor_wg_world_size
            order = [(share + place) % rollout_world_size for place in range(rollout_world_size)]
            members = [owner, *(actor_wg_world_size + rank for rank in order)]
            source, receivers = inner.build_topology(
                1, rollout_world_size, [metadata[member]["shares"][share] for member in members]
            )
            actors[owner][share] = {key: values[0] for key, values in source.items()}
            for place, rank in enumerate(order):
                rollouts[rank][share] = {key: values[place] for key, values in receivers.items()}
        owners = min(shares, actor_wg_world_size)
        world_size = owners + rollout_world_size
        outside = [topology.OUTSIDE] * (actor_wg_world_size - owners)
        return (
            {
                "rank": [*range(owners), *outside],
                "world_size": [world_size] * actor_wg_world_size,
                "groups": actors,
            },
            {
                "rank": list(range(owners, world_size)),
                "world_size": [world_size] * rollout_world_size,
                "groups": rollouts,
            },
        )

    def init_process_group(self, rank: int, world_size: int, groups: GroupKwargs) -> None:
        """Join the groups of the shares that this worker sends, or all groups on a rollout.

        Args:
            rank: this worker's rank; -1 when it owns no share and is no rollout.
            world_size: owners of shares and rollouts together.
            groups: for each share, what the other backend needs; None where it is not for us.

        Raises:
            EngineError: a peer did not come.
        """
        if len(groups) != len(self._engines) or rank >= world_size:
            raise TopologyError(f"rank {rank} of {world_size} got {len(groups)} groups")
        self._rank = rank
        for share, kwargs in enumerate(groups):
            self._joined[share] = kwargs is not None
            if kwargs is not None:
                self._engines[share].init_process_group(**kwargs)

    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> None:
        """Offload the own shares, exhaust the generator, then send the shares side by side.

        Raises:
            EngineError: not every rollout has everything.
        """
        if self._rank is None:
            raise EngineError("send_weights before init_process_group")
        owned = [share for share, joined in enumerate(self._joined) if joined]
        offloaded: list[Iterator[NamedTensor]]
        try:
            kept = await asyncio.to_thread(self._offload, weights, owned)
            offloaded = [iter(kept[share]) for share in owned]
        except Exception as error:
            # Sent as a stream that fails, so that the rollouts learn why nothing comes.
            broken: list[Iterator[NamedTensor]] = [_Raising(error) for _ in owned]
            await asyncio.gather(
                *self._sending(owned, broken, global_steps), return_exceptions=True
            )
            raise
        outcomes = await asyncio.gather(
            *self._sending(owned, offloaded, global_steps), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Take tensors from the groups in turn.

        Raises:
            EngineError: a share did not arrive, or not whole.
        """
        async with contextlib.AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(
                    contextlib.aclosing(engine.receive_weights(global_steps))
                )
                for engine in self._engines
            ]
            turn = 0
            while (item := await anext(streams[turn % len(streams)], None)) is not None:
                name, tensor = item
                yield name, tensor.to(self.device, non_blocking=True)
                turn += 1
            for offset in range(1, len(streams)):
                surplus = await anext(streams[(turn + offset) % len(streams)], None)
                if surplus is not None:
                    raise ReassemblyError(
                        f"share {turn % len(streams)} ended before {surplus[0]!r}"
                    )

    def finalize(self) -> None:
        """Leave all groups."""
        for engine in self._engines:
            engine.finalize()

    def abort(self) -> None:
        """End whatever runs."""
        for engine in self._engines:
            engine.abort()

    def status(self) -> dict[str, Any]:
        """Say what each share's engine is doing."""
        shares = [engine.status() for engine in self._engines]
        return {
            "state": shares[0]["state"],
            "rank": self._rank,
            "bytes": sum(share.get("bytes", 0) for share in shares),
            "shares": shares,
        }

    def _offload(self, weights: Weights, owned: list[int]) -> dict[int, list[NamedTensor]]:
        kept: dict[int, list[NamedTensor]] = {share: [] for share in owned}
        names: set[str] = set()
        with torch.no_grad():
            for index, (name, value) in enumerate(weights):
                tensor = dense(name, value)
                if name in names:
                    raise EngineError(f"{name!r} was sent twice; each name may come once in a sync")
                names.add(name)
                share = index % len(self._engines)
                if share not in kept:
                    continue
                if self._cast is not None and tensor.is_floating_point():
                    tensor = tensor.to(self._cast)
                copy = torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format)
                kept[share].append((name, copy.copy_(tensor)))
        return kept

    def _sending(
        self, owned: list[int], streams: list[Iterator[NamedTensor]], global_steps: int | None
    ) -> list[Any]:
        return [
            self._engines[share].send_weights(stream, global_steps)
            for share, stream in zip(owned, streams, strict=True)
        ]


class _Raising(Iterator[NamedTensor]):
    """A stream that fails before its first tensor."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __next__(self) -> NamedTensor:
        raise self._error
