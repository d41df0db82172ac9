"""The options of the command line, as argparse reads them; errors are one line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import NoReturn

from actor_wg_codemod import __version__
from actor_wg_codemod.output import FORMATS
from actor_wg_codemod.signatures import LATEST, RELEASES


class CommandLineError(Exception):
    """The arguments make no sense; the text is one line that says which and why."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandLineError(f"{message} (see `{self.prog} --help`)")


def parse(argv: Sequence[str]) -> argparse.Namespace | int:
    """The parsed arguments, or an exit status where help or the version was asked for.

    Raises:
        CommandLineError: an argument is unknown or makes no sense.
    """
    try:
        return _parser().parse_args(list(argv))
    except SystemExit as stop:
        return int(stop.code or 0)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="actor-wg",
        description="Moves code that depends on verl from the names before 0.9 to those after.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"actor-wg {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="list findings, change nothing", allow_abbrev=False)
    _add_shared(check)
    migrate = commands.add_parser(
        "migrate", help="apply the fixes, list what is left", allow_abbrev=False
    )
    _add_shared(migrate)
    add = migrate.add_argument
    add("--diff", action="store_true", help="print a unified diff, write nothing")
    add("--allow-dirty", action="store_true", help="write files with uncommitted changes too")
    add("--report", metavar="FILE.html", help="write a page to review")
    rule = commands.add_parser("rule", help="explain a code", allow_abbrev=False)
    rule.add_argument("code", metavar="CODE")
    verify = commands.add_parser(
        "verify",
        help="does migrated code bind against verl 0.9, and do its engines pass the conformance tests?",
        allow_abbrev=False,
    )
    _add_verify(verify)
    text = "measure the reference engine (needs the engine extra)"
    commands.add_parser("bench", help=text, add_help=False)
    return parser


def _add_verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", nargs="?", default=".", metavar="PATH", help="a repository (default: this folder)")
    text = "try out this class instead of those that the repository registers, repeatable"
    add("--engine", action="append", default=[], metavar="MODULE:CLASS", type=_target, help=text)
    text = "the release to bind against (default: %(default)s)"
    add("--release", choices=RELEASES, default=LATEST, help=text)
    text = (
        "what answers `import verl`: verl where it is installed, else the reference engine (auto)"
    )
    add("--against", choices=("auto", "engine", "verl"), default="auto", help=text)
    text = "where weights live, repeatable (default: a GPU where there is one, else the CPU)"
    add("--device", action="append", choices=("cpu", "cuda", "npu"), default=[], help=text)
    add("--checks", default="", metavar="IDS", help="conformance checks, such as B,C18")
    text = "settings for the engine's constructor, as engine_kwargs gives them"
    add("--engine-kwargs", type=_object, default="{}", metavar="JSON", help=text)
    text = "seconds for all checks of one class (default: %(default)g)"
    add("--deadline", type=_seconds, default=900.0, metavar="S", help=text)
    add("--static", action="store_true", help="import nothing, run no conformance test")
    text = "import path of a vendored copy of verl, repeatable"
    add("--verl-root", action="append", default=[], metavar="NAME", help=text)
    add("--output-format", choices=("text", "json"), default="text", help="default: text")
    text = "files and folders to leave out, repeatable"
    add("--exclude", action="append", default=[], metavar="GLOB", help=text)
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
    loudness.add_argument("-v", "--verbose", action="store_true", help="list what passed, too")
    parser.add_argument("--version", action="version", version=f"actor-wg {__version__}")


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files and folders (default: this folder)")
    add("--unsafe-fixes", action="store_true", help="include AWG901: fits, but is not proven")
    add("--naming", action="store_true", help="include the AWG1xx findings")
    for name, text in (("--select", "only these"), ("--ignore", "not these")):
        text += " codes or beginnings of codes, with commas between"
        add(name, action="append", default=[], metavar="CODES", help=text)
    add("--reverse", action="store_true", help="new names to old, to pin verl 0.8 again")
    text = "import path of a vendored copy of verl, repeatable"
    add("--verl-root", action="append", default=[], metavar="NAME", help=text)
    add("--output-format", choices=FORMATS, default="text", help="default: text")
    text = "processes (default: one for each core)"
    add("--jobs", type=_jobs, default=os.cpu_count() or 1, metavar="N", help=text)
    text = "the name of what `-` reads from standard input"
    add("--stdin-filename", metavar="NAME", help=text)
    text = "files and folders to leave out, repeatable"
    add("--exclude", action="append", default=[], metavar="GLOB", help=text)
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="no hints and no summary")
    loudness.add_argument("-v", "--verbose", action="store_true", help="name each changed file")
    parser.add_argument("--version", action="version", version=f"actor-wg {__version__}")


def _target(text: str) -> str:
    module, colon, name = text.partition(":")
    if not (colon and name.isidentifier() and all(p.isidentifier() for p in module.split("."))):
        raise argparse.ArgumentTypeError(f"{text!r} does not read module:Class")
    return text


def _object(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _jobs(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes")
    return int(text)
