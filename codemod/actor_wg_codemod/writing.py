"""Which files may put something under an attribute, by the look of their bytes: only those are worth parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from actor_wg_codemod.project import Project, stands

MOST_WRITERS = 60
"""Files that write attributes of one name; where more do, what they write is not looked at."""
SETTERS = (b"setattr", b"patch", b"delattr", b"__dict__", b"vars", b"type(", b"**")
COPIERS = (b"replace", b"evolve")
_TARGETS = rb"(?:[\w.,:()\[\]*|\"' \t\\]|(?<=[,(\[ \t\\])\n|#[^\n]*\n){0,1000}(?://|>>|<<|[-+/%@&^])?=(?!=)"
"""What may stand between one target and the equals sign, other targets among it; bounded for the sake of huge lines."""


class Writing:
    """Looks for the files that write an attribute, or call a class."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, name: str, owners: Sequence[str]) -> list[str] | None:
        """The files that may write an attribute of such a name; None where they are too many."""
        found = [p for p in self.project.mentions(name) if self._writes(p, name, owners)]
        return found if len(found) <= MOST_WRITERS else None

    def calling(self, words: Iterable[str]) -> list[str] | None:
        """The files that may call what has one of the names; None where they are too many."""
        found = {p for w in words for p in self.project.mentions(w) if self._calls(p, w)}
        return sorted(found) if len(found) <= MOST_WRITERS else None

    def aliases(self, words: Iterable[str]) -> list[str]:
        """The names and all others that imports and assignments in the project give to what has them."""
        found = list(dict.fromkeys(words))
        for word in found:
            for path in self.project.mentions(word):
                for match in _aliasing(word).finditer(self.project.read(path)):
                    alias = (match[1] or match[2]).decode()
                    if alias not in found:
                        found.append(alias)
        return found

    def _writes(self, path: str, name: str, owners: Sequence[str]) -> bool:
        data = self.project.read(path)
        if _storing(name).search(data):
            return True
        if any(f"{name}{quote}".encode() in data for quote in "\"'"):
            if any(word in data for word in SETTERS):
                return True
        return _keyword(name).search(data) is not None and (
            any(word in data for word in COPIERS) or any(stands(data, o.encode()) for o in owners)
        )

    def _calls(self, path: str, word: str) -> bool:
        data = self.project.read(path)
        return _calling(word).search(data) is not None


@lru_cache(maxsize=64)
def _storing(name: str) -> re.Pattern[bytes]:
    dotted = rb"\.[ \t\\\n]*" + name.encode() + rb"(?!\w)"
    bound = rb"\b(?:as|del|for)\b(?:(?!\bin\b)[^\n]){0,1000}?" + dotted
    itself = rb"(?![ \t]*[(\[.])"  # not what it gives or holds
    return re.compile(dotted + itself + _TARGETS + rb"|" + bound + itself)


@lru_cache(maxsize=64)
def _keyword(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[(,]|^)[ \t]*" + name.encode() + rb"[ \t]*=(?!=)", re.MULTILINE)


@lru_cache(maxsize=64)
def _calling(word: str) -> re.Pattern[bytes]:
    """A call of it by its name, or a partial of it."""
    name = word.encode()
    return re.compile(
        rb"(?<!class )(?<!\w)"
        + name
        + rb"[ \t\\]*(?:\(|\._make)|partial\([\w. \t\n]*?(?<!\w)"
        + name
    )


@lru_cache(maxsize=64)
def _aliasing(word: str) -> re.Pattern[bytes]:
    name = rb"(?<!\w)" + word.encode()
    imported = name + rb"[ \t]+as[ \t]+(\w+)"
    assigned = rb"^[ \t]*(\w+)[ \t]*=[ \t]*(?:\w+\.)*" + name + rb"[ \t]*(?:#|$)"
    return re.compile(imported + rb"|" + assigned, re.MULTILINE)
