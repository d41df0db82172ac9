"""Our engines hold every conformance check, and the plugin reports what foreign ones do not."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from actor_wg_engine.conformance import Check, CheckResult, EngineFactory, Status, load
from actor_wg_engine.conformance.runner import EngineNotFoundError, Runner

TRANSPORTS = "actor_wg_engine.transports"
ENGINES = {
    "naive": (EngineFactory(f"{TRANSPORTS}.colocated:ColocatedCheckpointEngine"), ""),
    "nccl-one-host": (
        EngineFactory(f"{TRANSPORTS}.torch_distributed:TorchDistributedCheckpointEngine"),
        "",
    ),
    "nccl-chain": (
        EngineFactory(
            f"{TRANSPORTS}.torch_distributed:TorchDistributedCheckpointEngine",
            engine_kwargs={"shared_memory": False},
        ),
        "",
    ),
    "nixl": (EngineFactory(f"{TRANSPORTS}.nixl:NIXLCheckpointEngine"), "nixl_cu12"),
    "mooncake": (EngineFactory(f"{TRANSPORTS}.mooncake:MooncakeCheckpointEngine"), "mooncake"),
}
REASONS_TO_SKIP = (
    "needs CUDA",
    "is no ring",
    "does not name a device",
    "shows on a GPU only",
    "needs a network namespace",
)

#: What a package that an engine stands on does, and the engine cannot change.
LIMITS = {("mooncake", "I65"): "the Transfer Engine binds its own port on every address"}

FOREIGN = '''
from actor_wg_engine.transports.colocated import ColocatedCheckpointEngine
from actor_wg_engine.registry import CheckpointEngineRegistry


@CheckpointEngineRegistry.register("careless")
class CarelessEngine(ColocatedCheckpointEngine):
    """Refuses nothing, and renames what it sends."""

    def __init__(self, bucket_size, is_master=False):
        super().__init__(max(bucket_size, 4096), is_master)

    def send_weights(self, weights, global_steps=None):
        renamed = ((name.replace("ladder", "leader"), tensor) for name, tensor in weights)
        return super().send_weights(renamed, global_steps)
'''


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Runner]]:
    """One runner per engine, started when first needed."""
    runners: dict[str, Runner] = {}
    yield runners
    for runner in runners.values():
        runner.close()


@pytest.mark.parametrize("check", load(), ids=lambda check: check.id)
@pytest.mark.parametrize("name", ENGINES)
def test_our_engines_hold(name: str, check: Check, running: dict[str, Runner]) -> None:
    factory, package = ENGINES[name]
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if name not in running:
        running[name] = Runner(factory)
    result = running[name].run(check)
    if result.status is Status.SKIPPED:
        assert any(reason in result.reason for reason in REASONS_TO_SKIP), result.line()
        pytest.skip(result.reason)
    if (name, check.id) in LIMITS:
        assert result.status is Status.FAILED, "the limit is gone: take it off the list"
        pytest.xfail(LIMITS[name, check.id])
    assert result.status is Status.PASSED, f"{result.line()}\n{result.reason}"


@pytest.fixture
def foreign_module(tmp_path: Path) -> Path:
    (tmp_path / "careless_backend.py").write_text(FOREIGN)
    return tmp_path


def run_plugin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"),
        *("--pyargs", "actor_wg_engine.conformance", *arguments),
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_the_plugin_tells_failures_from_advice(foreign_module: Path) -> None:
    done = run_plugin(
        foreign_module,
        "--engine",
        "careless_backend:CarelessEngine",
        "--checks",
        "B10,B13,C17,C19,C22b",
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" not in done.stdout
    assert re.search(r"C17 +advisory .*misses ladder", done.stdout)
    assert re.search(r"C22b +advisory .*bucket_size=0 is accepted", done.stdout)
    assert re.search(r"B13 +skipped .*is no ring", done.stdout)


def test_binding_turns_advice_into_failures(foreign_module: Path) -> None:
    done = run_plugin(
        foreign_module,
        *("--engine", "careless_backend:CarelessEngine", "--checks", "B10,C17", "--binding"),
    )
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--engine", "no_such_module:Engine"), "No module named 'no_such_module'"),
        (("--engine", "careless_backend:Nothing"), "has no Nothing"),
        (("--engine", "careless_backend"), "should read package.module:Name"),
        (("--engine", "careless_backend:FOREIGN_ENGINE", "--checks", "Z9"), "no conformance check"),
        (("--engine", "careless_backend:CarelessEngine", "--engine-kwargs", "{"), "is not JSON"),
    ],
)
def test_mistakes_are_answered_in_a_line(
    foreign_module: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = run_plugin(foreign_module, *arguments)
    assert done.returncode == 4
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_without_an_engine_the_package_is_skipped(tmp_path: Path) -> None:
    done = run_plugin(tmp_path)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout


def test_the_plugin_stays_out_of_other_runs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--engine')\n"
        "def pytest_sessionfinish():\n"
        "    heavy = {'torch', 'ray', 'actor_wg_engine.conformance.runner'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    (tmp_path / "test_theirs.py").write_text(
        "def test_theirs(request):\n    assert request.config.getoption('--engine') == 'diesel'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--engine", "diesel", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_engine_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(EngineNotFoundError, match="no_such_module"):
        Runner(EngineFactory("no_such_module:Engine"))


@pytest.mark.parametrize(("only", "count"), [("B10", 1), ("b10", 1), ("I64, I64b", 2)])
def test_checks_are_chosen_by_id(only: str, count: int) -> None:
    assert len(load(only)) == count


def test_checks_come_in_order_and_letters_are_complete() -> None:
    letters = [check.id[0] for check in load()]
    assert letters == sorted(letters)
    assert set(letters) == set("ABCDEFGHI")


def test_a_result_fits_on_a_line() -> None:
    result = CheckResult("C18", "Shapes", Status.FAILED, "first\nsecond", 1.25)
    assert result.line() == "C18  failed     1.2s  Shapes: first"
