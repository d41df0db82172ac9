"""OmegaConf's interpolations in YAML values: where they point and which nodes they pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .yaml_tree import Placed, lookup

_REFERENCE = re.compile(
    r"(?P<escape>\\*)\$\{\s*(?:oc\.select\s*:\s*)?(?P<path>\.*[\w.\[\]'\"-]+)\s*(?=[,}])"
)
_SEGMENT = re.compile(r"[^.\[\]'\"]+")
_FOLLOWED = 10


@dataclass(frozen=True)
class Segment:
    """One name of an interpolation's path and where it stands in the text searched."""

    name: str
    start: int


@dataclass(frozen=True)
class Reference:
    """An interpolation: `ups` leading dots (none: from the root) and the names after them."""

    ups: int
    path: tuple[Segment, ...]


def references(value: str) -> Iterator[Reference]:
    """The interpolations in a value."""
    return _references(value, 0, len(value), 1)


def references_in(text: str, node: ScalarNode) -> Iterator[Reference]:
    """The interpolations in a scalar as it is written in `text`, where their places are."""
    written = 2 if node.style == '"' else 1
    return _references(text, node.start_mark.index, node.end_mark.index, written)


def _references(text: str, start: int, end: int, written: int) -> Iterator[Reference]:
    """The interpolations in `text[start:end]`, a backslash being `written` characters there."""
    for match in _REFERENCE.finditer(text, start, end):
        if len(match["escape"]) // written % 2:
            continue
        path, place = match["path"], match.start("path")
        ups = len(path) - len(path.lstrip("."))
        names = _SEGMENT.finditer(path)
        yield Reference(ups, tuple(Segment(name[0], place + name.start()) for name in names))


def steps(
    reference: Reference, placed: Placed, root: Node
) -> Iterator[tuple[Segment, MappingNode]]:
    """Each name of the path with the mapping it is looked up in, as far as nodes are there."""
    node: Node | None
    if reference.ups:
        # One dot is the node that holds the value, each further dot one above that.
        if reference.ups > len(placed.holders):
            return
        node = placed.holders[-reference.ups]
    else:
        node = root
    for segment in reference.path:
        node = _followed(node, root)
        if isinstance(node, MappingNode):
            yield segment, node
            pair = lookup(node, segment.name)
            node = pair[1] if pair else None
        elif isinstance(node, SequenceNode) and segment.name.isdigit():
            index = int(segment.name)
            node = node.value[index] if index < len(node.value) else None
        else:
            return


def _followed(node: Node | None, root: Node) -> Node | None:
    """The node that a value which is nothing but an interpolation from the root stands for."""
    for _ in range(_FOLLOWED):
        if not isinstance(node, ScalarNode) or not node.value.strip().startswith("${"):
            break
        found = list(references(node.value))
        if len(found) != 1 or found[0].ups or not node.value.strip().endswith("}"):
            break
        target: Node | None = root
        for segment in found[0].path:
            pair = lookup(target, segment.name) if isinstance(target, MappingNode) else None
            target = pair[1] if pair else None
        node = target
    return node
