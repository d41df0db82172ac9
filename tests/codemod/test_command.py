"""The fixes as a command of libcst's own tool, run as its documentation says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import libcst
import pytest
from libcst.codemod import CodemodContext

from actor_wg_codemod import command
from actor_wg_codemod.command import ActorWgCommand
from helpers import snapshot, write_tree

CALL = "CheckpointEngineManager(config=None, trainer=None, replicas=[])"
SAFE = f"from verl.checkpoint_engine import CheckpointEngineManager\nx =  {CALL}\n"
FIXED = SAFE.replace("trainer", "actor_wg")
SUBCLASS = (
    "from verl.checkpoint_engine import CheckpointEngineManager as M\n"
    "class S(M):\n    def __init__(self, config, trainer, replicas):\n"
    "        super().__init__(config, trainer, replicas)\n"
)
CALLER = "from s import S\nS(1, trainer=2, replicas=3)\n"


def test_the_documented_command_works(tmp_path):
    files = {
        "a.py": SAFE.replace("\n", "\r\n"),
        "b.py": "x = 1\n",
        "s.py": SUBCLASS,
        "c.py": CALLER,
    }
    write_tree(tmp_path, {name: text.encode() for name, text in files.items()})
    (line,) = re.findall(r"^ +python (-m libcst\.tool .*)$", command.__doc__, re.MULTILINE)
    arguments = shlex.split(line.replace("PATH", "."))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path) == {
        name: (text if name == "b.py" else text.replace("trainer", "actor_wg")).encode()
        for name, text in files.items()
    }


def transformed(code, filename=None, **options):
    context = CodemodContext(filename=filename)
    module = ActorWgCommand(context, **options).transform_module(libcst.parse_module(code))
    return module.code, context.warnings


def test_code_without_a_file_is_transformed_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert transformed(SAFE) == (FIXED, [])
    assert transformed(FIXED) == (FIXED, [])
    assert transformed(FIXED, reverse=True) == (SAFE, [])


def test_code_that_is_not_what_the_file_holds_counts(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    assert transformed(SAFE, str(tmp_path / "a.py")) == (FIXED, [])


def test_what_is_left_is_a_warning(tmp_path):
    both = SAFE.replace("config=None", "actor_wg=None")
    (tmp_path / "a.py").write_text(both)
    code, warnings = transformed(both, str(tmp_path / "a.py"))
    assert code == both
    (warning,) = warnings
    assert warning.startswith(f"{tmp_path}/a.py:2:")
    assert "AWG902" in warning


@pytest.mark.parametrize("unsafe_fixes", [True, False])
def test_unsafe_fixes_are_asked_for(tmp_path, monkeypatch, unsafe_fixes):
    monkeypatch.chdir(tmp_path)
    code = SAFE + "def f(x):\n    return x.checkpoint_manager.trainer\n"
    result, _ = transformed(code, unsafe_fixes=unsafe_fixes)
    assert ("checkpoint_manager.actor_wg" in result) is unsafe_fixes
