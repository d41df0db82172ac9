"""The command line as users meet it: options, exit statuses, streams, and one-line errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actor_wg_codemod import __version__, rules
from helpers import run, snapshot, write_tree

IMPORT = "from verl.checkpoint_engine import CheckpointEngineManager\n"
CALL = "CheckpointEngineManager(config=None, trainer=None, replicas=[])\n"
SAFE = IMPORT + CALL
FIXED = IMPORT + CALL.replace("trainer", "actor_wg")
MANUAL = IMPORT + "CheckpointEngineManager(config=None, trainer=1, actor_wg=2, replicas=[])\n"
UNSAFE = IMPORT + "def f(x):\n    return x.checkpoint_manager.trainer\n"


def project(folder, **files):
    write_tree(folder, {f"{name}.py": text.encode() for name, text in files.items()})
    return folder


@pytest.fixture
def stdin(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@pytest.mark.parametrize(
    ("files", "argv", "status"),
    [
        ({"a": "x = 1\n"}, ["check"], 0),
        ({"a": SAFE}, ["check"], 1),
        ({"a": SAFE}, ["migrate"], 0),
        ({"a": SAFE}, ["migrate", "--diff"], 1),
        ({"a": FIXED}, ["migrate", "--diff"], 0),
        ({"a": MANUAL}, ["migrate"], 1),
        ({"a": MANUAL}, ["migrate", "--diff"], 1),
        ({"a": UNSAFE}, ["check"], 0),
        ({"a": UNSAFE}, ["check", "--unsafe-fixes"], 1),
        ({"a": UNSAFE}, ["migrate", "--unsafe-fixes"], 0),
        ({"a": SAFE, "b": SAFE + "def f(:\n"}, ["check"], 2),
        ({"a": SAFE, "b": SAFE + "def f(:\n"}, ["migrate"], 2),
        ({"a": SAFE}, ["check", "--ignore", "AWG001"], 0),
        ({"a": SAFE}, ["check", "--select", "AWG003"], 0),
        ({"a": SAFE}, ["check", "--exclude", "a.py"], 0),
        ({"a": FIXED}, ["check", "--reverse"], 1),
        ({}, ["check"], 0),
    ],
)
def test_exit_statuses(tmp_path, files, argv, status):
    result = run(*argv, folder=project(tmp_path, **files))
    assert result.status == status, result


def test_findings_go_to_standard_output_and_the_rest_to_the_other(tmp_path):
    result = run("check", folder=project(tmp_path, a=SAFE, b=UNSAFE, c=MANUAL))
    assert [line.split(": ")[0] for line in result.out.splitlines()] == ["a.py:2:38", "c.py:2:38"]
    assert result.err.splitlines() == [
        "1 finding [*] fixable with `actor-wg migrate`",
        "1 more finding is not proven to be about verl (AWG901): `--unsafe-fixes` includes them",
        "3 files read, changed 0, 0 skipped, 2 findings left in 2 files",
    ]


def test_migrate_lists_what_is_left_where_it_then_stands(tmp_path):
    line = CALL.strip() + "; " + MANUAL.splitlines()[1]
    result = run("migrate", "--verbose", folder=project(tmp_path, a=f"{IMPORT}{line}\n"))
    assert result.out.startswith(f"a.py:2:{line.index('trainer=1') + 2}: AWG902 ")
    assert result.err.splitlines() == [
        "changed a.py",
        "1 file read, changed 1 (1 edit), 0 skipped, 1 finding left in 1 file",
    ]


def test_quiet_leaves_findings_and_errors(tmp_path):
    files = {"a": SAFE, "b": UNSAFE, "c": SAFE + "def f(:\n"}
    result = run("check", "--quiet", folder=project(tmp_path, **files))
    assert len(result.out.splitlines()) == 1
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["error"]


@pytest.mark.parametrize("given", [".", "pkg", "./pkg", "pkg/a.py", "{root}", "{root}/pkg/a.py"])
def test_files_are_named_as_given(tmp_path, given):
    write_tree(tmp_path, {"setup.cfg": b"", "pkg/a.py": SAFE.encode()})
    given = given.format(root=tmp_path)
    result = run("check", "--output-format", "json", given, folder=tmp_path)
    (found,) = json.loads(result.out)
    expected = {".": "pkg/a.py", f"{tmp_path}": f"{tmp_path}/pkg/a.py"}
    expected |= {"pkg": "pkg/a.py", "./pkg": "./pkg/a.py"}
    assert found["filename"] == expected.get(given, given)
    assert (found["location"], found["noqa_row"]) == ({"row": 2, "column": 38}, 2)


@pytest.mark.parametrize("output_format", ["text", "json", "github", "sarif"])
def test_every_format_names_the_finding(tmp_path, output_format):
    result = run("check", "--output-format", output_format, folder=project(tmp_path, a=SAFE))
    assert (result.status, "AWG001" in result.out) == (1, True)


def test_a_diff_writes_nothing_and_can_be_applied(tmp_path):
    before = snapshot(project(tmp_path, a=SAFE, b=FIXED, c=MANUAL))
    result = run("migrate", "--diff", folder=tmp_path)
    assert snapshot(tmp_path) == before
    assert result.out.startswith("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n")
    assert result.out.count("--- ") == 1
    assert "c.py:2:38: AWG902" in result.err
    assert "would change 1 (1 edit)" in result.err
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=result.out.encode(), check=True)
    assert (tmp_path / "a.py").read_text() == FIXED


def test_standard_input_is_migrated_to_standard_output(tmp_path, stdin):
    data = b"\xef\xbb\xbf" + SAFE.replace("\n", "\r\n").encode()
    stdin(data)
    result = run("migrate", "-", folder=tmp_path)
    assert (result.status, result.out.encode()) == (0, data.replace(b"trainer", b"actor_wg"))
    stdin(b"x = 1")
    assert run("migrate", "-", folder=tmp_path).out == "x = 1"
    stdin(MANUAL.encode())
    result = run("migrate", "-", "--stdin-filename", "pkg/a.py", folder=tmp_path)
    assert (result.status, result.out) == (1, MANUAL)
    assert "pkg/a.py:2:38: AWG902" in result.err
    stdin(SAFE.encode())
    assert run("migrate", "-", "--diff", folder=tmp_path).out.count("\n+") == 2
    assert snapshot(tmp_path) == {}


def test_standard_input_that_does_not_parse_gives_no_output(tmp_path, stdin):
    stdin((SAFE + "def f(:\n").encode())
    result = run("migrate", "-", folder=tmp_path)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("error: <stdin>: line 3: ")


def test_standard_input_is_checked_as_a_file_of_its_project(tmp_path, stdin):
    sub = "from verl.checkpoint_engine import CheckpointEngineManager as M\nclass S(M): ...\n"
    write_tree(tmp_path, {"setup.cfg": b"", "pkg/__init__.py": b"", "pkg/s.py": sub.encode()})
    write_tree(tmp_path, {"pkg/a.py": b"x = 'on disk'\n"})
    stdin(b"from pkg.s import S\nS(config=1, trainer=2, replicas=3)\n")
    name = str(tmp_path / "pkg/a.py")
    result = run("check", "-", "--stdin-filename", name, "--output-format", "json")
    assert result.findings == [f"{name}:2:AWG001:safe"]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["check", "--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["check", "--diff"], "unrecognized arguments: --diff"),
        (["check", "--unsafe"], "unrecognized arguments: --unsafe"),
        (["check", "nope"], "nope: no such file or folder"),
        (["check", "--select", "E501"], "unknown code 'E501'; the codes are AWG001"),
        (["migrate", "--ignore", "AWG001,AWG4"], "unknown code 'AWG4'"),
        (["check", "--jobs", "0"], "argument --jobs: '0' is not a number of processes"),
        (["check", "--jobs", "many"], "argument --jobs: 'many' is not a number of processes"),
        (["check", "--output-format", "xml"], "argument --output-format: invalid choice: 'xml'"),
        (["check", "--verl-root", "a/b"], "--verl-root: 'a/b' is not an import path like a.verl"),
        (["check", "-", "a.py"], "`-` reads standard input and cannot be mixed"),
        (["check", "--stdin-filename", "a.py"], "--stdin-filename needs the path `-`"),
        (["migrate", "--report", "no/such/folder/r.html"], "--report: no/such/folder/r.html"),
        (["migrate", "--report", "."], "--report: . cannot be a file there"),
        (["check", "--quiet", "--verbose"], "not allowed with argument"),
        (["rule", "AWG999"], "unknown code 'AWG999'"),
    ],
)
def test_bad_usage_is_one_line_and_writes_nothing(tmp_path, argv, line):
    before = snapshot(project(tmp_path, a=SAFE))
    result = run(*argv, folder=tmp_path)
    assert (result.status, result.out) == (2, "")
    (said,) = result.err.splitlines()
    assert said.startswith("error: ")
    assert line in said
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "table", ["[tool.actor-wg]\nselect = 1", "[tool.actor-wg]\nfoo = 1", "[tool.actor-wg"]
)
def test_bad_settings_are_one_line_and_nothing_is_written(tmp_path, table):
    before = snapshot(project(tmp_path, a=SAFE))
    (tmp_path / "pyproject.toml").write_text(table)
    result = run("migrate", folder=tmp_path)
    assert (result.status, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert f"{tmp_path}/pyproject.toml: " in result.err
    assert snapshot(tmp_path) == {**before, "pyproject.toml": table.encode()}


def test_settings_count_and_the_command_line_wins(tmp_path):
    project(tmp_path, a=SAFE, b=SAFE, c=UNSAFE)
    table = "[tool.actor-wg]\nselect = ['AWG003']\nexclude = ['b.py']\n"
    (tmp_path / "pyproject.toml").write_text(table)
    assert run("check", folder=tmp_path).status == 0
    result = run("check", "--select", "AWG0", "--output-format", "json", folder=tmp_path)
    assert result.findings == ["a.py:2:AWG001:safe"]
    assert run("check", "--select", "AWG0", "--exclude", "a.py", folder=tmp_path).status == 0


def test_uncommitted_work_is_refused_before_anything_is_written(tmp_path):
    before = snapshot(project(tmp_path, a=SAFE))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    result = run("migrate", folder=tmp_path)
    assert (result.status, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith("error: uncommitted changes in a.py; nothing was written;")
    assert snapshot(tmp_path) == before
    assert run("migrate", "--diff", folder=tmp_path).status == 1
    assert run("migrate", "--allow-dirty", folder=tmp_path).status == 0


def test_pins_below_the_new_names_are_told_and_change_nothing_else(tmp_path):
    project(tmp_path, a=SAFE)
    (tmp_path / "requirements.txt").write_text("verl==0.8.0\n")
    result = run("migrate", folder=tmp_path)
    assert result.status == 0
    assert "requirements.txt:1: verl==0.8.0 holds verl below 0.9" in result.err
    assert "requirements" not in run("check", folder=tmp_path).err
    assert "requirements" not in run("migrate", "--reverse", folder=tmp_path).err


def test_the_page_to_review_is_written(tmp_path):
    page = tmp_path / "review.html"
    project(tmp_path / "project", a=SAFE, b=MANUAL, c=SAFE + "def f(:\n")
    result = run("migrate", "--report", str(page), folder=tmp_path / "project")
    assert result.status == 2
    text = page.read_text()
    assert all(name in text for name in ("a.py", "b.py", "c.py", "AWG001", "AWG902"))


def test_help_and_version_are_no_errors():
    for argv in (["--help"], ["check", "--help"], ["migrate", "-h"], ["rule", "--help"]):
        result = run(*argv)
        assert (result.status, result.err) == (0, "")
        assert result.out.startswith("usage: actor-wg")
    assert run("--version").out == f"actor-wg {__version__}\n"


def test_a_rule_is_its_section_of_the_documentation():
    text = "# Rules\n\n## `AWG001`: one\n\nWhy.\n\n### Example\n\nx\n\n## AWG002: two\n\nAlso AWG001.\n"
    assert rules.section(text, "AWG001") == "## `AWG001`: one\n\nWhy.\n\n### Example\n\nx"
    assert rules.section(text, "AWG002") == "## AWG002: two\n\nAlso AWG001."
    assert rules.section(text, "AWG003") is None


@pytest.mark.parametrize("command", ["bench"])
def test_without_the_engine_its_commands_say_how_to_install_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "actor_wg_engine.cli", None)
    monkeypatch.setitem(sys.modules, "actor_wg_engine", None)
    result = run(command, "--anything")
    assert (result.status, result.out) == (2, "")
    assert 'pip install "actor-wg[engine]"' in result.err


def shell(folder, *argv, stdout=subprocess.PIPE, **more):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}
    command = [sys.executable, "-X", "importtime", "-m", "actor_wg_codemod.cli", *argv]
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=stdout, stderr=subprocess.PIPE, check=False
    )


def imported(done):
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_libcst_is_only_imported_where_a_file_changes(tmp_path):
    project(tmp_path, a=SAFE)
    heavy = {"libcst", "yaml", "tomllib", "multiprocessing", "difflib"}
    done = shell(tmp_path, "check", ".")
    assert done.returncode == 1
    assert not imported(done) & heavy
    done = shell(tmp_path, "migrate", "--reverse", ".")
    assert done.returncode == 0
    assert not imported(done) & heavy
    done = shell(tmp_path, "migrate", ".")
    assert (done.returncode, "libcst" in imported(done)) == (0, True)


def test_names_that_the_terminal_cannot_show_are_no_error(tmp_path):
    write_tree(tmp_path, {os.fsdecode(b"raw\xff.py"): SAFE.encode()})
    done = shell(tmp_path, "check", ".", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stdout.startswith(b"raw\\udcff.py:2:38: AWG001")
    done = shell(tmp_path, "migrate", ".", PYTHONIOENCODING="ascii")
    assert done.returncode == 0


def test_a_terminal_gets_colors_and_a_pipe_does_not(tmp_path):
    project(tmp_path, a=SAFE)
    reading, writing = os.openpty()
    with os.fdopen(writing, "wb") as terminal:
        shell(tmp_path, "check", ".", stdout=terminal, TERM="xterm")
    with os.fdopen(reading, "rb", buffering=0) as screen:
        shown = screen.read(1000)
    assert shown.startswith(b"\x1b[1ma.py\x1b[0m:2:38: \x1b[1;31mAWG001\x1b[0m [\x1b[36m*\x1b[0m] ")
    assert b"\x1b" not in shell(tmp_path, "check", ".", TERM="xterm").stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    project(tmp_path, a=SAFE)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = shell(tmp_path, "check", ".", stdout=closed)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_no_result_depends_on_where_it_is_run_from(tmp_path):
    project(tmp_path / "project", a=SAFE)
    (tmp_path / "project/setup.cfg").touch()
    inside = run("check", "--output-format", "json", folder=tmp_path / "project").findings
    outside = run("check", "--output-format", "json", "project", folder=tmp_path).findings
    assert [f"project/{line}" for line in inside] == outside
    assert Path.cwd() != tmp_path
