"""Which files a project has, which of them are reported on, and under what name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from actor_wg_codemod.discovery import UsageError, discover, for_stdin
from helpers import write_tree


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def tree_of(folder, *names):
    write_tree(folder, dict.fromkeys(names, b""))
    return folder


def shown(tree):
    return [target.shown for target in tree.targets]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))


def test_git_says_which_files_there_are(tmp_path):
    tree_of(tmp_path, "a.py", "gone.py", "ignored.py", "out/b.py", "pkg/c.pyi", "new.py", "x.c")
    (tmp_path / ".gitignore").write_text("ignored.py\nout/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "a.py", "gone.py", "pkg", "x.c")
    (tmp_path / "gone.py").unlink()
    tree = discover([str(tmp_path)])
    assert tree.root == tmp_path
    assert [target.path for target in tree.targets] == ["a.py", "new.py", "pkg/c.pyi"]
    assert tree.problems == ()


def test_a_named_file_is_a_target_even_if_git_ignores_it(tmp_path):
    tree_of(tmp_path, "ignored.py", "out/b.py", "out/c.txt", "a.py")
    (tmp_path / ".gitignore").write_text("ignored.py\nout/\n")
    git(tmp_path, "init", "-q")
    assert shown(discover([str(tmp_path / "ignored.py")])) == [str(tmp_path / "ignored.py")]
    assert shown(discover([str(tmp_path / "out")])) == [str(tmp_path / "out/b.py")]
    assert "a.py" in discover([str(tmp_path / "out")]).files


def test_files_of_a_checkout_inside_belong_to_that_checkout(tmp_path):
    tree_of(tmp_path, "a.py", "inner/b.py")
    git(tmp_path, "init", "-q")
    git(tmp_path / "inner", "init", "-q")
    assert [target.path for target in discover([str(tmp_path)]).targets] == ["a.py"]
    assert discover([str(tmp_path / "inner")]).root == tmp_path / "inner"


def test_file_names_may_hold_anything(tmp_path):
    names = ["sp ace.py", "new\nline.py", "caf\u00e9.py", "tab\t.py", os.fsdecode(b"raw\xff.py")]
    tree_of(tmp_path, *names)
    walked = discover([str(tmp_path)]).files
    git(tmp_path, "init", "-q")
    assert walked == discover([str(tmp_path)]).files == tuple(sorted(names))


def test_a_walk_leaves_out_environments_build_output_and_caches(tmp_path):
    tree_of(
        tmp_path,
        *("a.py", "pkg/b.py", "pkg/build/__init__.py", "pkg/build/c.py", ".github/d.py"),
        *("venv/pyvenv.cfg", "venv/lib/x.py", "build/lib/x.py", "dist/x.py", ".tox/x.py"),
        *("node_modules/x.py", "lib/site-packages/x.py", "__pycache__/x.py", ".git-hooks.txt"),
    )
    expected = [".github/d.py", "a.py", "pkg/b.py", "pkg/build/__init__.py", "pkg/build/c.py"]
    assert [target.path for target in discover([str(tmp_path)]).targets] == expected


def test_site_packages_named_by_the_user_are_walked(tmp_path):
    tree_of(tmp_path, "setup.py", "lib/site-packages/x.py")
    tree = discover([str(tmp_path / "lib/site-packages")])
    assert [target.path for target in tree.targets] == ["lib/site-packages/x.py"]


def test_only_kinds_that_somebody_reads_are_listed(tmp_path):
    read = [
        "a.py", "a.pyi", "a.ipynb", "a.yaml", "a.yml", "a.md", "a.rst", "a.sh", "setup.cfg",
        "pyproject.toml", "requirements-dev.txt", "requirements/x.txt", "uv.lock",
    ]  # fmt: skip
    tree_of(tmp_path, *read, "notes.txt", "a.json", "data.toml", "a.pyc", "LICENSE")
    assert set(discover([str(tmp_path)]).files) == set(read)


@pytest.mark.parametrize("marker", ["pyproject.toml", "setup.py", "setup.cfg"])
def test_the_root_is_the_nearest_folder_with_metadata(tmp_path, marker):
    tree_of(tmp_path, "setup.py", f"sub/{marker}", "sub/pkg/a.py", "sub/b.py")
    tree = discover([str(tmp_path / "sub/pkg")])
    assert tree.root == tmp_path / "sub"
    assert {"pkg/a.py", "b.py"} <= set(tree.files)
    assert [target.path for target in tree.targets] == ["pkg/a.py"]


def test_in_a_checkout_untracked_environments_and_build_output_are_left_out_too(tmp_path):
    tracked = ["a.py", "build/tool.py", "site-packages/kept.py"]
    tree_of(tmp_path, *tracked)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    names = ["env/pyvenv.cfg", "env/lib/x.py", "build/lib/x.py", "dist/x.py", "node_modules/x.py"]
    tree_of(tmp_path, *names, "pkg/build/__init__.py", "pkg/build/new.py", "new.py")
    found = [target.path for target in discover([str(tmp_path)]).targets]
    assert found == sorted([*tracked, "new.py", "pkg/build/__init__.py", "pkg/build/new.py"])


def test_around_a_lone_file_only_importable_folders_are_looked_into(tmp_path):
    tree_of(tmp_path, "a.py", "b.py", "pkg/__init__.py", "pkg/sub/c.py", "data/d.py")
    tree_of(tmp_path, "pkg/inner/__init__.py")
    tree = discover([str(tmp_path / "a.py")])
    assert tree.files == ("a.py", "b.py", "pkg/__init__.py", "pkg/inner/__init__.py")
    assert set(for_stdin(str(tmp_path / "a.py")).files) == set(tree.files)


def test_without_a_marker_the_root_is_the_folder_given(tmp_path):
    tree_of(tmp_path, "a/x.py", "b/y.py", "c/z.py")
    assert discover([str(tmp_path / "a")]).root == tmp_path / "a"
    assert discover([str(tmp_path / "a/x.py")]).root == tmp_path / "a"
    both = discover([str(tmp_path / "a"), str(tmp_path / "b/y.py")])
    assert (both.root, both.files) == (tmp_path, ("a/x.py", "b/y.py"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["."], ["pkg/a.py"]),
        (["pkg"], ["pkg/a.py"]),
        (["pkg/"], ["pkg/a.py"]),
        (["./pkg"], ["./pkg/a.py"]),
        (["pkg/../pkg/a.py"], ["pkg/../pkg/a.py"]),
        (["pkg", "pkg/a.py", "."], ["pkg/a.py"]),
    ],
)
def test_files_are_shown_as_given(tmp_path, monkeypatch, given, expected):
    monkeypatch.chdir(tree_of(tmp_path, "setup.py", "pkg/a.py"))
    names = [t.shown for t in discover(given).targets if t.path != "setup.py"]
    assert names == expected


@pytest.mark.parametrize("in_git", [True, False])
@pytest.mark.parametrize(
    ("glob", "left"),
    [
        ("legacy/*", ["a.py", "old_b.py", "sub/legacy/c.py"]),
        ("legacy", ["a.py", "old_b.py"]),
        ("legacy/", ["a.py", "old_b.py"]),
        ("./legacy/x.py", ["a.py", "old_b.py", "sub/legacy/c.py"]),
        ("old_*.py", ["a.py", "legacy/x.py", "sub/legacy/c.py"]),
        ("*.py", []),
        ("nothing", ["a.py", "legacy/x.py", "old_b.py", "sub/legacy/c.py"]),
    ],
)
def test_excluded_files_are_neither_listed_nor_reported(tmp_path, in_git, glob, left):
    tree_of(tmp_path, "a.py", "legacy/x.py", "old_b.py", "sub/legacy/c.py")
    if in_git:
        git(tmp_path, "init", "-q")
    tree = discover([str(tmp_path)], [glob])
    assert list(tree.files) == [target.path for target in tree.targets] == left


def test_globs_count_from_the_current_folder_too(tmp_path, monkeypatch):
    tree_of(tmp_path, "setup.cfg", "sub/legacy/x.py", "sub/y.py")
    monkeypatch.chdir(tmp_path / "sub")
    assert shown(discover(["."], ["legacy/*"])) == ["y.py"]
    assert shown(discover(["."], [str(tmp_path / "sub/legacy")])) == ["y.py"]


@pytest.mark.parametrize("in_git", [True, False])
def test_links_are_named_where_they_lead_out_or_in_circles(tmp_path, in_git):
    outside = tree_of(tmp_path, "outside/x.py") / "outside"
    project = tree_of(tmp_path / "project", "setup.cfg", "pkg/a.py")
    links = {
        "out.py": outside / "x.py", "out": outside, "self.py": "self.py", "pkg/loop": project,
        "twice.py": "pkg/a.py", "also": "pkg", "gone.py": "nowhere.py", "gone": "nowhere",
        ".#lock.py": "user@host", "notes.c": outside / "x.py",
    }  # fmt: skip
    for name, target in links.items():
        (project / name).symlink_to(target)
    if in_git:
        git(project, "init", "-q")
        git(project, "add", "-A")
    tree = discover([str(project)])
    problems = {p.path.removeprefix(f"{project}/"): p.reason for p in tree.problems}
    assert set(problems) == {"out.py", "out", "self.py", "pkg/loop", "gone.py"}
    assert problems["out.py"].startswith("a link out of the tree")
    assert problems["self.py"] == "a loop of links"
    assert problems["pkg/loop"].startswith("a loop of links: leads back to")
    assert problems["gone.py"] == "a link to something that does not exist"
    assert [target.path for target in tree.targets] == ["pkg/a.py"]
    assert tree.skipped == 1


def test_only_problems_below_the_named_paths_are_told(tmp_path):
    tree_of(tmp_path, "setup.cfg", "a/x.py", "b/y.py")
    (tmp_path / "b/self.py").symlink_to("self.py")
    assert discover([str(tmp_path / "a")]).problems == ()
    assert [p.path for p in discover([str(tmp_path / "b")]).problems] == [f"{tmp_path}/b/self.py"]


def test_a_named_link_stands_for_the_file_it_leads_to(tmp_path):
    tree_of(tmp_path, "setup.cfg", "pkg/a.py")
    (tmp_path / "link.py").symlink_to("pkg/a.py")
    (target,) = discover([str(tmp_path / "link.py")]).targets
    assert (target.shown, target.path) == (str(tmp_path / "link.py"), "pkg/a.py")


def test_pipes_and_folders_with_a_file_s_name_are_no_files(tmp_path):
    tree_of(tmp_path, "a.py", "folder.py/b.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert [t.path for t in discover([str(tmp_path)]).targets] == ["a.py", "folder.py/b.py"]


def test_a_named_file_of_another_kind_is_skipped(tmp_path):
    tree = discover([str(tree_of(tmp_path, "Makefile", "a.py") / "Makefile")])
    assert (tree.targets, tree.skipped) == ((), 1)


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    tree_of(tmp_path, "a.py", "closed/b.py")
    scandir = os.scandir

    def closed(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    tree = discover([str(tmp_path)])
    (problem,) = tree.problems
    assert problem.path == f"{tmp_path}/closed"
    assert problem.reason == "folder cannot be read: Permission denied"
    assert [target.path for target in tree.targets] == ["a.py"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nope", "no such file or folder"),
        ("a.py/nope", "no such file or folder"),
        ("nu\0ll", "no such file or folder"),
        ("self", "links"),
        ("gone", "a link to something that does not exist"),
        ("pipe", "neither a file nor a folder"),
    ],
)
def test_paths_that_cannot_be_are_usage_errors(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tree_of(tmp_path, "a.py"))
    Path("self").symlink_to("self")
    Path("gone").symlink_to("nowhere")
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match=reason):
        discover([name])


def test_paths_of_two_projects_are_a_usage_error(tmp_path):
    tree_of(tmp_path, "one/setup.py", "one/a.py", "two/setup.py", "two/b.py")
    with pytest.raises(UsageError, match=r"two/b\.py: outside of the project at .*one"):
        discover([str(tmp_path / "one"), str(tmp_path / "two/b.py")])


def test_a_file_from_standard_input_stands_in_its_project(tmp_path, monkeypatch):
    tree_of(tmp_path, "setup.cfg", "pkg/a.py")
    tree = for_stdin(str(tmp_path / "pkg/new.py"))
    assert tree.root == tmp_path
    assert tree.files == ("pkg/a.py", "pkg/new.py", "setup.cfg")
    assert [(t.shown, t.path) for t in tree.targets] == [(f"{tmp_path}/pkg/new.py", "pkg/new.py")]
    monkeypatch.chdir(tmp_path / "pkg")
    assert for_stdin(None).targets[0].shown == "<stdin>"
    assert for_stdin("not/there.py").targets[0].shown == "not/there.py"
    with pytest.raises(UsageError, match="not Python"):
        for_stdin("notes.txt")
