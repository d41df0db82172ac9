"""The sync tests: on real GPUs, skipped with a reason where there is none; a part of them on CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
gpu_scenarios = pytest.importorskip("gpu_scenarios")
gpu_run = pytest.importorskip("gpu_run")

SCENARIOS = gpu_scenarios.SCENARIOS
#: What runs in every pytest run: each function once or twice, in its smallest form.
ON_CPU = [
    "matrix-2x2-keep",
    "matrix-1x1-rebuild",
    "colocated-1",
    "overwritten-naive",
    "overwritten-nixl",
    "killed-naive",
    "killed-nixl",
    "memory-nixl-1",
    "memory-mooncake-2",
]


def run(scenario, device):
    try:
        scenario(device)
    except gpu_scenarios.Skipped as reason:
        pytest.skip(str(reason))


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_on_gpus(scenario):
    run(scenario, "cuda")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if s.name in ON_CPU], ids=lambda s: s.name
)
def test_the_same_code_on_cpu(scenario):
    run(scenario, "cpu")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if s.name not in ON_CPU], ids=lambda s: s.name
)
def test_the_rest_of_it_on_cpu(scenario):
    run(scenario, "cpu")


def test_the_launcher_runs_without_pytest_and_says_what_it_skipped(capsys):
    assert gpu_run.main(["--device", "cpu", "permuted", "nccl-one"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["skipped", "skipped"]
    assert gpu_run.main(["no-such-scenario"]) == 1
