"""The page to review a migration on: one HTML file that needs nothing else and no network."""

from __future__ import annotations

import importlib.resources
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from actor_wg_codemod import __version__
from actor_wg_codemod.formats import SUMMARIES
from actor_wg_codemod.model import Finding

_CONTEXT = 2
_LONG = 200
_LINE_END = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"(\w+)")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class ReportedFile:
    """What a migration came to in one file.

    `before` and `after` are its text; they are equal where nothing was applied. `problem` is
    the reason why the file could not be read, parsed or written.
    """

    path: str
    before: str
    after: str
    applied: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    problem: str | None = None


def write(path: Path, files: Iterable[ReportedFile], *, wrote: bool = True) -> None:
    """Writes the page; `wrote` says whether the fixes are in the files or were only shown.

    Files without findings and problems are left out.

    Raises:
        OSError: the page cannot be written.
    """
    path.write_text(render(files, wrote=wrote), encoding="utf-8", errors="replace")


def render(files: Iterable[ReportedFile], *, wrote: bool = True) -> str:
    """The page as text."""
    shown = [file for file in files if file.applied or file.left or file.problem]
    done = "fixed" if wrote else "to fix"
    numbers = _numbers(shown, done)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>actor-wg: {numbers}</title>
<style>{_asset("style.css")}</style>
</head>
<body>
<a class="skip" href="#content">To the files</a>
<header>
<h1>actor-wg migrate</h1>
<p>{numbers}. Written by actor-wg {__version__}.</p>
</header>
<div class="columns">
{_navigation(shown, done)}
<main id="content">
{_totals(shown, done)}
{"".join(_section(number, file, done) for number, file in enumerate(shown, 1))}
</main>
</div>
<script>{_asset("script.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    file = importlib.resources.files("actor_wg_codemod") / "page" / name
    return file.read_text(encoding="utf-8")


def _numbers(files: Sequence[ReportedFile], done: str) -> str:
    applied = sum(len(file.applied) for file in files)
    left = sum(len(file.left) for file in files)
    problems = sum(file.problem is not None for file in files)
    failed = f", {problems} of which failed" if problems else ""
    return f"{applied} {done}, {left} left for you, in {len(files)} files{failed}"


def _findings(file: ReportedFile) -> list[tuple[Finding, bool]]:
    """The findings of a file in its order, each with whether it was applied."""
    both = [*((one, True) for one in file.applied), *((one, False) for one in file.left)]
    return sorted(both, key=lambda pair: (pair[0].cell or 0, pair[0].span, pair[0].code))


def _navigation(files: Sequence[ReportedFile], done: str) -> str:
    pairs = [pair for file in files for pair in _findings(file)]
    codes = Counter(finding.code for finding, _ in pairs)
    kinds = Counter(finding.safety.value for finding, _ in pairs)
    states = Counter(done if applied else "left" for _, applied in pairs)
    entries = "".join(
        f'<li><a href="#f{number}">{escape(file.path)}<b>{len(_findings(file)) or "!"}</b></a></li>'
        for number, file in enumerate(files, 1)
    )
    return f"""<nav aria-label="Filters and files">
<label for="search">File name</label>
<input id="search" type="search" autocomplete="off">
{_boxes("Code", "code", codes)}{_boxes("Class", "class", kinds)}{_boxes("State", "state", states)}
<h2>Files</h2>
<p id="shown" role="status"></p>
<ol>{entries}</ol>
<p><kbd>j</kbd> <kbd>k</kbd> next and previous file, <kbd>/</kbd> file name</p>
</nav>"""


def _boxes(title: str, name: str, counts: Counter[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}" checked>'
        f"{escape(value)}<b>{counts[value]}</b></label>"
        for value in sorted(counts)
    )
    return f"<fieldset><legend>{title}</legend>{boxes}</fieldset>"


def _totals(files: Sequence[ReportedFile], done: str) -> str:
    applied = Counter(finding.code for file in files for finding in file.applied)
    left = Counter(finding.code for file in files for finding in file.left)
    rows = "".join(
        f"<tr><th scope='row'><code>{code}</code></th><td class='number'>{applied[code]}</td>"
        f"<td class='number'>{left[code]}</td><td>{escape(SUMMARIES.get(code, ''))}</td></tr>"
        for code in sorted(applied.keys() | left.keys())
    )
    head = f"<th>Code</th><th>{done.capitalize()}</th><th>Left</th><th>What it is</th>"
    return f"""<h2>Totals by code</h2>
<table class="totals"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"""


def _section(number: int, file: ReportedFile, done: str) -> str:
    problem = f'<p class="problem">{escape(file.problem)}</p>' if file.problem else ""
    rows = "".join(_finding(finding, applied, done) for finding, applied in _findings(file))
    head = "<th>Place</th><th>Code</th><th>Class</th><th>State</th><th>Why</th>"
    table = (
        f"""<table class="findings"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"""
    )
    failed = ' data-problem="1"' if file.problem else ""
    return f"""<section id="f{number}" data-path="{escape(file.path)}"{failed}>
<h2 tabindex="-1">{escape(file.path)}</h2>
{problem}{table if rows else ""}{_diff(file)}
</section>
"""


def _finding(finding: Finding, applied: bool, done: str) -> str:
    kind, state = finding.safety.value, done if applied else "left"
    cell = "" if finding.cell is None else f"cell {finding.cell}, "
    place = f"{cell}{finding.span.line}:{finding.span.column + 1}"
    return (
        f'<tr data-code="{finding.code}" data-kind="{kind}" data-state="{state}">'
        f'<td class="place">{place}</td><td><code>{finding.code}</code></td>'
        f'<td class="kind {kind}">{kind}</td><td>{state}</td>'
        f"<td>{escape(finding.message)}</td></tr>"
    )


def _diff(file: ReportedFile) -> str:
    """Both sides of what changes and of what is left, with the lines around."""
    before, after = _LINE_END.split(file.before), _LINE_END.split(file.after)
    # An edit replaces a name within a line, so both sides have the same lines.
    changed = {i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    look = {finding.span.line - 1 for finding in file.left if finding.cell is None} - changed
    wanted = sorted(
        {
            i
            for place in changed | look
            for i in range(place - _CONTEXT, place + _CONTEXT + 1)
            if 0 <= i < len(before)
        }
    )
    if not wanted:
        return ""
    rows = []
    for i, previous in zip(wanted, [None, *wanted], strict=False):
        if previous is not None and i > previous + 1:
            rows.append('<tr class="gap"><td colspan="4">...</td></tr>')
        old, new = _sides(before[i], after[i])
        kind = "changed" if i in changed else "look" if i in look else "same"
        number = f'<td class="number">{i + 1}</td>'
        rows.append(
            f'<tr class="{kind}">{number}<td class="old">{old}</td>'
            f'{number}<td class="new">{new}</td></tr>'
        )
    columns = '<col class="number"><col><col class="number"><col>'
    label = f"Changes in {escape(file.path)}: before and after"
    return f'<table class="diff" aria-label="{label}">{columns}{"".join(rows)}</table>'


def _sides(old: str, new: str) -> tuple[str, str]:
    """Both versions of a line with the words that differ marked and long stretches cut short."""
    olds, news = _WORD.split(old), _WORD.split(new)
    if len(olds) != len(news):
        # A name written with escapes is more than one word.
        olds, news = [old], [new]
    sides = ["", ""]
    pairs = zip(olds, news, strict=True)
    for same, words in itertools.groupby(pairs, key=lambda pair: pair[0] == pair[1]):
        texts = ["".join(side) for side in zip(*words, strict=True)]
        if same:
            sides = [side + escape(_short(text)) for side, text in zip(sides, texts, strict=True)]
        else:
            sides[0] += f"<del>{escape(texts[0])}</del>"
            sides[1] += f"<ins>{escape(texts[1])}</ins>"
    return sides[0], sides[1]


def _short(text: str) -> str:
    """The text, or its two ends: a notebook may hold a picture in one line."""
    return text if len(text) <= 2 * _LONG else f"{text[:_LONG]} ... {text[-_LONG:]}"
