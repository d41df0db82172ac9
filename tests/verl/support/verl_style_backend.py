"""A backend as a verl user writes one: verl's base class, its split and merge, and a gloo group.

It has the limits of verl's own helpers; its weights must be contiguous and not empty.
"""

from __future__ import annotations

import datetime
import json

import torch
import torch.distributed as dist
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry
from verl.checkpoint_engine.base import TensorMeta, merge_weight_chunks, split_weight_chunks

TIMEOUT = datetime.timedelta(seconds=60)


@CheckpointEngineRegistry.register("verl_style")
class VerlStyleEngine(CheckpointEngine):
    """One broadcast per chunk, each behind a header of fixed size."""

    def __init__(self, bucket_size, is_master=False):
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.group = None
        self.store = None
        self.rank = None

    def prepare(self):
        if not self.is_master:
            return None
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return self.store.port

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        world_size = rollout_world_size + 1
        return (
            {
                "rank": [0] + [-1] * (actor_wg_world_size - 1),
                "world_size": [world_size] * actor_wg_world_size,
                "port": [metadata[0]] * actor_wg_world_size,
            },
            {
                "rank": list(range(1, world_size)),
                "world_size": [world_size] * rollout_world_size,
                "port": [metadata[0]] * rollout_world_size,
            },
        )

    def init_process_group(self, rank, world_size, port):
        self.rank = rank
        if rank < 0:
            return
        store = self.store or dist.TCPStore("127.0.0.1", port, wait_for_workers=False)
        self.group = dist.ProcessGroupGloo(dist.PrefixStore("g", store), rank, world_size, TIMEOUT)

    def finalize(self):
        self.group = self.store = None

    def _broadcast(self, tensor):
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self.group.broadcast([tensor], options).wait()

    async def send_weights(self, weights, global_steps=None):
        if self.rank < 0:
            for _ in weights:
                pass
            return
        async for meta, chunk in split_weight_chunks(weights, self.bucket_size):
            self._header(
                [meta.name, list(meta.shape), str(meta.dtype), meta.chunk_offset, meta.chunk_size]
            )
            self._broadcast(chunk.contiguous())
        self._header(None)

    def _header(self, value):
        text = json.dumps(value).encode().ljust(512)
        self._broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8))

    async def receive_weights(self, global_steps=None):
        async for name, tensor in merge_weight_chunks(self._chunks(), self.bucket_size):
            yield name, tensor

    async def _chunks(self):
        header = torch.empty(512, dtype=torch.uint8)
        while True:
            self._broadcast(header)
            value = json.loads(bytes(header.tolist()))
            if value is None:
                return
            name, shape, dtype, chunk_offset, chunk_size = value
            chunk = torch.empty(chunk_size, dtype=torch.uint8)
            self._broadcast(chunk)
            kind = getattr(torch, dtype.removeprefix("torch."))
            yield TensorMeta(name, torch.Size(shape), kind, chunk_offset, chunk_size, 0), chunk
