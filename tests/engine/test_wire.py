"""Headers: what is not the header that is due is refused, and nothing is written."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import wire  # noqa: E402
from actor_wg_engine.contract import TensorMeta  # noqa: E402
from actor_wg_engine.errors import StaleBucketError, WireError  # noqa: E402

STREAM = wire.Stream(b"s" * 16, 3)
PAYLOAD = torch.arange(64, dtype=torch.uint8)
SEGMENT = TensorMeta("w", torch.Size([16]), torch.float32, 0, 64, 0)


def frame(segments=(SEGMENT,), *, stream=STREAM, version=7, sequence=2, payload=PAYLOAD, **kwargs):
    options = {"tensors": 1, "last": True, "checked": True, **kwargs}
    return wire.encode(stream, version, sequence, list(segments), payload, **options)


def decode(data, *, sequence=2, version=7, bucket_size=1024):
    return wire.decode(data, STREAM, sequence, version, bucket_size)


def test_a_header_comes_out_as_it_went_in():
    header = decode(frame())
    assert header.segments == (SEGMENT,)
    assert (header.version, header.sequence, header.tensors, header.last) == (7, 2, 1, True)
    wire.verify_payload(header, PAYLOAD)


@pytest.mark.parametrize("version", [None, 0, -1, 1 << 40])
def test_versions_travel(version):
    assert decode(frame(version=version), version=None).version == version


def test_a_failure_carries_its_reason():
    header = decode(wire.encode_failure(STREAM, 7, 2, "no more"), version=None)
    assert header.failure == "no more"
    assert header.last


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", WireError, "at least 80 are due"),
        (b"GET / HTTP/1.1\r\n" + b"x" * 80, WireError, "no header"),
        (frame(stream=wire.Stream(b"t" * 16, 3)), WireError, "another session"),
        (frame(stream=wire.Stream(b"s" * 16, 2)), StaleBucketError, "generation 2"),
        (frame(stream=wire.Stream(b"s" * 16, 4)), WireError, "generation 4"),
        (frame(sequence=1), WireError, "lost or repeated"),
        (frame(version=8), WireError, "sends version 8; this receiver expects 7"),
        (frame(version=None), WireError, "sends version None"),
        (frame()[:-1], WireError, "its prefix announced"),
        (frame(payload=torch.zeros(2048, dtype=torch.uint8)), WireError, "in a bucket of 1024"),
    ],
)
def test_a_header_that_is_not_due_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        decode(data)


def changed(**fields):
    values = {name: getattr(SEGMENT, name) for name in SEGMENT.__dataclass_fields__}
    return TensorMeta(**{**values, **fields})


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([changed(shape=torch.Size([17]))], None),
        ([changed(shape=torch.Size([8]))], "behind its tensor"),
        ([changed(offset=4)], "not aligned"),
        ([changed(offset=256)], "behind its bucket"),
        ([changed(), changed(name="v")], "overlaps"),
        ([changed(chunk_size=0)], "chunk of 0 bytes"),
        ([changed(chunk_offset=-64)], "at -64"),
        ([changed(name="n" * 70_000)], "too long"),
        ([changed(chunk_size=-64)], "chunk of -64"),
    ],
)
def test_segments_that_leave_their_bucket_or_tensor_are_refused(segments, message):
    data = frame(segments)
    if message is None:
        assert decode(data).segments == tuple(segments)
        return
    with pytest.raises(WireError, match=message):
        decode(data)


def test_a_torn_payload_is_noticed():
    header = decode(frame())
    torn = PAYLOAD.clone()
    torn[5] ^= 1
    with pytest.raises(WireError, match="payload checksum"):
        wire.verify_payload(header, torn)


def test_no_flipped_bit_survives():
    whole = frame()
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            with pytest.raises(WireError):
                decode(bytes(data))


def test_bodies_of_any_bytes_are_refused_or_valid():
    """With a right checksum, as a malicious peer would send it."""
    chance = random.Random(5)
    body = wire._encode_body(wire._Body(1, []))
    refused = 0
    for _ in range(3000):
        data = bytearray(frame()[wire.PREFIX_BYTES :] if chance.random() < 0.7 else body)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        made = wire._frame(STREAM, 7, 2, wire.LAST, bytes(data), chance.randint(0, 2), 64, 0)
        try:
            header = decode(made)
        except WireError:
            refused += 1
            continue
        for meta in header.segments:
            assert meta.offset >= 0
            assert meta.offset + meta.chunk_size <= 64
    assert refused > 1000
