"""Views into buckets, kept over many syncs, as building one costs as much as copying 10 KB.

A view of a whole tensor has its dtype and shape; a view of a chunk is flat bytes. Over the same
memory, equal segments have equal views, and so have equal header bodies.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import torch

from actor_wg_engine.contract import TensorMeta

if TYPE_CHECKING:
    from actor_wg_engine.wire import Header


class Place(NamedTuple):
    """Where the source puts a segment."""

    segment: TensorMeta
    view: torch.Tensor
    body: int
    """Upper bound of what the segment adds to the header."""
    whole: bool
    end: int
    """Where the segment ends in the bucket."""


class Contents(NamedTuple):
    """What a received bucket holds."""

    views: list[torch.Tensor]
    names: tuple[str, ...]
    distinct: frozenset[str]
    whole: bool
    """Every segment is a whole tensor."""
    dtype: torch.dtype | None
    """The type of all of them, if they have one."""


class ViewCache:
    """The views of one engine.

    Args:
        limit: how many are kept for one bucket, and in how many layouts a bucket may come.
    """

    def __init__(self, limit: int = 16384) -> None:
        self._limit = limit
        self._contents: OrderedDict[tuple[int, bytes], Contents] = OrderedDict()
        self._plans: dict[int, dict[tuple[str, int], list[Place]]] = {}
        self._segments: dict[TensorMeta, TensorMeta] = {}

    def of(self, header: Header, bucket: torch.Tensor) -> Contents:
        """Return the contents of a received bucket."""
        key = (bucket.data_ptr(), header.body)
        contents = self._contents.get(key)
        if contents is None:
            segments = header.segments
            dtypes = {meta.dtype for meta in segments}
            names = tuple(meta.name for meta in segments)
            contents = Contents(
                [_view(meta, bucket) for meta in segments],
                names,
                frozenset(names),
                all(_is_whole(meta) for meta in segments),
                dtypes.pop() if len(dtypes) == 1 else None,
            )
            self._contents[key] = contents
            if len(self._contents) > self._limit // 16:
                self._contents.popitem(last=False)
        return contents

    def plan(self, bucket: torch.Tensor, first: TensorMeta) -> list[Place]:
        """Return what the source put into a bucket the last time it began so, in order; the caller keeps it."""
        plans = self._plans.setdefault(bucket.data_ptr(), {})
        key = (first.name, first.chunk_offset)
        if key not in plans and sum(map(len, plans.values())) > self._limit:
            plans.clear()
        return plans.setdefault(key, [])

    def place(self, bucket: torch.Tensor, segment: TensorMeta, body: int) -> Place:
        """Build the place of a segment; equal segments of all buckets are one and the same object."""
        if len(self._segments) > self._limit:
            self._segments.clear()
        segment = self._segments.setdefault(segment, segment)
        end = segment.offset + segment.chunk_size
        return Place(segment, _view(segment, bucket), body, _is_whole(segment), end)

    def clear(self) -> None:
        """Drop all views, so that the memory under them can be freed."""
        self._contents.clear()
        self._plans.clear()
        self._segments.clear()


def _is_whole(meta: TensorMeta) -> bool:
    return meta.chunk_size == meta.shape.numel() * meta.dtype.itemsize


def _view(meta: TensorMeta, bucket: torch.Tensor) -> torch.Tensor:
    chunk = bucket[meta.offset : meta.offset + meta.chunk_size]
    return chunk.view(meta.dtype).view(meta.shape) if _is_whole(meta) else chunk
