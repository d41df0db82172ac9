"""Writing: atomic, only over what was read, never over uncommitted work, one failure at a time."""

from __future__ import annotations

import os
import random
import resource
import signal
import stat
import subprocess
import sys

import pytest

from actor_wg_codemod import writer
from actor_wg_codemod.discovery import UsageError, discover
from actor_wg_codemod.runner import Options, check, migrate
from helpers import run, snapshot, write_tree

OLD = b"""\
from verl.checkpoint_engine import CheckpointEngineManager

manager = CheckpointEngineManager(config=None, trainer=None, replicas=[])
"""
NEW = OLD.replace(b"trainer=", b"actor_wg=")
RUN = "import sys; from actor_wg_codemod.cli import entry; sys.exit(entry())"


def project(folder, count=3):
    files = {f"m{number:03}.py": OLD for number in range(count)}
    write_tree(folder, {"setup.cfg": b"", **files})
    return folder


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def migrated(folder, **options):
    return migrate(discover([str(folder)]), Options(**options))


def in_process(folder, program=RUN, *, before=None, arguments=("migrate", ".")):
    """Runs the command in a process of its own, that ends as it likes."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        preexec_fn=before,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_check_changes_nothing_and_migrate_all(tmp_path):
    before = snapshot(project(tmp_path))
    found = check(discover([str(tmp_path)]), Options())
    assert (found.read, found.left, found.changed, found.problems) == (3, 3, (), ())
    assert snapshot(tmp_path) == before
    done = migrated(tmp_path)
    assert (done.left, len(done.changed), done.problems) == (0, 3, ())
    assert [outcome.old for outcome in done.changed] == [OLD] * 3
    assert {name: data for name, data in snapshot(tmp_path).items() if name != "setup.cfg"} == {
        name: NEW for name in before if name != "setup.cfg"
    }


def test_processes_give_the_same_as_one(tmp_path):
    one, two = project(tmp_path / "one", 70), project(tmp_path / "two", 70)
    (two / "m000.py").chmod(0o600)
    assert len(migrated(one, jobs=1).changed) == len(migrated(two, jobs=2).changed) == 70
    assert snapshot(one) == snapshot(two)


def test_mode_and_owner_stay(tmp_path):
    path = project(tmp_path) / "m001.py"
    path.chmod(0o2751)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
        path.chmod(0o2751)
    before = path.stat()
    migrated(tmp_path)
    after = path.stat()
    assert path.read_bytes() == NEW
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_a_read_only_file_is_named_and_the_rest_is_done(tmp_path):
    (project(tmp_path) / "m001.py").chmod(0o444)
    done = migrated(tmp_path)
    (problem,) = done.problems
    assert problem.path == f"{tmp_path}/m001.py"
    assert problem.reason == "is read-only (mode 0444); chmod u+w it and run again"
    assert (tmp_path / "m001.py").read_bytes() == OLD
    assert (tmp_path / "m000.py").read_bytes() == (tmp_path / "m002.py").read_bytes() == NEW
    assert done.left == 1, "what could not be fixed is still listed"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(OLD + b"# new\n"), "has changed on disk since it was read"),
        (lambda path: path.unlink(), "has vanished since it was read"),
        (lambda path: (path.unlink(), path.symlink_to("m002.py")), "no longer a regular file"),
        (lambda path: (path.unlink(), path.mkdir()), "no longer a regular file"),
    ],
)
def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path, change, reason):
    path = project(tmp_path) / "m000.py"
    seen = []

    def meanwhile(done):
        if done == 1:  # the first file has been read
            change(path)
            seen.append(
                path.is_symlink() or path.is_dir() or (path.is_file() and path.read_bytes())
            )

    done = migrated(tmp_path, progress=meanwhile)
    (problem,) = done.problems
    assert (problem.path, reason in problem.reason) == (str(path), True)
    now = path.is_symlink() or path.is_dir() or (path.is_file() and path.read_bytes())
    assert [now] == seen
    assert (tmp_path / "m002.py").read_bytes() == NEW


def test_a_link_to_a_file_stays_a_link(tmp_path):
    project(tmp_path)
    (tmp_path / "link.py").symlink_to("m000.py")
    done = migrate(discover([str(tmp_path / "link.py")]), Options())
    assert [outcome.target.shown for outcome in done.changed] == [f"{tmp_path}/link.py"]
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "m000.py").read_bytes() == NEW
    assert (tmp_path / "m001.py").read_bytes() == OLD


def test_a_full_disk_leaves_the_file_and_no_remains(tmp_path):
    project(tmp_path)
    big = OLD + b"# " + b"x" * 200_000 + b"\n"
    (tmp_path / "m001.py").write_bytes(big)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = in_process(tmp_path, before=limit)
    assert done.returncode == 2
    assert "error: m001.py: cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "m001.py").read_bytes() == big
    assert (tmp_path / "m000.py").read_bytes() == (tmp_path / "m002.py").read_bytes() == NEW
    assert sorted(snapshot(tmp_path)) == ["m000.py", "m001.py", "m002.py", "setup.cfg"]


def test_a_folder_that_takes_no_new_files_is_named(tmp_path, monkeypatch):
    path = project(tmp_path) / "m000.py"
    real = os.open

    def closed(name, flags, *arguments, **options):
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(writer.WriteError, match="cannot be written: Permission denied"):
        writer.write(path, OLD, NEW)
    assert path.read_bytes() == OLD


KILL_AT = """
import os, signal
count = 0
def kill_at(name, number):
    real = getattr(os, name)
    def call(*arguments, **options):
        global count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(os, name, call)
kill_at({name!r}, {number})
"""


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("name", ["fchmod", "fsync", "replace", "close"])
def test_a_kill_at_any_step_leaves_each_file_old_or_new(tmp_path, name, number):
    project(tmp_path)
    killed = in_process(tmp_path, KILL_AT.format(name=name, number=number) + RUN)
    if killed.returncode != -signal.SIGKILL:
        assert name in ("replace", "fchmod", "close"), killed
        assert number > 3, "there are as many calls as files"
    now = {path.name: path.read_bytes() for path in tmp_path.glob("*.py")}
    assert set(now.values()) <= {OLD, NEW}
    assert len(now) == 3
    again = in_process(tmp_path)
    assert again.returncode == 0, again.stderr
    assert sorted(snapshot(tmp_path)) == ["m000.py", "m001.py", "m002.py", "setup.cfg"]
    assert {path.read_bytes() for path in tmp_path.glob("*.py")} == {NEW}


@pytest.mark.slow
def test_kills_at_random_moments_leave_each_file_old_or_new(tmp_path):
    chance = random.Random(20260615)
    for attempt in range(25):
        folder = project(tmp_path / str(attempt), 120)
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "migrate", "--quiet", "."],
            cwd=folder,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            process.wait(timeout=chance.uniform(0.1, 1.2))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for path in folder.glob("*.py"):
            assert path.read_bytes() in (OLD, NEW)
        assert run("migrate", "--quiet", folder=folder).status == 0
        assert {path.read_bytes() for path in folder.glob("*.py")} == {NEW}
        assert not list(folder.glob(".actor-wg*"))


def test_only_remains_of_dead_processes_are_removed(tmp_path):
    mine = tmp_path / f"{writer._PREFIX}{os.getpid()}-0.tmp"
    others = [tmp_path / ".actor-wg-elsewhere-1-0.tmp", tmp_path / f"{writer._PREFIX}x-0.tmp"]
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead = tmp_path / f"{writer._PREFIX}{process.pid}-0.tmp"
    for path in (mine, dead, *others):
        path.touch()
    writer.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, *others])


@pytest.mark.parametrize(
    ("make_dirty", "names"),
    [
        (lambda folder: (folder / "m001.py").write_bytes(OLD + b"# mine\n"), ["m001.py"]),
        (lambda folder: (folder / "new.py").write_bytes(OLD), ["new.py"]),
        (lambda folder: git(folder, "rm", "-q", "--cached", "m002.py"), ["m002.py"]),
        (lambda folder: (folder / "sp \u00e9.py").write_bytes(OLD), ["sp \u00e9.py"]),
    ],
)
def test_uncommitted_work_is_never_written_over(tmp_path, make_dirty, names):
    git(project(tmp_path), "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    make_dirty(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(UsageError, match=r"nothing was written.*--allow-dirty") as caught:
        migrated(tmp_path)
    assert f"uncommitted changes in {', '.join(names)};" in str(caught.value)
    assert snapshot(tmp_path) == before
    done = migrate(discover([str(tmp_path)]), Options(), allow_dirty=True)
    assert not done.problems
    assert all(b"trainer=" not in data for data in snapshot(tmp_path).values())


def test_other_uncommitted_work_does_not_matter(tmp_path):
    git(project(tmp_path), "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "setup.cfg").write_text("# changed\n")
    (tmp_path / "notes.py").write_text("x = 1\n")
    assert len(migrated(tmp_path).changed) == 3


def test_many_dirty_files_are_counted(tmp_path):
    git(project(tmp_path, 9), "init", "-q")
    with pytest.raises(UsageError, match=r"m004\.py and 4 more; nothing was"):
        migrated(tmp_path)


def test_a_broken_checkout_is_not_written_to_unasked(tmp_path):
    (project(tmp_path) / ".git").mkdir()
    with pytest.raises(UsageError, match="cannot ask git for uncommitted changes"):
        migrated(tmp_path)
    assert (tmp_path / "m000.py").read_bytes() == OLD
    done = migrate(discover([str(tmp_path)]), Options(), allow_dirty=True)
    assert len(done.changed) == 3


def test_without_writing_the_new_bytes_are_only_returned(tmp_path):
    before = snapshot(project(tmp_path))
    done = migrate(discover([str(tmp_path)]), Options(), write=False)
    assert [outcome.new for outcome in done.changed] == [NEW] * 3
    assert snapshot(tmp_path) == before


def test_written_files_have_no_stray_permissions(tmp_path):
    project(tmp_path)
    os.umask(os.umask(0o077))
    (tmp_path / "m000.py").chmod(0o644)
    migrated(tmp_path)
    assert stat.S_IMODE((tmp_path / "m000.py").stat().st_mode) == 0o644
