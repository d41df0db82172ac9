"""How module names map to the files of a project, with any number of source roots."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

SOURCE_FOLDERS = frozenset({"src", "lib", "python", "source"})


class ModuleNames:
    """The import names of a project.

    Args:
        root_name: the name of the project's top folder, which is a package's where it holds `__init__.py`.
        files: all files of the project.
        python: the Python files among them.
    """

    def __init__(self, root_name: str, files: frozenset[str], python: list[str]) -> None:
        self.root_name = root_name
        self.files = files
        self.python = python
        self._resolved: dict[tuple[str, str], str | None] = {}

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
        ranked = sorted(
            bases, key=lambda b: (not above.startswith(b), -len(_common(b, above)), len(b), b)
        )
        relative = name.replace(".", "/")
        folders = None
        for index, base in enumerate(ranked):
            found = self._file(base + relative)
            if found and above.startswith(base):
                return found
            if found and self._importable(base, found, above):
                near = len(_common(base, above))
                rivals = [b for b in ranked[index + 1 :] if len(_common(b, above)) == near]
                return None if any(self._file(b + relative) for b in rivals) else found
            if folders is None and f"{base}{relative}/" in self._folders:
                folders = f"{base}{relative}/"
        return folders

    def _importable(self, base: str, found: str, above: str) -> bool:
        """Whether a folder that is not above the importer can be a source root for what was found.

        A lone module in some other folder is more likely a namesake of an installed one, unless that folder
        holds the sources of the importer's own project.
        """
        if "/" in found[len(base) :]:
            return True
        project, _, folder = base.rstrip("/").rpartition("/")
        return folder in SOURCE_FOLDERS and above.startswith(f"{project}/" if project else "")

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
        return f"{self.root_name}/" if "__init__.py" in self.files else ""

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
            found[self.root_name].add("")
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
        found = (
            self._file(stem) if stem else ("__init__.py" if "__init__.py" in self.files else None)
        )
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
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        size += 1
    return left[:size]
