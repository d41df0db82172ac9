"""The `[tool.actor-wg]` table of the nearest pyproject.toml, checked before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actor_wg_codemod import selection

if TYPE_CHECKING:
    from typing import Any

TABLE = "actor-wg"
_LISTS = ("select", "ignore", "exclude", "verl-roots")
_FLAGS = ("naming",)


class SettingsError(Exception):
    """The settings cannot be used; the text is one line that says where and why."""


@dataclass(frozen=True)
class Settings:
    """What a project asks for; the command line wins over it."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    verl_roots: tuple[str, ...] = ()
    naming: bool = False


def load(folder: Path) -> Settings:
    """The settings for files in `folder`: of the nearest pyproject.toml that has the table.

    The search ends at the top of a git checkout.

    Raises:
        SettingsError: that file cannot be read, or the table is not valid.
    """
    for candidate in (folder, *folder.parents):
        path = candidate / "pyproject.toml"
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            data = b""
        except OSError as error:
            raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
        if TABLE.encode() in data:
            table = _table(path, data)
            if table is not None:
                return _settings(path, table)
        if (candidate / ".git").exists():
            break
    return Settings()


def valid_root(name: str) -> bool:
    """Whether a name can be the import path of a copy of verl."""
    return all(part.isidentifier() for part in name.split("."))


def _table(path: Path, data: bytes) -> Mapping[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not valid TOML: not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    tool = document.get("tool")
    table = tool.get(TABLE) if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise SettingsError(f"{path}: tool.{TABLE} must be a table, not {_kind(table)}")
    return table


def _settings(path: Path, table: Mapping[str, Any]) -> Settings:
    where = f"{path}: tool.{TABLE}"
    lists: dict[str, tuple[str, ...]] = {}
    for key, value in table.items():
        if key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise SettingsError(f"{where}.{key} must be a list of strings, not {_kind(value)}")
            lists[key] = tuple(value)
        elif key not in _FLAGS:
            known = ", ".join((*_LISTS, *_FLAGS))
            raise SettingsError(f"{where}.{key} is not a setting; the settings are {known}")
        elif not isinstance(value, bool):
            raise SettingsError(f"{where}.{key} must be true or false, not {_kind(value)}")
    for key in ("select", "ignore"):
        try:
            if key in lists:
                lists[key] = selection.parse_codes(lists[key])
        except selection.CodeError as error:
            raise SettingsError(f"{where}.{key}: {error}") from None
    for name in lists.get("verl-roots", ()):
        if not valid_root(name):
            raise SettingsError(f"{where}.verl-roots: {name!r} is not an import path like a.verl")
    return Settings(
        select=lists.get("select"),
        ignore=lists.get("ignore", ()),
        exclude=lists.get("exclude", ()),
        verl_roots=lists.get("verl-roots", ()),
        naming=table.get("naming", False),
    )


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list of other things"
    names = {
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)
