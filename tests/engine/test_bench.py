"""`actor-wg bench` measures, prints, and writes its files; wrong options are answered in a line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from actor_wg_engine.bench import SUBJECTS, Goal, Report, Row, table
from actor_wg_engine.bench_shapes import MODELS, many_small, one_large
from actor_wg_engine.cli import main

ROOT = Path(__file__).parents[2]


def elements(shapes):
    total = 0
    for _, shape in shapes:
        count = 1
        for size in shape:
            count *= size
        total += count
    return total


def test_the_shapes_are_those_of_the_model():
    shapes = MODELS["qwen2.5-0.5b"].parameters()
    assert len(shapes) == 290
    assert elements(shapes) == 494_032_768
    assert dict(shapes)["model.layers.23.mlp.down_proj.weight"] == (896, 4864)
    assert dict(shapes)["model.layers.0.self_attn.k_proj.bias"] == (128,)
    assert len({name for name, _ in shapes}) == 290


def test_fewer_layers_can_be_asked_for():
    assert len(MODELS["qwen2.5-0.5b"].parameters(2)) == 2 + 2 * 12


def test_many_small_tensors_have_the_bytes_of_the_one():
    assert elements(many_small()) == elements(one_large())
    assert len(many_small()) == 1000


@pytest.mark.timeout(240)
def test_a_run_prints_and_writes_everything(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    options = ["--model", "tiny", "--receivers", "2", "--bucket-mb", "0.25,1", "--repeats", "2"]
    status = main(["bench", *options, "--backend", "naive,nccl-chain", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "naive" in printed.out
    assert "nccl-chain" in printed.out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [(row["backend"], row["bucket_mib"]) for row in found["rows"]] == [
        ("naive", 0.25),
        ("naive", 1.0),
        ("nccl-chain", 0.25),
        ("nccl-chain", 1.0),
    ]
    assert all(row["seconds"] > 0 and row["raw_seconds"] > 0 for row in found["rows"])
    assert {goal["verdict"] for goal in found["goals"]} <= {"aim reached", "held", "MISSED"}
    assert any("empty sync" in goal["what"] for goal in found["goals"])
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--backend", "smoke-signals"], "'smoke-signals' is not one of"),
        (["--backend", ","], "names nothing"),
        (["--bucket-mb", "1,x"], "is not a list of numbers"),
        (["--bucket-mb", "0"], "must be positive"),
        (["--receivers", "0"], "must be positive"),
        (["--layers", "0"], "--layers must be positive"),
        (["--model", "gpt-7"], "invalid choice"),
    ],
)
def test_wrong_options_are_answered_in_a_line(options, expected, capsys):
    assert main(["bench", "--no-plot", *options]) == 2
    assert expected in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nixl_cu12", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "--no-plot", "--backend", "nixl"]) == 2
    assert "needs the package nixl_cu12" in capsys.readouterr().err


def test_the_table_has_a_line_for_each_row_and_goal():
    row = Row("naive", 4.0, 0.5, 1.9, "5 x copy", 0.4, 1.25, 0.1, 0.05)
    report = Report("tiny", 10**9, 4, 3, [row], [Goal("speed", 2.0, 1.5, 1.0)], ["noisy"])
    lines = table(report).splitlines()
    assert any("naive" in line and "1.25" in line for line in lines)
    assert any("speed" in line and "MISSED" in line for line in lines)
    assert lines[-1] == "noisy"


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.9, "aim reached"), (1.2, "held"), (1.6, "MISSED")]
)
def test_a_goal_has_a_verdict(measured, verdict):
    assert Goal("x", measured, 1.5, 1.0).verdict == verdict


def test_every_subject_names_a_class_that_exists_or_a_package_that_does_not():
    import importlib.util

    from actor_wg_engine.conformance.factory import resolve

    for subject in SUBJECTS.values():
        if importlib.util.find_spec(subject.package):
            assert isinstance(resolve(subject.target), type)


@pytest.mark.timeout(240)
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc"), reason="shaped links need root and iproute2"
)
def test_behind_slow_links_the_chain_does_not_pay_for_each_host(tmp_path):
    result = tmp_path / "shaped.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "engine" / "shaped_links.py")]
    options = ["--hosts", "4", "--rate-mbit", "200", "--payload-mb", "48", "--repeats", "1"]
    done = subprocess.run(
        [*command, *options, "--json", str(result)],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    if done.returncode and "Operation not permitted" in done.stderr:
        pytest.skip("network namespaces are not permitted here")
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    assert found["chain_share"] > 0.6
    assert found["chain_over_broadcast"] > 1.8
