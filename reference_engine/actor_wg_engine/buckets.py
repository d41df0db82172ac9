"""Pure: named tensors <-> buckets. Placement, packing, and strict reassembly.

Every segment begins at a multiple of 256 bytes, so any dtype can be viewed where it lies. A tensor
that fits into a bucket is never split; a larger one is cut into chunks that fill the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from actor_wg_engine.contract import TensorMeta
from actor_wg_engine.errors import ReassemblyError, TensorError
from actor_wg_engine.views import Contents, Place, ViewCache

if TYPE_CHECKING:
    from actor_wg_engine.wire import Header

ALIGNMENT = 256

#: Where a receiver wants a tensor: a tensor of the right shape and dtype, or None to skip it.
Destination = Callable[[TensorMeta], "torch.Tensor | None"]


class Placement(NamedTuple):
    """Where one chunk goes."""

    fresh: bool
    """A new bucket must be begun first."""
    chunk_offset: int
    chunk_size: int
    offset: int


def align(nbytes: int) -> int:
    """Round up to the alignment of segments."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def place(nbytes: int, used: int, bucket_size: int) -> Iterator[Placement]:
    """Cut one tensor into chunks, beginning in a bucket of which `used` bytes are taken.

    Raises:
        ValueError: the bucket size is not positive.
    """
    check_bucket_size(bucket_size)
    offset = align(used)
    fresh = offset >= bucket_size or (nbytes <= bucket_size and offset + nbytes > bucket_size)
    done = 0
    while True:
        if fresh:
            offset = 0
        size = min(nbytes - done, bucket_size - offset)
        yield Placement(fresh, done, size, offset)
        done += size
        if done >= nbytes:
            return
        fresh = True


def check_bucket_size(bucket_size: object) -> None:
    """Refuse a bucket size that cannot hold a byte.

    Raises:
        ValueError: naming the configuration field to change.
    """
    if not isinstance(bucket_size, int) or isinstance(bucket_size, bool) or bucket_size <= 0:
        raise ValueError(
            f"bucket size is {bucket_size!r} bytes; set update_weights_bucket_megabytes to at least 1"
        )


def dense(name: object, tensor: object) -> torch.Tensor:
    """Return what can be copied byte by byte; a DTensor is gathered, a view is resolved.

    Raises:
        TensorError: there are no such bytes: sparse, meta, quantized, nested, or no tensor at all.
    """
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise TensorError(
            f"the weights yielded ({type(name).__name__}, {type(tensor).__name__}); "
            "pairs of a name and a tensor are due"
        )
    if type(tensor) is not torch.Tensor:
        gather = getattr(tensor, "full_tensor", None)
        tensor = tensor if gather is None else cast("torch.Tensor", gather())
    if tensor.is_meta:
        raise TensorError(f"{name!r} is a meta tensor without data; materialize it before the sync")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise TensorError(f"{name!r} has layout {tensor.layout}; send it dense (to_dense())")
    if tensor.is_quantized:
        raise TensorError(f"{name!r} is quantized; send its int_repr() and its scales as tensors")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor, flat; without a copy where it is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Packer:
    """Packs a stream of tensors into buckets. One per sync, on the source.

    Args:
        bucket_size: capacity of a bucket.
        acquire: returns a free bucket, a uint8 tensor of `bucket_size` bytes; may block.
        publish: takes the used part of a bucket, its segments, the number of tensors completed,
            and whether it is the last. The bucket belongs to the transport from then on.
        body_size: upper bound of what a segment adds to the header.
        max_body: a bucket is closed early before its header grows larger than this.
        views: keeps the views into the buckets over many syncs.
    """

    def __init__(
        self,
        bucket_size: int,
        acquire: Callable[[], torch.Tensor],
        publish: Callable[[torch.Tensor, list[TensorMeta], int, bool], None],
        body_size: Callable[[str, torch.Size], int],
        max_body: int,
        views: ViewCache | None = None,
    ) -> None:
        check_bucket_size(bucket_size)
        self._bucket_size = bucket_size
        self._acquire = acquire
        self._publish = publish
        self._body_size = body_size
        self._max_body = max_body
        self._views = views if views is not None else ViewCache()
        self._bucket: torch.Tensor | None = None
        self._plan: list[Place] = []
        self._segments: list[TensorMeta] = []
        self._used = 0
        self._body = 0
        self._names: set[str] = set()

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Copy one tensor into the current bucket and those after it.

        On a GPU the copy is ordered on the current stream; into host memory it is complete.

        Raises:
            TensorError: it cannot be sent, or its name was sent before.
        """
        # Most buckets hold what they held in the last sync, so the next place is known: a plan is cut where
        # something else comes, so all before it in the bucket is as it was.
        index = len(self._segments)
        if index < len(self._plan):
            segment, view, body, whole, end = self._plan[index]
            if (
                whole
                and segment.name == name
                and name not in self._names
                and self._body + body <= self._max_body
                and _is_like(tensor, segment)
            ):
                _copy(view, tensor)
                self._segments.append(segment)
                self._used = end
                self._body += body
                self._names.add(name)
                return
        self._add(name, dense(name, tensor))
        self._names.add(name)

    def _add(self, name: str, tensor: torch.Tensor) -> None:
        if name in self._names:
            raise TensorError(f"{name!r} was sent twice; each name may come once in a sync")
        shape, dtype, nbytes = tensor.shape, tensor.dtype, tensor.numel() * tensor.dtype.itemsize
        body = self._body_size(name, shape)
        if self._segments and self._body + body > self._max_body:
            self._close(last=False)
        chunks: torch.Tensor | None = None
        for fresh, chunk_offset, chunk_size, offset in place(nbytes, self._used, self._bucket_size):
            if fresh and self._segments:
                self._close(last=False)
            segment = TensorMeta(name, shape, dtype, chunk_offset, chunk_size, offset)
            found = self._place(segment, body)
            if found.whole:
                _copy(found.view, tensor)
            else:
                chunks = as_bytes(tensor) if chunks is None else chunks
                _copy(found.view, chunks[chunk_offset : chunk_offset + chunk_size])
            self._segments.append(found.segment)
            self._used = offset + chunk_size
            self._body += body

    def _place(self, segment: TensorMeta, body: int) -> Place:
        bucket, index = self.current(), len(self._segments)
        if index == 0:
            self._plan = self._views.plan(bucket, segment)
        if index < len(self._plan) and self._plan[index].segment == segment:
            return self._plan[index]
        found = self._views.place(bucket, segment, body)
        self._plan[index:] = [found]  # what came after came after something else
        return found

    def close(self) -> None:
        """Publish the last bucket, which may be empty."""
        self.current()
        self._close(last=True)

    def current(self) -> torch.Tensor:
        """Return the bucket that is being filled; acquire one where there is none."""
        if self._bucket is None:
            self._bucket = self._acquire()
        return self._bucket

    def _close(self, *, last: bool) -> None:
        bucket, segments = self.current()[: self._used], self._segments
        self._bucket, self._segments, self._used, self._body = None, [], 0, 0
        self._plan = []
        self._publish(bucket, segments, len(self._names), last)


class Reassembler:
    """Puts segments together again and notices whatever is missing. One per sync, on a receiver.

    Args:
        destination: where to write each tensor; None allocates.
        lend: yield views of the bucket where a tensor lies in it as a whole. They are valid until
            the bucket is released. Ignored with a destination.
        views: keeps the views of equal buckets over many syncs; see `ViewCache`.
    """

    def __init__(
        self,
        destination: Destination | None = None,
        *,
        lend: bool = False,
        views: ViewCache | None = None,
    ) -> None:
        self._destination = destination
        self._lend = lend and destination is None
        self._views = views if views is not None else ViewCache()
        self._names: set[str] = set()
        self._open: TensorMeta | None = None
        self._tensor: torch.Tensor | None = None
        self._bytes: torch.Tensor | None = None
        self._due = 0
        self.complete = False

    def feed(self, header: Header, bucket: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Take in one bucket and return the tensors that are complete with it.

        Args:
            header: the validated header.
            bucket: its payload. Unless views are lent, it may be reused after the return (on a
                GPU: after the current stream has reached this point).

        Raises:
            ReassemblyError: a gap, an overlap, a duplicate, an unknown name, a wrong destination,
                or an end with something missing.
        """
        if self.complete:
            raise ReassemblyError(f"bucket {header.sequence} came after the last one")
        contents = self._views.of(header, bucket)
        if contents.whole and self._open is None:
            done = self._take_all(header.segments, contents)
        else:
            done = []
            for meta, chunk in zip(header.segments, contents.views, strict=True):
                tensor = self._take(meta, chunk)
                if tensor is not None:
                    self._names.add(meta.name)
                    done.append((meta.name, tensor))
        if header.tensors != len(self._names):
            raise ReassemblyError(
                f"{len(self._names)} tensors are complete; the source completed {header.tensors}"
            )
        if header.last:
            self.finish()
        return done

    def finish(self) -> None:
        """Check that nothing is missing.

        Raises:
            ReassemblyError: the stream ended inside a tensor.
        """
        if self._open is not None:
            raise ReassemblyError(
                f"the stream ended inside {self._open.name!r}: {self._due} bytes of it arrived"
            )
        self.complete = True

    def _take_all(
        self, segments: tuple[TensorMeta, ...], contents: Contents
    ) -> list[tuple[str, torch.Tensor]]:
        """Take a bucket of whole tensors, with one call for all copies."""
        self._refuse_repeats(contents.names, contents.distinct)
        self._names |= contents.distinct
        views = contents.views
        if self._lend or not views:
            return list(zip(contents.names, views, strict=True))
        targets = [self._target(meta, views[0].device) for meta in segments]
        if views[0].device.type == "cpu" or contents.dtype in _FUSED:
            torch._foreach_copy_(targets, views, non_blocking=views[0].is_cuda)
        else:
            for target, view in zip(targets, views, strict=True):
                _copy(target, view)
        return list(zip(contents.names, targets, strict=True))

    def _refuse_repeats(self, names: tuple[str, ...], distinct: frozenset[str]) -> None:
        if len(distinct) == len(names) and self._names.isdisjoint(distinct):
            return
        for index, name in enumerate(names):
            if name in self._names or name in names[:index]:
                raise ReassemblyError(f"{name!r} came twice")

    def _take(self, meta: TensorMeta, chunk: torch.Tensor) -> torch.Tensor | None:
        nbytes = meta.shape.numel() * meta.dtype.itemsize
        if self._open is None:
            self._refuse_repeats((meta.name,), frozenset((meta.name,)))
            if meta.chunk_offset != 0:
                raise ReassemblyError(f"{meta.name!r} begins at byte {meta.chunk_offset}")
            if self._lend and meta.chunk_size == nbytes:
                return chunk
            self._begin(meta, chunk.device)
        elif (meta.name, meta.shape, meta.dtype) != (
            self._open.name, self._open.shape, self._open.dtype,
        ):  # fmt: skip
            raise ReassemblyError(f"{meta.name!r} came before {self._open.name!r} was complete")
        elif meta.chunk_offset != self._due:
            raise ReassemblyError(
                f"{meta.name!r}: the chunk begins at byte {meta.chunk_offset}, due is {self._due}"
            )
        self._due = meta.chunk_offset + meta.chunk_size
        if meta.chunk_size == nbytes:
            # The view has the tensor's own type then, and the destination may be non-contiguous.
            _copy(cast("torch.Tensor", self._tensor), chunk)
        else:
            target = cast("torch.Tensor", self._bytes)
            _copy(target[meta.chunk_offset : self._due], chunk)
        if self._due < nbytes:
            return None
        tensor = cast("torch.Tensor", self._tensor)
        self._open = self._tensor = self._bytes = None
        return tensor

    def _begin(self, meta: TensorMeta, device: torch.device) -> None:
        tensor = self._target(meta, device)
        whole = meta.chunk_size == meta.shape.numel() * meta.dtype.itemsize
        if not whole and not tensor.is_contiguous():
            raise ReassemblyError(
                f"{meta.name!r} is larger than a bucket; its destination must be contiguous"
            )
        self._open, self._tensor = meta, tensor
        self._bytes = None if whole else tensor.view(-1).view(torch.uint8)

    def _target(self, meta: TensorMeta, device: torch.device) -> torch.Tensor:
        """Return the destination of a tensor, or memory for it."""
        if self._destination is None:
            return torch.empty(meta.shape, dtype=meta.dtype, device=device)
        tensor = self._destination(meta)
        if tensor is None:
            raise ReassemblyError(f"{meta.name!r} is unknown to this receiver")
        if tensor.shape != meta.shape or tensor.dtype != meta.dtype:
            raise ReassemblyError(
                f"{meta.name!r} is {meta.dtype} {tuple(meta.shape)}; "
                f"its destination is {tensor.dtype} {tuple(tensor.shape)}"
            )
        return tensor.detach() if tensor.requires_grad else tensor


#: What a GPU copies many of with one kernel.
_FUSED = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8)
)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_like(tensor: object, meta: TensorMeta) -> bool:
    """Say whether this is a tensor as `dense` returns them, of the type and shape that is known."""
    return (
        type(tensor) in _PLAIN
        and isinstance(tensor, torch.Tensor)
        and tensor.dtype == meta.dtype
        and tensor.layout == torch.strided
        and not (tensor.is_meta or tensor.is_nested)
        and tensor.shape == meta.shape
    )


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy; only between two places on a GPU without waiting, as streams order nothing else."""
    if source.requires_grad:
        source = source.detach()
    target.copy_(source, source.is_cuda and target.is_cuda)
