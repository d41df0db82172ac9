"""Real verl on CPU. Runs where verl 0.9 is installed (see make_environment.py), else skips."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent / "support"
SOURCES = [ROOT / "reference_engine", ROOT / "codemod"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests start Ray and import verl: give them time."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def verl_ray() -> Iterator[None]:
    """One Ray for all tests; its workers find our engine and the support modules."""
    pytest.importorskip("verl", reason="verl is not installed; see make_environment.py")
    import ray

    path = os.pathsep.join(str(entry) for entry in [SUPPORT, *SOURCES])
    ray.init(
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=200 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()


for entry in [SUPPORT, *SOURCES]:
    if str(entry) not in sys.path:
        sys.path.insert(0, str(entry))
