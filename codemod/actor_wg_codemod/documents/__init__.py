"""Files that are not Python but hold the same sites: notebooks, YAML and markup."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from actor_wg_codemod.model import Finding
from actor_wg_codemod.splicing import EditError

from . import markup, notebook, yaml_nodes
from .lines import DocumentError
from .settings_evidence import manager_classes, mentions_verl
from .view import PythonView

__all__ = [
    "DocumentError",
    "EditError",
    "PythonView",
    "apply",
    "kind",
    "manager_classes",
    "mentions_verl",
    "view",
]

_KINDS = {
    ".ipynb": "notebook",
    ".yaml": "yaml",
    ".yml": "yaml",
    **dict.fromkeys(markup.MARKDOWN, "markdown"),
    **dict.fromkeys(markup.RESTRUCTURED, "rst"),
}


def kind(path: str) -> str | None:
    """What kind of document a file is: notebook, yaml, markdown, rst, or None for no document."""
    return _KINDS.get(PurePath(path).suffix.lower())


def view(path: str, text: str) -> PythonView:
    """The Python of a notebook or of a Markdown or reStructuredText document.

    Raises:
        DocumentError: the text is not a notebook although its name says so.
        ValueError: the file is of a kind that holds no Python.
    """
    found = kind(path)
    if found == "notebook":
        return notebook.view(text)
    if found in ("markdown", "rst"):
        return markup.view(path, text)
    raise ValueError(f"{path}: no document that holds Python")


def apply(path: str, text: str, findings: Iterable[Finding]) -> str:
    """The document with the fixes of `findings` put in, every other byte as it was.

    Raises:
        DocumentError: the text cannot be read as what its name says.
        EditError: an edit does not cover a name of the text, or two edits overlap.
        ValueError: the file is of no kind of document.
    """
    found = kind(path)
    if found == "notebook":
        return notebook.apply(text, findings)
    if found == "yaml":
        return yaml_nodes.apply(text, findings)
    if found in ("markdown", "rst"):
        return markup.apply(text, findings)
    raise ValueError(f"{path}: no document")
