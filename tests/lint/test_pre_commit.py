"""The hooks with the real pre-commit: a commit with an old name is refused, mended, and passes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from helpers import snapshot

ROOT = Path(__file__).parent.parent.parent
PARTS = ("codemod", "lint_plugin", "reference_engine")
FILES = (".pre-commit-hooks.yaml", "README.md", "RULES.md", "pyproject.toml")
OLD = textwrap.dedent(
    """\
    from verl.checkpoint_engine import CheckpointEngineManager

    manager = CheckpointEngineManager({}, trainer=None, replicas=[])
    """
)
NEW = OLD.replace("trainer=", "actor_wg=")

pytestmark = [
    pytest.mark.network,  # pip gets what the hook needs
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("pre_commit") is None or shutil.which("git") is None,
        reason="needs git and the package pre-commit",
    ),
]


class Checkout:
    """A git repository, and a way to run git and pre-commit in it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@example.org",
            "PRE_COMMIT_HOME": str(cache),
            "PRE_COMMIT_COLOR": "never",
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet")

    def git(self, *argv: str, status: int = 0) -> str:
        return self._run(["git", *argv], status)

    def pre_commit(self, *argv: str, status: int = 0) -> str:
        return self._run([sys.executable, "-m", "pre_commit", *argv], status)

    def commit(self, name: str, text: str, *, status: int = 0) -> str:
        """Writes a file and commits it; what git and the hooks said."""
        (self.folder / name).write_text(text, "utf-8")
        self.git("add", name)
        return self.git("commit", "-m", f"Write {name}", status=status)

    def _run(self, command: list[str], status: int) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True
        )
        said = done.stdout + done.stderr
        assert done.returncode == status, said
        return said


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("pre-commit")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory, cache):
    """The project as a repository of hooks, as it is on disk; its folder and its commit."""
    source = Checkout(tmp_path_factory.mktemp("hooks"), cache)
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, source.folder / part, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source.folder / name)
    source.git("add", ".")
    source.git("commit", "--quiet", "-m", "Snapshot")
    return source.folder, source.git("rev-parse", "HEAD").strip()


@pytest.fixture
def project(tmp_path, cache, hooks):
    """Makes a repository whose commits go through one hook."""

    def make(configuration: str) -> Checkout:
        made = Checkout(tmp_path / "a project \u00e9", cache)
        made.commit("README.md", "Uses verl.\n")
        (made.folder / ".pre-commit-config.yaml").write_text(configuration, "utf-8")
        made.git("add", ".")
        made.git("commit", "--quiet", "-m", "Configure")
        made.pre_commit("install")
        return made

    return make


def of_the_repository(hooks: tuple[Path, str], hook: str) -> str:
    folder, commit = hooks
    return f'repos: [{{repo: "{folder}", rev: "{commit}", hooks: [{{id: {hook}}}]}}]\n'


def test_the_checking_hook_refuses_a_commit_and_says_why(project, hooks):
    made = project(of_the_repository(hooks, "actor-wg-check"))
    said = made.commit("run.py", OLD, status=1)
    assert "run.py:3:39: AWG001" in said
    assert (made.folder / "run.py").read_text("utf-8") == OLD
    made.commit("run.py", NEW)
    assert made.git("status", "--porcelain") == ""


def test_the_migrating_hook_mends_the_file_and_the_next_commit_passes(project, hooks):
    made = project(of_the_repository(hooks, "actor-wg-migrate"))
    said = made.commit("run.py", OLD, status=1)
    assert "files were modified by this hook" in said
    assert (made.folder / "run.py").read_text("utf-8") == NEW
    made.git("add", "run.py")
    made.git("commit", "-m", "Write run.py")
    assert made.git("show", "HEAD:run.py") == NEW


def test_unstaged_work_survives_the_migrating_hook(project, hooks):
    made = project(of_the_repository(hooks, "actor-wg-migrate"))
    made.commit("other.py", "x = 1\n")
    (made.folder / "other.py").write_text("x = 2\n", "utf-8")
    made.commit("run.py", OLD, status=1)
    assert snapshot(made.folder)["other.py"] == b"x = 2\n"
    assert (made.folder / "run.py").read_text("utf-8") == NEW


def test_what_a_staged_file_means_is_known_from_files_that_are_not_handed_over(project, hooks):
    made = project(of_the_repository(hooks, "actor-wg-check"))
    base = "from verl.checkpoint_engine import CheckpointEngineManager as Base\n"
    made.commit("names.py", base)
    said = made.commit("run.py", "import names\n\nnames.Base({}, trainer=None)\n", status=1)
    assert "run.py:3:16: AWG001" in said


def test_flake8_as_a_hook_has_the_plugin_as_an_additional_dependency(project, hooks):
    made = project(
        textwrap.dedent(
            f"""\
            repos:
            - repo: local
              hooks:
              - id: flake8
                name: flake8
                entry: flake8
                language: python
                types: [python]
                additional_dependencies: ["flake8>=7", "{hooks[0]}"]
            """
        )
    )
    said = made.commit("run.py", OLD, status=1)
    assert "run.py:3:39: AWG001" in said
    made.commit("run.py", NEW)
