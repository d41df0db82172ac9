"""The pytest plugin: `pytest --pyargs actor_wg_engine.conformance --engine my.module:MyEngine`.

pytest loads this module in every run of every project in the environment, so it imports nothing
heavy and adds its options only when the command line names the conformance package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from actor_wg_engine.conformance.catalog import Check
    from actor_wg_engine.conformance.runner import Runner

PACKAGE = "actor_wg_engine.conformance"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the options, where the run asks for the conformance checks."""
    if not any(arg.startswith(PACKAGE) for arg in args):
        return
    group = parser.getgroup("conformance", "conformance of a checkpoint engine")
    group.addoption("--engine", metavar="MODULE:CLASS", help="the engine class to check")
    group.addoption(
        "--device", default="cpu", choices=("cpu", "cuda", "npu"), help="where weights live"
    )
    group.addoption("--checks", metavar="IDS", help="only these: letters or ids, such as B,C18")
    group.addoption("--engine-kwargs", metavar="JSON", default="{}", help="constructor arguments")
    group.addoption("--binding", action="store_true", help="advisory checks fail too")


def _asked(config: pytest.Config) -> bool:
    return bool(config.getoption("engine", None)) and hasattr(config.option, "engine_kwargs")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a list of checks that names none of them."""
    if not _asked(config):
        return
    from actor_wg_engine.conformance.catalog import load

    try:
        load(config.getoption("checks"))
    except ValueError as error:
        raise pytest.UsageError(f"--checks: {error}") from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per check."""
    if "conformance_check" not in metafunc.fixturenames:
        return
    if not _asked(metafunc.config):
        metafunc.parametrize("conformance_check", [])
        return
    from actor_wg_engine.conformance.catalog import load

    checks = load(metafunc.config.getoption("checks"))
    metafunc.parametrize(
        "conformance_check", checks, ids=[f"{one.id}-{_slug(one)}" for one in checks]
    )


def _slug(one: Check) -> str:
    return one.function.__name__.removeprefix("check_")


@pytest.fixture(scope="session")
def conformance_runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """The processes behind the checks, shared by the whole run."""
    import json

    from actor_wg_engine.conformance.factory import EngineFactory
    from actor_wg_engine.conformance.runner import EngineNotFoundError, Runner

    option = request.config.option
    try:
        engine_kwargs = json.loads(option.engine_kwargs)
    except ValueError as error:
        pytest.exit(f"--engine-kwargs is not JSON: {error}", returncode=4)
    factory = EngineFactory(
        option.engine, option.device, engine_kwargs, own=True if option.binding else None
    )
    try:
        runner = Runner(factory)
    except EngineNotFoundError as error:
        pytest.exit(f"--engine: {error}", returncode=4)
    with runner:
        yield runner


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was skipped or advisory, and why."""
    if not _asked(config):
        return
    notes = [
        text
        for outcome in ("passed", "skipped", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, text in getattr(report, "user_properties", ())
        if name == "conformance"
    ]
    if notes:
        terminalreporter.section("conformance: advisory and skipped")
        for text in notes:
            terminalreporter.line(text)
