"""One YAML document: which nodes construct a manager, and what points at their old key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from yaml.nodes import MappingNode, Node, ScalarNode

from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span

from .interpolations import references_in, steps
from .lines import DocumentError, Offsets, split_lines
from .yaml_tree import bases, compose, lookup, own_pairs, walk

_TARGET = "_target_"
_BLOCK_HEADER = re.compile(r"\|[-+]?[1-9]?[-+]?[ \t]*(?:#.*)?")


def sites(text: str, is_manager: Callable[[str], bool], old: str, new: str) -> list[Finding]:
    """What `yaml_nodes.findings` promises, for a text that can have something to find."""
    found: list[Finding] = []
    for root in compose(text):
        found += _Document(text, root, is_manager, old, new).findings()
    return sorted(found, key=lambda finding: finding.span)


class _Document:
    """One document of a YAML text and what is known about its nodes."""

    def __init__(
        self, text: str, root: Node, is_manager: Callable[[str], bool], old: str, new: str
    ) -> None:
        self._text, self._root, self._is_manager = text, root, is_manager
        self._old, self._new = old, new
        self._offsets = Offsets(text)
        self._nodes = list(walk(root))
        # Which mappings take the pairs of a mapping through a merge key.
        self._mergers: dict[int, list[MappingNode]] = {}
        for placed in self._nodes:
            if isinstance(placed.node, MappingNode):
                for base in bases(placed.node):
                    self._mergers.setdefault(id(base), []).append(placed.node)

    def findings(self) -> Iterator[Finding]:
        renamed: set[int] = set()
        for placed in self._nodes:
            if not isinstance(placed.node, MappingNode):
                continue
            for key, _ in own_pairs(placed.node):
                if key.value == self._old:
                    finding = self._key(placed.node, key)
                    if finding is not None:
                        renamed |= {id(key)} if finding.fix else set()
                        yield finding
            yield from self._config_map(placed.node)
        for placed in self._nodes:
            if isinstance(placed.node, ScalarNode) and "${" in placed.node.value:
                for reference in references_in(self._text, placed.node):
                    for segment, mapping in steps(reference, placed, self._root):
                        if segment.name == self._old and self._points(mapping, renamed):
                            yield self._interpolation(segment.start)

    def _manages(self, mapping: MappingNode) -> bool:
        pair = lookup(mapping, _TARGET)
        return (
            pair is not None
            and isinstance(pair[1], ScalarNode)
            and self._is_manager(pair[1].value.strip())
        )

    def _takers(self, mapping: MappingNode) -> list[MappingNode]:
        """The mappings that get the old key of `mapping` through merge keys, at any depth."""
        takers: list[MappingNode] = []
        pending = list(self._mergers.get(id(mapping), ()))
        while pending:
            taker = pending.pop()
            overrides = any(key.value == self._old for key, _ in own_pairs(taker))
            if not overrides and all(taker is not other for other in takers):
                takers.append(taker)
                pending += self._mergers.get(id(taker), ())
        return takers

    def _key(self, mapping: MappingNode, key: ScalarNode) -> Finding | None:
        takers = self._takers(mapping)
        # A mapping without a target that is merged somewhere is a template for those who take it.
        template = bool(takers) and lookup(mapping, _TARGET) is None
        owners = takers if template else [mapping, *takers]
        managers = [owner for owner in owners if self._manages(owner)]
        if not managers:
            return None
        start, end = key.start_mark.index, key.end_mark.index
        place = self._text.rfind(self._old, start, end)
        if place < 0 or self._text[place + len(self._old) : end].strip("\"'"):
            return self._manual(
                self._offsets.span(start, end),
                f"the key '{self._old}' of a manager's node is written with escapes;"
                f" the manager takes '{self._new}'",
            )
        span = self._offsets.span(place, place + len(self._old))
        if any(lookup(owner, self._new) for owner in managers):
            return self._manual(
                span,
                f"the node gives the manager both '{self._old}' and '{self._new}';"
                " decide which one it should get",
            )
        if len(managers) < len(owners):
            return self._manual(
                span,
                f"the key '{self._old}' goes to a manager, which takes '{self._new}', and through"
                " a merge key also to something else",
            )
        message = (
            f"the node constructs the manager with '{self._old}', which takes '{self._new}':"
            " instantiating it raises TypeError"
        )
        fix = Fix(f"Rename the key to '{self._new}'", (Edit(span, self._new),))
        return Finding("AWG021", span, message, Safety.SAFE, fix)

    def _points(self, mapping: MappingNode, renamed: set[int]) -> bool:
        """Whether the old key of `mapping` is renamed here, or was renamed before."""
        pair = lookup(mapping, self._old)
        if pair is not None:
            return id(pair[0]) in renamed
        return self._manages(mapping) and lookup(mapping, self._new) is not None

    def _interpolation(self, place: int) -> Finding:
        return self._manual(
            self._offsets.span(place, place + len(self._old)),
            f"the interpolation points at the key '{self._old}' of a manager's node, which is"
            f" '{self._new}' after the rename",
        )

    def _manual(self, span: Span, message: str) -> Finding:
        return Finding("AWG902", span, message, Safety.MANUAL)

    def _config_map(self, mapping: MappingNode) -> Iterator[Finding]:
        """What is found in the YAML files that a Kubernetes ConfigMap holds as block scalars."""
        kind, data = lookup(mapping, "kind"), lookup(mapping, "data")
        if kind is None or data is None or not isinstance(data[1], MappingNode):
            return
        if not isinstance(kind[1], ScalarNode) or kind[1].value != "ConfigMap":
            return
        for _, value in own_pairs(data[1]):
            if (
                isinstance(value, ScalarNode)
                and _TARGET in value.value
                and self._old in value.value
            ):
                inner = _block(self._text, value)
                if inner is not None:
                    yield from self._inside(*inner)

    def _inside(self, line: int, indent: int, inner: str) -> Iterator[Finding]:
        try:
            found = sites(inner, self._is_manager, self._old, self._new)
        except DocumentError:
            # A template or another format: nothing about it is proven.
            return
        for finding in found:
            span = _moved(finding.span, line, indent)
            fix = finding.fix and Fix(
                finding.fix.message,
                tuple(Edit(_moved(e.span, line, indent), e.text) for e in finding.fix.edits),
            )
            yield Finding(finding.code, span, finding.message, finding.safety, fix)


def _moved(span: Span, line: int, indent: int) -> Span:
    return Span(
        span.line + line, span.column + indent, span.end_line + line, span.end_column + indent
    )


def _block(text: str, node: ScalarNode) -> tuple[int, int, str] | None:
    """The lines above a literal block scalar, its indentation and its text; None for others."""
    lines = split_lines(text[node.start_mark.index : node.end_mark.index])
    header = lines[0][lines[0].find("|") :]
    if node.style != "|" or not _BLOCK_HEADER.fullmatch(header):
        return None
    above = len(split_lines(text[: node.start_mark.index]))
    # The slice may end with the indentation of what follows the block.
    body = lines[1:] if lines[-1].strip() else lines[1:-1]
    first = next((line for line in body if line.strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    inner = "\n".join(line[indent:] for line in body)
    # Whatever the indentation was, the text has to be what the loader reads.
    return (above, indent, inner) if inner.rstrip() == node.value.rstrip() else None
