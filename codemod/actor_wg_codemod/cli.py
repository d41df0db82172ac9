"""The command line: `actor-wg check|migrate|rule|verify|bench`."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actor_wg_codemod import __version__
from actor_wg_codemod.arguments import CommandLineError, parse
from actor_wg_codemod.discovery import Tree, UsageError, discover, for_stdin
from actor_wg_codemod.progress import Progress, wants_color
from actor_wg_codemod.selection import CodeError, Selection, parse_codes
from actor_wg_codemod.settings import Settings, SettingsError, load, valid_root

if TYPE_CHECKING:
    import argparse

    from actor_wg_codemod.runner import Options, Run

STDIN = "-"
_ENGINE_COMMANDS = ("bench",)


def entry() -> int:
    """The console script: `main` with what a terminal needs around it."""
    # Syntax trees are many objects that live to the end: looking through them for garbage costs a third.
    gc.set_threshold(1_000_000)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # file names may hold anything
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted; every file is as it was, or wholly migrated")
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def main(argv: Sequence[str]) -> int:
    """Runs one command.

    Args:
        argv: the arguments after the program's name.

    Returns:
        0 nothing found or left, 1 findings or changes to make, 2 a usage error or a failed file.
    """
    if argv and argv[0] in _ENGINE_COMMANDS:
        return _engine(argv)
    try:
        arguments = parse(argv)
        if isinstance(arguments, int):  # help or the version was printed
            return arguments
        if arguments.command == "rule":
            from actor_wg_codemod import rules

            return rules.show(arguments.code)
        if arguments.command == "verify":
            return _verify(arguments)
        return _run(arguments)
    except (CommandLineError, UsageError, SettingsError, CodeError) as error:
        _say(f"error: {error}")
        return 2


def _run(arguments: argparse.Namespace) -> int:
    from actor_wg_codemod import runner

    migrating = arguments.command == "migrate"
    writes = migrating and not arguments.diff
    from_stdin = STDIN in arguments.paths
    _check_combinations(arguments, from_stdin)
    settings = load(_settings_folder(arguments, from_stdin))
    exclude = (*settings.exclude, *arguments.exclude)
    if from_stdin:
        tree, data = for_stdin(arguments.stdin_filename, exclude), sys.stdin.buffer.read()
        overlay = {tree.targets[0].path: data}
    else:
        tree, data, overlay = discover(arguments.paths or ["."], exclude), b"", {}
    with Progress(len(tree.targets), enabled=not arguments.quiet) as bar:
        options = _options(arguments, settings, overlay, bar)
        if migrating:
            write, allow_dirty = writes and not from_stdin, arguments.allow_dirty
            run = runner.migrate(tree, options, write=write, allow_dirty=allow_dirty)
        else:
            run = runner.check(tree, options)
    if migrating and arguments.report:
        from actor_wg_codemod import review

        review.write(Path(arguments.report), run, wrote=writes)
    _print(arguments, run, tree, data, from_stdin=from_stdin, writes=writes)
    if run.problems:
        return 2
    to_do = bool(run.changed) and migrating and not writes
    return 1 if run.left or to_do else 0


def _verify(arguments: argparse.Namespace) -> int:
    from actor_wg_codemod import verifying

    _check_roots(arguments.verl_root)
    settings = load(_settings_folder(arguments, from_stdin=False))
    return verifying.run(arguments, settings, _say)


def _check_roots(names: Sequence[str]) -> None:
    for name in names:
        if not valid_root(name):
            raise CommandLineError(f"--verl-root: {name!r} is not an import path like a.verl")


def _check_combinations(arguments: argparse.Namespace, from_stdin: bool) -> None:
    if from_stdin and len(arguments.paths) > 1:
        raise CommandLineError("`-` reads standard input and cannot be mixed with other paths")
    if arguments.stdin_filename and not from_stdin:
        raise CommandLineError("--stdin-filename needs the path `-`")
    _check_roots(arguments.verl_root)
    if getattr(arguments, "report", None):
        folder = Path(arguments.report).absolute().parent
        if not folder.is_dir() or Path(arguments.report).is_dir():
            raise CommandLineError(f"--report: {arguments.report} cannot be a file there")


def _settings_folder(arguments: argparse.Namespace, from_stdin: bool) -> Path:
    if arguments.command == "verify":
        name = arguments.path
    else:
        name = (arguments.stdin_filename or ".") if from_stdin else (arguments.paths or ["."])[0]
    path = Path(name.replace("\0", "")).absolute()
    return path if path.is_dir() else path.parent


def _options(
    arguments: argparse.Namespace, settings: Settings, overlay: dict[str, bytes], bar: Progress
) -> Options:
    from actor_wg_codemod.runner import Options

    return Options(
        selection=Selection(
            select=parse_codes(arguments.select) if arguments.select else settings.select,
            ignore=parse_codes(arguments.ignore) if arguments.ignore else settings.ignore,
            unsafe_fixes=arguments.unsafe_fixes,
            naming=arguments.naming or settings.naming,
        ),
        verl_roots=(*settings.verl_roots, *arguments.verl_root),
        reverse=arguments.reverse,
        jobs=arguments.jobs,
        overlay=overlay,
        progress=lambda _: bar.advance(),
    )


def _print(
    arguments: argparse.Namespace,
    run: Run,
    tree: Tree,
    data: bytes,
    *,
    from_stdin: bool,
    writes: bool,
) -> None:
    from actor_wg_codemod import output

    migrating = arguments.command == "migrate"
    if migrating and (from_stdin or arguments.diff):
        # Standard output belongs to the file or the diff.
        if arguments.diff:
            from actor_wg_codemod import diffs

            for changed in run.changed:
                _write_bytes(diffs.unified(changed.target.path, changed.old, changed.new or b""))
        elif not run.problems:
            _write_bytes((run.changed[0].new if run.changed else None) or data)
        sys.stderr.write(output.text(output.results(run)))
    else:
        color = wants_color(sys.stdout)
        sys.stdout.write(output.findings(run, arguments.output_format, color=color))
    sys.stdout.flush()
    for problem in run.problems:
        _say(output.problem_line(problem))
    if arguments.verbose:
        for changed in run.changed:
            _say(f"{'changed' if writes else 'would change'} {changed.target.shown}")
    if migrating and not arguments.reverse and not from_stdin:
        from actor_wg_codemod import pinned

        for line in pinned.warnings(tree):
            _say(line)
    if not arguments.quiet:
        flags = [
            f"--{name}"
            for name in ("reverse", "naming", "unsafe-fixes")
            if getattr(arguments, name.replace("-", "_"))
        ]
        for hint in output.hints(run, migrating=migrating, flags=flags):
            _say(hint)
        _say(output.summary(run, writes=writes or not migrating))


def _engine(argv: Sequence[str]) -> int:
    missing = [name for name in ("torch", "ray") if importlib.util.find_spec(name) is None]
    try:
        if missing:
            raise ImportError(f"{' and '.join(missing)} not installed")
        import actor_wg_engine.cli as engine
    except ImportError as error:
        _say(
            f"error: actor-wg {argv[0]} needs the engine extra ({error}): "
            'pip install "actor-wg[engine]"'
        )
        return 2
    return int(engine.main(list(argv)))


def _write_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _say(line: str) -> None:
    print(line.replace("\n", " "), file=sys.stderr)


__all__ = ["__version__", "entry", "main"]

if __name__ == "__main__":
    raise SystemExit(entry())
