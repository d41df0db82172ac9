"""Sets up everything and runs every test: `nox`. One session each: `nox -s lint`, `nox -s tests`, ..."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.options.sessions = ["lint", "tests", "engine", "verl"]
nox.options.error_on_missing_interpreters = True

TORCH = os.environ.get("ACTOR_WG_TORCH", "torch==2.13.0")
"""One exact release, so that every run tests the same; any `torch>=2.4` can be given instead."""
LINTERS = ["mypy>=1.15", "ruff>=0.12", "types-PyYAML", "types-flake8"]
ENGINE = ["msgspec", "numpy", "ray", "xxhash", "matplotlib", "pyyaml", "libcst"]
TRANSPORTS = ["nixl-cu12", "mooncake-transfer-engine-non-cuda"]
SYSTEM = {
    "tests": ["chromium"],
    "engine": ["iproute2", "libibverbs1", "libnuma1", "librdmacm1"],
}
"""Debian packages without which single tests skip."""


def interpreters() -> list[str]:
    """The oldest and the newest Python from 3.10 on that this machine has, on PATH or from pyenv."""
    folder = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    named += [shutil.which("python3"), *map(str, folder.glob("versions/3.*/bin/python3"))]
    found: dict[tuple[int, int], str] = {}
    for python in filter(None, named):
        done = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
        match = re.fullmatch(r"Python 3\.(\d+)\.(\d+)", done.stdout.strip())
        if done.returncode == 0 and match and 10 <= int(match[1]) <= 14:
            found.setdefault((int(match[1]), int(match[2])), python)
    versions = sorted(found)
    return [found[v] for v in dict.fromkeys((versions[0], versions[-1]))]


def system_packages(session: nox.Session, packages: list[str]) -> None:
    """Installs Debian packages where that is possible; without them the tests that need them skip."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        session.log(f"not installed here, tests that need them skip: {' '.join(packages)}")
        return
    known = subprocess.run(["dpkg", "-s", *packages], capture_output=True, check=False)
    if known.returncode:
        session.run("apt-get", "-qq", "update", external=True)
        session.run(
            "apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages,
            external=True, silent=True, env={"DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip


def timed(session: nox.Session, *command: str, env: dict[str, str] | None = None) -> None:
    """Runs tests that hold deadlines; what fails on a busy machine has to pass when run again alone."""
    command = (*command, *session.posargs)
    try:
        session.run(*command, external=True, env=env)
    except CommandFailed:
        session.log("once more, only what failed")
        session.run(
            *command, "--last-failed", "--last-failed-no-failures=none", external=True, env=env
        )


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types, and our own rule on our own tree."""
    session.install(*LINTERS, "-e", ".[lint]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy", "codemod/actor_wg_codemod", "lint_plugin/flake8_actor_wg")
    session.run("flake8", "--select=AWG", "codemod", "lint_plugin", "reference_engine")


@nox.session(python=interpreters())
def tests(session: nox.Session) -> None:
    """The codemod and the lint plugin, on the oldest and the newest Python."""
    system_packages(session, SYSTEM["tests"])
    session.install("-e", ".[test]")
    timed(session, "pytest", "-q", "tests/codemod", "tests/lint")


@nox.session
def engine(session: nox.Session) -> None:
    """The reference engine and its transports on CPU; GPU tests say why they skip."""
    system_packages(session, SYSTEM["engine"])
    session.install(TORCH)
    session.install(*ENGINE, "pytest", "pytest-timeout", "mypy", "ruff", "flake8")
    session.install("--no-deps", *TRANSPORTS)
    session.install("--no-deps", "-e", ".")
    session.run("mypy", "reference_engine/actor_wg_engine")
    timed(session, "pytest", "-q", "-rs", "-m", "not slow", "tests/engine", "tests/gpu")


@nox.session
def verl(session: nox.Session) -> None:
    """The engine and the migrated example against real verl 0.8.0 and 0.9.1."""
    folder = Path(session.virtualenv.location) / "releases"  # Ray's sockets need a short TMPDIR
    python = folder / "venv" / "bin" / "python"
    if not (folder / "verl-0.8.0" / "verl").is_dir():
        session.run("python", "tests/verl/make_environment.py", str(folder))
    timed(
        session, str(python), "-m", "pytest", "-q", "tests/verl",
        env={"ACTOR_WG_VERL_080": str(folder / "verl-0.8.0")},
    )  # fmt: skip
