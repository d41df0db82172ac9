"""Runs flake8 in this process or as a program, and lists what our plugin said."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import flake8.main.cli
from flake8.main.application import Application
from flake8.plugins.finder import Checkers

import helpers

Site = tuple[str, int, int, str]
_LINE = re.compile(r"(.+?):(\d+):(\d+): (\w+) .+")
_PLAIN = ("-j1", "--filename=*.py,*.pyi")
_SUFFIXES = (".py", ".pyi")
_ARGUMENTS: Mapping[str, Sequence[str]] = {
    "--naming": ("--extend-select", "AWG1"),
    "--unsafe-fixes": ("--extend-select", "AWG901"),
    "--select": ("--select",),
    "--ignore": ("--extend-ignore",),
    "--verl-root": ("--actor-wg-verl-root",),
    "--exclude": ("--actor-wg-exclude",),
}
"""An option of `actor-wg check` -> what asks flake8 for the same."""


def by_flake8(folder: Path, *argv: str, ours: bool = True) -> list[Site]:
    """The findings of flake8 in a folder: path, row, column, code."""
    with _caught(folder) as out:
        flake8.main.cli.main([*_PLAIN, *argv])
    return sites(out[0], ours=ours)


def by_our_plugin(folder: Path, *argv: str) -> list[Site]:
    """The same for a large folder: flake8 with our plugin and no other."""
    with _caught(folder) as out:
        app = Application()
        app.initialize([*_PLAIN, "--isolated", *argv])
        assert app.plugins is not None
        assert app.file_checker_manager is not None
        ours = [plugin for plugin in app.plugins.checkers.tree if plugin.entry_name == "AWG"]
        app.file_checker_manager.plugins = Checkers(ours, [], [])
        app.run_checks()
        app.report()
    return sites(out[0])


def by_program(
    folder: Path, *argv: str, stdin: bytes = b"", python: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """`python -m flake8` in a folder, in a process of its own."""
    command = [sys.executable, *python, "-m", "flake8", *argv]
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, check=False)
    text = (done.stdout.decode(), done.stderr.decode())
    return subprocess.CompletedProcess(command, done.returncode, *text)


def by_check(folder: Path, *argv: str) -> list[Site]:
    """The findings of `actor-wg check` in Python files."""
    result = helpers.run("check", "--output-format", "json", *argv, folder=folder)
    found = [
        (f["filename"], f["location"]["row"], f["location"]["column"], f["code"])
        for f in json.loads(result.out)
    ]
    return sorted(site for site in found if site[0].endswith(_SUFFIXES))


def translated(flags: Sequence[str]) -> list[str]:
    """Options of `check` as those of flake8.

    Raises:
        KeyError: flake8 has no such option.
    """
    argv: list[str] = []
    for flag in flags:
        argv += _ARGUMENTS[flag] if flag.startswith("--") else [flag]
    selected: list[str] = []
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--extend-select":  # flake8 takes the last one only
            selected.append(next(words))
        else:
            kept.append(word)
    return [*kept, "--extend-select", ",".join(selected)] if selected else kept


def sites(text: str, *, ours: bool = True) -> list[Site]:
    """What flake8's lines say, sorted."""
    found = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and match[4].startswith("AWG") == ours:
            found.append((os.path.normpath(match[1]), int(match[2]), int(match[3]), match[4]))
    return sorted(found)


@contextlib.contextmanager
def _caught(folder: Path) -> Iterator[list[str]]:
    stream = io.TextIOWrapper(io.BytesIO())  # flake8 writes bytes to it
    text: list[str] = []
    with helpers.inside(folder), contextlib.redirect_stdout(stream):
        yield text
    stream.seek(0)
    text.append(stream.read())
