"""Seeded defects of the engine, each after one that a real engine has or had.

A defect is a function that patches our engine in the process that calls it; the conformance suite
runs it in every worker and in the driver before anything else. `caught_by` names the checks of which
at least one must fail.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from actor_wg_engine import bucket_engine, buckets, topology, wire, worker
from actor_wg_engine.bucket_engine import BucketEngine
from actor_wg_engine.buckets import Packer, Reassembler
from actor_wg_engine.errors import PeerLostError
from actor_wg_engine.host_ring import RingReader
from actor_wg_engine.relay import RelayLink
from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
from actor_wg_engine.wire import Header


@dataclass(frozen=True)
class Defect:
    """One seeded defect.

    Args:
        name: Of the function that plants it.
        caught_by: Ids of checks that must notice.
        after: The real defect that it stands for.
    """

    name: str
    caught_by: tuple[str, ...]
    after: str


DEFECTS: list[Defect] = []


def defect(caught_by: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a defect; its docstring says after which real one it is."""

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        after = (plant.__doc__ or "").strip().splitlines()[0]
        DEFECTS.append(Defect(plant.__name__, tuple(caught_by.split()), after))
        return plant

    return register


def _topology(change: Callable[[int, int, Any, Any], None]) -> None:
    """Let `change` alter what build_topology returns."""
    original = ColocatedCheckpointEngine.build_topology.__func__  # type: ignore[attr-defined]

    def build_topology(
        cls: Any, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> Any:
        sides = original(cls, actor_wg_world_size, rollout_world_size, metadata)
        change(actor_wg_world_size, rollout_world_size, *sides)
        return sides

    ColocatedCheckpointEngine.build_topology = classmethod(build_topology)  # type: ignore[assignment]


# Names and signatures.


@defect("A2")
def old_parameter_name() -> None:
    """An engine that still says trainer_world_size breaks callers that use keywords."""
    original = ColocatedCheckpointEngine.build_topology.__func__  # type: ignore[attr-defined]

    def build_topology(
        cls: Any, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> Any:
        return original(cls, trainer_world_size, rollout_world_size, metadata)

    ColocatedCheckpointEngine.build_topology = classmethod(build_topology)  # type: ignore[assignment]


@defect("A3")
def metadata_is_mutated() -> None:
    """A topology that writes into the metadata it was given is wrong on the second call."""
    original = topology.members

    def members(actor_wg_world_size: int, metadata: Any) -> Any:
        metadata[0]["generation"] += 1
        return original(actor_wg_world_size, metadata)

    topology.members = members


@defect("A4")
def unknown_options_are_swallowed() -> None:
    """A misspelled engine_kwargs entry is accepted and does nothing."""
    original = ColocatedCheckpointEngine.__init__

    def __init__(self: Any, bucket_size: int, is_master: bool = False, **kwargs: Any) -> None:  # noqa: N807
        kwargs.pop("no_such_argument", None)
        original(self, bucket_size, is_master, **kwargs)

    ColocatedCheckpointEngine.__init__ = __init__  # type: ignore[method-assign]


@defect("A8")
def metadata_holds_a_tensor() -> None:
    """Metadata that carries a tensor dies with its process, or drags the bucket through Ray."""
    original = ColocatedCheckpointEngine.describe

    def describe(self: Any) -> dict[str, Any]:
        return {**original(self), "bucket": torch.zeros(4)}

    ColocatedCheckpointEngine.describe = describe  # type: ignore[method-assign]


# Topology.


@defect("B9")
def lists_are_one_short() -> None:
    """A topology list that lacks an entry for the last worker."""

    def change(actors: int, rollouts: int, senders: Any, receivers: Any) -> None:
        receivers["session"] = receivers["session"][:-1]

    _topology(change)


@defect("B10")
def ranks_collide() -> None:
    """Two rollout workers get the same rank."""

    def change(actors: int, rollouts: int, senders: Any, receivers: Any) -> None:
        receivers["rank"] = [min(rank, 2) for rank in receivers["rank"]]

    _topology(change)


@defect("B11 B14")
def one_rollout_is_special() -> None:
    """A ring topology that is wrong for exactly one rollout rank."""

    def change(actors: int, rollouts: int, senders: Any, receivers: Any) -> None:
        if rollouts == 1:
            receivers["rank"] = [0]

    _topology(change)


@defect("B14b")
def no_replicas_is_a_type_error() -> None:
    """A world without rollouts ends in a TypeError about something else."""
    original = topology.check_worlds

    def check_worlds(actors: int, rollouts: int, metadata: Any) -> None:
        if rollouts < 1:
            raise TypeError("'NoneType' object is not subscriptable")
        original(actors, rollouts, metadata)

    topology.check_worlds = check_worlds


# Data.


@defect("C17")
def segments_are_not_aligned() -> None:
    """An odd-sized tensor before a wider dtype: storage_offset() must be divisible."""
    buckets.align = lambda nbytes: nbytes
    wire.ALIGNMENT = 1


@defect("C18")
def empty_tensors_are_lost() -> None:
    """Tensors without elements are silently left out."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        if tensor.numel():
            original(self, name, tensor)

    Packer.add = add  # type: ignore[method-assign]


@defect("C18")
def scalars_get_a_dimension() -> None:
    """Tensors of no dimension arrive with one."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        original(self, name, tensor.reshape(1) if tensor.dim() == 0 else tensor)

    Packer.add = add  # type: ignore[method-assign]


@defect("C19")
def values_are_recomputed() -> None:
    """Floats that pass through arithmetic lose NaN payloads and negative zeros."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        original(self, name, tensor + 0 if tensor.dtype == torch.float32 else tensor)

    Packer.add = add  # type: ignore[method-assign]


@defect("C20")
def strides_are_ignored() -> None:
    """A transposed tensor is sent in the order of its storage."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        if tensor.layout == torch.strided and not tensor.is_contiguous():
            source = tensor.detach()
            flat = source.as_strided((source.numel(),), (1,)) if _fits(source) else source
            tensor = flat.reshape(source.shape)
        original(self, name, tensor)

    Packer.add = add  # type: ignore[method-assign]


def _fits(tensor: torch.Tensor) -> bool:
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.storage_offset() + tensor.numel() <= held


@defect("C22b")
def bucket_size_is_not_checked() -> None:
    """A bucket size of zero is accepted, and the split never ends."""
    bucket_engine.check_bucket_size = lambda bucket_size: None


@defect("C22 C23")
def last_byte_of_a_chunk_is_lost() -> None:
    """A tensor that is split loses a byte at each border."""
    original = Reassembler._take

    def take(self: Any, meta: Any, chunk: torch.Tensor) -> Any:
        whole = meta.chunk_size == meta.shape.numel() * meta.dtype.itemsize
        if not whole and chunk.numel() > 1:
            chunk = chunk.clone()
            chunk[-1] = 0
        return original(self, meta, chunk)

    Reassembler._take = take  # type: ignore[method-assign]


@defect("C24")
def duplicates_overwrite() -> None:
    """A name that comes twice overwrites the first tensor."""
    add = Packer.add

    def forgetful_add(self: Any, name: str, tensor: torch.Tensor) -> None:
        self._names.discard(name)
        add(self, name, tensor)

    Packer.add = forgetful_add  # type: ignore[method-assign]
    Reassembler._refuse_repeats = lambda self, names, distinct: None  # type: ignore[method-assign]


@defect("C26")
def integers_become_floats() -> None:
    """Two backends cast int64 to bf16 with everything else."""

    def converted(self: Any, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if tensor.dtype == torch.int64 else tensor

    BucketEngine._converted = converted  # type: ignore[method-assign]


@defect("C29")
def truncation_is_success() -> None:
    """A stream that is cut inside a split tensor ends as success, with the tensor missing."""
    original = BucketEngine._fetch

    def fetch(self: Any, reassembler: Any, version: Any, deadline: Any) -> Any:
        try:
            return original(self, reassembler, version, deadline)
        except PeerLostError:
            reassembler.complete = True
            return []

    BucketEngine._fetch = fetch  # type: ignore[method-assign]
    BucketEngine._settle = lambda self, status, deadline: None  # type: ignore[method-assign]


@defect("C28")
def generator_error_ends_the_stream() -> None:
    """A generator that raises ends the stream as if it had been exhausted."""
    original = BucketEngine._stream_out

    def stream_out(self: Any, iterator: Any, version: Any, deadline: Any) -> Any:
        def swallowing() -> Iterator[Any]:
            with contextlib.suppress(Exception):
                yield from iterator

        return original(self, swallowing(), version, deadline)

    BucketEngine._stream_out = stream_out  # type: ignore[method-assign]


@defect("C30b")
def sources_are_copied_too_late() -> None:
    """Sources are read after the generator went on, when it may have reused their memory."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        waiting = self.__dict__.setdefault("waiting", [])
        waiting.append((name, tensor))
        if len(waiting) > 1:
            original(self, *waiting.pop(0))

    close = Packer.close

    def close_all(self: Any) -> None:
        for name, tensor in self.__dict__.pop("waiting", []):
            original(self, name, tensor)
        close(self)

    Packer.add = add  # type: ignore[method-assign]
    Packer.close = close_all  # type: ignore[method-assign]


@defect("C31")
def names_are_ascii() -> None:
    """Names are squeezed through ASCII."""
    original = Packer.add

    def add(self: Any, name: str, tensor: torch.Tensor) -> None:
        original(self, name.encode("ascii", "replace").decode(), tensor)

    Packer.add = add  # type: ignore[method-assign]


# Streaming and memory.


@defect("D32 D34")
def everything_is_buffered_first() -> None:
    """The whole model is collected before the first byte leaves."""
    original = BucketEngine._stream_out

    def stream_out(self: Any, iterator: Any, version: Any, deadline: Any) -> Any:
        return original(self, iter(list(iterator)), version, deadline)

    BucketEngine._stream_out = stream_out  # type: ignore[method-assign]


@defect("D34 D35")
def everything_is_received_first() -> None:
    """The receiver takes in the whole model before the consumer sees the first tensor."""
    original = BucketEngine.receive_weights

    async def receive_weights(self: Any, global_steps: int | None = None) -> Any:
        for item in [(name, t.clone()) async for name, t in original(self, global_steps)]:
            yield item

    BucketEngine.receive_weights = receive_weights  # type: ignore[method-assign]


@defect("D36 D36b C23")
def buckets_are_released_too_early() -> None:
    """Yielded tensors are views of a buffer that a later bucket overwrites."""
    original = Reassembler.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **{**kwargs, "lend": True})

    Reassembler.__init__ = __init__  # type: ignore[method-assign]


@defect("D37 G54")
def descriptors_leak() -> None:
    """Every sync leaves a socket open."""
    original = BucketEngine.finalize
    kept: list[socket.socket] = []

    def finalize(self: Any) -> None:
        kept.append(socket.socket())
        original(self)

    BucketEngine.finalize = finalize  # type: ignore[method-assign]


@defect("G54")
def groups_leak() -> None:
    """The old group is never closed when the members change."""

    def close_link(self: Any) -> None:
        self.__dict__.setdefault("old", []).append(self._link)
        self._link = self._stream = None

    BucketEngine._close_link = close_link  # type: ignore[method-assign]


@defect("D37")
def received_tensors_are_kept() -> None:
    """Every received set stays referenced."""
    original = Reassembler.feed
    kept: list[Any] = []

    def feed(self: Any, header: Header, bucket: torch.Tensor) -> Any:
        done = original(self, header, bucket)
        kept.append([tensor.clone() for _, tensor in done])
        return done

    Reassembler.feed = feed  # type: ignore[method-assign]


# Versions.


@defect("E39")
def version_is_not_checked() -> None:
    """There is no version on the wire that anybody looks at."""
    original = wire.decode

    def decode(frame: Any, stream: Any, sequence: Any, version: Any, bucket_size: Any) -> Any:
        return original(frame, stream, sequence, None, bucket_size)

    wire.decode = decode


@defect("E41b")
def old_generations_are_accepted() -> None:
    """A message of an aborted sync is taken for one of the next."""
    original = wire.decode

    def decode(frame: Any, stream: Any, sequence: Any, version: Any, bucket_size: Any) -> Any:
        generation = wire._PREFIX.unpack_from(frame)[4]
        same = wire.Stream(stream.session, generation)
        return original(frame, same, sequence, version, bucket_size)

    wire.decode = decode


@defect("E43")
def going_back_is_allowed() -> None:
    """A lower global step silently replaces a higher one."""
    from actor_wg_engine.manager import CheckpointEngineManager as Manager

    Manager._check_version = lambda self, version, force: None  # type: ignore[method-assign]


@defect("E40 H61")
def quarantine_is_not_kept() -> None:
    """A replica of which one worker failed is served again at once."""
    from actor_wg_engine.replicas import Tracked

    Tracked.shut_out = lambda self, reason, *, dead: None  # type: ignore[method-assign]


# Async.


@defect("F44")
def there_is_no_lock() -> None:
    """Two update_weights at once interleave; blocking the loop used to hide it."""
    from actor_wg_engine import calling

    async def nothing(self: Any, *_: Any) -> None:
        return None

    calling.Lock.__aenter__ = nothing  # type: ignore[method-assign]
    calling.Lock.__aexit__ = nothing  # type: ignore[method-assign]


@defect("F45")
def worker_loop_is_blocked() -> None:
    """Blocking calls inside async def: the loop stands still for the whole sync."""

    async def run(self: Any, job: Any) -> Any:
        result = self._submit(job).result()
        self._enter("connected")
        return result

    BucketEngine._run = run  # type: ignore[method-assign]


@defect("F45b")
def driver_loop_is_blocked() -> None:
    """ray.get inside async def."""
    from actor_wg_engine import rounds

    class Blocking(rounds.FanOut):  # type: ignore[type-arg]
        def __init__(self, calls: Any) -> None:
            for call in calls.values():
                with contextlib.suppress(Exception):
                    call.pending.result(20)
            super().__init__(calls)

    rounds.FanOut = Blocking  # type: ignore[misc]


@defect("F46")
def cancel_cleans_nothing() -> None:
    """wait_for returns and leaves the workers in the middle of the sync."""
    from actor_wg_engine.manager import CheckpointEngineManager as Manager

    async def clean_up(self: Any, active: Any, moving: bool) -> None:
        return None

    Manager._clean_up = clean_up  # type: ignore[method-assign]


@defect("F48")
def default_group_is_made() -> None:
    """The engine makes the default process group that the user's code wants to make."""
    import torch.distributed as dist

    original = ColocatedCheckpointEngine.describe

    def describe(self: Any) -> dict[str, Any]:
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return original(self)

    ColocatedCheckpointEngine.describe = describe  # type: ignore[method-assign]


@defect("B11 F49")
def outsiders_do_not_drain() -> None:
    """An actor with rank -1 leaves its generator alone, and the others hang in its collectives."""
    original = BucketEngine._send

    def send(self: Any, weights: Any, version: Any) -> Any:
        return {} if self.rank == topology.OUTSIDE else original(self, weights, version)

    BucketEngine._send = send  # type: ignore[method-assign]


# Faults.


@defect("H56 H56b H59")
def nothing_is_restored_after_a_failure() -> None:
    """No finally: the replicas stay aborted, without a KV cache."""
    from actor_wg_engine.manager import CheckpointEngineManager as Manager
    from actor_wg_engine.rounds import Round

    restore, move = Manager._restore, Round.move
    failed = []

    async def moving(self: Any, version: Any, mode: Any, seconds: Any) -> Any:
        outcome = await move(self, version, mode, seconds)
        failed[:] = list(outcome.failures)
        return outcome

    async def restoring(self: Any, active: Any) -> None:
        if not failed:
            await restore(self, active)

    Manager._restore = restoring  # type: ignore[method-assign]
    Round.move = moving  # type: ignore[method-assign]


@defect("C24 C28 H59b")
def a_failed_engine_stays_failed() -> None:
    """The next sync fails because nobody cleared the state of the last one."""
    original = BucketEngine._enter

    def enter(self: Any, state: str) -> None:
        if self._state != "failed":
            original(self, state)

    BucketEngine._enter = enter  # type: ignore[method-assign]


@defect("H59c")
def statuses_are_swallowed() -> None:
    """The sender does not ask whether its receivers got everything."""
    original = RelayLink.settle

    def settle(self: Any, status: str, deadline: Any) -> dict[int, str]:
        return dict.fromkeys(original(self, status, deadline), "")

    RelayLink.settle = settle  # type: ignore[method-assign]


@defect("H56b H58 C29 H57")
def a_lost_peer_is_waited_for() -> None:
    """A dead peer is noticed only by the transport's own timeout of many seconds."""
    original = RingReader.next_bucket

    def next_bucket(self: Any, deadline: Any) -> Any:
        try:
            return original(self, deadline)
        except PeerLostError:
            import time

            time.sleep(30)
            raise

    RingReader.next_bucket = next_bucket  # type: ignore[method-assign]


# Security.


@defect("I64")
def headers_are_pickles() -> None:
    """Pickles are read from a socket."""
    ColocatedCheckpointEngine.read_header = read_header  # type: ignore[attr-defined]
    ColocatedCheckpointEngine.__module__ = __name__


def read_header(self: Any, connection: socket.socket) -> Any:
    """What such an engine does."""
    return pickle.loads(connection.recv(1 << 16))


@defect("I64b")
def any_method_can_be_called() -> None:
    """execute_checkpoint_engine calls whatever method it is named."""
    worker._check_method = lambda method, allowed: None


@defect("I65")
def listens_on_every_address() -> None:
    """A listener is bound to the wildcard address."""
    original = ColocatedCheckpointEngine.describe

    def describe(self: Any) -> dict[str, Any]:
        self.listening = socket.create_server(("0.0.0.0", 0))
        return original(self)

    ColocatedCheckpointEngine.describe = describe  # type: ignore[method-assign]


@defect("I66")
def headers_are_not_verified() -> None:
    """A damaged header is believed."""
    wire.checksum = lambda data: 0


@defect("I67")
def files_are_left_behind() -> None:
    """A socket file or a segment is left in the temporary folder."""
    import tempfile

    original = ColocatedCheckpointEngine.describe

    def describe(self: Any) -> dict[str, Any]:
        tempfile.mkstemp(prefix="engine-")
        return original(self)

    ColocatedCheckpointEngine.describe = describe  # type: ignore[method-assign]
