"""The contract of a checkpoint engine: names and order as in verl 0.9, the obligations spelled out.

One sync is six phases. The driver's `CheckpointEngineManager` starts each of them in all workers:

    phase               called in                  blocks until
    prepare             every worker               own buffers and listeners exist
    build_topology      the driver, no I/O         returns at once
    init_process_group  every worker               all peers of the group are connected
    send_weights        actor workers              every receiver reported its status
    receive_weights     rollout workers            the last tensor was consumed, status sent
    finalize            every worker               buffers, listeners and groups are released

An engine with `Capabilities.keeps_group` runs prepare, build_topology and init_process_group once
and then many syncs, until the membership changes or a sync fails; then finalize. All others run all
six phases in every sync. `finalize` runs after a failure too, and after it `prepare` may come again.

Threads: all methods are called on the worker's event loop, except `abort` and `status`, which come
from any thread while anything else is running, and must return at once. Blocking work belongs on
one thread of the engine's own, so the event loop of the worker never stands still.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

Weights = Iterable[tuple[str, "torch.Tensor"]]
Kwargs = dict[str, list[Any]]

#: What `execute_checkpoint_engine` may be asked for; any other name is refused.
CONTRACT_METHODS = frozenset({"prepare", "init_process_group", "finalize", "abort", "status"})
#: The part of them that must work while a sync is stuck.
CONTROL_METHODS = frozenset({"abort", "status"})


@dataclass(frozen=True)
class TensorMeta:
    """One segment of a bucket: a whole tensor, or one chunk of a tensor larger than a bucket."""

    name: str
    """The name of the tensor."""
    shape: torch.Size
    """The shape of the whole tensor."""
    dtype: torch.dtype
    """The dtype of the tensor."""
    chunk_offset: int
    """First byte of this chunk within the tensor; 0 unless the tensor was split."""
    chunk_size: int
    """Bytes of this chunk; 0 for a tensor without elements."""
    offset: int
    """First byte of this chunk within the bucket; a multiple of `buckets.ALIGNMENT`."""


@dataclass(frozen=True)
class CheckpointEngineConfig:
    """Configuration with the fields and the defaults of verl's.

    `engine_kwargs` maps a backend's name to the keyword arguments of its constructor.
    """

    backend: str = "naive"
    update_weights_bucket_megabytes: int = 2048
    engine_kwargs: dict[str, dict[str, Any]] = field(default_factory=dict)
    custom_backend_module: str | None = None


@dataclass(frozen=True)
class Capabilities:
    """What an engine promises beyond the six methods; the defaults promise nothing."""

    devices: tuple[str, ...] = ("cpu", "cuda")
    """Device types that the weights may live on."""
    keeps_group: bool = False
    """prepare and init_process_group once, then many syncs over the same group."""
    can_abort: bool = False
    """`abort` frees a stuck sync from another thread, and `status` answers meanwhile."""
    survives_receiver_loss: bool = False
    """The other receivers complete when one dies in the middle of a sync."""
    one_host: bool = False
    """All workers must be on one host."""
    in_place: bool = False
    """`receive_into` exists and writes straight into tensors of the caller."""
    carries_version: bool = False
    """`global_steps` travels with the data, and a receiver that expects another one fails."""


def capabilities_of(engine: type[Any] | Any) -> Capabilities:
    """Return what an engine or engine class declares; foreign ones declare nothing."""
    declared = getattr(engine, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


class CheckpointEngine(ABC):
    """Moves weights from an actor worker group to all workers of all rollout replicas.

    A backend's constructor takes `(bucket_size, is_master=False, **engine_kwargs)`. Exactly the
    engine of actor rank 0 is the master. The constructor is cheap: no sockets, no large buffers.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    wire_format: str = "named_tensors"
    """What `receive_weights` yields: (name, tensor) pairs."""

    @abstractmethod
    def prepare(self) -> Any:
        """Allocate buckets, open listeners, and describe this worker to the others.

        Called in every worker before `build_topology`. Blocks on nothing remote.

        Returns:
            The worker's metadata: plain data that any process can unpickle, without tensors or
            handles that die with this process.
        """

    @classmethod
    @abstractmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[Kwargs, Kwargs]:
        """Assign ranks and peers. Pure: no I/O, same input same output, input left alone.

        Called in the driver.

        Args:
            actor_wg_world_size: number of actor workers, at least 1.
            rollout_world_size: number of rollout workers over all replicas, at least 1.
            metadata: what `prepare` returned, actor workers first, then rollout workers.

        Returns:
            Keyword arguments of `init_process_group` for the actor workers and for the rollout
            workers. Every value is a list with one entry per worker of that group. Rank -1 means
            "not in the group, but exhaust the generator".

        Raises:
            TopologyError: the worlds or the metadata cannot form a group.
        """

    @abstractmethod
    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """Connect to the peers. Called in every worker with its entry of the topology.

        Blocks until all peers are there, at most for the engine's own timeout. After an error
        nothing stays connected and only `finalize` may follow.
        """

    @abstractmethod
    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> Any:
        """Send a stream of named tensors. Called in every actor worker.

        The engine iterates `weights` on its own thread, and always exhausts or closes it, also on
        failure and also where the rank is -1, as producing a weight may be a collective operation
        among the actors. A tensor is copied before the next is asked for; after the call returns
        its memory belongs to the caller again.

        Args:
            weights: pairs of name and tensor; a generator as a rule.
            global_steps: version of the weights; travels with the data.

        Raises:
            EngineError: naming each receiver that did not get everything.
        """

    @abstractmethod
    def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield each tensor once, complete. Called in every rollout worker.

        A yielded tensor belongs to the consumer, unless the engine was built to lend views: then
        it is valid until the next one is asked for. Ending without an error means that the whole
        set arrived. Closing the iterator early counts as a failure of this receiver only: it is
        reported to the source and the others complete.

        Args:
            global_steps: the version that the caller expects; None accepts any.

        Raises:
            EngineError: the stream broke or was wrong. The tensors yielded so far are a part of
                the new set, so in-place consumers are now a mix and must not be served.
        """

    @abstractmethod
    def finalize(self) -> None:
        """Release buckets, listeners and groups. Called in every worker, after failures too.

        Safe to call twice, and before `prepare`. Afterwards `prepare` may be called again.
        """

    def abort(self) -> None:
        """End whatever runs with an error, soon. Any thread; returns at once; safe to call twice.

        Only engines with `Capabilities.can_abort` have it. Afterwards only `finalize` may follow.
        """
        raise NotImplementedError(f"{type(self).__name__} does not declare can_abort")

    def status(self) -> dict[str, Any]:
        """Say what the engine is doing. Any thread; returns at once."""
        return {"state": "unknown", "engine": type(self).__name__}


class CheckpointEngineWithCache(CheckpointEngine):
    """An engine that keeps received weights until the replica has time to load them."""

    @abstractmethod
    def get_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield the weights of the newest complete version from the local cache."""
