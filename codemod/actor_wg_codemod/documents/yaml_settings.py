"""The values that YAML gives one setting, and the strings that may hold more of them."""

from __future__ import annotations

from collections.abc import Iterator

from yaml.nodes import MappingNode, ScalarNode

from .yaml_tree import compose, own_pairs, walk


def values(text: str, setting: str) -> Iterator[tuple[str, bool]]:
    """Every string value that mentions or is given to `setting`, and whether it is given to it.

    A dotted key that ends in the setting counts as the setting.

    Raises:
        DocumentError: the text is not YAML.
    """
    for root in compose(text):
        for placed in walk(root):
            if isinstance(placed.node, ScalarNode):
                if setting in placed.node.value:
                    yield placed.node.value, False
            elif isinstance(placed.node, MappingNode):
                for key, value in own_pairs(placed.node):
                    named = key.value.rpartition(".")[2] == setting
                    if named and isinstance(value, ScalarNode):
                        yield value.value, True
