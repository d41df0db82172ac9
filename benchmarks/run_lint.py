"""Measures what our plugin adds to flake8's own CPU time on a folder, on and off in turn.

    python benchmarks/run_lint.py verl [--rounds 5] [--select AWG1,AWG201,AWG901]

Each measurement is a flake8 of its own with one process and no plugins but its own and ours; with
the plugin off it is left out before flake8 loads it. Rounds of "off, on" and "on, off" alternate, so
that a machine that slows down slows both. Modules are compiled once, before anything is measured, as
an installation does it. The aim is that "on" takes at most 2 % more than "off" on verl's tree.

Each run also says how much of its CPU time passed inside the plugin and the loading of it. What the
plugin adds is less than that, since it saves the garbage collector some work.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROGRAM = """\
import sys, time
from flake8.main.application import Application
from flake8.plugins import finder

find, load = finder.find_plugins, finder._load_plugin
known = {"pycodestyle", "pyflakes", "mccabe", "flake8", sys.argv[1]}
spent = 0.0

def timed(function):
    def measured(*argv):
        global spent
        before = time.process_time()
        result = function(*argv)
        spent += time.process_time() - before
        return result
    return measured

def loading(plugin):
    if plugin.package != "actor-wg":
        return load(plugin)
    loaded = timed(load)(plugin)
    run = loaded.obj.run
    loaded.obj.run = timed(lambda self: list(run(self)))
    return loaded

finder.find_plugins = lambda *a: [p for p in find(*a) if p.package in known]
finder._load_plugin = loading
Application().run(sys.argv[2:])
print(spent, time.process_time(), file=sys.stderr)
"""
PLUGIN = "actor-wg"


class BenchmarkError(Exception):
    """flake8 did not do its work; the text says what it said."""


@dataclass(frozen=True)
class Measured:
    """One run: its CPU seconds, those of them inside our plugin, and how many findings were ours."""

    seconds: float
    inside: float
    findings: int

    @property
    def share(self) -> float:
        """What passed inside the plugin, in percent of the rest."""
        return 100 * self.inside / (self.seconds - self.inside)


def measure(folder: Path, select: str, cache: str, *, on: bool) -> Measured:
    """Runs flake8 once.

    Raises:
        BenchmarkError: flake8 crashed, or our plugin found nothing when it was on.
    """
    argv = ["-j1", "--isolated", "--select", f"E,F,W,C90,AWG0,AWG902{select}", "."]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, PLUGIN if on else "", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache},
    )
    figures = re.fullmatch(r"(\S+) (\S+)\n", done.stderr)
    if done.returncode or figures is None:
        raise BenchmarkError(f"flake8 failed with status {done.returncode}: {done.stderr[-500:]}")
    findings = sum(": AWG" in line for line in done.stdout.splitlines())
    if on and not findings:
        raise BenchmarkError("nothing found: is the folder verl before the rename?")
    return Measured(float(figures[2]), float(figures[1]), findings)


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
    runs: dict[bool, list[Measured]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as cache:
        measure(arguments.folder, select, cache, on=True)
        for number in range(arguments.rounds):
            for on in (False, True) if number % 2 == 0 else (True, False):
                run = measure(arguments.folder, select, cache, on=on)
                runs[on].append(run)
                state = f"on, {run.inside:.3f} s inside" if on else "off"
                print(f"round {number + 1}: {run.seconds:.2f} s ({state})", flush=True)
    off, on_ = (statistics.median(run.seconds for run in runs[on]) for on in (False, True))
    share = statistics.median(run.share for run in runs[True])
    added = 100 * (on_ / off - 1)
    print(f"medians: off {off:.2f} s, on {on_:.2f} s; {runs[True][0].findings} findings")
    print(f"the plugin adds {added:.2f} % to flake8's own CPU time; {share:.2f} % pass inside it")
    if arguments.json:
        figures = {str(on): [vars(run) for run in runs[on]] for on in runs}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 1 if added > arguments.limit else 0


if __name__ == "__main__":
    raise SystemExit(main())
