"""Takes IPython's own syntax out of a cell, so that what stays is Python at known places."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .view import Line, syntax_problem

# Cell magics that run their body as Python; the body of any other belongs to somebody else.
_PYTHON_CELLS = frozenset(
    {
        *("capture", "debug", "ipytest", "lprun", "memit", "mprun", "prun", "px", "pyinstrument"),
        *("pypy", "python", "python3", "scalene", "snakeviz", "time", "timeit"),
    }
)
# Line magics that run the rest of their line as Python, with the options that may come first.
_PYTHON_LINES = {
    "time": r"(?:--\S+\s+)*",
    "timeit": r"(?:-[nrp]\s*\d+\s+|-[tcqov]+\s+)*",
    "memit": r"(?:-[rti]\s*\d+\s+|-[co]+\s+)*",
    "prun": r"(?:-[lsTD]\s*\S+\s+|-[rq]+\s+)*",
}
_CELL_MAGIC = re.compile(r"%%(\w+)")
_ESCAPE = re.compile(r"(?P<indent>\s*)(?:%{1,2}|!{1,2}|\?{1,2}|[,;/])\S?")
_LINE_MAGIC = re.compile(r"%(?P<name>\w+)\s+")
_HELP = re.compile(
    r"(?P<indent>\s*)%{0,2}[A-Za-z_*][\w*]*(?:\.[\w*]+|\[[^\]]*\])*\?{1,2}\s*(?:#.*)?"
)
_ASSIGNED = re.compile(
    r"""(?P<target>\s*[A-Za-z_*(\[](?:[^=!<>#'"]|'[^']*'|"[^"]*")*=[ \t]*)[%!](?!=)"""
)
_TOKEN = re.compile(
    r"""(?P<comment>\#)|(?P<quote>'{3}|"{3}|'|")|(?P<open>[(\[{])|(?P<close>[)\]}])"""
)


def neutralize(lines: Sequence[str]) -> list[Line]:
    """One `Line` for each line of a cell, with magics, shell and help lines taken out.

    Lines of Python keep their row; where a part in front of the Python is dropped (`%time`,
    a common indentation), the line says by how much its columns moved.
    """
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return [Line("") for _ in lines]
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip(" \t"))]
    bare = [line[len(indent) :] if line.startswith(indent) else line for line in lines]
    found = _CELL_MAGIC.match(bare[first])
    if not found:
        result = _statements(bare)
    elif found[1] in _PYTHON_CELLS:
        result = [Line("")] * (first + 1) + neutralize(bare[first + 1 :])
    else:
        return [Line("") for _ in lines]
    if not indent:
        return result
    return [
        Line(out.text, ((0, len(indent)), *out.shifts)) if line.startswith(indent) else out
        for line, out in zip(lines, result, strict=True)
    ]


def _statements(lines: Sequence[str]) -> list[Line]:
    result: list[Line] = []
    state = _Inside()
    while len(result) < len(lines):
        line = lines[len(result)]
        if state.at_statement:
            taken = _magic(lines, len(result))
            if taken:
                result += taken
                continue
        state = state.after(line)
        result.append(Line(line))
    return result


def _magic(lines: Sequence[str], index: int) -> list[Line]:
    """What the statement of IPython's that starts at `lines[index]` becomes; empty for Python."""
    line = lines[index]
    end = index + 1
    while lines[end - 1].endswith("\\") and end < len(lines):
        end += 1
    rest = [Line("")] * (end - index - 1)
    found = _ASSIGNED.match(line)
    if found:
        start = found.end() - 1
        # What a magic returns is unknown, as is the value of a call of an unknown function.
        return _timed(lines[index:end], start) or [Line(line[:start] + "get_ipython()"), *rest]
    found = _ESCAPE.match(line)
    if found:
        start = found.end("indent")
        return _timed(lines[index:end], start) or [Line(line[:start] + "pass"), *rest]
    found = _HELP.fullmatch(line)
    if found:
        return [Line(found["indent"] + "pass")]
    return []


def _timed(lines: Sequence[str], start: int) -> list[Line]:
    """The Python that a line magic such as `%time` runs, or nothing."""
    found = _LINE_MAGIC.match(lines[0], start)
    if not found or found["name"] not in _PYTHON_LINES:
        return []
    options = re.compile(_PYTHON_LINES[found["name"]]).match(lines[0], found.end())
    begin = options.end() if options else found.end()
    if syntax_problem("\n".join([lines[0][begin:], *lines[1:]])) is not None:
        return []
    first = Line(lines[0][:start] + lines[0][begin:], ((start, begin - start),))
    return [first, *(Line(line) for line in lines[1:])]


class _Inside:
    """Where the end of a line leaves us: in brackets, in a string, behind a backslash."""

    def __init__(self, depth: int = 0, quote: str = "", *, continued: bool = False) -> None:
        self._depth = depth
        self._quote = quote
        self.at_statement = not (depth or quote or continued)

    def after(self, line: str) -> _Inside:
        depth, quote, place = self._depth, self._quote, 0
        while True:
            if quote:
                place = _string_end(line, quote, place)
                if place < 0:
                    # A string in single quotes goes on only behind a backslash.
                    open_ended = len(quote) == 3 or line.endswith("\\")
                    return _Inside(depth, quote if open_ended else "")
                quote = ""
            found = _TOKEN.search(line, place)
            if not found:
                return _Inside(depth, continued=line.endswith("\\"))
            place = found.end()
            if found["comment"]:
                return _Inside(depth)
            if found["quote"]:
                quote = found["quote"]
            else:
                depth = max(0, depth + (1 if found["open"] else -1))


def _string_end(line: str, quote: str, place: int) -> int:
    """Behind the quote that ends the string, or -1."""
    while place < len(line):
        if line[place] == "\\":
            place += 2
        elif line.startswith(quote, place):
            return place + len(quote)
        else:
            place += 1
    return -1
