"""Measures `check` and `migrate` against their peers, each pair in one run: see README.md."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"


@dataclass(frozen=True)
class Contender:
    """One command, and the exit statuses that mean it did its work."""

    name: str
    argv: tuple[str, ...]
    good: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Result:
    """What hyperfine measured for one contender, in seconds."""

    name: str
    cpu: float
    wall: float
    deviation: float


class BenchmarkError(Exception):
    """A contender or hyperfine did not do its work; the text says which and what to do."""


def rehearse(contender: Contender) -> None:
    """Run a contender once, so that a crash is never measured as a fast run.

    Raises:
        BenchmarkError: the program is missing, crashed, or ended with a status that is not good.
    """
    try:
        done = subprocess.run(contender.argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchmarkError(f"{contender.name}: {error}; is it installed?") from error
    if done.returncode not in contender.good or "Traceback (most recent" in done.stderr:
        tail = "\n".join(done.stderr.splitlines()[-3:])
        raise BenchmarkError(f"{contender.name}: exit status {done.returncode}\n{tail}")


def measure(contenders: list[Contender], runs: int, hyperfine: str) -> list[Result]:
    """Measure all contenders in one hyperfine run.

    Raises:
        BenchmarkError: a contender fails its rehearsal, or hyperfine itself fails.
    """
    for contender in contenders:
        rehearse(contender)
    with tempfile.TemporaryDirectory() as scratch:
        export = Path(scratch) / "result.json"
        argv = [hyperfine, "--shell=none", "--ignore-failure", "--style=none", "--warmup=1"]
        argv += [f"--runs={runs}", f"--export-json={export}"]
        for contender in contenders:
            argv += ["--command-name", contender.name, shlex.join(contender.argv)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except OSError as error:
            raise BenchmarkError(
                f"hyperfine: {error}; install it or name it with --hyperfine"
            ) from error
        if done.returncode:
            raise BenchmarkError(f"hyperfine: exit status {done.returncode}\n{done.stderr.strip()}")
        rows = json.loads(export.read_text(encoding="utf-8"))["results"]
    return [
        Result(row["command"], row["user"] + row["system"], row["mean"], row["stddev"] or 0.0)
        for row in rows
    ]


def imports_libcst(contender: Contender) -> bool:
    """Whether a contender or one of its processes imports libcst."""
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(contender.argv, env=env, capture_output=True, text=True, check=False)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    if not names:
        raise BenchmarkError(f"{contender.name}: reported no imports; is it a Python program?")
    return any(name == "libcst" or name.startswith("libcst.") for name in names)


def table(title: str, results: list[Result]) -> str:
    """The results as text; ratios are to the first row."""
    lines = [title, f"  {'command':34}{'CPU s':>9}{'ratio':>8}{'wall s':>9}{'+-':>7}"]
    for row in results:
        ratio = row.cpu / results[0].cpu
        lines.append(
            f"  {row.name:34}{row.cpu:9.3f}{ratio:8.2f}{row.wall:9.3f}{row.deviation:7.3f}"
        )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line; every path is an argument."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("--unrelated", type=Path, help="folder of Python files without a site")
    found.add_argument("--verl", type=Path, help="checkout of verl before the rename")
    found.add_argument("--actor-wg", default="actor-wg", help="command to measure (may have words)")
    found.add_argument("--python", default=sys.executable, help="interpreter of the bare walk")
    found.add_argument("--ast-grep", default="ast-grep", help="the peer")
    found.add_argument("--hyperfine", default="hyperfine")
    found.add_argument("--runs", type=int, default=5)
    found.add_argument("--json", type=Path, help="also write the figures to this file")
    return found


def groups(options: argparse.Namespace) -> list[tuple[str, list[Contender]]]:
    """What to measure, by what was given; the first of each group is the peer."""
    tool = tuple(shlex.split(options.actor_wg))
    listed = frozenset({0, 1})
    chosen: list[tuple[str, list[Contender]]] = []
    if options.unrelated:
        folder = str(options.unrelated)
        walk = (options.python, str(PEERS / "bare_walk.py"), folder)
        pair = [
            Contender("bare walk, read, search", walk),
            Contender("actor-wg check", (*tool, "check", folder)),
        ]
        chosen.append((f"files without a site: {folder}", pair))
    if options.verl:
        folder = str(options.verl)
        config = str(PEERS / "astgrep" / "sgconfig.yml")
        scan = (options.ast_grep, "scan", "--config", config, folder)
        trio = [
            Contender("ast-grep scan", scan, listed),
            Contender("actor-wg check", (*tool, "check", folder), listed),
            Contender("actor-wg migrate --diff", (*tool, "migrate", "--diff", folder), listed),
        ]
        chosen.append((f"verl before the rename: {folder}", trio))
    return chosen


def run(options: argparse.Namespace) -> list[tuple[str, list[Result]]]:
    """Measure every group, print its table, and say whether check imported libcst.

    Raises:
        BenchmarkError: see `measure`.
    """
    measured: list[tuple[str, list[Result]]] = []
    for title, contenders in groups(options):
        results = measure(contenders, options.runs, options.hyperfine)
        measured.append((title, results))
        print(table(title, results))
        used = "yes" if imports_libcst(contenders[1]) else "no"
        print(f"  {contenders[1].name} imports libcst: {used}\n")
    return measured


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks that were asked for; 2 when one of them could not run."""
    options = parser().parse_args(argv)
    folders = [folder for folder in (options.unrelated, options.verl) if folder]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if not folders or missing:
        reason = f"no such folder: {', '.join(missing)}" if missing else "nothing to measure"
        print(f"run_codemod: {reason}; give --unrelated FOLDER, --verl FOLDER", file=sys.stderr)
        return 2
    if options.runs < 2 or not shutil.which(options.hyperfine):
        print("run_codemod: needs hyperfine and --runs of 2 or more", file=sys.stderr)
        return 2
    try:
        measured = run(options)
    except BenchmarkError as error:
        print(f"run_codemod: {error}", file=sys.stderr)
        return 2
    if options.json:
        rows = [
            {"title": title, "results": [vars(row) for row in rows]} for title, rows in measured
        ]
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
