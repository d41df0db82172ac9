"""The launcher of the sync tests can fail: damage, death and silence are all noticed."""

from __future__ import annotations

import json
import struct
import time

import pytest

torch = pytest.importorskip("torch")
gpu_fleet = pytest.importorskip("gpu_fleet")
gpu_weights = pytest.importorskip("gpu_weights")

CPU = torch.device("cpu")


def test_weights_are_the_same_everywhere_and_differ_between_versions():
    first, again, other = (dict(gpu_weights.weights("tiny", version, CPU)) for version in (1, 1, 2))
    digests = [
        {name: gpu_weights.digest(t) for name, t in w.items()} for w in (first, again, other)
    ]
    assert digests[0] == digests[1]
    changed = {name for name in digests[0] if digests[0][name] != digests[2][name]}
    assert changed == set(first) - {"empty"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    ],
)
def test_a_digest_tells_bytes_shapes_and_types_apart(left, right):
    assert gpu_weights.digest(left) != gpu_weights.digest(right)


def test_the_shapes_are_those_of_the_real_model():
    shapes = gpu_weights.qwen_shapes()
    assert len(shapes) == 290
    assert sum(torch.Size(s).numel() * d.itemsize for _, s, d in shapes) == 988_065_536


def test_a_checkpoint_is_read_with_its_names_types_and_bytes(tmp_path):
    values = torch.arange(6, dtype=torch.float32)
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "b": {"dtype": "U8", "shape": [2], "data_offsets": [24, 26]},
        }
    ).encode()
    data = struct.pack("<Q", len(header)) + header + values.numpy().tobytes() + b"\x07\x08"
    (tmp_path / "model.safetensors").write_bytes(data)
    read = dict(gpu_weights.weights(str(tmp_path), 0, CPU))
    assert torch.equal(read["a"], values.view(2, 3))
    assert read["b"].tolist() == [7, 8]
    assert dict(gpu_weights.weights(str(tmp_path), 1, CPU))["b"].tolist() == [8, 8]


def test_a_worker_that_does_not_answer_is_killed():
    with gpu_fleet.Fleet("naive", ["cpu"], ["cpu"], seconds=3) as fleet:
        fleet.build()
        began = time.monotonic()
        with pytest.raises(gpu_fleet.WorkerError, match="was killed"):
            fleet.gather([(fleet.rollouts[0], ("receive", 1))])
        assert time.monotonic() - began < 30
        with pytest.raises(gpu_fleet.WorkerError, match="rollout 0"):
            fleet.ask("resources")


def test_other_weights_than_the_sources_are_noticed():
    with gpu_fleet.Fleet("naive", ["cpu"], ["cpu"]) as fleet:
        original = fleet.transfer

        def damaged(*args, **kwargs):
            sent, received = original(*args, **kwargs)
            received[0]["odd"] = "damaged"
            return sent, received

        fleet.transfer = damaged
        with pytest.raises(AssertionError, match=r"rollout 0 differs in \['odd'\]"):
            fleet.sync("tiny", 1)
