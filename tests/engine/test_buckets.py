"""Tensors into buckets and back: every byte, at any bucket size, and nothing else."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import buckets, wire  # noqa: E402
from actor_wg_engine.errors import ReassemblyError, TensorError  # noqa: E402

STREAM = wire.Stream(b"s" * 16, 3)
SIZES = [1, 7, 255, 256, 257, 1000, 4096, 1 << 20]


def pack(tensors, bucket_size, **kwargs):
    """The frames and payloads of a stream of tensors."""
    sent = []

    def publish(bucket, segments, done, last):
        frame = wire.encode(
            STREAM, 7, len(sent), segments, bucket, tensors=done, last=last, checked=True
        )
        sent.append((frame, bucket.clone()))

    def acquire():
        # Poisoned, so that bytes nobody wrote are noticed.
        return torch.full((bucket_size,), 0xAB, dtype=torch.uint8)

    packer = buckets.Packer(bucket_size, acquire, publish, wire.body_size, kwargs.get("body", 4096))
    for name, tensor in tensors:
        packer.add(name, tensor)
    packer.close()
    return sent


def unpack(sent, bucket_size, reassembler=None):
    reassembler = reassembler or buckets.Reassembler()
    found = []
    for index, (frame, payload) in enumerate(sent):
        header = wire.decode(frame, STREAM, index, 7, bucket_size)
        wire.verify_payload(header, payload)
        found += [(name, tensor.clone()) for name, tensor in reassembler.feed(header, payload)]
    return found, reassembler


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def ladder():
    generator = torch.Generator().manual_seed(1)
    names = (
        "uint8 int8 bool float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 int64 complex64"
    )
    for name in names.split():
        dtype = getattr(torch, name)
        size = 5 * dtype.itemsize
        data = torch.randint(0, 2 if dtype == torch.bool else 255, (size,), generator=generator)
        yield name, data.to(torch.uint8).view(dtype)
    yield "scalar", torch.tensor(3.5)
    yield "none", torch.empty(0, 4, dtype=torch.float64)
    yield (
        "nan",
        torch.tensor([0x7FC00001, -0x7FFFFFFF, 1, -0x00800000], dtype=torch.int32).view(
            torch.float32
        ),
    )
    yield "transposed", torch.rand(8, 9, generator=generator).t()
    yield "expanded", torch.rand(1, 5, generator=generator).expand(3, 5)
    yield "sliced", torch.rand(40, generator=generator)[3:33:2]
    yield "parameter", torch.nn.Parameter(torch.rand(3, generator=generator))
    yield "conjugate", torch.rand(3, dtype=torch.complex64, generator=generator).conj()
    yield "long", torch.rand(700, generator=generator)
    yield "long-transposed", torch.rand(30, 25, generator=generator).t()
    yield "n" * 4096, torch.rand(3, generator=generator)
    yield "schlüssel.gewicht", torch.rand(2, generator=generator)


@pytest.mark.parametrize("bucket_size", SIZES)
@pytest.mark.parametrize("lend", [False, True])
def test_every_tensor_comes_out_as_it_went_in(bucket_size, lend):
    tensors = list(ladder())
    sent = pack(tensors, bucket_size, body=1 << 16)
    found, reassembler = unpack(sent, bucket_size, buckets.Reassembler(lend=lend))
    assert reassembler.complete
    assert [name for name, _ in found] == [name for name, _ in tensors]
    for (name, due), (_, tensor) in zip(tensors, found, strict=True):
        assert tensor.dtype == due.dtype, name
        assert tensor.shape == due.shape, name
        assert torch.equal(raw(tensor), raw(due.resolve_conj())), name


@pytest.mark.parametrize("bucket_size", SIZES)
def test_destinations_are_filled_in_place(bucket_size):
    tensors = dict(ladder())
    targets = {name: torch.zeros_like(t.detach()).contiguous() for name, t in tensors.items()}
    sent = pack(tensors.items(), bucket_size, body=1 << 16)
    unpack(sent, bucket_size, buckets.Reassembler(lambda meta: targets[meta.name]))
    for name, due in tensors.items():
        assert torch.equal(raw(targets[name]), raw(due.resolve_conj())), name


def test_every_segment_is_aligned_and_a_fitting_tensor_is_whole():
    sent = pack(ladder(), 4096)
    for index, (frame, _) in enumerate(sent):
        for meta in wire.decode(frame, STREAM, index, 7, 4096).segments:
            assert meta.offset % buckets.ALIGNMENT == 0
            nbytes = meta.shape.numel() * meta.dtype.itemsize
            assert meta.chunk_size == nbytes or nbytes > 4096


@pytest.mark.parametrize(
    ("nbytes", "used", "bucket_size", "due"),
    [
        (0, 0, 100, [(False, 0, 0, 0)]),
        (100, 0, 100, [(False, 0, 100, 0)]),
        (101, 0, 100, [(False, 0, 100, 0), (True, 100, 1, 0)]),
        (10, 1, 300, [(False, 0, 10, 256)]),
        (100, 1, 300, [(True, 0, 100, 0)]),
        (0, 300, 300, [(True, 0, 0, 0)]),
        (900, 10, 512, [(False, 0, 256, 256), (True, 256, 512, 0), (True, 768, 132, 0)]),
    ],
)
def test_placement(nbytes, used, bucket_size, due):
    assert [tuple(p) for p in buckets.place(nbytes, used, bucket_size)] == due


@pytest.mark.parametrize("bucket_size", [0, -1, 1.5, None, True])
def test_a_bucket_size_that_holds_nothing_is_refused(bucket_size):
    with pytest.raises(ValueError, match="update_weights_bucket_megabytes"):
        list(buckets.place(1, 0, bucket_size))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(3).to_sparse(), "send it dense"),
        (lambda: torch.empty(3, device="meta"), "meta tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
        (lambda: "not a tensor", "pairs of a name and a tensor"),
    ],
)
def test_what_has_no_bytes_is_refused_by_name(make, message):
    with pytest.raises(TensorError, match=message):
        pack([("fine", torch.ones(1)), ("bad", make())], 4096)


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(TensorError, match="'w' was sent twice"):
        pack([("w", torch.ones(1)), ("w", torch.ones(1))], 4096)


def test_an_empty_stream_is_complete():
    found, reassembler = unpack(pack([], 10), 10)
    assert found == []
    assert reassembler.complete


BIG = [("a", torch.arange(1000, dtype=torch.float32)), ("b", torch.ones(3))]


def reordered(order, bucket_size=1024):
    """Feed buckets in an order of our choosing, as if each were the one that is due."""
    sent = pack(BIG, bucket_size)
    reassembler = buckets.Reassembler()
    for index in order:
        frame, payload = sent[index]
        reassembler.feed(wire.decode(frame, STREAM, index, 7, bucket_size), payload)
    return reassembler


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([1], "begins at byte"),
        ([0, 2], "due is"),
        ([0, 0], "due is"),
        ([0, 1, 2, 3, 4, 4], "came after the last one"),
    ],
)
def test_gaps_repeats_and_strays_are_noticed(order, message):
    with pytest.raises(ReassemblyError, match=message):
        reordered(order)


def test_a_stream_that_ends_inside_a_tensor_is_no_success():
    reassembler = reordered([0, 1])
    assert not reassembler.complete
    with pytest.raises(ReassemblyError, match="ended inside 'a'"):
        reassembler.finish()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "unknown to this receiver"),
        (torch.zeros(4), "its destination is"),
        (torch.zeros(3, dtype=torch.float64), "its destination is"),
    ],
)
def test_a_wrong_destination_is_refused_before_a_byte_is_written(target, message):
    sent = pack([("w", torch.ones(3))], 4096)
    with pytest.raises(ReassemblyError, match=message):
        unpack(sent, 4096, buckets.Reassembler(lambda _: target))
    assert target is None or not target.any()


def test_long_names_close_a_bucket_before_its_header_grows_too_large():
    tensors = [(f"{'n' * 900}{i}", torch.ones(1)) for i in range(20)]
    sent = pack(tensors, 1 << 20, body=8192)
    assert len(sent) > 1
    assert max(len(frame) for frame, _ in sent) < 8192 + wire.PREFIX_BYTES
    assert len(unpack(sent, 1 << 20)[0]) == 20
