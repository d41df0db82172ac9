"""The sync tests themselves: plain functions that take a device type. Each raises, or `Skipped`.

They run under pytest (`test_gpu_sync.py`) and without it (`python tests/gpu/gpu_run.py`). With
device "cpu" the same code runs over gloo and shared memory, so that it is tested where no GPU is.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_fleet import Fleet, WorkerError

from actor_wg_engine import CheckpointEngineRegistry
from actor_wg_engine.errors import TopologyError

CHECKPOINT = "ACTOR_WG_CHECKPOINT"  # a folder with *.safetensors, or one such file
NCCL_WITH_SHARED_DEVICES = (2, 30)
ERROR_SECONDS = 30.0


class Skipped(Exception):  # noqa: N818 - not an error
    """The scenario needs something that is not here; the text says what."""


@dataclass(frozen=True)
class Scenario:
    """A named scenario with the arguments that it is run with."""

    name: str
    run: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, device: str) -> None:
        """Run it on a device type."""
        self.run(device, **self.arguments)


def gpu_count() -> int:
    """The number of GPUs; does not touch them."""
    return torch.cuda.device_count()


def require(device: str, gpus: int = 1) -> None:
    """Skip where there are not so many GPUs."""
    if device == "cuda" and gpu_count() < gpus:
        raise Skipped(f"needs {gpus} GPUs; torch {torch.__version__} sees {gpu_count()}")


def require_backend(backend: str, device: str) -> None:
    """Skip where a backend or its package is missing, or has no way for the device."""
    try:
        cls = CheckpointEngineRegistry.get(backend)
        CheckpointEngineRegistry.new(backend, bucket_size=1)
    except (ImportError, ValueError) as error:
        raise Skipped(str(error)) from error
    if device not in cls.capabilities.devices:
        raise Skipped(f"backend {backend!r} declares {cls.capabilities.devices}, not {device!r}")


def one_device(device: str) -> str:
    """The device that all workers of a colocated world share."""
    return "cuda:0" if device == "cuda" else device


def sources(device: str) -> list[str]:
    """What to send: awkward shapes always, a real model's on a GPU, a real checkpoint where given."""
    found = ["tiny"]
    if device == "cuda":
        found.append("qwen")
    if os.environ.get(CHECKPOINT):
        found.append(os.environ[CHECKPOINT])
    return found


def matrix(device: str, backend: str, actors: int, rollouts: int, rebuild_group: bool) -> None:
    """Several actors, several rollouts, each rank of the group on a GPU of its own; three syncs."""
    require(device, 1 + rollouts)
    require_backend(backend, device)
    # Actors other than rank 0 only drain their generator; they may share the source's GPU.
    places = [f"cuda:{index}" if device == "cuda" else device for index in range(1 + rollouts)]
    with Fleet(
        backend, [places[0]] * actors, places[1:], rebuild_group=rebuild_group, device=device
    ) as fleet:
        for version, source in enumerate([*sources(device), "tiny", "tiny"], 1):
            fleet.sync(source, version)


def colocated(device: str, rollouts: int) -> None:
    """Actor and rollouts on one device."""
    require(device)
    require_backend("naive", device)
    place = one_device(device)
    with Fleet("naive", [place], [place] * rollouts, device=device) as fleet:
        for version, source in enumerate([*sources(device), "tiny"], 1):
            fleet.sync(source, version)


def overwritten_source(device: str, backend: str) -> None:
    """The consumer copies late, on a stream of its own; the producer wipes its source at once."""
    require(device)
    require_backend(backend, device)
    place = one_device(device)
    with Fleet(backend, [place], [place], device=device) as fleet:
        for version in (1, 2, 3):
            fleet.sync("tiny", version, send=(True,), every=(True,))


def flat_memory(device: str, backend: str, syncs: int) -> None:
    """Many syncs, and no more memory or descriptors at the end than after the first few."""
    require(device)
    require_backend(backend, device)
    place = one_device(device)
    with Fleet(backend, [place], [place], device=device) as fleet:
        for version in range(1, 6):
            fleet.sync("tiny", version)
        before = fleet.ask("resources")
        for version in range(6, 6 + syncs):
            fleet.sync("tiny", version)
        after = fleet.ask("resources")
    slack = {"descriptors": 0, "host MB": 8, "device MB": 2, "tensors MB": 0}
    for process, old, new in zip(fleet.workers, before, after, strict=True):
        for what, value in new.items():
            if value > old[what] + slack[what]:
                raise AssertionError(
                    f"{process.name}: {what} went from {old[what]} to {value} in {syncs} syncs"
                )


def killed_midway(device: str, backend: str) -> None:
    """A rollout dies in the middle of a bucket: an error in bounded time, and the next sync is right."""
    require(device)
    require_backend(backend, device)
    place = one_device(device)
    with Fleet(backend, [place], [place] * 2, bucket_size=64 << 10, device=device) as fleet:
        fleet.sync("tiny", 1)
        began = time.monotonic()
        try:
            fleet.sync("tiny", 2, receive={1: (False, 9)})
        except WorkerError as error:
            seconds = time.monotonic() - began
            check_outcome_of_kill(error, seconds)
        else:
            raise AssertionError("a sync in which a rollout died was reported as a success")
        fleet.rollouts.pop().close()
        fleet.rollouts.append(fleet.spawn(place))
        fleet.sync("tiny", 3)


def check_outcome_of_kill(error: WorkerError, seconds: float) -> None:
    """The source must say so, soon, and name a rank."""
    if seconds > ERROR_SECONDS:
        raise AssertionError(f"the error came after {seconds:.0f} s")
    answers: list[Any] = error.answers  # type: ignore[attr-defined]
    if not isinstance(answers[0], WorkerError):
        raise AssertionError("the source reported success although a rollout died")
    if "rank" not in answers[0].text:
        raise AssertionError(f"the source's error names no rank: {answers[0].text}")


def permuted_devices(device: str) -> None:
    """The same GPU under different numbers in actor and rollout."""
    require(device)
    require_backend("naive", device)
    if device != "cuda":
        raise Skipped("CUDA_VISIBLE_DEVICES means nothing here")
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    views: list[tuple[str, str]] = [("0", "cuda:0"), (uuid, "cuda:0")]
    if gpu_count() > 1:
        views += [("1,0", "cuda:1"), ("0,1", "cuda:0")]
    for (seen, place), (other_seen, other_place) in itertools.permutations(views, 2):
        environments = [{"CUDA_VISIBLE_DEVICES": seen}, {"CUDA_VISIBLE_DEVICES": other_seen}]
        with Fleet(
            "naive", [place], [other_place], environments=environments, device=device
        ) as fleet:
            fleet.sync("tiny", 1)


def expandable_segments(device: str, backend: str) -> None:
    """Expandable segments on and off, in actor and rollout."""
    require(device)
    require_backend(backend, device)
    place = one_device(device)
    for pair in itertools.product((False, True), repeat=2):
        environments = [{"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{on}"} for on in pair]
        with Fleet(backend, [place], [place], environments=environments, device=device) as fleet:
            fleet.sync("tiny", 1)
            fleet.sync("tiny", 2)


def nccl_on_one_device(device: str) -> None:
    """Two NCCL ranks on one GPU, where NCCL can do that; the fleet's timer kills what hangs."""
    require(device)
    if device != "cuda":
        raise Skipped("two NCCL ranks on one device need a GPU")
    nccl: Any = torch.cuda.nccl
    version = nccl.version()
    if version[:2] < NCCL_WITH_SHARED_DEVICES:
        due = ".".join(map(str, NCCL_WITH_SHARED_DEVICES))
        raise Skipped(f"NCCL {'.'.join(map(str, version))} refuses two ranks on one GPU; {due} may")
    require_backend("nccl", device)
    environments = [{"NCCL_MULTI_RANK_GPU_ENABLE": "1"}] * 2
    with Fleet(
        "nccl", ["cuda:0"], ["cuda:0"], environments=environments, device="cuda", seconds=90
    ) as fleet:
        fleet.sync("tiny", 1)
        fleet.sync("qwen", 2)


def nccl_refuses_one_device(device: str) -> None:
    """Two NCCL ranks on one GPU that were not told to share it: refused with both ranks named."""
    require(device)
    if device != "cuda":
        raise Skipped("two NCCL ranks on one device need a GPU")
    require_backend("nccl", device)
    environments = [{"NCCL_MULTI_RANK_GPU_ENABLE": "0"}] * 2
    with Fleet("nccl", ["cuda:0"], ["cuda:0"], environments=environments, device="cuda") as fleet:
        try:
            fleet.sync("tiny", 1)
        except TopologyError as error:
            if "group ranks 0 and 1" not in str(error):
                raise AssertionError(f"refused without naming both ranks: {error}") from error
        else:
            raise AssertionError("two NCCL ranks on one GPU were accepted")


def device_memory(device: str, backend: str, rollouts: int) -> None:
    """Registered slots in device memory: a ring on one GPU, or on one GPU each where there are many."""
    require(device)
    require_backend(backend, device)
    many = device == "cuda" and gpu_count() > rollouts
    places = [f"cuda:{i}" if many else one_device(device) for i in range(1 + rollouts)]
    with Fleet(backend, places[:1], places[1:], device=device) as fleet:
        for version, source in enumerate([*sources(device), "tiny"], 1):
            fleet.sync(source, version)


def _scenarios() -> Iterator[Scenario]:
    for actors, rollouts, rebuild in itertools.product((1, 2), (1, 2, 3), (False, True)):
        yield Scenario(
            f"matrix-{actors}x{rollouts}-{'rebuild' if rebuild else 'keep'}",
            matrix,
            {"backend": "nccl", "actors": actors, "rollouts": rollouts, "rebuild_group": rebuild},
        )
    yield Scenario("colocated-1", colocated, {"rollouts": 1})
    yield Scenario("colocated-3", colocated, {"rollouts": 3})
    for backend in ("naive", "nixl"):
        yield Scenario(f"overwritten-{backend}", overwritten_source, {"backend": backend})
        yield Scenario(f"flat-{backend}", flat_memory, {"backend": backend, "syncs": 50})
        yield Scenario(f"killed-{backend}", killed_midway, {"backend": backend})
        yield Scenario(f"segments-{backend}", expandable_segments, {"backend": backend})
    yield Scenario("permuted-devices", permuted_devices)
    yield Scenario("nccl-one-device", nccl_on_one_device)
    yield Scenario("nccl-refuses-one-device", nccl_refuses_one_device)
    for backend, rollouts in itertools.product(("nixl", "mooncake"), (1, 2)):
        yield Scenario(
            f"memory-{backend}-{rollouts}",
            device_memory,
            {"backend": backend, "rollouts": rollouts},
        )


SCENARIOS = tuple(_scenarios())
