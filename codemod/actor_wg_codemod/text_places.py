"""Where the words of a module stand in text that is not code: docstrings, messages and comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from actor_wg_codemod.bindings import DEFS, Chain, Module, Order, Scope, descend, path_of
from actor_wg_codemod.model import Span

LOGGING = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"}
)
SPEAKING = frozenset({"print", "warn", "fail", "skip", "skipif", "xfail"})
MESSAGE_NAMES = ("msg", "message", "reason", "error", "hint")
STRINGS: tuple[type[ast.AST], ...] = (
    ast.Constant,
    ast.JoinedStr,
    getattr(ast, "TemplateStr", ast.JoinedStr),
)


@dataclass(frozen=True)
class TextPlace:
    """One word in a text: what kind of text (docstring, message, comment) and in which scope."""

    span: Span
    kind: str
    scope: Scope
    node: ast.AST | None = None
    """The string, or None for a comment."""


@dataclass(frozen=True)
class _String:
    start: Order
    end: Order
    chain: Chain

    def holds(self, line: int, column: int) -> bool:
        return self.start <= (line, column) < self.end


def text_places(module: Module, word: str) -> Iterator[TextPlace]:
    """Every place of a module where text (never code, never data) says a word, in source order."""
    pattern = rf"\b{re.escape(word)}\b"
    lines = module.lines_of(pattern)
    strings = list(_strings(module, lines))
    for line in lines:
        for match in re.finditer(pattern, module.lines[line - 1]):
            span = Span(line, match.start(), line, match.end())
            around = [s for s in strings if s.holds(line, match.start())]
            inner = around[-1] if around else None
            if inner is None:
                if _in_comment(module, strings, line, match.start()):
                    yield TextPlace(span, "comment", _scope_of_line(module, line))
                continue
            node = inner.chain[-1][0]
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue  # a field of an f-string, or bytes
            kind = _kind(inner.chain)
            if kind:
                yield TextPlace(span, kind, module.place(inner.chain).scope, node)


def _strings(module: Module, lines: list[int]) -> Iterator[_String]:
    for chain in descend(module.tree, lines) if lines else ():
        node = chain[-1][0]
        if isinstance(node, STRINGS) and (
            not isinstance(node, ast.Constant) or isinstance(node.value, (str, bytes))
        ):
            assert isinstance(node, ast.expr)
            start = _place(module, node.lineno, node.col_offset)
            end = _place(module, node.end_lineno or node.lineno, node.end_col_offset or 0)
            yield _String(start, end, chain)
        elif isinstance(node, ast.FormattedValue):
            start = _place(module, node.value.lineno, node.value.col_offset)
            end = _place(module, node.value.end_lineno or 0, node.value.end_col_offset or 0)
            yield _String(start, end, chain)


def _place(module: Module, line: int, column: int) -> Order:
    """A line and a byte column as a line and a character column."""
    text = module.lines[line - 1]
    if not text.isascii():
        column = len(text.encode()[:column].decode(errors="replace"))
    return line, column


def _in_comment(module: Module, strings: list[_String], line: int, column: int) -> bool:
    text = module.lines[line - 1]
    position = text.find("#")
    while 0 <= position < column:
        if not any(s.holds(line, position) for s in strings):
            return True
        position = text.find("#", position + 1)
    return False


def _scope_of_line(module: Module, line: int) -> Scope:
    """The scope of the innermost function or class that covers a line."""
    found: Chain = ((module.tree, ""),)
    for chain in descend(module.tree, [line]):
        if isinstance(chain[-1][0], (*DEFS, ast.ClassDef)):
            found = chain
    return module.place(found, inside=True).scope if len(found) > 1 else module.scope


def _kind(chain: Chain) -> str:
    """docstring, message, or '' for a string that is data."""
    if is_docstring(chain):
        return "docstring"
    inside_call = False
    for depth in range(len(chain) - 2, -1, -1):
        node, by = chain[depth][0], chain[depth + 1][1]
        if isinstance(node, ast.Call):
            if by not in ("args", "func"):
                return ""
            if by == "args" and _speaks(node.func):
                return "message"
            inside_call = inside_call or by == "args"
        elif isinstance(node, ast.Raise):
            return "message" if by == "exc" else ""
        elif isinstance(node, ast.Assert):
            return "message" if by == "msg" else ""
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = (path_of(target) or "").rpartition(".")[2].lower()
            return "message" if not inside_call and name.endswith(MESSAGE_NAMES) else ""
        elif isinstance(
            node, ast.stmt | ast.Dict | ast.Subscript | ast.Compare | ast.Lambda | ast.keyword
        ):
            return ""
    return ""


def _speaks(callee: ast.expr) -> bool:
    """Whether a call shows its arguments to a person."""
    if isinstance(callee, ast.Attribute):
        return callee.attr in LOGGING or callee.attr in SPEAKING
    return isinstance(callee, ast.Name) and callee.id in SPEAKING


def is_docstring(chain: Chain) -> bool:
    """Whether the string at the end of a chain is the first statement of a module, class or function."""
    if len(chain) < 3 or not isinstance(chain[-2][0], ast.Expr):
        return False
    owner = chain[-3][0]
    body = getattr(owner, "body", None)
    documented = isinstance(owner, (*DEFS, ast.ClassDef, ast.Module))
    return documented and isinstance(body, list) and body[0] is chain[-2][0]
