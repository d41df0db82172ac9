"""Several raylets on one machine: replicas across nodes, and a whole node killed in a sync."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

SCRIPT = Path(__file__).parent / "scripts" / "multi_node.py"


@pytest.mark.timeout(400)
def test_a_killed_node_costs_its_replicas_and_no_others(tmp_path):
    # A folder of its own, or every `ray.init` on the machine would find this cluster.
    with tempfile.TemporaryDirectory(
        prefix="rc-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path / "seen.json")],
            env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["nodes"] == 3
    assert seen["first"] == [[]] * 5
    assert "replica 0" in seen["error"]
    assert "replica 2" in seen["error"]
    assert seen["seconds"] < 30
    assert set(seen["served"]) == {"1", "3"}
    assert all(version in (1, 2) for version in seen["served"].values())
    assert all(wrong == [] for _, wrong in seen["mixes"])
    assert seen["last"] == [[], []]
