"""Device memory between processes, with a stand-in for the CUDA driver: what needs no GPU to be wrong.

The stand-in hands out host memory, and tickets that name it. Everything around it is the real thing:
the socket, the slots, the engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

import pytest

torch = pytest.importorskip("torch")

from actor_wg_engine import slots  # noqa: E402
from actor_wg_engine.errors import EngineError, TopologyError, WireError  # noqa: E402
from actor_wg_engine.ring_memory import Memory  # noqa: E402
from actor_wg_engine.transports import colocated  # noqa: E402
from actor_wg_engine.transports.torch_distributed import (  # noqa: E402
    TorchDistributedCheckpointEngine,
)

CUDA = torch.device("cuda", 0)
NO_MEMORY = 2


class Driver:
    """What of the driver is used, by its real signatures."""

    def __init__(self) -> None:
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.opened: list[int] = []
        self.limit = 1 << 30

    def cuMemAlloc_v2(self, address, size) -> int:  # noqa: N802
        assert size % (2 << 20) == 0, "smaller pieces share a block with others"
        if size > self.limit:
            return NO_MEMORY
        buffer = ctypes.create_string_buffer(size)
        address._obj.value = ctypes.addressof(buffer)
        self.memory[ctypes.addressof(buffer)] = buffer
        return 0

    def cuMemFree_v2(self, address) -> int:  # noqa: N802
        del self.memory[address]
        return 0

    def cuMemGetAddressRange_v2(self, base, size, address) -> int:  # noqa: N802
        base._obj.value, size._obj.value = address, len(self.memory[address])
        return 0

    def cuIpcGetMemHandle(self, handle, address) -> int:  # noqa: N802
        handle._obj.data[:8] = address.to_bytes(8, "little")
        return 0

    def cuIpcOpenMemHandle_v2(self, address, handle, flags) -> int:  # noqa: N802
        assert flags == 1
        found = int.from_bytes(bytes(handle.data[:8]), "little")
        if found not in self.memory:
            return 1
        address._obj.value = found
        self.opened.append(found)
        return 0

    def cuIpcCloseMemHandle(self, address) -> int:  # noqa: N802
        self.opened.remove(address)
        return 0


@pytest.fixture
def driver(monkeypatch) -> Driver:
    fake = Driver()

    def adopt(address, nbytes, device, release):
        memory = (ctypes.c_char * nbytes).from_address(address)
        slots.weakref.finalize(memory, slots._release, release, address, device)
        return torch.frombuffer(memory, dtype=torch.uint8)

    monkeypatch.setattr(slots, "_driver", lambda: fake)
    monkeypatch.setattr(slots, "_context", lambda device: contextlib.nullcontext(CUDA))
    monkeypatch.setattr(slots, "_adopt", adopt)
    monkeypatch.setattr(
        colocated, "device_id", lambda device: "GPU-1" if device == "cuda" else None
    )
    return fake


def weights(version: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(version)
    return {f"layer.{i}": torch.rand(50_000 + i, generator=generator) for i in range(8)}


def open_engines(**kwargs):
    cls = colocated.ColocatedCheckpointEngine
    made = [cls(300_000, is_master=i == 0, device="cuda", timeout_s=20, **kwargs) for i in range(3)]
    return made, cls.build_topology(1, 2, [engine.prepare() for engine in made])


async def join(engines, sides) -> None:
    kwargs = [{key: values[0] for key, values in sides[0].items()}]
    kwargs += [{key: values[i] for key, values in sides[1].items()} for i in range(2)]
    await asyncio.gather(
        *(
            asyncio.to_thread(e.init_process_group, **k)
            for e, k in zip(engines, kwargs, strict=True)
        )
    )


async def sync(engines, version: int) -> list[dict[str, torch.Tensor]]:
    async def receive(engine):
        return {name: tensor async for name, tensor in engine.receive_weights(version)}

    _, *received = await asyncio.gather(
        engines[0].send_weights(iter(weights(version).items()), version),
        *(receive(engine) for engine in engines[1:]),
    )
    return received


@pytest.mark.parametrize("rebuild_group", [False, True])
def test_every_reader_gets_every_byte_through_device_memory(driver, rebuild_group):
    engines, _ = open_engines(rebuild_group=rebuild_group)

    async def main() -> None:
        for version in (1, 2, 3):
            metadata = [engine.prepare() for engine in engines]
            await join(engines, type(engines[0]).build_topology(1, 2, metadata))
            for received in await sync(engines, version):
                assert received.keys() == weights(version).keys()
                assert all(torch.equal(received[n], t) for n, t in weights(version).items())
            for engine in engines:
                engine.finalize()

    asyncio.run(main())
    assert len(driver.memory) == 1, "the owner keeps one piece of memory over its groups"
    engines.clear()
    gc.collect()
    assert (driver.opened, driver.memory) == ([], {})


def test_a_gpu_without_room_is_an_error_that_says_so(driver):
    driver.limit = 0
    with pytest.raises(EngineError, match=r"allocate \d+ bytes .* error 2"):
        Memory.create(2, 1 << 20, CUDA)


def test_a_ticket_of_nothing_is_refused(driver):
    with pytest.raises(EngineError, match="open the memory of another process"):
        Memory.attach(2, 1 << 20, CUDA, [], bytes(64))


def test_a_ticket_of_too_little_memory_is_refused(driver):
    ticket = Memory.create(2, 1 << 20, CUDA)
    with pytest.raises(EngineError, match="its slots need"):
        Memory.attach(2, 1 << 30, CUDA, [], ticket.ticket)
    gc.collect()
    assert driver.opened == []


@pytest.mark.parametrize(
    ("device", "descriptors", "ticket"),
    [("cpu", [], b""), ("cpu", [0], bytes(64)), ("cuda", [], b""), ("cuda", [], bytes(63))],
)
def test_memory_of_another_kind_is_refused(device, descriptors, ticket):
    with pytest.raises(WireError, match="shared no 2 slots"):
        Memory.attach(2, 4096, torch.device(device), descriptors, ticket)


@pytest.mark.parametrize(("slot_count", "size"), [(0, 4096), (1 << 40, 4096), (2, 1 << 60)])
def test_absurd_sizes_are_refused(slot_count, size):
    with pytest.raises(WireError, match="slots"):
        Memory.attach(slot_count, size, torch.device("cpu"), [0], b"")


def test_two_devices_are_refused_by_name(driver):
    engines, _ = open_engines()
    metadata = [engine.prepare() for engine in engines]
    metadata[2]["device"] = "GPU-2"
    with pytest.raises(TopologyError, match=r"rollout worker 1 is on GPU-2, the source on GPU-1"):
        colocated.ColocatedCheckpointEngine.build_topology(1, 2, metadata)
    for engine in engines:
        engine.withdraw()


def nccl_metadata(shared: list[bool]) -> list[dict]:
    return [
        {
            "host": "h", "ring": f"r{i}", "store": ["127.0.0.1", 1], "device_type": "cuda",
            "collective": True, "device": "GPU-1", "shares_device": may, "connected": None,
            "session": "00" * 16 if i == 0 else None, "generation": 1,
        }
        for i, may in enumerate(shared)
    ]  # fmt: skip


@pytest.mark.parametrize("shared", [[False, False], [True, False], [False, True]])
def test_nccl_refuses_two_ranks_on_one_gpu_and_names_both(shared):
    with pytest.raises(TopologyError, match=r"group ranks 0 and 1 .* NCCL_MULTI_RANK_GPU_ENABLE=1"):
        TorchDistributedCheckpointEngine.build_topology(1, 1, nccl_metadata(shared))


def test_nccl_takes_two_ranks_on_one_gpu_where_both_can():
    _, rollouts = TorchDistributedCheckpointEngine.build_topology(1, 1, nccl_metadata([True, True]))
    assert rollouts["rank"] == [1]
