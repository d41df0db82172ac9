"""Recipes: named, repeatable streams of tensors. A recipe and its arguments travel; tensors do not.

Each function yields (name, tensor) pairs and is called on the sender, and again in the driver to
know what every receiver must hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actor_wg_engine.conformance.factory import resolve

if TYPE_CHECKING:
    import torch

    Named = Iterator[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Recipe:
    """A stream of tensors by its function's name; one of this module, or "package.module:function"."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def stream(self) -> Named:
        """Start the stream."""
        target = self.name if ":" in self.name else f"{__name__}:{self.name}"
        named: Named = resolve(target)(**dict(self.arguments))
        return named


def recipe(name: str, **arguments: Any) -> Recipe:
    """Shorthand for a `Recipe`."""
    return Recipe(name, tuple(sorted(arguments.items())))


@dataclass(frozen=True)
class Print:
    """What a tensor is, down to its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {self.shape} {self.digest[:8]}"


def fingerprint(name: str, tensor: torch.Tensor) -> Print:
    """The print of one tensor, wherever it lives."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return Print(
        str(name),
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        hashlib.blake2b(data, digest_size=16).hexdigest(),
    )


def fingerprints(named: Iterable[tuple[str, torch.Tensor]]) -> list[Print]:
    """The prints of a stream, in its order."""
    return [fingerprint(name, tensor) for name, tensor in named]


LADDER = (
    "uint8",
    "int8",
    "bool",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int64",
    "complex64",
)


def _bytes(count: int, seed: int) -> torch.Tensor:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


def _random(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    count = 1
    for size in shape:
        count *= size
    if kind is torch.bool:
        return (_bytes(count, seed) & 1).bool().reshape(shape)
    if count == 0:
        return torch.empty(shape, dtype=kind)
    return _bytes(count * kind.itemsize, seed).view(kind).reshape(shape)


def ladder(seed: int = 0) -> Named:
    """One tensor of each dtype, of a size that leaves the next one unaligned."""
    for index, dtype in enumerate(LADDER):
        yield f"ladder.{dtype}", _random((7, 3), dtype, seed + index)


def unaligned(seed: int = 0) -> Named:
    """Odd numbers of bytes before ever wider dtypes."""
    for index, dtype in enumerate(("float16", "float32", "float64", "complex64", "bfloat16")):
        yield f"odd.{index}", _random((2 * index + 1,), "uint8", seed + index)
        yield f"wide.{dtype}", _random((5,), dtype, seed + 50 + index)


def shapes(seed: int = 0) -> Named:
    """Scalars, empty tensors, single elements, odd sizes, a long first dimension."""
    wanted = ((), (0,), (0, 4), (3, 0, 2), (1,), (1, 1, 1), (17,), (4097, 3), (2, 3, 5, 7))
    for index, shape in enumerate(wanted):
        for dtype in ("float32", "bfloat16", "uint8"):
            yield f"shape.{index}.{dtype}", _random(shape, dtype, seed + index)


def special_values() -> Named:
    """NaNs with payloads, negative zero, subnormals and infinities, as bit patterns."""
    import torch

    half = torch.tensor([0x7C01, 0x7E55, -0x0400, -0x8000, 0x0001, 0x7C00], dtype=torch.int16)
    yield "half", half.view(torch.float16)
    yield (
        "bfloat",
        torch.tensor([0x7F81, 0x7FD5, -0x0080, -0x8000, 0x0001, 0x7F80], dtype=torch.int16).view(
            torch.bfloat16
        ),
    )
    yield (
        "single",
        torch.tensor(
            [0x7F800001, 0x7FC12345, -0x00800000, -0x80000000, 1, 0x7F800000], dtype=torch.int32
        ).view(torch.float32),
    )
    yield (
        "double",
        torch.tensor(
            [0x7FF0000000000001, 0x7FF8DEADBEEF0001, -0x8000000000000000, 1], dtype=torch.int64
        ).view(torch.float64),
    )


def layouts(seed: int = 0) -> Named:
    """Tensors that are not plain contiguous leaves."""
    import torch

    base = _random((12, 10), "float32", seed).nan_to_num(0.0)
    yield "transposed", base.t()
    yield "sliced", base[2:9:3, 1:7:2]
    yield "offset", base[3:, 4:]
    yield "expanded", base[:1].expand(6, 10)
    yield "strided.odd", _random((31,), "uint8", seed)[::3]
    yield "requires.grad", base.clone().requires_grad_(True)
    yield "parameter", torch.nn.Parameter(base.clone())
    with torch.inference_mode():
        inference = base + 1
    yield "inference", inference


def tied(rows: int = 64) -> Named:
    """Two names for one storage, and a third for a part of it."""
    shared = _random((rows, 32), "bfloat16", 5)
    yield "embed.weight", shared
    yield "head.weight", shared
    yield "head.part", shared[: rows // 2]


def around_bucket(bucket: int) -> Named:
    """Tensors of exactly a bucket, a byte less and more, ten buckets, and wide dtypes in odd places."""
    yield "exact", _random((bucket,), "uint8", 1)
    yield "less", _random((bucket - 1,), "uint8", 2)
    yield "more", _random((bucket + 1,), "uint8", 3)
    yield "ten", _random((10 * bucket // 4,), "float32", 4)
    yield "wide", _random((bucket // 8 + 3,), "float64", 5)
    yield "tail", _random((3,), "uint8", 6)


def mixed(seed: int = 0, reverse: bool = False, scale: int = 1) -> Named:
    """A small model: a few large tensors among many small ones."""
    items = [
        ("embed", (1000 * scale, 33), "bfloat16"),
        ("norm", (33,), "float32"),
        ("qkv.weight", (99, 33), "bfloat16"),
        ("qkv.bias", (99,), "bfloat16"),
        ("empty", (0, 33), "float32"),
        ("mask", (5,), "bool"),
        ("scale", (), "float32"),
        ("mlp.up", (133, 257 * scale), "float16"),
        ("ids", (7,), "int64"),
        ("mlp.down", (33, 133), "float32"),
    ]
    for index in reversed(range(len(items))) if reverse else range(len(items)):
        name, shape, dtype = items[index]
        yield f"model.{name}", _random(shape, dtype, seed * 1000 + index)


def blocks(count: int, nbytes: int, seed: int = 0) -> Named:
    """`count` tensors of `nbytes` bytes each, made one at a time and cheap to make."""
    import torch

    for index in range(count):
        tensor = torch.full((nbytes // 4,), seed * 100_000 + index, dtype=torch.int32)
        yield f"block.{index}", tensor


def nothing() -> Named:
    """No tensors at all."""
    return iter(())


def duplicate(first: int = 2) -> Named:
    """The same name twice, some tensors apart."""
    for index in range(first):
        yield f"weight.{index}", _random((9,), "float32", index)
    yield "weight.0", _random((9,), "float32", 99)


def long_names() -> Named:
    """Names with dots, spaces, quotes, letters beyond ASCII, and one of 4 KB."""
    names = (
        "plain",
        "dotted.name.0.weight",
        "with space",
        'quote"and\\backslash',
        "\u91cd\u307f.\u00e9.\U0001f9ee",
        "a" * 4096,
    )
    for index, name in enumerate(names):
        yield name, _random((3,), "float32", index)


def sparse() -> Named:
    """A sparse tensor between two dense ones."""
    import torch

    yield "dense.0", torch.ones(4)
    yield "sparse", torch.eye(4).to_sparse()
    yield "dense.1", torch.ones(4)


def meta() -> Named:
    """A tensor without data between two with."""
    import torch

    yield "dense.0", torch.ones(4)
    yield "meta", torch.empty(4, device="meta")
    yield "dense.1", torch.ones(4)
