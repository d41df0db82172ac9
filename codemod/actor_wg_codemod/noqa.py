"""`# noqa` and `# noqa: AWG001`, read the way flake8 reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from actor_wg_codemod.model import Finding
from actor_wg_codemod.source import Source

PYTHON = (".py", ".pyi")
# What flake8 takes for the comment; anything after the codes is ignored.
_NOQA = re.compile(r"# noqa(?::[\s]?(?P<codes>(?:[A-Z]+[0-9]+(?:[,\s]+)?)+))?", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,\s]+")


def without_silenced(
    path: str, source: Source | None, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """The findings of a file whose line has no `# noqa` for them; in a notebook, the cell's line."""
    if source is None or "noqa" not in source.text.lower():
        yield from findings
        return
    if path.endswith(".ipynb"):
        yield from _without_silenced_in_cells(path, source, findings)
        return
    lines = NoqaLines(source, python=path.endswith(PYTHON))
    for finding in findings:
        if not lines.silences(finding.span.line, finding.code):
            yield finding


def _without_silenced_in_cells(
    path: str, source: Source, findings: Iterable[Finding]
) -> Iterator[Finding]:
    from actor_wg_codemod import documents

    view = documents.view(path, source.text)
    lines = view.source.split("\n")
    rows = {(row.cell, row.line): text for row, text in zip(view.rows, lines, strict=False)}
    for finding in findings:
        text = rows.get((finding.cell, finding.span.line), "")
        if not is_silenced(text, finding.code):
            yield finding


class NoqaLines:
    """The `# noqa` comments of a file. They count on every line of a string or a backslash
    continuation that ends on theirs, as flake8 has it."""

    def __init__(self, source: Source, *, python: bool) -> None:
        self._lines = source.lines
        self._groups: dict[int, tuple[int, int]] = {}
        if python and _NOQA.search(source.text):
            self._groups = _joined_lines(source)

    def silences(self, line: int, code: str) -> bool:
        """Whether a finding of `code` on `line` is not to be shown."""
        first, last = self._groups.get(line, (line, line))
        return is_silenced("\n".join(self._lines[first - 1 : last]), code)


def is_silenced(text: str, code: str) -> bool:
    """Whether the line's `# noqa`, if it has one, covers the code."""
    match = _NOQA.search(text)
    if match is None:
        return False
    if match["codes"] is None:
        return True
    listed = filter(None, _SEPARATOR.split(match["codes"]))
    return any(code.startswith(entry.upper()) for entry in listed)


def _joined_lines(source: Source) -> dict[int, tuple[int, int]]:
    import tokenize

    lines: Sequence[str] = [line + "\n" for line in source.lines]
    groups: dict[int, tuple[int, int]] = {}
    first, last = len(lines) + 1, 0
    try:
        for token in tokenize.generate_tokens(iter(lines).__next__):
            if token.type in (tokenize.ENDMARKER, tokenize.DEDENT):
                continue
            first, last = min(first, token.start[0]), max(last, token.end[0])
            if token.type in (tokenize.NL, tokenize.NEWLINE):
                if last > first:
                    groups.update(dict.fromkeys(range(first, last + 1), (first, last)))
                first, last = len(lines) + 1, 0
    except (tokenize.TokenError, SyntaxError):
        return {}
    return groups
