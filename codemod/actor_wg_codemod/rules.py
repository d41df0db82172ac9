"""`actor-wg rule CODE`: a rule's section of RULES.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from actor_wg_codemod.selection import CODES, CodeError

_HERE = Path(__file__).resolve().parent
# In an installed package, and in a checkout.
_PLACES = (_HERE / "RULES.md", _HERE.parent.parent / "RULES.md")
_HEADING = re.compile(r"(#+) ")


def show(code: str) -> int:
    """Prints the section; 2 where the documentation is not installed.

    Raises:
        CodeError: there is no such rule.
    """
    code = code.upper()
    if code not in CODES:
        raise CodeError(f"unknown code {code!r}; the codes are {', '.join(CODES)}")
    text = next((path.read_text("utf-8") for path in _PLACES if path.is_file()), "")
    found = section(text, code)
    if found is None:
        print(f"error: RULES.md with {code} is not part of this installation", file=sys.stderr)
        return 2
    print(found)
    return 0


def section(text: str, code: str) -> str | None:
    """The heading that names `code`, and what follows up to the next heading of its depth."""
    fenced = False
    depth = 0
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading and depth and len(heading[1]) <= depth:
            break
        if heading and not depth and re.search(rf"\b{code}\b", line):
            depth = len(heading[1])
        if depth:
            found.append(line)
    return "\n".join(found).strip() if depth else None
