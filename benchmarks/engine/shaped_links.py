"""Hosts behind slow links: each worker in a network namespace whose link is shaped to a fixed rate.

    sudo python benchmarks/engine/shaped_links.py --hosts 4 --rate-mbit 1000

Needs root, iproute2, and the project installed. Measures gloo's broadcast and the engine's chain in
turns and prints the share of the line rate that each reaches: payload / (rate x time).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from actor_wg_engine.bench_rig import Figure, combine
from actor_wg_engine.bench_shapes import MODELS
from actor_wg_engine.bench_worker import ADDRESS
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.nursery import Nursery
from actor_wg_engine.conformance.processes import WorkerHandle, gather

WORKER = "actor_wg_engine.bench_worker:BenchWorker"
ENGINE = "actor_wg_engine.transports.torch_distributed:TorchDistributedCheckpointEngine"
MIB = 1 << 20
LONG = 600.0
SHARE_MUST, SHARE_AIM = 0.80, 0.88
GAIN_MUST, GAIN_AIM = 2.4, 2.8


def bind_own_address() -> None:
    """Run in every worker: the engine listens on the address that this namespace has."""
    from actor_wg_engine.transports import torch_distributed

    torch_distributed.address = lambda: os.environ[ADDRESS]


def command(*words: str) -> None:
    """Run an iproute2 command.

    Raises:
        RuntimeError: It failed; the text says how.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def shaped_hosts(count: int, rate_mbit: int) -> Iterator[list[tuple[str, str]]]:
    """Namespaces on one bridge, each link shaped in both directions; (file, address) of each."""
    mark = f"awg{os.getpid() % 10000}"
    hub = f"{mark}hub"
    names = [f"{mark}h{index}" for index in range(count)]
    shape = ("tbf", "rate", f"{rate_mbit}mbit", "burst", "256kb", "latency", "50ms")
    try:
        command("ip", "netns", "add", hub)
        command("ip", "-n", hub, "link", "add", "bridge0", "type", "bridge")
        command("ip", "-n", hub, "link", "set", "bridge0", "up")
        for index, name in enumerate(names):
            port = f"port{index}"
            command("ip", "netns", "add", name)
            command(
                *("ip", "-n", name, "link", "add", "eth0", "type", "veth"),
                *("peer", "name", port, "netns", hub),
            )
            command("ip", "-n", name, "addr", "add", f"10.99.0.{index + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                command("ip", "-n", name, "link", "set", device, "up")
            command("ip", "-n", hub, "link", "set", port, "master", "bridge0", "up")
            command("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)
            command("tc", "-n", hub, "qdisc", "add", "dev", port, "root", *shape)
        yield [(f"/var/run/netns/{name}", f"10.99.0.{i + 1}") for i, name in enumerate(names)]
    finally:
        for name in [*names, hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class ShapedRig:
    """A source and receivers, each on a host of its own."""

    def __init__(
        self, hosts: Sequence[tuple[str, str]], shapes: Sequence[tuple[str, tuple[int, ...]]]
    ) -> None:
        self._nursery = Nursery(["torch", "actor_wg_engine.bench_worker"])
        self.hosts = hosts
        self.workers = [
            WorkerHandle(self._nursery.address, f"host {index}", WORKER, index == 0)
            for index in range(len(hosts))
        ]
        refs = [
            worker.submit("enter_network", *host)
            for worker, host in zip(self.workers, hosts, strict=True)
        ]
        gather(refs, 60)
        refs = [worker.submit("load", shapes, int(i == 0)) for i, worker in enumerate(self.workers)]
        self.nbytes = int(gather(refs, LONG)[0])
        self.step = 0

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.close()
        self._nursery.close()

    def open(self, bucket: int) -> None:
        """Form the raw group and the engine's."""
        store_host = self.hosts[0][1]
        port = self.workers[0].call("gloo_host", store_host)
        size = len(self.workers)
        gather(
            [
                worker.submit("gloo_join", store_host, port, rank, size, self.hosts[rank][1])
                for rank, worker in enumerate(self.workers)
            ],
            LONG,
        )
        factory = EngineFactory(
            ENGINE,
            engine_kwargs={"shared_memory": False, "staging_bytes": bucket},
            setup=f"{Path(__file__).stem}:bind_own_address",
        )
        gather([worker.submit("make_engine", factory, bucket) for worker in self.workers], 60)
        metadata = gather([worker.submit("prepare") for worker in self.workers], 60)
        sides = factory.engine_class().build_topology(1, size - 1, metadata)
        refs = []
        for rank, worker in enumerate(self.workers):
            side, index = (sides[0], 0) if rank == 0 else (sides[1], rank - 1)
            own = {key: values[index] for key, values in side.items()}
            refs.append(worker.submit("init_process_group", **own))
        gather(refs, LONG)

    def broadcast(self, bucket: int) -> Figure:
        """gloo's own broadcast of the payload."""
        refs = [worker.submit("raw_broadcast", self.nbytes, bucket) for worker in self.workers]
        return combine(gather(refs, LONG))

    def sync(self) -> Figure:
        """One sync of the engine."""
        self.step += 1
        receiving = [worker.submit("receive", self.step) for worker in self.workers[1:]]
        return combine(gather([self.workers[0].submit("send", self.step), *receiving], LONG))


def main(argv: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4, help="receivers' hosts (default: 4)")
    parser.add_argument("--rate-mbit", type=int, default=1000)
    parser.add_argument("--bucket-mb", type=float, default=1.0)
    parser.add_argument("--layers", type=int, default=1, help="layers of the model (default: 1)")
    parser.add_argument("--payload-mb", type=int, help="so many tensors of 1 MiB instead")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args(argv)
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        what = f"the command {missing[0]} (iproute2)" if missing else "root"
        print(f"error: shaped links need {what}", file=sys.stderr)
        return 2
    bucket = int(args.bucket_mb * MIB)
    shapes = MODELS["qwen2.5-0.5b"].parameters(args.layers)
    if args.payload_mb:
        shapes = [(f"block.{index}", (MIB // 2,)) for index in range(args.payload_mb)]
    with shaped_hosts(args.hosts + 1, args.rate_mbit) as hosts:
        rig = ShapedRig(hosts, shapes)
        try:
            rig.open(bucket)
            rig.sync()
            turns = [(rig.broadcast(bucket), rig.sync()) for _ in range(args.repeats)]
            ideal = rig.nbytes * 8 / (args.rate_mbit * 1e6)
        finally:
            rig.close()
    shares = [statistics.median(ideal / turn[side].seconds for turn in turns) for side in (0, 1)]
    gain = statistics.median(raw.seconds / sync.seconds for raw, sync in turns)
    found = {
        "hosts": args.hosts,
        "rate_mbit": args.rate_mbit,
        "payload_bytes": rig.nbytes,
        "broadcast_share": round(shares[0], 3),
        "chain_share": round(shares[1], 3),
        "chain_over_broadcast": round(gain, 3),
        "goals": {
            "chain_share": {"must": SHARE_MUST, "aim": SHARE_AIM},
            "chain_over_broadcast": {"must": GAIN_MUST, "aim": GAIN_AIM},
        },
    }
    print(json.dumps(found, indent=2))
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
