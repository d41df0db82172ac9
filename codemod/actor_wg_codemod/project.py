"""Which files a project has and which of them can matter."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from actor_wg_codemod import renames
from actor_wg_codemod.module_names import ModuleNames, dotted
from actor_wg_codemod.renames import Vocabulary

PYTHON = (".py", ".pyi")
KEEP_FILES = 4000
"""Trees up to this many Python files stay in memory while they are analyzed."""
BUFFER = 1 << 20

_GAP = rb"(?:\s|\\|#[^\n]*\n)*"
_DOT_BEFORE = re.compile(rb"\." + _GAP + rb"\Z")
_EQUALS_AFTER = re.compile(_GAP + rb"[=:](?!=)")
_CONFIGURATIONS = (b"onfig", b"cfg", renames.VERL.encode())
_QUOTES = (b'"', b"'")
_ENGINE = renames.ENGINE.encode()
_MANAGER_HINT = renames.MANAGER_NAME_HINTS[0].encode()
_REPLICAS = renames.MANAGER_PARAMETERS[2].encode()


@dataclass
class _Scan:
    """Python files by what their bytes hold: a seed word, the old name, verl as a word, its engine's classes."""

    seeded: set[str]
    old: set[str]
    verl: set[str]
    engine: set[str]


class Project:
    """The files of one project. Paths are relative to `root`, with forward slashes.

    `overlay` holds bytes that stand in for a file's content on disk (standard input).
    """

    def __init__(
        self,
        root: Path,
        files: Iterable[str],
        *,
        verl_roots: Sequence[str] = (),
        vocabulary: Vocabulary = renames.FORWARD,
        overlay: Mapping[str, bytes] | None = None,
    ) -> None:
        self.root = root
        self.overlay = dict(overlay or {})
        self.files = frozenset(files) | self.overlay.keys()
        self.python = sorted(f for f in self.files if f.endswith(PYTHON))
        self.vocabulary = vocabulary
        self.named_roots = tuple(verl_roots)
        self.unreadable: dict[str, str] = {}
        self._bytes: dict[str, bytes] = {}
        self._folder = f"{root}/"
        self.modules = ModuleNames(root.name, self.files, self.python)
        self._mentions: dict[str, tuple[str, ...]] = {}

    # Reading

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises OSError where it cannot be read."""
        if path in self.overlay:
            return self.overlay[path]
        data = self._bytes.get(path)
        if data is None:
            with open(f"{self._folder}{path}", "rb", buffering=0) as file:  # noqa: PTH123 - the hot path
                data = file.read()
        return data

    def _peek(self, path: str) -> bytes:
        """The bytes for a search; a file that cannot be read has none and is noted."""
        try:
            return self.read(path)
        except OSError as error:
            self.unreadable[path] = error.strerror or str(error)
            return b""

    @cached_property
    def _evidence(self) -> tuple[frozenset[str], frozenset[str]]:
        """Reads every Python file once: those that say verl as a word, those that may name a manager's class.

        Two searches of each file's bytes are all that a project without verl costs.
        """
        said, named = set(), set()
        roots = [root.rpartition(".")[2].encode() for root in self.roots]
        keep = len(self.python) <= KEEP_FILES
        for path, data, size in self._contents():
            for root in roots:
                if data.find(root, 0, size) >= 0 and stands(bytes(data[:size]), root):
                    said.add(path)
            if keep:  # in a large tree whoever sets verl's settings says verl somewhere
                content = self._bytes[path] = bytes(data[:size])
                if _MANAGER_HINT in content:
                    named.add(path)
        return frozenset(said), frozenset(named)

    def _contents(self) -> Iterator[tuple[str, bytearray | bytes, int]]:
        """Each Python file with its content, which stays valid until the next one is asked for.

        Reading into one buffer spares a large tree a copy of every file.
        """
        buffer = bytearray(BUFFER)
        for path in self.python:
            if path in self.overlay:
                yield path, self.overlay[path], len(self.overlay[path])
                continue
            try:
                descriptor = os.open(f"{self._folder}{path}", os.O_RDONLY)
                try:
                    size = os.readv(descriptor, [buffer])
                finally:
                    os.close(descriptor)
            except OSError as error:
                self.unreadable[path] = error.strerror or str(error)
                continue
            if size < BUFFER:
                yield path, buffer, size
            else:
                data = self._peek(path)
                yield path, data, len(data)

    @cached_property
    def _concerned(self) -> bool:
        """Whether the project can have to do with verl at all; if not, nothing more is searched."""
        word = renames.MANAGER_CLASS_SETTING.encode()
        if any(word in self._peek(path) for path in self._evidence[1]):
            return True
        return self._spells_engine or self.mentions_verl or bool(self._naming_files)

    @cached_property
    def _scan(self) -> _Scan:
        """Python files by the words they hold; empty where the project has nothing to do with verl."""
        scan = _Scan(set(), set(), set(), set())
        if not self._concerned:
            return scan
        scan.verl |= self._evidence[0]
        seeds, first = self._seeds, self.vocabulary.group.encode()
        for path in self.python:
            data = self._peek(path)
            if first in data:
                scan.old.add(path)
            if _ENGINE in data:
                scan.engine.add(path)
            if any(seed in data for seed in seeds):
                scan.seeded.add(path)
        return scan

    def _sited(self, path: str) -> bool:
        """Whether a file holds an old name in one of the forms that can be a site."""
        data = self._peek(path)
        if path in self._scan.old:
            if self.may_have_sites(data) or self._takes_group(data) or self._stands_in(data):
                return True
        return _ENGINE in data and _REPLICAS in data and self._withdrawn.search(data) is not None

    def may_have_sites(self, data: bytes) -> bool:
        """Whether the group's or the size's old name stands in a text as a keyword, attribute or string.

        Each place is looked at by itself: a pattern for all forms has to try every byte.
        """
        group = self.vocabulary.group.encode()
        tail = self.vocabulary.size.encode()[len(group) :]
        at = data.find(group)
        while at >= 0:
            end = at + len(group)
            before, after = data[at - 1 : at], data[end : end + 1]
            if data.startswith(tail, end) and not before.isalnum() and before != b"_":
                return True
            if not (before.isalnum() or before == b"_" or after.isalnum() or after == b"_"):
                quoted = before in _QUOTES and (after in _QUOTES or b"attrgetter" in data)
                if before and quoted:
                    return True
                dotted_at = _DOT_BEFORE.search(data, max(0, at - 200), at)
                if dotted_at is None:
                    if _EQUALS_AFTER.match(data, end):
                        return True
                elif not data.endswith(_CONFIGURATIONS, 0, dotted_at.start()):
                    return True
            at = data.find(group, end)
        return False

    def _takes_group(self, data: bytes) -> bool:
        """Whether a constructor has the group's name in its parameters or, at most, in its body."""
        word, head = self.vocabulary.group.encode(), b"def __init__"
        at = data.find(head)
        while at >= 0:
            end = data.find(b"def ", at + len(head))
            if stands(data[at : end if end >= 0 else len(data)], word):
                return True
            at = data.find(head, at + len(head))
        return False

    def _stands_in(self, data: bytes) -> bool:
        """Whether a setter has the group's name, or code that replaces things says it at all."""
        word = self.vocabulary.group.encode()
        if word + b".setter" in data:
            return True
        replaces = b"setattr" in data or b"patch" in data
        return replaces and renames.MANAGER.encode() in data and stands(data, word)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The import names of verl."""
        return (renames.VERL, *self.named_roots)

    @cached_property
    def _seeds(self) -> tuple[bytes, ...]:
        words = [renames.ENGINE, renames.ENGINE_PACKAGE, "checkpoint_manager", self.vocabulary.size]
        words += [root.rpartition(".")[2] + "." for root in self.named_roots]
        return tuple(word.encode() for word in words)

    @cached_property
    def _withdrawn(self) -> re.Pattern[bytes]:
        return re.compile(rf"\b{renames.WITHDRAWN_KEYWORD}[ \t]*=".encode())

    @cached_property
    def manager_class_names(self) -> frozenset[str]:
        """Dotted names that a `checkpoint_manager_class` setting in YAML or shell files gives."""
        from actor_wg_codemod import documents

        found: set[str] = set()
        if not self._naming_files or not any(
            self._takes_group(data) for data in map(self._peek, self.python)
        ):
            return frozenset()  # no class that could be named takes the group
        for path in self._naming_files:
            found |= documents.manager_classes(path, self._peek(path).decode("utf-8", "replace"))
        return frozenset(found)

    @cached_property
    def connected(self) -> frozenset[str]:
        """Python files that hold an old name and could have to do with verl's engine; only they are analysed.

        Nothing can be proven to be verl's where no file says a name of its checkpoint engine; then
        only the shapes count that are looked for without proof.
        """
        scan = self._scan
        if not scan.old and not scan.seeded:
            return frozenset()
        wanted = scan.old | scan.seeded if self._says_engine else scan.seeded | self._unproven_calls
        found = {path for path in wanted if self._sited(path)}
        told = self._named_in_settings or self._spells_engine or self.mentions_verl
        if not found or not told:
            return frozenset()
        return frozenset(found)

    @cached_property
    def _says_engine(self) -> bool:
        holders = [name.encode() for name in renames.HOLDERS]
        package = renames.ENGINE_PACKAGE.encode()
        return (
            bool(self._scan.engine or self._named_in_settings or self.named_roots)
            or any(package in self._peek(path) for path in self._scan.seeded)
            or any(stands(self._peek(path), name) for path in self._scan.verl for name in holders)
        )

    def speaks_of_engine(self, path: str) -> bool:
        """Whether a file itself says a name of verl's checkpoint engine."""
        return path in self._scan.seeded

    @cached_property
    def _named_in_settings(self) -> frozenset[bytes]:
        """The last parts of class names that a `checkpoint_manager_class` setting may give, by text."""
        found = {name.rpartition(".")[2].encode() for name in self.manager_class_names}
        setting = renames.MANAGER_CLASS_SETTING
        given = re.compile(rf"{setting}[\"']?\]?\s*[=:,]\s*([A-Z]\w*[a-z]\w*)(?![\w\[])".encode())
        for path in self.setting_files:
            data = self._peek(path)
            found.update(given.findall(data))
            found.update(re.findall(rb"[\"'=](?:\w+[.:])+([A-Z]\w*[a-z]\w*)[\"']", data))
        return frozenset(found - {b"None", b"True", b"False"})

    @cached_property
    def _unproven_calls(self) -> frozenset[str]:
        """Files in which something unknown may be called with the manager's keywords."""
        group, partner = self.vocabulary.group, renames.MANAGER_PARAMETERS[2]
        both = [
            re.compile(rf"[\"']?\b{word}[\"']?\s*[=:](?!=)".encode()) for word in (partner, group)
        ]
        found = set()
        for path in self._scan.old:
            data = self._peek(path)
            if _REPLICAS in data and all(pattern.search(data) for pattern in both):
                found.add(path)
        return frozenset(found)

    def mentions(self, word: str) -> tuple[str, ...]:
        """Python files in which `word` stands as a whole identifier."""
        if word not in self._mentions:
            data = word.encode()
            self._mentions[word] = tuple(p for p in self.python if stands(self._peek(p), data))
        return self._mentions[word]

    @cached_property
    def setting_files(self) -> tuple[str, ...]:
        """Python files that mention the setting which names a manager's class."""
        word = renames.MANAGER_CLASS_SETTING.encode()  # holds a seed word
        return tuple(p for p in sorted(self._scan.seeded) if word in self._peek(p))

    # verl in the tree

    @cached_property
    def verl_folders(self) -> tuple[str, ...]:
        """Folders that hold a copy of verl ('' is the root itself), found by their layout."""
        tail = f"{renames.VERL}/{renames.BASE_MODULE}"
        found = {
            f[: -len(renames.BASE_MODULE) - 1]
            for f in self.files
            if f == tail or f.endswith("/" + tail)
        }
        if renames.BASE_MODULE in self.files and self.root.name == renames.VERL:
            found.add("")
        for name in self.named_roots:
            folder = name.replace(".", "/")
            if f"{folder}/{renames.BASE_MODULE}" in self.files:
                found.add(folder)
        return tuple(sorted(found, key=len, reverse=True))

    def verl_name(self, path: str) -> str | None:
        """The module name under `verl` that a file of a copy in the tree stands for."""
        for folder in self.verl_folders:
            prefix = folder + "/" if folder else ""
            if path.startswith(prefix):
                return f"{renames.VERL}.{dotted(path[len(prefix) :])}".rstrip(".")
        return None

    def canonical(self, name: str) -> str | None:
        """`verl.x.y` for a dotted name below verl or a named root, else None."""
        for root in self.roots:
            if name == root or name.startswith(root + "."):
                return renames.VERL + name[len(root) :]
        return None

    @cached_property
    def mentions_verl(self) -> bool:
        """Whether the project has to do with verl at all; without it nothing unproven is reported."""
        return bool(self.verl_folders) or self._imports_verl or self._said_elsewhere

    @cached_property
    def _imports_verl(self) -> bool:
        """Whether a Python file imports verl, by the look of its lines."""
        roots = "|".join(re.escape(r) for r in self.roots)
        start = r"(?:^(?:\xef\xbb\xbf)?|[;:])[ \t\f]*"
        imported = re.compile(
            rf"{start}from[ \t]+(?:{roots})(?!\w)[\w. \t]*\bimport\b|"
            rf"{start}import[ \t]+(?:[\w., \t]*,[ \t]*)?(?:{roots})(?!\w)|"
            rf"import_module\(\s*[\"'](?:{roots})(?!\w)".encode("latin-1"),
            re.MULTILINE,
        )
        return any(imported.search(self._peek(path)) for path in sorted(self._evidence[0]))

    @cached_property
    def _spells_engine(self) -> bool:
        """Whether a string in Python spells the engine's package, for a loader or a patch."""
        names = [f"{root}.{renames.ENGINE_PACKAGE}".encode() for root in self.roots]
        return any(
            quote + name in self._peek(path)
            for path in sorted(self._evidence[0])
            for name in names
            for quote in _QUOTES
        )

    @cached_property
    def _said_elsewhere(self) -> bool:
        """Whether a settings file, a script, requirements or metadata say verl."""
        from actor_wg_codemod import documents

        return any(
            documents.mentions_verl(path, self._peek(path).decode("utf-8", "replace"))
            for path in self._settings[0]
        )

    @property
    def _naming_files(self) -> list[str]:
        """YAML files and scripts that mention the setting which names a manager's class."""
        return self._settings[1]

    @cached_property
    def _settings(self) -> tuple[list[str], list[str]]:
        """Files other than Python and prose by two words in them: verl, and the setting for a manager's class."""
        verl, setting = renames.VERL.encode(), renames.MANAGER_CLASS_SETTING.encode()
        said, named = [], []
        for path in sorted(self.files):
            if path.endswith((*PYTHON, ".md", ".rst", ".ipynb")) and not path.endswith("setup.py"):
                continue
            data = self._peek(path)
            if verl in data:
                said.append(path)
            if setting in data and path.endswith((".yaml", ".yml", ".sh", ".bash")):
                named.append(path)
        return said, named


_WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def stands(data: bytes, word: bytes) -> bool:
    """Whether a word stands somewhere as a whole; several times faster than a pattern."""
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        before = at > 0 and data[at - 1] in _WORD_BYTES
        if not before and not (end < len(data) and data[end] in _WORD_BYTES):
            return True
        at = data.find(word, end)
    return False
