"""The plugin in flake8's ways of running: processes, standard input, folders, settings, neighbors."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys

import pytest
from flake8_runs import by_check, by_flake8, by_program, sites

from helpers import write_tree

CALL = b"""\
from verl.checkpoint_engine import CheckpointEngineManager

manager = CheckpointEngineManager({}, trainer=None, replicas=[])
"""
NAMES = b"from verl.checkpoint_engine import CheckpointEngineManager as Manager\n"
USE = b"from names import Manager\n\nmanager = Manager({}, trainer=None, replicas=[])\n"
UNPROVEN = b"import verl\n\n\ndef swap(checkpoint_manager):\n    checkpoint_manager.trainer = 1\n"
LOCAL = b"""\
from verl.checkpoint_engine import CheckpointEngineManager


def build(config, workers):
    trainer = workers.actor()
    return CheckpointEngineManager(config, trainer, [])
"""
ADVICE = b"import ray\n\n\nasync def f(ref):\n    return ray.get(ref)\n"
WITHDRAWN = b"""\
from verl.checkpoint_engine import CheckpointEngineManager

manager = CheckpointEngineManager({}, backend=None, actor_wg=None, replicas=[])
"""
MARKED = {"pyproject.toml": b"[project]\nname = 'x'\n"}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "project"
    made.mkdir()
    return made


def codes(found):
    return [site[3] for site in found]


# Nothing to say


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"trainer = 1\n",
        b"from other import CheckpointEngineManager\n\nCheckpointEngineManager(trainer=1)\n",
        b"from lightning import Trainer\n\nmodule.trainer = Trainer()\n",
        CALL.replace(b"trainer", b"actor_wg"),
        CALL.replace(b"[])", b"[])  # noqa"),
        CALL.replace(b"[])", b"[])  # noqa: AWG001"),
    ],
)
def test_code_that_has_no_old_name_of_verls_is_left_in_peace(folder, source):
    write_tree(folder, {"a.py": source})
    assert by_flake8(folder) == []


def alone(folder, program: str) -> str:
    """Runs a program around flake8 in which no plugin of others is loaded; what it printed."""
    head = (
        "import sys\n"
        "from flake8.main.cli import main\n"
        "from flake8.plugins import finder\n"
        "find, known = finder.find_plugins, ('actor-wg', 'pycodestyle', 'pyflakes', 'flake8')\n"
        "finder.find_plugins = lambda *a: [p for p in find(*a) if p.package in known]\n"
    )
    argv = [sys.executable, "-c", head + program]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "source", ["import os\n", "backend = 1\n", "import ray\n", "x = 'async'\n"]
)
def test_a_file_without_a_trigger_word_loads_nothing(folder, source):
    write_tree(folder, {"a.py": source.encode()})
    program = (
        "main(['-j1', '.', '-qq'])\n"
        "ours = ('actor_wg_codemod.', 'flake8_actor_wg.', 'libcst')\n"
        "print(sorted(n for n in sys.modules if n.startswith(ours)))\n"
    )
    assert alone(folder, program) == "['actor_wg_codemod.renames', 'flake8_actor_wg.plugin']\n"


@pytest.mark.parametrize(
    ("source", "argv", "unwanted"),
    [
        (ADVICE, [], "actor_wg_codemod.analysis"),  # a coroutine that nobody asked about
        (CALL, [], "libcst"),
        (LOCAL, ["--extend-select=AWG1"], "libcst"),
        (ADVICE, ["--extend-select=AWG2"], "libcst"),
    ],
)
def test_only_what_is_needed_is_loaded(folder, source, argv, unwanted):
    write_tree(folder, {"a.py": source})
    program = f"main(['-j1', '.', '-qq', *{argv}])\nprint({unwanted!r} in sys.modules)\n"
    assert alone(folder, program).splitlines()[-1] == "False"


def test_a_file_is_never_parsed_by_us_when_flake8_has_done_it(folder):
    write_tree(folder, {"a.py": CALL})
    program = (
        "import ast\n"
        "parse, sizes = ast.parse, []\n"
        "def counting(source, *args, **kwargs):\n"
        "    sizes.append(len(source))\n"
        "    return parse(source, *args, **kwargs)\n"
        "ast.parse = counting\n"
        "assert main(['-j1', '--select=AWG', '.', '-qq']) == 1\n"
        "print(sizes)\n"
    )
    assert alone(folder, program).splitlines()[-1] == f"[{len(CALL)}]"


@pytest.mark.parametrize(
    "broken", [b"def f(:\n    trainer=1\n", b"trainer = '\n", b"x = (trainer\n"]
)
def test_a_file_that_does_not_parse_has_flake8s_finding_and_none_of_ours(folder, broken):
    write_tree(folder, {"a.py": CALL, "b.py": broken})
    assert [site[0] for site in by_flake8(folder)] == ["a.py"]
    others = by_flake8(folder, ours=False)
    assert ("b.py", "E999") in [(path, code) for path, _, _, code in others]


@pytest.mark.parametrize(
    "data",
    [b"\xff\n" + CALL, b"# coding: nonsense\n" + CALL, b"\xef\xbb\xbf# coding: latin-1\n" + CALL],
)
def test_bytes_that_python_cannot_read_have_no_finding_of_ours(folder, data):
    write_tree(folder, {"a.py": data})
    assert by_flake8(folder) == by_check(folder) == []


# How flake8 is run


@pytest.mark.parametrize("jobs", ["-j1", "-j2"])
def test_names_are_followed_across_files_with_any_number_of_processes(folder, jobs):
    files = {"names.py": NAMES, **{f"use_{n}.py": USE for n in range(6)}}
    write_tree(folder, files)
    done = by_program(folder, jobs, "--select=AWG")
    assert sites(done.stdout) == [(f"use_{n}.py", 3, 23, "AWG001") for n in range(6)]
    assert (done.returncode, done.stderr) == (1, "")


def test_only_the_files_that_are_handed_over_are_reported_but_all_are_known(folder):
    write_tree(folder, {"names.py": NAMES, "use.py": USE, "more.py": CALL, **MARKED})
    assert by_flake8(folder, "use.py") == [("use.py", 3, 23, "AWG001")]


def test_files_of_several_projects_in_one_run_have_each_their_own(folder):
    for name in ("one", "two"):
        write_tree(folder / name, {"names.py": NAMES, "use.py": USE, **MARKED})
    write_tree(
        folder / "three", {"names.py": b"class Manager:\n    pass\n", "use.py": USE, **MARKED}
    )
    found = by_flake8(folder, "one", "two/use.py", "three")
    assert found == [(f"{name}/use.py", 3, 23, "AWG001") for name in ("one", "two")]


def test_from_another_folder_and_by_absolute_path(folder, tmp_path):
    write_tree(folder, {"src/names.py": NAMES, "src/use.py": USE, **MARKED})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert by_flake8(elsewhere, "../project") == [("../project/src/use.py", 3, 23, "AWG001")]
    full = str(folder / "src" / "use.py")
    assert by_flake8(elsewhere, full) == [(full, 3, 23, "AWG001")]
    assert by_flake8(folder / "src", "use.py") == [("use.py", 3, 23, "AWG001")]


def test_folders_with_spaces_and_other_letters(tmp_path):
    folder = tmp_path / "my project \u00e9\u4e2d"
    write_tree(folder, {"names.py": NAMES, "s p \u00fc/use.py": USE, **MARKED})
    done = by_program(folder, "-j2", "--select=AWG")
    assert sites(done.stdout) == [("s p \u00fc/use.py", 3, 23, "AWG001")]


def test_a_link_is_reported_under_the_name_that_the_tree_gives_it_only(folder):
    write_tree(folder, {"a.py": CALL, **MARKED})
    (folder / "link.py").symlink_to("a.py")
    assert by_flake8(folder) == by_check(folder) == [("a.py", 3, 39, "AWG001")]


def test_what_git_ignores_is_no_part_of_the_project(folder):
    write_tree(folder, {"a.py": CALL, "out/b.py": CALL, ".gitignore": b"out\n"})
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    assert by_flake8(folder) == by_check(folder) == [("a.py", 3, 39, "AWG001")]


# Standard input


def test_standard_input_stands_for_the_file_whose_name_it_is_given(folder):
    write_tree(folder, {"names.py": NAMES, "use.py": b"x = 1\n", **MARKED})
    done = by_program(folder, "--select=AWG", "--stdin-display-name=use.py", "-", stdin=USE)
    assert sites(done.stdout) == [("use.py", 3, 23, "AWG001")]


def test_standard_input_without_a_name_is_python_in_this_folder(folder):
    write_tree(folder, {"names.py": NAMES})
    done = by_program(folder, "--select=AWG", "-", stdin=USE)
    assert sites(done.stdout) == [("stdin", 3, 23, "AWG001")]


def test_standard_input_is_read_in_its_own_encoding(folder):
    data = "# coding: latin-1\nfrom names import Manager\n\nManager({'\u00e9': 1}, trainer=None)\n"
    write_tree(folder, {"names.py": NAMES, **MARKED})
    argv = ("--select=AWG", "--stdin-display-name=use.py", "-")
    done = by_program(folder, *argv, stdin=data.encode("latin-1"))
    assert sites(done.stdout) == [("use.py", 4, 19, "AWG001")]


# What is on, what is off

OPT_IN = {"advice.py": ADVICE, "local.py": LOCAL, "unproven.py": UNPROVEN}
ALL = {"manual.py": WITHDRAWN, "safe.py": CALL, **OPT_IN}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), ["AWG902", "AWG001"]),
        (("--select=AWG",), ["AWG902", "AWG001"]),
        (("--ignore=E501",), ["AWG902", "AWG001"]),
        (("--extend-ignore=AWG902",), ["AWG001"]),
        (("--ignore=AWG",), []),
        (("--select=E,F",), []),
        (("--select=AWG001",), ["AWG001"]),
        (("--select=AWG1",), ["AWG101"]),
        (("--extend-select=AWG101",), ["AWG101", "AWG902", "AWG001"]),
        (("--extend-select=AWG1", "--extend-ignore=AWG101"), ["AWG902", "AWG001"]),
        (("--select=AWG201",), ["AWG201"]),
        (("--select=AWG9",), ["AWG902", "AWG901"]),
        (("--extend-select=AWG901",), ["AWG902", "AWG001", "AWG901"]),
        (("--select=AWG0,AWG1,AWG2,AWG9",), ["AWG201", "AWG101", "AWG902", "AWG001", "AWG901"]),
        (("--per-file-ignores=safe.py:AWG0",), ["AWG902"]),
    ],
)
def test_codes_are_selected_the_way_of_flake8(folder, argv, expected):
    write_tree(folder, ALL)
    assert codes(by_flake8(folder, *argv)) == expected


@pytest.mark.parametrize(
    ("table", "argv", "expected"),
    [
        ("naming = true", (), ["AWG101", "AWG902", "AWG001"]),
        ("naming = true", ("--extend-ignore=AWG1",), ["AWG902", "AWG001"]),
        ('select = ["AWG1", "AWG2"]', (), ["AWG201", "AWG101"]),
        ('select = ["AWG002"]', ("--select=AWG001",), ["AWG001"]),
        ('ignore = ["AWG902"]', (), ["AWG001"]),
        ('ignore = ["AWG902"]', ("--extend-select=AWG902",), ["AWG902", "AWG001"]),
        ('exclude = ["safe.py"]', (), ["AWG902"]),
    ],
)
def test_the_table_of_the_project_counts_and_flake8s_own_choice_wins(folder, table, argv, expected):
    write_tree(folder, {**ALL, "pyproject.toml": f"[tool.actor-wg]\n{table}\n".encode()})
    assert codes(by_flake8(folder, *argv)) == expected


def test_options_can_stand_in_flake8s_configuration_and_add_up(folder):
    copies = {f"{name}/checkpoint_engine/base.py": b"" for name in ("ours", "theirs", "third")}
    source = CALL.replace(b"verl", b"NAME")
    uses = {f"use_{n}.py": source.replace(b"NAME", n.encode()) for n in ("ours", "theirs", "third")}
    setup = b"[flake8]\nactor-wg-verl-root = ours, theirs\nactor-wg-exclude = use_theirs.py\n"
    write_tree(folder, {**copies, **uses, "setup.cfg": setup})
    assert [site[0] for site in by_flake8(folder)] == ["use_ours.py"]
    found = by_flake8(folder, "--actor-wg-verl-root=third")
    assert [site[0] for site in found] == ["use_ours.py", "use_third.py"]


@pytest.mark.parametrize("jobs", ["-j1", "-j2"])
@pytest.mark.parametrize(
    ("argv", "table", "reason"),
    [
        (["--actor-wg-verl-root=a b.c-d"], "", "'b.c-d' is not an import path like a.verl"),
        ([], "nonsense = 1", "tool.actor-wg.nonsense is not a setting"),
        ([], "select = ['AWG7']", "unknown code 'AWG7'"),
        ([], "naming =", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line_and_a_failed_run(folder, jobs, argv, table, reason):
    if jobs == "-j2" and sys.version_info < (3, 11):
        pytest.skip("a process pool of Python 3.10 can hang at exit after a worker's error")
    write_tree(folder, {"a.py": CALL, "b.py": CALL})
    (folder / "pyproject.toml").write_text(f"[tool.actor-wg]\n{table}\n", "utf-8")
    done = by_program(folder, jobs, "--select=AWG", *argv)
    assert done.returncode == 1
    assert reason in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_error_inside_the_plugin_ends_the_run_with_its_traceback(folder):
    write_tree(folder, {"a.py": CALL, "b.py": CALL})
    program = (
        "from actor_wg_codemod.analysis import Analysis\n"
        "def broken(*args): raise AttributeError('from inside')\n"
        "Analysis.relevant = broken\n"
        "from flake8.main.cli import main\n"
        "raise SystemExit(main(['JOBS', '--select=AWG', '.']))\n"
    )
    for jobs in ("-j1", "-j2"):
        argv = [sys.executable, "-c", program.replace("JOBS", jobs)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1
        assert "AttributeError: from inside" in done.stderr


# Beside other plugins


def _neighbors() -> list[str]:
    return [name for name in ("bugbear", "flake8_async") if importlib.util.find_spec(name)]


FSTRINGS = b'''\
import trio
from verl.checkpoint_engine import CheckpointEngineManager


async def show(manager: CheckpointEngineManager, trainer_world_size=[]):
    print(
        f"""
        {undefined}
        {manager.trainer!r:>{other.trainer}} {trainer} {(lambda x: manager.trainer)}"""
    )
    try:
        await trio.sleep(0)
    except:
        pass
'''


@pytest.mark.skipif(len(_neighbors()) < 2, reason="needs flake8-bugbear and flake8-async")
def test_other_plugins_say_what_they_say_without_ours(folder):
    write_tree(folder, {"a.py": FSTRINGS, "b.py": CALL})
    program = (
        "from flake8.main import application\n"
        "from flake8.plugins import finder\n"
        "load = finder.find_plugins\n"
        "finder.find_plugins = lambda *a: [p for p in load(*a) if p.entry_point.name != 'AWG']\n"
        "app = application.Application()\n"
        "app.run(['--extend-select=ASYNC,B', '.'])\n"
    )
    without = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    both = by_program(folder, "--extend-select=ASYNC,B", ".")
    others = sites(without.stdout, ours=False)
    assert sites(both.stdout, ours=False) == others
    assert {"B001", "B006", "E722", "F821"} <= set(codes(others))
    assert any(code.startswith("ASYNC") for code in codes(others)) or "ASYNC" in without.stdout
    assert codes(sites(both.stdout)) == ["AWG003", "AWG003", "AWG001"]
    assert sites(both.stdout) == by_check(folder)


def test_flake8s_tree_is_the_same_after_us():
    from flake8_actor_wg.placing import placed

    text = FSTRINGS.decode()
    tree = ast.parse(text)
    before = ast.dump(tree, include_attributes=True)
    for node in ast.walk(tree):
        node.hung = tree  # as pyflakes hangs each node's parent on it
    own = placed(tree, text.splitlines(keepends=True), ("trainer",))
    assert ast.dump(tree, include_attributes=True) == before
    found = [n for n in ast.walk(own) if isinstance(n, ast.Attribute) and n.attr == "trainer"]
    lines = text.encode().splitlines()
    for node in found:
        assert lines[node.lineno - 1][: node.end_col_offset].endswith(b".trainer")
    assert len(found) == 3
    moved = [n for n in ast.walk(own) if n not in set(ast.walk(tree)) and hasattr(n, "hung")]
    assert all(not isinstance(node, ast.JoinedStr) for node in moved)


@pytest.mark.parametrize("collecting", [True, False])
def test_the_garbage_collector_is_as_before_after_a_file(folder, collecting):
    write_tree(folder, {"a.py": CALL})
    switch = "enable" if collecting else "disable"
    program = f"import gc\ngc.{switch}()\nmain(['-j1', '.', '-qq'])\nprint(gc.isenabled())\n"
    assert alone(folder, program).splitlines()[-1] == str(collecting)
