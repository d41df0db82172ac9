"""The decider: a project's files -> findings with fixes. Everything else renders its answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from actor_wg_codemod import documents, renames
from actor_wg_codemod.bindings import Module
from actor_wg_codemod.evaluate import Evaluator
from actor_wg_codemod.model import FileResult, Finding, Problem
from actor_wg_codemod.project import PYTHON, Project
from actor_wg_codemod.sites import Sites
from actor_wg_codemod.source import Source, SourceError, decode, parse

_LINE_END = re.compile(r"\r\n|\n|\r")


class Analysis:
    """One project, analysed on demand, file by file.

    What only some runs need (naming, advice, documents) is imported when it is needed: a run over
    a project without a site is to cost little more than reading it.

    Args:
        root: the project's top folder.
        files: all files of the project, relative to `root`, with forward slashes.
        verl_roots: import paths under which copies of verl live that are not found by their layout.
        naming: whether the AWG1xx findings are wanted too; they are not looked for otherwise.
        advice: the same for AWG2xx, which any Python file can have.
        reverse: look for the new names and turn them into the old ones.
        overlay: bytes that stand in for the content of a file on disk.
    """

    def __init__(
        self,
        root: Path,
        files: Sequence[str],
        *,
        verl_roots: Sequence[str] = (),
        naming: bool = False,
        advice: bool = False,
        reverse: bool = False,
        overlay: Mapping[str, bytes] | None = None,
    ) -> None:
        vocabulary = renames.REVERSE if reverse else renames.FORWARD
        self.project = Project(
            root, files, verl_roots=verl_roots, vocabulary=vocabulary, overlay=overlay
        )
        self.evaluator = Evaluator(self.project)
        self.naming = naming
        self.advice = advice
        self._sources: dict[str, Source] = {}

    def relevant(self, path: str) -> bool:
        """Whether a file can have findings at all; decided by a search of the project's bytes."""
        if path.endswith(PYTHON):
            if path in self.project.connected or (self.naming and self._may_say(path)):
                return True
            return self.advice and self._may_block(path)
        if documents.kind(path) is None:
            return False
        from actor_wg_codemod import document_sites

        data = self._bytes(path)
        if document_sites.may_have_sites(path, data, self.project, naming=self.naming):
            return True
        return self.advice and path.endswith(".ipynb") and self._may_block(path)

    def _may_block(self, path: str) -> bool:
        from actor_wg_codemod import advice

        return advice.may_block(self._bytes(path))

    def _may_say(self, path: str) -> bool:
        """Whether a file that has to do with verl's engine holds an old name in any role."""
        if not self.project.speaks_of_engine(path):
            return False
        data = self._bytes(path)
        return any(word.encode() in data for word in self.project.vocabulary.table)

    def _bytes(self, path: str) -> bytes:
        try:
            return self.project.read(path)
        except OSError:
            return b""

    def source(self, path: str) -> Source | None:
        """The decoded text of a file that has been analysed."""
        return self._sources.get(path)

    def findings(
        self, path: str, tree: ast.Module | None = None, text: str | None = None
    ) -> FileResult:
        """All findings of a file, unfiltered. Never raises for what a file holds.

        Args:
            path: relative to the root.
            tree: the file's tree where the caller has it already; with `text`, nothing is parsed again.
            text: the text that `tree` was made from.
        """
        try:
            if tree is not None and text is not None:
                module = self._given(path, tree, text)
            else:
                source = decode(self.project.read(path), cookie=path.endswith(PYTHON))
                self._sources[path] = source
                if not path.endswith(PYTHON):
                    return self._document(path, source)
                known = self.evaluator.module(path)
                if known is None:
                    parse(source.text, path)  # says why it is not known
                    return FileResult(path)
                module = known
        except SourceError as error:
            return FileResult(path, problem=Problem(path, str(error)))
        except documents.DocumentError as error:
            return FileResult(path, problem=Problem(path, str(error)))
        except OSError as error:
            return FileResult(path, problem=Problem(path, error.strerror or str(error)))
        return FileResult(path, self._module_findings(module))

    def _given(self, path: str, tree: ast.Module, text: str) -> Module:
        """The caller's module, or the same text's that another file's turn has parsed already.

        What is known about classes hangs on the nodes of their tree, so a second tree of the same
        text would be a stranger to the files that import it.
        """
        known = self.evaluator._modules.get(path)
        if known is not None and known.lines == _LINE_END.split(text):
            return known
        module = Module(path, text, tree)
        self.evaluator.add(module)
        return module

    def _module_findings(self, module: Module) -> list[Finding]:
        path, project = module.path, self.project
        known = path in project.files and path.endswith(PYTHON)
        found: list[Finding] = []
        if not known or path in project.connected:
            found = Sites(self.evaluator, module).findings()
        if self.naming and (
            not known or (path in project.connected or project.speaks_of_engine(path))
        ):
            from actor_wg_codemod.naming import Naming

            found += Naming(self.evaluator, module, found).findings()
        if self.advice:
            from actor_wg_codemod import advice

            found += advice.findings(self.evaluator, module)
        return sorted(found, key=lambda f: (f.span, f.code))

    def _document(self, path: str, source: Source) -> FileResult:
        from actor_wg_codemod import document_sites

        return document_sites.findings(path, source.text, self.evaluator, self._module_findings)
