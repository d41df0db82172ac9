"""fixtures/downstream: works on verl 0.8.0, breaks on 0.9.1, and syncs again once it is migrated."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed; see make_environment.py")

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "reference_engine"
STANDIN = ENGINE / "actor_wg_engine" / "conformance" / "standin"
OLD_VERL = os.environ.get("ACTOR_WG_VERL_080", "")


def run(
    folder: Path, arguments: Sequence[str], path: Sequence[Path | str] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *map(str, path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def digests(folder: Path, path: Sequence[Path | str] = ()) -> dict[str, Any]:
    """Sync, and return what every worker holds in the end."""
    result = folder / "digests.json"
    result.unlink(missing_ok=True)
    done = run(folder, ["-m", "tidewater", "--digests", str(result)], path)
    assert done.returncode == 0, done.stdout + done.stderr
    held: dict[str, Any] = json.loads(result.read_text())
    assert held["steps"] == [1, 2, 3]
    assert held["served"] == [3, 3]
    assert set(held["rollouts"]) == {held["actor"]}
    return held


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before") / "downstream"
    shutil.copytree(ROOT / "fixtures" / "downstream", folder)
    return folder


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("libcst") is None:
        pytest.skip("libcst is not installed")
    folder = tmp_path_factory.mktemp("after") / "downstream"
    shutil.copytree(ROOT / "fixtures" / "downstream", folder)
    done = run(folder, ["-m", "actor_wg_codemod.cli", "migrate", "."], [ROOT / "codemod"])
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "trainer=" not in (folder / "tidewater" / "trainer.py").read_text()
    return folder


def test_it_breaks_on_the_new_verl(before: Path) -> None:
    done = run(before, ["-m", "tidewater"])
    assert done.returncode != 0
    assert "TypeError" in done.stderr
    assert "unexpected keyword argument 'trainer'" in done.stderr


@pytest.mark.skipif(not OLD_VERL, reason="ACTOR_WG_VERL_080 names no folder with verl 0.8.0")
def test_it_works_on_the_old_verl_and_bit_for_bit_on_the_new(before: Path, after: Path) -> None:
    old = digests(before, [OLD_VERL])
    assert digests(after) == old


def test_migrated_it_syncs_the_same_on_our_engine(after: Path) -> None:
    on_verl = digests(after)
    assert digests(after, [STANDIN, ENGINE]) == on_verl


def test_its_own_tests_pass_once_migrated(after: Path) -> None:
    done = run(after, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "tests"])
    assert done.returncode == 0, done.stdout
