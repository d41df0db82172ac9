"""Where a rollout worker keeps its weights: what a version is, and when it may be served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

import torch

from actor_wg_engine.buckets import Destination
from actor_wg_engine.contract import TensorMeta


class WeightStore:
    """A server adapter that only stores. It has two ways to take a new version in:

    - staged (the default): beside the old one, which is served until `commit_update`;
    - in place: over the old one, so from the first byte until the end there is no version to serve.

    Args:
        parameters: the tensors to write into; None stages.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor] | None = None) -> None:
        self.weights: dict[str, torch.Tensor] = dict(parameters or {})
        self.in_place = parameters is not None
        self._staged: dict[str, torch.Tensor] | None = None

    async def update_weights(
        self,
        weights: AsyncIterable[tuple[str, torch.Tensor]] | Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
    ) -> None:
        """Take in a whole new version.

        Args:
            weights: pairs of name and tensor.
            global_steps: the version.
            wire_format: only "named_tensors" is understood.

        Raises:
            ValueError: another wire format.
        """
        if wire_format != "named_tensors":
            raise ValueError(f"wire format {wire_format!r} is not understood")
        staged: dict[str, torch.Tensor] = {}
        async for name, tensor in _asynchronous(weights):
            if self.in_place:
                self.weights[name].copy_(tensor)
            else:
                staged[name] = tensor
        self._staged = staged

    def weight_destination(self) -> Destination | None:
        """Return where the engine may write directly; None where it must not."""
        return self._destination if self.in_place else None

    def commit_update(self, global_steps: int | None = None) -> None:
        """Serve the new version from now on."""
        if self._staged is not None and not self.in_place:
            self.weights = self._staged
        self._staged = None

    def discard_update(self) -> None:
        """Forget a version that is not to be served."""
        self._staged = None

    def _destination(self, meta: TensorMeta) -> torch.Tensor | None:
        return self.weights.get(meta.name)


async def _asynchronous(weights: Any) -> Any:
    if hasattr(weights, "__aiter__"):
        async for item in weights:
            yield item
        return
    for item in weights:
        yield item
        await asyncio.sleep(0)
