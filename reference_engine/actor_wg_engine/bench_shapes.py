"""Parameter shapes of real models, as data: what the benchmarks move."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModelShapes:
    """The sizes that determine every parameter of a decoder with grouped-query attention."""

    name: str
    hidden: int
    layers: int
    intermediate: int
    vocabulary: int
    key_value: int
    """Width of the keys and of the values."""

    def parameters(self, layers: int | None = None) -> list[tuple[str, Shape]]:
        """Names and shapes in the order of the state dict; embeddings are tied.

        Args:
            layers: Only so many layers; all by default.
        """
        wide, narrow, inner = self.hidden, self.key_value, self.intermediate
        found: list[tuple[str, Shape]] = [("model.embed_tokens.weight", (self.vocabulary, wide))]
        for index in range(self.layers if layers is None else min(layers, self.layers)):
            block = f"model.layers.{index}"
            for part, size in (("q", wide), ("k", narrow), ("v", narrow)):
                found.append((f"{block}.self_attn.{part}_proj.weight", (size, wide)))
                found.append((f"{block}.self_attn.{part}_proj.bias", (size,)))
            found.append((f"{block}.self_attn.o_proj.weight", (wide, wide)))
            found.append((f"{block}.mlp.gate_proj.weight", (inner, wide)))
            found.append((f"{block}.mlp.up_proj.weight", (inner, wide)))
            found.append((f"{block}.mlp.down_proj.weight", (wide, inner)))
            found.append((f"{block}.input_layernorm.weight", (wide,)))
            found.append((f"{block}.post_attention_layernorm.weight", (wide,)))
        found.append(("model.norm.weight", (wide,)))
        return found


MODELS = {
    model.name: model
    for model in (
        ModelShapes("qwen2.5-0.5b", 896, 24, 4864, 151936, 128),
        ModelShapes("tiny", 64, 2, 160, 1000, 32),
        ModelShapes("qwen2.5-1.5b", 1536, 28, 8960, 151936, 256),
    )
}


def many_small() -> list[tuple[str, Shape]]:
    """1,000 tensors of 4 KiB each, in bf16."""
    return [(f"small.{index}", (2048,)) for index in range(1000)]


def one_large() -> list[tuple[str, Shape]]:
    """One tensor of the same bytes as `many_small`."""
    return [("large", (2048 * 1000,))]
