"""The flake8 plugin: flake8's tree and lines -> the findings of `actor-wg check`, as flake8's tuples.

https://flake8.pycqa.org/en/latest/plugin-development/ says what flake8 hands over and expects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from actor_wg_codemod import __version__, renames

if TYPE_CHECKING:
    import argparse

    from flake8.options.manager import OptionManager

    from flake8_actor_wg.session import Session

Reported = tuple[int, int, str, type]

PREFIX = "AWG"


class Plugin:
    """One per file. A file without a word that a finding could be about costs a search of its text."""

    name = "actor-wg"
    version = __version__

    session: ClassVar[Session | None] = None
    """What is known about projects; lives as long as the process, made when a file first needs it."""
    advises: ClassVar[bool | None] = None
    """Whether AWG2xx is wanted at all; None until a file's text could have it."""
    options: ClassVar[argparse.Namespace]

    def __init__(self, tree: ast.Module, filename: str, lines: Sequence[str]) -> None:
        self._tree = tree
        self._filename = filename
        self._lines = lines

    @classmethod
    def add_options(cls, manager: OptionManager) -> None:
        """Adds the settings of `[tool.actor-wg]` that flake8 has no option of its own for."""
        _add_list(
            manager,
            "--actor-wg-verl-root",
            "Comma-separated import paths under which copies of verl live (third_party.verl), "
            "repeatable; found by themselves where the copy is in the tree.",
        )
        _add_list(
            manager,
            "--actor-wg-exclude",
            "Comma-separated globs, repeatable, of files that are no part of the project: neither "
            "reported on nor read for what other files import from them.",
        )

    @classmethod
    def parse_options(cls, options: argparse.Namespace) -> None:
        """Keeps flake8's options for the files to come."""
        for name in ("actor_wg_verl_root", "actor_wg_exclude"):
            setattr(options, name, list(_flat(getattr(options, name))))
        cls.options = options
        cls.session = cls.advises = None

    def run(self) -> Iterator[Reported]:
        """The findings of this file.

        Raises:
            flake8.exceptions.ExecutionError: the settings cannot be used; says where and why.
        """
        text = "".join(self._lines)
        named = names_old(text)
        if not named and not (Plugin.advises is not False and may_block(text)):
            return
        if Plugin.session is None:
            from flake8_actor_wg.session import Session

            Plugin.session = Session(self.options)
        if not named:
            Plugin.advises = Plugin.session.advises
            if not Plugin.advises:
                return
        for found in Plugin.session.findings(self._filename, self._tree, self._lines, text):
            yield found.span.line, found.span.column, f"{found.code} {found.message}", type(self)


def names_old(text: str) -> bool:
    """Whether a text holds any word that a finding about an old name needs."""
    if renames.FORWARD.group in text:  # the other old names begin with it
        return True
    return renames.WITHDRAWN_KEYWORD in text and renames.ENGINE in text


def may_block(text: str) -> bool:
    """Whether a text holds the words that a finding about a coroutine needs."""
    return "async" in text and "ray" in text


def chosen(options: argparse.Namespace) -> tuple[str, ...]:
    """The entries of flake8's `select` and `extend-select` that name our codes or a group of them."""
    entries = (*(options.select or ()), *(options.extend_select or ()))
    return tuple(e for e in entries if e.startswith(PREFIX) and len(e) > len(PREFIX))


def _add_list(manager: OptionManager, name: str, text: str) -> None:
    manager.add_option(
        name,
        action="append",
        default=[],
        parse_from_config=True,
        comma_separated_list=True,
        help=text,
    )


def _flat(values: Iterable[str | list[str]]) -> Iterator[str]:
    """The entries of a configuration file, then those of each use on the command line."""
    for value in values:
        yield from [value] if isinstance(value, str) else value
