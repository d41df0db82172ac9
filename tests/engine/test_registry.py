"""Backends by name, loaded when asked for; who asks for the wrong one is told what there is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from actor_wg_engine.contract import CheckpointEngineConfig
from actor_wg_engine.registry import BUILT_IN, CheckpointEngineRegistry, import_backend_module
from actor_wg_engine.worker import new_engine


def test_naive_and_nccl_are_there():
    for name in ("naive", "nccl"):
        assert name in BUILT_IN
        assert CheckpointEngineRegistry.get(name).__name__.endswith("CheckpointEngine")


def test_an_unknown_backend_is_answered_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"'nccI' is not available; available: .*naive.*nccl"
    ) as caught:
        CheckpointEngineRegistry.get("nccI")
    assert "custom_backend_module" in str(caught.value)


def test_a_backend_that_does_not_import_says_why(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "broken", "actor_wg_engine.transports.no_such_file")
    with pytest.raises(
        ValueError, match=r"broken: its module .* failed to import: No module named"
    ):
        CheckpointEngineRegistry.get("broken")


def test_a_recorded_import_error_is_shown():
    CheckpointEngineRegistry.record_import_error("my_engine", ImportError("no libfoo"))
    try:
        with pytest.raises(ValueError, match=r"my_engine failed to import: no libfoo"):
            CheckpointEngineRegistry.get("mine")
    finally:
        CheckpointEngineRegistry._import_errors.pop("my_engine")


def test_a_class_of_ones_own(monkeypatch):
    monkeypatch.setattr(CheckpointEngineRegistry, "_registry", {})

    @CheckpointEngineRegistry.register("mine")
    class Mine:
        def __init__(self, bucket_size, is_master=False):
            self.bucket_size = bucket_size

    assert CheckpointEngineRegistry.get("mine") is Mine
    assert CheckpointEngineRegistry.new("mine", bucket_size=3).bucket_size == 3


def test_a_custom_module_that_does_not_import_says_what_to_do():
    with pytest.raises(ValueError, match=r"'no_such_module' does not import: .* PYTHONPATH"):
        import_backend_module("no_such_module")


@pytest.mark.parametrize("backend", ["naive", "nccl"])
def test_an_unknown_option_is_refused_by_name(backend):
    config = CheckpointEngineConfig(backend=backend, engine_kwargs={backend: {"bukket": 1}})
    with pytest.raises(TypeError, match=r"bukket"):
        new_engine(config)


@pytest.mark.parametrize("megabytes", [0, -4])
def test_a_bucket_size_that_holds_nothing_is_refused(megabytes):
    with pytest.raises(ValueError, match=r"bucket size is"):
        new_engine(CheckpointEngineConfig(update_weights_bucket_megabytes=megabytes))


def test_importing_the_package_is_cheap():
    code = "import actor_wg_engine, sys; print([m for m in ('torch', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
