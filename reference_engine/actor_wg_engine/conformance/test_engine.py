"""The test that the plugin repeats for every conformance check."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from actor_wg_engine.conformance.results import Status

if TYPE_CHECKING:
    from actor_wg_engine.conformance.catalog import Check
    from actor_wg_engine.conformance.runner import Runner


def test_engine(
    conformance_check: Check,
    conformance_runner: Runner,
    record_property: Callable[[str, object], None],
) -> None:
    result = conformance_runner.run(conformance_check)
    if result.status in (Status.SKIPPED, Status.ADVISORY):
        record_property("conformance", result.line())
    if result.status is Status.SKIPPED:
        pytest.skip(result.reason)
    if result.status is Status.FAILED:
        pytest.fail(f"{result.id}: {result.title}\n{result.reason}", pytrace=False)
