"""The conformance suite catches seeded defects; without one, the same checks pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from actor_wg_engine.conformance import EngineFactory, Status, load
from actor_wg_engine.conformance.runner import Runner

MUTATIONS = str(Path(__file__).parent / "mutations")
TARGET = "actor_wg_engine.transports.colocated:ColocatedCheckpointEngine"
ENOUGH = 0.95

sys.path.insert(0, MUTATIONS)
import engine_defects  # noqa: E402


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(EngineFactory(TARGET)) as running:
        yield running


def noticed(runner: Runner, defect: engine_defects.Defect) -> str:
    """The first check that fails with the defect; empty when none does."""
    mutated = EngineFactory(TARGET, setup=f"engine_defects:{defect.name}", own=True)
    for check in load(",".join(defect.caught_by)):
        if runner.run(check, mutated).status is Status.FAILED:
            return check.id
    return ""


def test_there_are_enough_defects() -> None:
    assert len(engine_defects.DEFECTS) >= 20
    assert len({defect.name for defect in engine_defects.DEFECTS}) == len(engine_defects.DEFECTS)
    assert all(defect.after for defect in engine_defects.DEFECTS)


def test_every_defect_can_be_planted(runner: Runner) -> None:
    for defect in engine_defects.DEFECTS:
        planted = EngineFactory(TARGET, setup=f"engine_defects:{defect.name}")
        assert runner.find(planted) == "", defect.name


@pytest.mark.timeout(400)
def test_the_suite_catches_the_defects(runner: Runner) -> None:
    survivors = [
        f"{defect.name} (expected {', '.join(defect.caught_by)})"
        for defect in engine_defects.DEFECTS
        if not noticed(runner, defect)
    ]
    caught = 1 - len(survivors) / len(engine_defects.DEFECTS)
    assert caught >= ENOUGH, f"caught {caught:.0%}; not noticed: {'; '.join(survivors)}"


@pytest.mark.timeout(400)
def test_the_same_checks_pass_without_a_defect(runner: Runner) -> None:
    ids = {check for defect in engine_defects.DEFECTS for check in defect.caught_by}
    failed = [
        result.line()
        for check in load(",".join(sorted(ids)))
        if (result := runner.run(check)).status is Status.FAILED
    ]
    assert not failed, "\n".join(failed)
