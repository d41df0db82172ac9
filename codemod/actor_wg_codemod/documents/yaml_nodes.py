"""AWG021: YAML nodes that construct a manager with the old key, and what points at that key."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actor_wg_codemod.model import Finding

from .lines import splice


def findings(text: str, is_manager: Callable[[str], bool], old: str, new: str) -> list[Finding]:
    """The keys `old` of nodes whose `_target_` is a manager, and interpolations that point there.

    A text that lacks one of these words is not even parsed.

    Args:
        text: the YAML text, of one or more documents.
        is_manager: says whether a dotted name is a manager class of verl or of the project.
        old: the key that the manager no longer takes.
        new: the key that it takes instead.

    Raises:
        DocumentError: the text is not YAML.
    """
    if "_target_" not in text or old not in text:
        return []
    # PyYAML is slow to load and few runs ever come here.
    from .yaml_document import sites

    return sites(text, is_manager, old, new)


def apply(text: str, findings: Iterable[Finding]) -> str:
    """The text with the fixes of `findings` put in, every other byte as it was.

    Raises:
        EditError: an edit does not cover a name, or two edits overlap.
    """
    return splice(text, findings)
