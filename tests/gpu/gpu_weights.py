"""Weights for the sync tests: random ones in the shapes of a real model, or a safetensors checkpoint."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import torch
import xxhash

NamedTensors = Iterator[tuple[str, torch.Tensor]]


def tiny_shapes() -> list[tuple[str, tuple[int, ...], torch.dtype]]:
    """A few tensors with everything that is awkward: empty, scalar, odd, larger than a bucket."""
    return [
        ("scalar", (), torch.float32),
        ("empty", (0, 7), torch.bfloat16),
        ("odd", (13,), torch.uint8),
        *((f"layer.{index}.weight", (257, 129), torch.bfloat16) for index in range(12)),
        ("embedding", (4099, 257), torch.bfloat16),
        ("norm", (257,), torch.float32),
    ]


def qwen_shapes() -> list[tuple[str, tuple[int, ...], torch.dtype]]:
    """The 290 tensors of Qwen2.5-0.5B, 988 MB in bfloat16."""
    hidden, intermediate, key_value, vocabulary = 896, 4864, 128, 151936
    layer = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.q_proj.bias": (hidden,),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.k_proj.bias": (key_value,),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.v_proj.bias": (key_value,),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (intermediate, hidden),
        "mlp.up_proj.weight": (intermediate, hidden),
        "mlp.down_proj.weight": (hidden, intermediate),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for index in range(24):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    return [(name, shape, torch.bfloat16) for name, shape in shapes.items()]


SHAPES = {"tiny": tiny_shapes, "qwen": qwen_shapes}


def random_weights(which: str, version: int, device: torch.device) -> NamedTensors:
    """Tensors whose bytes differ between versions and are the same in all processes."""
    for index, (name, shape, dtype) in enumerate(SHAPES[which]()):
        generator = torch.Generator(device).manual_seed(100_003 * version + index)
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        flat = torch.randint(
            0, 256, (nbytes,), dtype=torch.uint8, device=device, generator=generator
        )
        yield name, flat.view(dtype).view(shape)


def safetensors_weights(path: str, version: int, device: torch.device) -> NamedTensors:
    """All tensors of a checkpoint's files; the version is added to the first byte of each."""
    names = {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
        "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
        "U8": torch.uint8, "BOOL": torch.bool,
        "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    }  # fmt: skip
    files = sorted(Path(path).glob("*.safetensors")) if Path(path).is_dir() else [Path(path)]
    for file in files:
        with file.open("rb") as data:
            (length,) = struct.unpack("<Q", data.read(8))
            header = json.loads(data.read(length))
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                data.seek(8 + length + begin)
                flat = torch.zeros(end - begin, dtype=torch.uint8)
                flat.numpy()[:] = memoryview(data.read(end - begin))
                flat[:1] += version
                tensor = flat.view(names[entry["dtype"]]).view(entry["shape"])
                yield name, tensor.to(device)


def weights(source: str, version: int, device: torch.device) -> NamedTensors:
    """Weights of a name in `SHAPES`, or of the checkpoint at a path."""
    if source in SHAPES:
        return random_weights(source, version, device)
    return safetensors_weights(source, version, device)


def digest(tensor: torch.Tensor) -> str:
    """A text that two tensors share when dtype, shape and every byte are the same."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return f"{tensor.dtype} {tuple(tensor.shape)} {xxhash.xxh3_64_hexdigest(flat.numpy().data)}"
