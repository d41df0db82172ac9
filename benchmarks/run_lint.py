"""Measures what our plugin adds to flake8's own CPU time on a folder, on and off in turn.

    python benchmarks/run_lint.py verl [--rounds 5] [--select AWG1,AWG201,AWG901]

Each measurement is a flake8 of its own with one process and no plugins but its own and ours; with
the plugin off it is left out before flake8 loads it. Rounds of "off, on" and "on, off" alternate, so
that a machine that slows down slows both. Modules are compiled once, before anything is measured, as
an installation does it. The aim is at most 2 % on verl's tree.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """\
import sys
from flake8.main.application import Application
from flake8.plugins import finder

find = finder.find_plugins
known = {"pycodestyle", "pyflakes", "mccabe", "flake8", *sys.argv[1].split(",")}
finder.find_plugins = lambda *a: [p for p in find(*a) if p.package in known]
Application().run(sys.argv[2:])
"""
PLUGIN = "actor-wg"


class BenchmarkError(Exception):
    """flake8 did not do its work; the text says what it said."""


def measure(folder: Path, select: str, cache: str, *, on: bool) -> tuple[float, int]:
    """User plus system seconds of one run of flake8, and how many findings were ours.

    Raises:
        BenchmarkError: flake8 crashed, or our plugin did not run when it should.
    """
    argv = ["-j1", "--isolated", "--select", f"E,F,W,C90,AWG0,AWG902{select}", "."]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, PLUGIN if on else "", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or done.stderr:
        raise BenchmarkError(f"flake8 failed with status {done.returncode}: {done.stderr[-500:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, sum(": AWG" in line for line in done.stdout.splitlines())


def main() -> int:
    """Prints both medians and what the plugin adds; 1 where that is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--select", default="", help="codes to switch on as well")
    parser.add_argument("--limit", type=float, default=2.0, help="percent (default: 2)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    select = f",{arguments.select}" if arguments.select else ""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as cache:
        _, found = measure(arguments.folder, select, cache, on=True)
        for number in range(arguments.rounds):
            for on in (False, True) if number % 2 == 0 else (True, False):
                spent, _ = measure(arguments.folder, select, cache, on=on)
                seconds[on].append(spent)
                state = "on " if on else "off"
                print(f"round {number + 1}, plugin {state}: {spent:.2f} s", flush=True)
    off, on_ = statistics.median(seconds[False]), statistics.median(seconds[True])
    ratios = [b / a for a, b in zip(seconds[False], seconds[True], strict=True)]
    added = (statistics.median(ratios) - 1) * 100
    print(f"off {off:.2f} s, on {on_:.2f} s, {found} findings: the plugin adds {added:.2f} %")
    if arguments.json:
        figures = {"off": seconds[False], "on": seconds[True], "added_percent": added}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 1 if added > arguments.limit else 0


if __name__ == "__main__":
    raise SystemExit(main())
