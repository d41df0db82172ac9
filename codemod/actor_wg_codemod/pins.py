"""Pins of verl below the release with the new names: migrated code does not run there.

Only a release number is ever compared, and Poetry's and conda's operators are needed too, so
no library for Python's own version syntax is used.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from actor_wg_codemod.renames import VERL

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, order=True)
class Pin:
    """A line that holds verl below the release that has the new names.

    `path` is as given, `text` the requirement as it stands there.
    """

    path: str
    line: int
    text: str


_RENAMED_IN = (0, 9)
_Finder: TypeAlias = Callable[[str], Iterator[tuple[int, str]]]

_OPERATOR = r"(?:===?|~=|!=|<=?|>=?|\^|~|=)"
_VERSION = r"v?\d[\w.*+!-]*"
_CLAUSE = re.compile(rf"(?P<operator>{_OPERATOR})?\s*(?P<version>{_VERSION})")
_SPECIFIER = rf"{_OPERATOR}\s*{_VERSION}(?:\s*(?:,|\|\|)\s*{_OPERATOR}?\s*{_VERSION})*"
_REQUIREMENT = re.compile(
    rf"{VERL}\s*(?:\[[^\]]*\])?\s*(?:\(?(?P<specifier>{_SPECIFIER})\)?|@\s*(?P<url>[^\s;\"']+))"
    rf"|(?:-e\s+)?git\+\S*/{VERL}(?:\.git)?(?P<ref>@[^\s;\"']+)",
    re.IGNORECASE,
)
_TAG = re.compile(r"(?:[@/]v?|-)(?P<version>\d+\.\d+[\w.]*?)(?:-py|\.tar|\.zip|\.whl|[#?]|$)")
_REQUIREMENTS_FILE = re.compile(r"(?:.*[-_.])?(?:requirements|constraints)(?:[-_.].*)?\.(?:txt|in)")
_ENVIRONMENT_FILE = re.compile(r".*(?:env|conda).*\.ya?ml")
_LOCK_FILES = frozenset({"uv.lock", "poetry.lock", "pdm.lock", "pylock.toml"})
_LOCKED = re.compile(
    rf"^name\s*=\s*\"{VERL}\"\s*\n(?:(?!\[)[^\n]*\n)*?version\s*=\s*\"(?P<version>[^\"]+)\"",
    re.MULTILINE,
)
_PIPFILE_LOCKED = re.compile(
    rf"\"{VERL}\"\s*:\s*\{{[^}}]*?\"version\"\s*:\s*\"(?P<version>[^\"]+)\""
)


def pins(root: Path, files: Iterable[str]) -> list[Pin]:
    """Finds the pins in requirements, project metadata, lock files and conda environments.

    Args:
        root: the folder that `files` are relative to.
        files: the project's files; all that pin nothing by their name are skipped unread, and
            so are those that cannot be read.
    """
    found: set[Pin] = set()
    for name in files:
        find = _finder(PurePosixPath(name))
        if find is not None:
            try:
                text = (root / name).read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError):
                # Whether a pin is noticed changes nothing, so this is nobody's problem.
                continue
            if VERL in text.lower():
                found |= {Pin(name, line, what) for line, what in find(text)}
    return sorted(found)


def is_below(specifier: str) -> bool:
    """Whether no release from 0.9 on fits a version specifier of pip, Poetry, PDM or conda."""
    return all(
        any(_excludes(match) for match in _CLAUSE.finditer(choice))
        for choice in specifier.split("||")
    )


def _excludes(clause: re.Match[str]) -> bool:
    operator, version = clause["operator"] or "==", clause["version"]
    numbers = re.split(r"[a-zA-Z+*]", version.lstrip("v"))[0]
    release = tuple(int(part) for part in re.findall(r"\d+", numbers))
    if operator == "=" or "*" in version:
        return operator in ("=", "==", "===") and release < _RENAMED_IN[: len(release)]
    if operator in ("==", "===", "<="):
        return release < _RENAMED_IN
    if operator == "<":
        return release <= (*_RENAMED_IN, *[0] * (len(release) - len(_RENAMED_IN)))
    if operator == "^":
        # Up to the next change of the first number that is not zero.
        fixed = next((i for i, part in enumerate(release) if part), len(release) - 1) + 1
    elif operator == "~=":
        fixed = max(1, len(release) - 1)
    elif operator == "~":
        fixed = min(2, len(release))
    else:
        return False
    return (*release[: fixed - 1], release[fixed - 1] + 1) <= _RENAMED_IN


def _finder(path: PurePosixPath) -> _Finder | None:
    name = path.name.lower()
    if _REQUIREMENTS_FILE.fullmatch(name) or (
        path.parent.name == "requirements" and path.suffix in (".txt", ".in")
    ):
        return _lines
    if name in _LOCK_FILES:
        return _locked
    finders: dict[str, _Finder] = {
        "pyproject.toml": _pyproject,
        "setup.cfg": _lines,
        "setup.py": _setup_script,
        "pipfile": _pipfile,
        "pipfile.lock": _pipfile_lock,
    }
    return finders.get(name, _lines if _ENVIRONMENT_FILE.fullmatch(name) else None)


def _pinned(text: str) -> str | None:
    """The requirement that `text` starts with, if it holds verl below the renamed release."""
    match = _REQUIREMENT.match(text.strip())
    if not match:
        return None
    if match["specifier"]:
        below = is_below(match["specifier"])
    else:
        tag = _TAG.search(match["url"] or match["ref"])
        below = tag is not None and is_below(tag["version"])
    return match[0].strip() if below else None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Requirements that stand on lines of their own, in lists or behind a key."""
    for number, line in enumerate(text.split("\n"), 1):
        bare = re.sub(r"^\s*(?:-\s+)?(?:\w+\s*=\s+)?[\"']?", "", line)
        what = _pinned(bare)
        if what:
            yield number, what


def _setup_script(text: str) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            what = _pinned(node.value)
            if what:
                yield node.lineno, what


def _pyproject(text: str) -> Iterator[tuple[int, str]]:
    for holder in ("project", "dependency-groups", "tool"):
        yield from _table(_toml(text).get(holder), text)


def _pipfile(text: str) -> Iterator[tuple[int, str]]:
    yield from _table(_toml(text), text)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _table(value: Any, text: str) -> Iterator[tuple[int, str]]:
    """Requirement strings anywhere below a table, and tables of Poetry's kind."""
    if isinstance(value, str):
        what = _pinned(value)
        if what:
            yield _line(text, re.escape(value)), what
    elif isinstance(value, list):
        for item in value:
            yield from _table(item, text)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key.lower() == VERL:
                yield from _keyed(item, text)
            if key.lower() != VERL or isinstance(item, list):  # an extra can be called so, too
                yield from _table(item, text)


def _keyed(value: Any, text: str) -> Iterator[tuple[int, str]]:
    """The pin that a table gives as `verl = ...`: a version, a tag, or a list of these."""
    for item in value if isinstance(value, list) else [value]:
        choices = item if isinstance(item, dict) else {"version": item}
        for key in ("version", "tag", "rev"):
            version = choices.get(key)
            number = isinstance(version, str) and re.match(r"[^\w]*v?\d+(?:\.|$)", version)
            if isinstance(version, str) and number and is_below(version):
                # Behind the key, on its line or below its table's heading.
                pattern = rf"\b{VERL}\b[^\n]*?(?:\n(?!\[)[^\n]*?)*?(?P<here>{re.escape(version)})"
                yield _line(text, pattern), f"{VERL} {version}"


def _line(text: str, pattern: str) -> int:
    match = re.search(pattern, text)
    return _count(text, match.start(match.lastgroup or 0)) if match else 1


def _locked(text: str) -> Iterator[tuple[int, str]]:
    for match in _LOCKED.finditer(text):
        if is_below(match["version"]):
            yield _count(text, match.start("version")), f"{VERL} {match['version']}"


def _count(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _pipfile_lock(text: str) -> Iterator[tuple[int, str]]:
    try:
        json.loads(text)
    except ValueError:
        return
    for match in _PIPFILE_LOCKED.finditer(text):
        if is_below(match["version"]):
            yield _count(text, match.start("version")), f"{VERL}{match['version']}"
