"""The engine's half of the command line: `actor-wg bench` and, once it is there, `actor-wg verify`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

VERIFY = "actor_wg_engine.verify"


def parser() -> argparse.ArgumentParser:
    """The parser of both subcommands."""
    from actor_wg_engine import bench

    top = argparse.ArgumentParser(prog="actor-wg")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    bench.add_arguments(
        commands.add_parser("bench", help="measure a sync next to the raw primitive under it")
    )
    if importlib.util.find_spec(VERIFY):
        from importlib import import_module

        import_module(VERIFY).add_arguments(
            commands.add_parser("verify", help="check a migrated repository and its engines")
        )
    return top


def main(argv: Sequence[str]) -> int:
    """Run a subcommand.

    Args:
        argv: The subcommand's name and its arguments.

    Returns:
        The exit status.
    """
    if argv and argv[0] == "verify" and importlib.util.find_spec(VERIFY) is None:
        print("error: this version has no verify yet", file=sys.stderr)
        return 2
    try:
        args = parser().parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    if args.command == "bench":
        from actor_wg_engine.bench import run_bench

        return run_bench(args)
    from importlib import import_module

    return int(import_module(VERIFY).run_verify(args))
