"""The dynamic half of `actor-wg verify`: whatever a class does to its process becomes a row."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest

from actor_wg_codemod.candidates import Candidate
from actor_wg_codemod.trying_out import Wishes, missing_extra, try_out
from actor_wg_codemod.verdict_rows import Row, Status
from helpers import FIXTURES, run

needs_the_engine = pytest.mark.skipif(
    bool(missing_extra()), reason=f"the engine extra is not installed: {missing_extra()}"
)
needs_no_verl = pytest.mark.skipif(
    any(found.name == "verl" for found in importlib.metadata.distributions()),
    reason="verl itself is installed",
)
ENGINE = """\
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

@CheckpointEngineRegistry.register("mine")
class Mine(CheckpointEngine):
    def __init__(self, bucket_size, is_master=False, port=None):
        {construct}

    def prepare(self):
        return {{}}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        return {{"rank": [0]}}, {{}}

    def init_process_group(self, rank): ...

    def finalize(self): ...

    async def send_weights(self, weights): ...

    async def receive_weights(self, global_steps=None):
        yield "a", None
"""


def attempt(folder: Path, source: str, **wishes: object) -> list[Row]:
    """The rows of the class `Mine` of a module."""
    (folder / "mine.py").write_text(source)
    candidate = Candidate("engine", str(folder), str(folder), "mine", "Mine")
    options = {"checks": "A2,B9", "devices": ("cpu",), **wishes}
    return list(try_out([candidate], Wishes(**options)))  # type: ignore[arg-type]


def only(rows: list[Row]) -> tuple[str, Status, str]:
    (row,) = rows
    return row.check, row.status, row.reason


def test_without_the_engine_the_static_half_still_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("actor_wg_codemod.trying_out._NEEDED", ("no_such_package",))
    target = shutil.copytree(FIXTURES / "downstream", tmp_path / "downstream")
    before = run("verify", folder=target)
    assert before.status == 1
    install = 'needs no_such_package: pip install "actor-wg[engine]"'
    assert install in before.out
    assert run("migrate", folder=target).status == 0
    after = run("verify", folder=target)
    assert after.status == 0
    assert install in after.out


@needs_the_engine
@needs_no_verl
@pytest.mark.timeout(300)
def test_the_migrated_example_passes_on_our_engine(tmp_path):
    target = shutil.copytree(FIXTURES / "downstream", tmp_path / "downstream")
    assert run("migrate", folder=target).status == 0
    options = ("--checks", "A,B9,C17,C18", "--output-format", "json", "--device", "cpu")
    result = run("verify", *options, folder=target)
    assert result.status == 0, result.out
    found = [row for row in json.loads(result.out) if row["part"] == "dynamic"]
    subjects = {row["subject"].partition(" on ")[0] for row in found}
    assert subjects == {
        "engine tidewater.backend:TidewaterEngine",
        "manager tidewater.manager:RecordingCheckpointManager",
    }
    passed = {row["check"] for row in found if row["status"] == "passed"}
    assert passed >= {"I0", "I1", "A1", "A5", "B9", "C17", "C18", "M1", "M2", "M3", "M4", "M5"}


@needs_the_engine
@needs_no_verl
@pytest.mark.timeout(180)
def test_a_class_that_does_not_hold_the_contract_fails_with_the_reason(tmp_path):
    noise = 'print(\'{"event": "result"}\')\nprint("loading", flush=True)\n'
    found = {row.check: row for row in attempt(tmp_path, noise + ENGINE.format(construct="pass"))}
    assert found["I0"].status is Status.PASSED
    assert found["A2"].status is Status.FAILED
    assert "send_weights" in found["A2"].reason
    assert found["B9"].status is Status.FAILED


@needs_the_engine
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("raise RuntimeError('no licence')\n", Status.FAILED, "RuntimeError: no licence"),
        ("import no_such_module\n", Status.SKIPPED, "no_such_module, which is not installed"),
        ("import os\nos._exit(7)\n", Status.FAILED, "exit status 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", Status.FAILED, "SIGSEGV"),
        ("raise SystemExit(0)\n", Status.FAILED, "exit status 0"),
        ("Mine = 3\n", Status.FAILED, "is not a class"),
        ("Mine = None\n", Status.SKIPPED, "is None here"),
        ("x = 1\n", Status.FAILED, "no Mine"),
    ],
)
def test_what_importing_does_is_a_row(source, status, reason, tmp_path):
    check, found, why = only(attempt(tmp_path, source))
    assert (check, found) == ("I0", status)
    assert reason in why


@needs_the_engine
@pytest.mark.timeout(180)
def test_a_module_that_never_finishes_importing_is_ended(tmp_path):
    source = (
        "import pathlib, threading\npathlib.Path('started').touch()\nthreading.Event().wait()\n"
    )
    check, status, reason = only(attempt(tmp_path, source, import_deadline=20.0))
    assert (check, status) == ("I0", Status.FAILED)
    assert "importing it was not done after 20 s" in reason
    assert (tmp_path / "started").exists()


@needs_the_engine
@needs_no_verl
@pytest.mark.timeout(180)
def test_checks_that_never_end_are_ended(tmp_path):
    source = ENGINE.format(construct="import threading; threading.Event().wait()")
    rows = attempt(tmp_path, source, deadline=5.0)
    assert [(row.check, row.status) for row in rows] == [
        ("I0", Status.PASSED),
        ("CE", Status.FAILED),
    ]
    assert "not done after 5 s" in rows[-1].reason


@needs_the_engine
@needs_no_verl
@pytest.mark.timeout(180)
def test_an_engine_that_needs_settings_gets_them(tmp_path):
    source = ENGINE.format(construct="assert port, 'port is not set'")
    check, status, reason = only(attempt(tmp_path, source)[1:])
    assert (check, status) == ("I1", Status.SKIPPED)
    assert "port is not set" in reason
    assert "--engine-kwargs" in reason
    found = {
        row.check: row.status for row in attempt(tmp_path, source, engine_kwargs='{"port": 1}')
    }
    assert found["I1"] is Status.PASSED
    assert "A2" in found


@needs_the_engine
@needs_no_verl
@pytest.mark.timeout(180)
def test_asking_for_verl_where_it_is_not_installed_skips(tmp_path):
    source = ENGINE.format(construct="pass")
    check, status, reason = only(attempt(tmp_path, source, against="verl"))
    assert (check, status) == ("I0", Status.SKIPPED)
    assert "verl is not installed" in reason


@needs_the_engine
@pytest.mark.timeout(180)
def test_an_unknown_check_is_a_usage_error(tmp_path):
    (tmp_path / "mine.py").write_text(ENGINE.format(construct="pass"))
    result = run("verify", "--engine", "mine:Mine", "--checks", "Z9", folder=tmp_path)
    assert (result.status, result.out) == (2, "")
    assert "error: --checks: 'Z9' is no conformance check" in result.err


def test_nothing_to_try_out_says_how_to_name_a_class(tmp_path, monkeypatch):
    monkeypatch.setattr("actor_wg_codemod.trying_out._NEEDED", ())
    (tmp_path / "a.py").write_text("x = 1\n")
    result = run("verify", folder=tmp_path)
    assert result.status == 0
    assert "--engine module:Class names one" in result.out
