"""Says where a project holds verl below the release that migrated code needs."""

from __future__ import annotations

from actor_wg_codemod.discovery import Tree
from actor_wg_codemod.listing import is_metadata
from actor_wg_codemod.renames import VERL

_SHOWN = 3


def warnings(tree: Tree) -> list[str]:
    """A line for each pin, and one for the rest where there are many."""
    candidates = [path for path in tree.files if is_metadata(path) and _mentions(tree, path)]
    if not candidates:
        return []
    from actor_wg_codemod import pins

    found = pins.pins(tree.root, candidates)
    lines = [
        f"{pin.path}:{pin.line}: {pin.text} holds {VERL} below 0.9, where migrated code does not run"
        for pin in found[:_SHOWN]
    ]
    if len(found) > _SHOWN:
        lines.append(f"{len(found) - _SHOWN} more pins hold {VERL} below 0.9")
    return lines


def _mentions(tree: Tree, path: str) -> bool:
    try:
        return VERL.encode() in (tree.root / path).read_bytes().lower()
    except OSError:  # whether a pin is noticed changes nothing
        return False
