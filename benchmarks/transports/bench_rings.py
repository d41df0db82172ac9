"""Sync over NIXL and Mooncake next to their raw transfer of the same bytes, in the same processes.

    python benchmarks/transports/bench_rings.py [nixl|mooncake ...] [--megabytes 512] [--rounds 7]

Two processes on this machine, one source and one receiver. In every round each of these runs once, in
turn, so that what else the machine does hits all alike: a single-threaded copy, the raw transfer (in
the engine's piece size and in pieces of 64 MiB; the faster counts), and the sync with and without
checksums, into tensors that the receiver has. Printed are the best times, and ratios of them; the
must is a sync in at most 1.3 times the raw transfer.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from raw_primitives import RAW

from actor_wg_engine import CheckpointEngineRegistry

MUST = 1.3
LARGE_PIECE = 64 << 20
KINDS = ("copy", "raw", "raw large", "sync", "sync unchecked")


def tensors(megabytes: int) -> dict[str, torch.Tensor]:
    """bfloat16 tensors of mixed sizes, from 2 KB to 16 MB, of so many megabytes together."""
    left, index = megabytes << 20, 0
    found: dict[str, torch.Tensor] = {}
    while left > 0:
        nbytes = min(left, (16 << 20, 8 << 20, 2 << 20, 2 << 20, 2 << 10)[index % 5])
        found[f"layer.{index}.weight"] = torch.full((nbytes // 2,), 1.0, dtype=torch.bfloat16)
        left -= nbytes
        index += 1
    return found


class Side:
    """One process: an engine with and one without checksums, and two raw ends."""

    def __init__(self, backend: str, is_source: bool, megabytes: int, slot_bytes: int) -> None:
        torch.set_num_threads(1)
        self.is_source = is_source
        self.weights = tensors(megabytes)
        self.total = sum(t.nbytes for t in self.weights.values())
        name = "source" if is_source else "receiver"
        self.raws = {
            "raw": (RAW[backend](f"{name}-small", slot_bytes), slot_bytes),
            "raw large": (RAW[backend](f"{name}-large", LARGE_PIECE), LARGE_PIECE),
        }
        self.engines: dict[str, Any] = {
            kind: CheckpointEngineRegistry.new(
                backend, bucket_size=1 << 30, is_master=is_source, device="cpu",
                staging_bytes=slot_bytes, checksum=kind == "sync",
            )
            for kind in ("sync", "sync unchecked")
        }  # fmt: skip
        self.spare = torch.zeros(16 << 20, dtype=torch.bfloat16)
        self.version = 0

    def meet(self, connection: Connection) -> None:
        """Connect all of them to the other process."""
        for raw, _ in self.raws.values():
            raw.meet(connection)
        for engine in self.engines.values():
            if self.is_source:
                metadata = [engine.prepare(), connection.recv()]
                source, other = engine.build_topology(1, 1, metadata)
                connection.send({key: values[0] for key, values in other.items()})
                engine.init_process_group(**{key: values[0] for key, values in source.items()})
            else:
                connection.send(engine.prepare())
                engine.init_process_group(**connection.recv())

    def run(self, kind: str) -> float:
        """Do this process's part once; returns the seconds it took here."""
        self.version += 1
        began = time.perf_counter()
        if kind == "copy":
            for tensor in self.weights.values() if self.is_source else ():
                self.spare[: tensor.numel()].copy_(tensor)
        elif kind in self.raws:
            raw, piece = self.raws[kind]
            if self.is_source:
                return float(raw.push(self.total, piece))
            raw.take(self.total, piece)
        elif self.is_source:
            stream: Iterator[tuple[str, torch.Tensor]] = iter(self.weights.items())
            asyncio.run(self.engines[kind].send_weights(stream, global_steps=self.version))
        else:
            asyncio.run(
                self.engines[kind].receive_into(
                    lambda meta: self.weights.get(meta.name), global_steps=self.version
                )
            )
        return time.perf_counter() - began


def receiver(connection: Connection, backend: str, megabytes: int, slot_bytes: int) -> None:
    """The other process: does what it is told until it is told nothing."""
    side = Side(backend, False, megabytes, slot_bytes)
    side.meet(connection)
    while kind := connection.recv():
        side.run(kind)
        connection.send("done")


def measure(backend: str, megabytes: int, rounds: int, slot_bytes: int) -> dict[str, float]:
    """The best time of each kind, in seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=receiver, args=(theirs, backend, megabytes, slot_bytes), daemon=True
    )
    process.start()
    theirs.close()
    side = Side(backend, True, megabytes, slot_bytes)
    side.meet(ours)
    best = dict.fromkeys(KINDS, float("inf"))
    for _ in range(rounds):
        for kind in KINDS:
            ours.send(kind)
            best[kind] = min(best[kind], side.run(kind))
            ours.recv()
    ours.send("")
    process.join(30)
    return best


def main(arguments: list[str]) -> int:
    """Print a table; exit status 1 when a must is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("backends", nargs="*", default=["nixl", "mooncake"])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slot-bytes", type=int, default=4 << 20)
    options = parser.parse_args(arguments)
    missed = 0
    for backend in options.backends:
        best = measure(backend, options.megabytes, options.rounds, options.slot_bytes)
        raw = min(best["raw"], best["raw large"])
        print(f"{backend}, {options.megabytes} MB, best of {options.rounds}")
        for kind in KINDS:
            speed = options.megabytes / 1024 / best[kind]
            print(
                f"  {kind:15} {best[kind]:7.3f} s {speed:6.2f} GiB/s  {best[kind] / raw:5.2f} x raw"
            )
        missed += best["sync"] > MUST * raw
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
