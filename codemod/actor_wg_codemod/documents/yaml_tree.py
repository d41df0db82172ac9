"""YAML documents as trees of nodes with exact places, merge keys and anchors understood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .lines import DocumentError

_MERGE = "tag:yaml.org,2002:merge"


def compose(text: str) -> list[Node]:
    """The root node of each document of a YAML text.

    PyYAML is what OmegaConf, and so Hydra, reads configuration with: what it rejects, verl
    cannot read either.

    Raises:
        DocumentError: the text is not YAML.
    """
    try:
        return list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        raise DocumentError(f"not YAML: {place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise DocumentError(f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise DocumentError("not YAML that can be read: nested too deeply") from error


def own_pairs(node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
    """The pairs that the mapping itself writes, merge keys and odd keys left out."""
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.tag != _MERGE:
            yield key, value


def bases(node: MappingNode) -> list[MappingNode]:
    """The mappings that the merge keys of `node` name, the one that wins first."""
    found: list[MappingNode] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            merged = value.value if isinstance(value, SequenceNode) else [value]
            found += [base for base in merged if isinstance(base, MappingNode)]
    return found


def lookup(node: MappingNode, name: str) -> tuple[ScalarNode, Node] | None:
    """The pair with this key, own before merged, as the loader would see it."""
    pending, seen = [node], set()
    while pending:
        mapping = pending.pop(0)
        if id(mapping) in seen:
            continue
        seen.add(id(mapping))
        # The last of two equal keys wins.
        for key, value in reversed(list(own_pairs(mapping))):
            if key.value == name:
                return key, value
        pending = bases(mapping) + pending
    return None


@dataclass(frozen=True)
class Placed:
    """A node and the chain of nodes that hold it, outermost first, where it is written."""

    node: Node
    holders: tuple[Node, ...]


def walk(root: Node) -> Iterator[Placed]:
    """Every value node once, where it is written first; keys are not visited."""
    pending = [Placed(root, ())]
    seen: set[int] = set()
    while pending:
        placed = pending.pop()
        if id(placed.node) in seen:
            continue
        seen.add(id(placed.node))
        yield placed
        holders = (*placed.holders, placed.node)
        if isinstance(placed.node, MappingNode):
            children = [value for _, value in placed.node.value]
        elif isinstance(placed.node, SequenceNode):
            children = placed.node.value
        else:
            continue
        pending += [Placed(child, holders) for child in reversed(children)]
