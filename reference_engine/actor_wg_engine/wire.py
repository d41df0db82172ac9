"""The header that goes before each bucket: a fixed struct and a typed body, checked before any write.

    prefix   80 bytes: magic, protocol, flags, session, generation, version, sequence, sizes, checksums
    body     msgpack of the segments (or the text of an error), decoded into declared types only

The checksums are xxh3: one over prefix and body, one over the payload. They find broken transports
and torn buffers. Against strangers there is the session: 16 random bytes that only the workers of
this group know.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace
from math import prod

import msgspec
import torch
import xxhash

from actor_wg_engine.buckets import ALIGNMENT
from actor_wg_engine.contract import TensorMeta
from actor_wg_engine.errors import StaleBucketError, WireError

MAGIC = b"AWGB"
PROTOCOL = 1
_PREFIX = struct.Struct("<4sHH16sQqQIIQQQ")
PREFIX_BYTES = _PREFIX.size
_CHECKSUM_OFFSET = PREFIX_BYTES - 8

LAST = 1
"""No bucket follows."""
CHECKED = 2
"""The payload has a checksum."""
FAILED = 4
"""The source gave up; the body is the reason and no bucket follows."""

MAX_BODY_BYTES = 160 * 1024
MAX_NAME_BYTES = 64 * 1024
MAX_DIMENSIONS = 64
_NO_VERSION = -(1 << 63)
_MAX_BYTES = 1 << 62


def _dtype_names() -> dict[str, torch.dtype]:
    names = (
        "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 "
        "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
        "float8_e8m0fnu float4_e2m1fn_x2"
    )
    return {name: getattr(torch, name) for name in names.split() if hasattr(torch, name)}


DTYPES = _dtype_names()
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class _Segment(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    chunk_offset: int
    chunk_size: int
    offset: int


class _Body(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    tensors: int
    """Tensors completed up to and including this bucket."""
    segments: list[_Segment]


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


@dataclass(frozen=True)
class Stream:
    """Whose buckets these are; the same in every header of one group."""

    session: bytes
    """16 random bytes, made by the master."""
    generation: int
    """Counts the groups of one session; a message of an older one is stale."""


@dataclass(frozen=True)
class Header:
    """One decoded and validated header."""

    stream: Stream
    version: int | None
    sequence: int
    flags: int
    payload_bytes: int
    payload_checksum: int
    tensors: int = 0
    segments: tuple[TensorMeta, ...] = ()
    failure: str = ""
    body: bytes = b""
    """The encoded body; equal bodies mean equal segments, so what was built for one can be kept."""

    @property
    def last(self) -> bool:
        """Whether the stream ends with this bucket."""
        return bool(self.flags & (LAST | FAILED))


def checksum(data: torch.Tensor | bytes) -> int:
    """Return the xxh3 of bytes, or of a uint8 tensor in host memory."""
    return xxhash.xxh3_64_intdigest(
        memoryview(data.numpy()) if isinstance(data, torch.Tensor) else data  # type: ignore[arg-type]
    )


def body_size(name: str, shape: torch.Size) -> int:
    """Return an upper bound of what one segment adds to the body."""
    return 4 * len(name) + 9 * len(shape) + 64


def encode(
    stream: Stream,
    version: int | None,
    sequence: int,
    segments: list[TensorMeta],
    payload: torch.Tensor,
    *,
    tensors: int,
    last: bool,
    checked: bool,
    body: bytes | None = None,
) -> bytes:
    """Return the header of a bucket: prefix and body in one.

    Args:
        stream: session and generation.
        version: `global_steps`, or None.
        sequence: number of the bucket within the stream.
        segments: what lies where in the bucket.
        payload: the used part of the bucket, uint8.
        tensors: tensors completed up to and including this bucket.
        last: no bucket follows.
        checked: compute a checksum of the payload, which must be in host memory then.
        body: the encoded body, where it is known; see `Bodies`.
    """
    if body is None:
        body = encode_body(tensors, segments)
    flags = (LAST if last else 0) | (CHECKED if checked else 0)
    digest = checksum(payload) if checked else 0
    return _frame(stream, version, sequence, flags, body, len(segments), payload.numel(), digest)


def encode_body(tensors: int, segments: list[TensorMeta]) -> bytes:
    """Return the body of a header; see `encode`."""
    return _encode_body(
        _Body(
            tensors,
            [
                _Segment(
                    s.name, DTYPE_NAMES[s.dtype], tuple(s.shape),
                    s.chunk_offset, s.chunk_size, s.offset,
                )
                for s in segments
            ],
        )
    )  # fmt: skip


class Bodies:
    """The bodies of the last sync by the number of their bucket: the next one has most of them again."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, list[TensorMeta], bytes]] = {}

    def of(self, number: int, tensors: int, segments: list[TensorMeta]) -> bytes:
        """Return the body of bucket `number` of a sync."""
        kept = self._kept.get(number)
        if kept is None or kept[0] != tensors or kept[1] != segments:
            kept = self._kept[number] = (tensors, segments, encode_body(tensors, segments))
        return kept[2]


def encode_failure(stream: Stream, version: int | None, sequence: int, reason: str) -> bytes:
    """Return the header with which a source tells all receivers that it gave up."""
    body = reason.encode()[:4096].decode(errors="ignore").encode()
    return _frame(stream, version, sequence, FAILED, body, 0, 0, 0)


def _frame(
    stream: Stream, version: int | None, sequence: int, flags: int, body: bytes,
    segment_count: int, payload_bytes: int, digest: int,
) -> bytes:  # fmt: skip
    if len(body) > MAX_BODY_BYTES:
        raise WireError(f"header body of {len(body)} bytes; the limit is {MAX_BODY_BYTES}")
    prefix = _PREFIX.pack(
        MAGIC, PROTOCOL, flags, stream.session, stream.generation,
        _NO_VERSION if version is None else version,
        sequence, len(body), segment_count, payload_bytes, digest, 0,
    )[:_CHECKSUM_OFFSET]  # fmt: skip
    return prefix + checksum(prefix + body).to_bytes(8, "little") + body


def sizes(prefix: bytes, bucket_size: int) -> tuple[int, int]:
    """Return the sizes of body and payload that a prefix announces.

    For transports that must post a receive of the right size. Checks magic, protocol and limits;
    everything else is left to `decode`.

    Raises:
        WireError: this is not a prefix, or it announces more than a bucket holds.
    """
    if len(prefix) < PREFIX_BYTES:
        raise WireError(f"header of {len(prefix)} bytes; at least {PREFIX_BYTES} are due")
    magic, protocol, *_, body_bytes, _, payload_bytes, _, _ = _PREFIX.unpack_from(prefix)
    if magic != MAGIC:
        raise WireError(f"no header: it begins with {magic!r}")
    if protocol != PROTOCOL:
        raise WireError(
            f"protocol {protocol}; this side speaks {PROTOCOL}: use one version everywhere"
        )
    if body_bytes > MAX_BODY_BYTES:
        raise WireError(f"header body of {body_bytes} bytes; the limit is {MAX_BODY_BYTES}")
    if payload_bytes > bucket_size:
        raise WireError(f"payload of {payload_bytes} bytes in a bucket of {bucket_size}")
    return body_bytes, payload_bytes


def is_last(frame: bytes) -> bool:
    """Say whether a header, even one that is otherwise wrong, announces the end of the stream."""
    return len(frame) >= PREFIX_BYTES and bool(_PREFIX.unpack_from(frame)[2] & (LAST | FAILED))


def decode(
    frame: bytes, stream: Stream, sequence: int, version: int | None, bucket_size: int
) -> Header:
    """Check a header against what is due and return it. Touches no buffer.

    Args:
        frame: prefix and body.
        stream: the session and generation of this receiver.
        sequence: number of the bucket that is due.
        version: the version that is due; None accepts any.
        bucket_size: capacity of a bucket.

    Raises:
        StaleBucketError: a header of an earlier generation of this session.
        WireError: anything else that is not the header that is due.
    """
    body_bytes, payload_bytes = sizes(frame, bucket_size)
    (_, _, flags, session, generation, found_version, found_sequence, _, count, _, digest, frame_digest
     ) = _PREFIX.unpack_from(frame)  # fmt: skip
    body = frame[PREFIX_BYTES:]
    if len(body) != body_bytes:
        raise WireError(f"header body of {len(body)} bytes; its prefix announced {body_bytes}")
    if session != stream.session:
        raise WireError("header of another session: a stranger, or a worker of another group")
    if checksum(frame[:_CHECKSUM_OFFSET] + body) != frame_digest:
        raise WireError("header checksum differs: it was damaged on the way")
    if generation < stream.generation:
        raise StaleBucketError(f"header of generation {generation}; this is {stream.generation}")
    if generation != stream.generation or found_sequence != sequence:
        raise WireError(
            f"header {found_sequence} of generation {generation}; "
            f"due is {sequence} of {stream.generation}: a bucket was lost or repeated"
        )
    actual = None if found_version == _NO_VERSION else found_version
    if version is not None and actual != version:
        raise WireError(f"the source sends version {actual}; this receiver expects {version}")
    header = Header(stream, actual, found_sequence, flags, payload_bytes, digest, body=body)
    if flags & FAILED:
        return replace(header, failure=body.decode(errors="replace"))
    tensors, segments = _segments_of(body, count, payload_bytes)
    return replace(header, tensors=tensors, segments=segments)


@functools.lru_cache(maxsize=1024)
def _segments_of(body: bytes, count: int, payload_bytes: int) -> tuple[int, tuple[TensorMeta, ...]]:
    """Decode and check a body. Kept, as the buckets of the next sync are laid out the same."""
    try:
        decoded = _decode_body(body)
    except msgspec.DecodeError as error:
        raise WireError(f"header body does not decode: {error}") from error
    if len(decoded.segments) != count:
        raise WireError(f"{len(decoded.segments)} segments; the prefix announced {count}")
    segments = []
    end = 0
    for segment in decoded.segments:
        segments.append(_checked(segment, end, payload_bytes))
        end = segment.offset + segment.chunk_size
    return decoded.tensors, tuple(segments)


def _checked(segment: _Segment, end: int, payload_bytes: int) -> TensorMeta:
    """Return the segment as a tensor meta, provided that it lies inside its bucket and its tensor."""
    name = segment.name[:80]
    dtype = DTYPES.get(segment.dtype)
    if dtype is None:
        raise WireError(f"{name!r} has dtype {segment.dtype!r}, which this torch does not know")
    if len(segment.name) > MAX_NAME_BYTES or len(segment.shape) > MAX_DIMENSIONS:
        raise WireError(f"{name!r}: name or shape is too long")
    if any(size < 0 for size in segment.shape):
        raise WireError(f"{name!r} has the negative shape {segment.shape}")
    nbytes = prod(segment.shape) * dtype.itemsize
    if nbytes > _MAX_BYTES or any(size > _MAX_BYTES for size in segment.shape):
        raise WireError(f"{name!r} claims {nbytes} bytes")
    if (
        segment.chunk_offset < 0
        or segment.chunk_size < 0
        or (segment.chunk_size == 0) != (nbytes == 0)
    ):
        raise WireError(f"{name!r}: chunk of {segment.chunk_size} bytes at {segment.chunk_offset}")
    if segment.chunk_offset + segment.chunk_size > nbytes:
        raise WireError(f"{name!r}: the chunk ends behind its tensor of {nbytes} bytes")
    if segment.offset % ALIGNMENT or segment.offset < end:
        raise WireError(f"{name!r}: offset {segment.offset} is not aligned or overlaps {end}")
    if segment.offset + segment.chunk_size > payload_bytes:
        raise WireError(f"{name!r}: the chunk ends behind its bucket of {payload_bytes} bytes")
    return TensorMeta(
        segment.name, torch.Size(segment.shape), dtype,
        segment.chunk_offset, segment.chunk_size, segment.offset,
    )  # fmt: skip


def verify_payload(header: Header, payload: torch.Tensor) -> None:
    """Compare a received payload with the checksum of its header, where it has one.

    Raises:
        WireError: they differ.
    """
    if header.flags & CHECKED and checksum(payload) != header.payload_checksum:
        raise WireError(
            f"payload checksum of bucket {header.sequence} differs: it was damaged on the way"
        )
