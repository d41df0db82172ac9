"""Which files a project has, which of them can matter, and how module names map to files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from actor_wg_codemod import renames
from actor_wg_codemod.renames import Vocabulary

PYTHON = (".py", ".pyi")
KEEP_BYTES = 256 << 20

_HEADER = re.compile(rb"^([ \t]*)(?:async[ \t]+)?(class|def)[ \t]+(\w+)", re.MULTILINE)
_ALIAS = re.compile(rb"(\w+)[ \t]*(?::[^=\n]+)?=(?!=)")
_AS = re.compile(rb"\bas[ \t]+(\w+)")
_CARRIES = re.compile(rb"^[ \t]*class\b|->|\breturn\b|\*\*|^[ \t]*(?:self\.)?\w+[ \t]*[:=]")
_DULL = frozenset(b"main run fit setup init start step make build test get cls self".split())


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
        self._bytes: dict[str, bytes] = {}
        self._kept = 0
        self._resolved: dict[tuple[str, str], str | None] = {}
        self._mentions: dict[str, tuple[str, ...]] = {}

    # Reading

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises OSError where it cannot be read."""
        if path in self.overlay:
            return self.overlay[path]
        data = self._bytes.get(path)
        if data is None:
            data = (self.root / path).read_bytes()
        return data

    def _peek(self, path: str) -> bytes:
        """The bytes for a search; a file that cannot be read has none (its own turn reports it)."""
        try:
            return self.read(path)
        except OSError:
            return b""

    @cached_property
    def _scan(self) -> tuple[frozenset[str], frozenset[str]]:
        """Reads every Python file once: those with a seed word, and those with an old name in them."""
        seeded, sited = set(), set()
        seed, site = self._seed, self._site
        first = self.vocabulary.group.encode()
        for path in self.python:
            data = self._peek(path)
            if first not in data and not seed.search(data):
                continue
            if self._kept < KEEP_BYTES:
                self._bytes[path] = data
                self._kept += len(data)
            if seed.search(data):
                seeded.add(path)
            if site.search(data):
                sited.add(path)
        return frozenset(seeded), frozenset(sited)

    @cached_property
    def _seed(self) -> re.Pattern[bytes]:
        words = [renames.ENGINE, renames.ENGINE_PACKAGE, "checkpoint_manager", self.vocabulary.size]
        words += [root.rpartition(".")[2] + r"\." for root in self.named_roots]
        words += [name.rpartition(".")[2] for name in self.manager_class_names]
        return re.compile("|".join(words).encode())

    @cached_property
    def _site(self) -> re.Pattern[bytes]:
        names = self.vocabulary
        group = names.group
        return re.compile(
            rf"(?<!onfig\.)(?<!cfg\.)(?<![\w]){group}[ \t]*(?:[=,:)\"']|$)|"
            rf"(?<!onfig)(?<!cfg)\.\s*{group}\b|[\"']{group}[\"'.]|\b{names.size}\b|\b{names.kwargs}\b|"
            rf"\b{renames.WITHDRAWN_KEYWORD}[ \t]*=".encode(),
            re.MULTILINE,
        )

    @cached_property
    def manager_class_names(self) -> frozenset[str]:
        """Dotted names that a `checkpoint_manager_class` setting in YAML or shell files gives."""
        from actor_wg_codemod import documents

        found: set[str] = set()
        word = renames.MANAGER_CLASS_SETTING.encode()
        for path in sorted(self.files):
            if path.endswith((".yaml", ".yml", ".sh", ".bash")):
                data = self._peek(path)
                if word in data:
                    found |= documents.manager_classes(path, data.decode("utf-8", "replace"))
        return frozenset(found)

    @cached_property
    def connected(self) -> frozenset[str]:
        """Python files that hold an old name and, through names, could have to do with verl's engine.

        An over-approximation by text alone, so that only these files are parsed: a seed word in the
        file, or the name of a class, alias or function that another file derives from verl's classes.
        """
        seeded, sited = self._scan
        names: set[bytes] = set()
        reached: set[str] = set(seeded)
        pattern = self._classes
        fresh = {n for p in seeded for n in _derived(self._peek(p), pattern, everything=True)}
        while fresh - names:
            fresh -= names
            names |= fresh
            pattern = _words(fresh)
            more = [p for p in self._bytes if pattern.search(self._peek(p))]
            reached.update(more)
            fresh = {n for p in more for n in _derived(self._peek(p), pattern, everything=False)}
        return frozenset((reached | self._unproven_calls) & sited)

    @cached_property
    def _classes(self) -> re.Pattern[bytes]:
        words = [renames.ENGINE]
        words += [name.rpartition(".")[2] for name in self.manager_class_names]
        words += renames.HOLDERS
        return re.compile("|".join(words).encode())

    @cached_property
    def _unproven_calls(self) -> frozenset[str]:
        """Files in which something unknown is called with the manager's keywords."""
        _, sited = self._scan
        found = set()
        for path in sited:
            data = self._peek(path)
            if b"replicas" in data:
                found.add(path)
        return frozenset(found)

    def mentions(self, word: str) -> tuple[str, ...]:
        """Python files in which `word` stands as a whole identifier."""
        if word not in self._mentions:
            pattern = _words({word.encode()})
            self._mentions[word] = tuple(p for p in self.python if pattern.search(self._peek(p)))
        return self._mentions[word]

    def containing(self, text: str) -> tuple[str, ...]:
        """Python files whose bytes hold a text."""
        data = text.encode()
        return tuple(p for p in self.python if data in self._peek(p))

    # verl in the tree

    @cached_property
    def verl_folders(self) -> tuple[str, ...]:
        """Folders that hold a copy of verl ('' is the root itself), found by their layout."""
        tail = f"{renames.VERL}/{renames.BASE_MODULE}"
        found = {f[: -len(renames.BASE_MODULE) - 1] for f in self.files if f == tail or f.endswith("/" + tail)}
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
                return f"{renames.VERL}.{dotted(path[len(prefix):])}".rstrip(".")
        return None

    def canonical(self, name: str) -> str | None:
        """`verl.x.y` for a dotted name below verl or a named root, else None."""
        for root in (renames.VERL, *self.named_roots):
            if name == root or name.startswith(root + "."):
                return renames.VERL + name[len(root) :]
        return None

    @cached_property
    def mentions_verl(self) -> bool:
        """Whether the project has to do with verl at all; without it nothing unproven is reported."""
        if self.verl_folders:
            return True
        roots = "|".join(re.escape(r) for r in (renames.VERL, *self.named_roots))
        imported = re.compile(
            rf"^[ \t]*(?:from|import)[ \t]+(?:[\w., \t]*,[ \t]*)?(?:{roots})(?!\w)|"
            rf"import_module\(\s*[\"'](?:{roots})(?!\w)".encode(),
            re.MULTILINE,
        )
        if any(imported.search(self._peek(p)) for p in self.python):
            return True
        from actor_wg_codemod import documents

        word = renames.VERL.encode()
        for path in sorted(self.files):
            if path.endswith((*PYTHON, ".md", ".rst", ".ipynb")) and not path.endswith("setup.py"):
                continue
            data = self._peek(path)
            if word in data and documents.mentions_verl(path, data.decode("utf-8", "replace")):
                return True
        return False

    # Module names

    def resolve(self, name: str, importer: str) -> str | None:
        """The file (or namespace folder, with a final slash) that `import name` reaches, if in the project."""
        folder = importer.rpartition("/")[0]
        key = (name, folder)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(name, folder)
        return self._resolved[key]

    def _resolve(self, name: str, folder: str) -> str | None:
        head = name.partition(".")[0]
        bases = self._tops.get(head)
        if not bases:
            return None
        above = folder + "/"
        ranked = sorted(bases, key=lambda b: (not above.startswith(b), -len(_common(b, above)), len(b), b))
        relative = name.replace(".", "/")
        folders = None
        for base in ranked:
            found = self._file(base + relative)
            if found:
                return found
            if folders is None and f"{base}{relative}/" in self._folders:
                folders = f"{base}{relative}/"
        return folders

    def _file(self, stem: str) -> str | None:
        if self._root_package and (stem + "/").startswith(self._root_package):
            stem = stem[len(self._root_package) :]
            if not stem:
                return "__init__.py"
        for tail in ("/__init__.py", ".py", "/__init__.pyi", ".pyi"):
            if stem + tail in self.files:
                return stem + tail
        return None

    @cached_property
    def _root_package(self) -> str:
        return f"{self.root.name}/" if "__init__.py" in self.files else ""

    @cached_property
    def _folders(self) -> frozenset[str]:
        found: set[str] = set()
        for path in self.python:
            folder = path.rpartition("/")[0]
            while folder and folder + "/" not in found:
                found.add(folder + "/")
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    @cached_property
    def _tops(self) -> dict[str, tuple[str, ...]]:
        """Top-level import name -> source roots ('' or 'src/') below which it stands."""
        found: dict[str, set[str]] = defaultdict(set)
        for folder in {"", *self._folders}:
            if folder and (folder + "__init__.py" in self.files):
                continue
            found_here = self._children.get(folder, ())
            for child in found_here:
                found[child].add(folder)
        if self._root_package:
            found[self.root.name].add("")
        return {name: tuple(bases) for name, bases in found.items()}

    @cached_property
    def _children(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for path in self.python:
            folder, _, name = path.rpartition("/")
            found[folder + "/" if folder else ""].add(name.rpartition(".")[0])
        for folder in self._folders:
            parent, _, name = folder[:-1].rpartition("/")
            found[parent + "/" if parent else ""].add(name)
        return found

    def relative(self, path: str, level: int, module: str) -> str | None:
        """The file or namespace folder that `from ..module import` in `path` names."""
        folder = path.rpartition("/")[0]
        for _ in range(level - 1):
            if not folder:
                return None
            folder = folder.rpartition("/")[0]
        stem = "/".join(part for part in (folder, module.replace(".", "/")) if part)
        found = self._file(stem) if stem else ("__init__.py" if "__init__.py" in self.files else None)
        if found:
            return found
        folder = stem + "/" if stem else ""
        return folder if not folder or folder in self._folders else None


def dotted(path: str) -> str:
    """`a/b/c.py` -> `a.b.c`, `a/b/__init__.py` -> `a.b`."""
    stem = path.rpartition(".")[0]
    if stem == "__init__":
        return ""
    return stem.removesuffix("/__init__").replace("/", ".")


def _common(left: str, right: str) -> str:
    size = 0
    for a, b in zip(left, right):
        if a != b:
            break
        size += 1
    return left[:size]


def _words(words: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(rb"\b(?:" + b"|".join(re.escape(w) for w in sorted(words)) + rb")\b")


def _derived(data: bytes, pattern: re.Pattern[bytes], *, everything: bool) -> set[bytes]:
    """Names that the text derives from what the pattern matches: subclasses, aliases, holders, factories.

    With `everything`, each class and module-level function whose body mentions it counts.
    """
    found: set[bytes] = set()
    hits = [m.start() for m in pattern.finditer(data)]
    if not hits:
        return found
    headers = [(m.start(), len(m[1]), m[2], m[3]) for m in _HEADER.finditer(data)]
    around: list[tuple[int, bytes, bytes]] = []
    position = 0
    for hit in hits:
        while position < len(headers) and headers[position][0] <= hit:
            _, indent, kind, name = headers[position]
            while around and around[-1][0] >= indent:
                around.pop()
            around.append((indent, kind, name))
            position += 1
        start = data.rfind(b"\n", 0, hit) + 1
        end = data.find(b"\n", hit)
        line = data[start : end if end >= 0 else len(data)]
        alias = _ALIAS.match(line)
        if alias:
            found.add(alias[1])
        found.update(_AS.findall(line))
        if everything or _CARRIES.search(line):
            indent = len(line) - len(line.lstrip(b" \t"))
            outer = [a for a in around if a[0] < indent or line.lstrip().startswith(a[1])]
            found.update(name for depth, kind, name in outer if kind == b"class" or depth == 0)
    return {n for n in found if len(n) > 3 and n not in _DULL and not n.startswith((b"__", b"test_"))}
