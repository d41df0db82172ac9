"""Backends "nccl" and "hccl": torch.distributed with process groups of our own.

On CPU, backend "nccl" runs over gloo: shared memory inside a host, a chain of leaders across hosts.
"""

from __future__ import annotations

import socket
from typing import Any

import torch

from actor_wg_engine import topology
from actor_wg_engine.broadcast import BroadcastLink, nccl_shares_devices, open_group
from actor_wg_engine.bucket_engine import BucketEngine
from actor_wg_engine.contract import Capabilities, Kwargs
from actor_wg_engine.errors import EngineError, TopologyError
from actor_wg_engine.host import address, device_id, host_id
from actor_wg_engine.host_ring import SLOTS, HostRing, RingListener, RingReader
from actor_wg_engine.link import Link
from actor_wg_engine.registry import CheckpointEngineRegistry
from actor_wg_engine.relay import Pair, RelayLink
from actor_wg_engine.rendezvous import Rendezvous, c10d, listen
from actor_wg_engine.ring_memory import Memory
from actor_wg_engine.topology import Relay
from actor_wg_engine.waiting import AbortFlag, Deadline
from actor_wg_engine.wire import Stream

STAGING_BYTES = 4 << 20
_CHAIN_SLOTS = 8


@CheckpointEngineRegistry.register("nccl")
class TorchDistributedCheckpointEngine(BucketEngine):
    """NCCL broadcasts where there are GPUs, gloo's point-to-point sends where there are none.

    Args:
        bucket_size: capacity of a bucket in bytes; on CPU an upper bound.
        is_master: this is the engine of actor rank 0.
        group_name: distinguishes engines in messages, as in verl.
        device: "cuda", "npu" or "cpu"; None takes the accelerator where there is one.
        collective: on CPU too, use one collective broadcast instead of rings and a chain. For
            comparison; on an accelerator this is always so.
        shared_memory: False treats each worker as a host of its own (CPU only).
        staging_bytes: on CPU the buckets are this large at most.
        **kwargs: as `BucketEngine`.
    """

    capabilities = Capabilities(
        devices=("cpu", "cuda"),
        keeps_group=True,
        can_abort=True,
        survives_receiver_loss=True,
        in_place=True,
        carries_version=True,
    )

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        group_name: str = "default",
        device: str | None = None,
        collective: bool = False,
        shared_memory: bool = True,
        staging_bytes: int = STAGING_BYTES,
        **kwargs: Any,
    ) -> None:
        super().__init__(bucket_size, is_master, **kwargs)
        self.group_name = group_name
        self.device = device or self.default_device()
        self._collective = collective or self.device != "cpu"
        self._shared_memory = shared_memory
        self._staging = min(bucket_size, staging_bytes)
        self._listener: RingListener | None = None
        self._store_listener: socket.socket | None = None
        self._gloo_device: Any = None

    @classmethod
    def default_device(cls) -> str:
        """Return the device type of this machine that the backend uses."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def describe(self) -> dict[str, Any]:
        """Name host, device, and the sockets where readers and other hosts connect."""
        if self._listener is None:
            self._listener = RingListener()
        if self.is_master and self._store_listener is None:
            self._store_listener = listen(address())
        store = self._store_listener.getsockname()[:2] if self._store_listener else None
        host = host_id() if self._shared_memory else f"{host_id()}/{self._listener.name}"
        return {
            "host": host,
            "ring": self._listener.name,
            "store": list(store) if store else None,
            "device_type": self.device,
            "collective": self._collective,
            "device": device_id(self.device),
            "shares_device": self.device == "cuda" and nccl_shares_devices(),
        }

    def withdraw(self) -> None:
        """Stop listening."""
        for listener in (self._listener, self._store_listener):
            if listener is not None:
                listener.close()
        self._listener = self._store_listener = None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Put the source first and all rollout workers behind it.

        Raises:
            TopologyError: an empty world, mixed device types, or two ranks on one GPU.
        """
        topology.check_worlds(actor_wg_world_size, rollout_world_size, metadata)
        entries = topology.members(actor_wg_world_size, metadata)
        kinds = sorted({entry["device_type"] for entry in entries})
        if len(kinds) > 1:
            raise TopologyError(
                f"the workers use {' and '.join(kinds)}; set device to one of them for all"
            )
        topology.check_devices(
            entries,
            "the broadcast",
            " (NCCL 2.30 and newer can, slowly, with NCCL_MULTI_RANK_GPU_ENABLE=1 in both workers)",
        )
        common = topology.common_kwargs(entries)
        relays = topology.relay([entry["host"] for entry in entries])
        if entries[0].get("collective", kinds[0] != "cpu"):
            # The collective library finds its own way; everybody meets at the store.
            relays = [Relay() for _ in entries]
        common["relay"] = relays
        owners = [
            entries[relay.owner]["ring"] if relay.owner is not None else "" for relay in relays
        ]
        common["ring"] = owners
        common["store"] = [entries[0]["store"]] * len(entries)
        leaders = [rank for rank, relay in enumerate(relays) if rank and relay.owner is None]
        common["leaders"] = [leaders] * len(entries)
        nothing = {"relay": Relay(), "ring": "", "store": None, "leaders": []}
        return topology.spread(actor_wg_world_size, common, {**topology.outside(common), **nothing})

    def connect(
        self, flag: AbortFlag, deadline: Deadline, *, rank: int, world_size: int, stream: Stream,
        relay: Relay, ring: str, store: list[Any], leaders: list[int],
    ) -> Link:  # fmt: skip
        """Join the ring of the host, or lead it; connect to the neighboring leaders."""
        if self._collective:
            return self._join(flag, deadline, rank, world_size, stream, store)
        if relay.owner is not None:
            return RingReader(relay.owner, ring, rank, stream, flag, deadline)
        upstream = downstream = None
        if relay.upstream is not None or relay.downstream is not None:
            meeting = Rendezvous(store, stream, flag, deadline, self._take_store_listener())
            device = self._network()
            if relay.upstream is not None:
                upstream = Pair(meeting, device, rank, relay.upstream, flag, deadline)
            if relay.downstream is not None:
                downstream = Pair(
                    meeting, self._gloo_device, rank, relay.downstream, flag, deadline
                )
            # The store is the master's: it must not go before everybody is done with it.
            meeting.meet("end", rank, [] if rank else leaders)
        # Across hosts a deeper ring hides the delay of each hop. It takes no more memory than three
        # buckets of the configured size.
        deepest = 3 * self.bucket_size // self._staging
        slots = min(_CHAIN_SLOTS, max(SLOTS, deepest)) if upstream or downstream else SLOTS
        host_ring = HostRing.open(
            self._listener,
            relay.readers,
            stream,
            Memory.create(slots, self._staging),
            flag,
            deadline,
        )
        return RelayLink(rank, relay, host_ring, upstream, downstream, flag)

    def _join(
        self, flag: AbortFlag, deadline: Deadline, rank: int, world_size: int, stream: Stream,
        store: list[Any],
    ) -> Link:  # fmt: skip
        """Join the one collective group."""
        meeting = Rendezvous(store, stream, flag, deadline, self._take_store_listener())
        everybody = [other for other in range(world_size) if other != rank]
        meeting.meet("start", rank, everybody)
        seconds = deadline.remaining("process group")
        place = meeting.store("group")
        network = self._network() if self.device == "cpu" else None
        group = open_group(self.device, network, place, rank, world_size, seconds)
        bucket_size = self._staging if self.device == "cpu" else self.bucket_size
        device = torch.device(self.device)
        if self.device != "cpu":
            device = torch.device(self.device, torch.get_device_module(device).current_device())
        link = BroadcastLink(group, rank, world_size, bucket_size, device, flag)
        # Connects an accelerator's communicator now, while the store is there.
        link.settle("", deadline)
        meeting.meet("end", rank, [] if rank else everybody)
        return link

    def _network(self) -> Any:
        if self._gloo_device is None:
            self._gloo_device = c10d.ProcessGroupGloo.create_device(
                hostname=address(), lazy_init=False
            )
        return self._gloo_device

    def _take_store_listener(self) -> socket.socket | None:
        listener, self._store_listener = self._store_listener, None
        return listener


@CheckpointEngineRegistry.register("hccl")
class HCCLCheckpointEngine(TorchDistributedCheckpointEngine):
    """The same over HCCL on Ascend NPUs. Elsewhere it plans, and refuses to prepare."""

    capabilities = Capabilities(
        devices=("npu",), keeps_group=True, can_abort=True, in_place=True, carries_version=True
    )

    @classmethod
    def default_device(cls) -> str:
        """Always the NPU: there is no fallback that would deserve the name."""
        return "npu"

    def describe(self) -> dict[str, Any]:
        """Describe this worker.

        Raises:
            EngineError: there is no NPU here.
        """
        if not hasattr(torch, "npu"):
            raise EngineError(
                "backend 'hccl' needs an Ascend NPU and the package torch_npu, which are not here; "
                "use 'nccl' on GPUs and on CPU"
            )
        return super().describe()
