"""One parsed module: where a word stands in its tree, which scope binds a name, which bindings reach a use.

Nothing here walks a whole tree. A word is looked up in the text first, and the walk then goes down
only into the nodes that cover one of its lines; that is what makes the analysis cheap.
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from actor_wg_codemod.model import Span

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OPENERS = (ast.Module, ast.ClassDef, *FUNCTIONS, *COMPREHENSIONS)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
CAUGHT: dict[type[ast.AST], str] = {ast.MatchAs: "capture", ast.ExceptHandler: "handler"}
_LINE_END = re.compile(r"\r\n|\n|\r")
MANY = 24
"""From as many statements on, a block is searched rather than walked through."""
EXACT_FSTRINGS = sys.version_info >= (3, 12)

Step = tuple[ast.AST, str]
Chain = tuple[Step, ...]
"""The nodes from the module down to one node, each with the field by which it hangs in its parent."""
Order = tuple[int, int]
Frame = tuple[ast.AST, object]
"""A compound statement and which of its arms one is in."""

START: Order = (0, 0)
END: Order = (1 << 30, 0)


@dataclass(frozen=True, eq=False)
class Scope:
    """A region where names are bound: module, class, function, lambda or comprehension."""

    module: Module
    node: ast.AST
    parent: Scope | None
    chain: Chain

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FUNCTIONS)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class Place:
    """Where an expression is evaluated: in which scope, after what, inside which arms."""

    scope: Scope
    order: Order
    frames: tuple[Frame, ...]
    chain: Chain


@dataclass(frozen=True, eq=False)
class Binding:
    """What introduces a name (or a dotted path) at one point of a scope.

    `kind` is one of param, import, def, class, value, annotated, each, enter, augment, delete, capture,
    handler, opaque.
    `unpack` are the indexes into `value` where the target is part of a tuple.
    """

    kind: str
    name: str
    node: ast.AST
    place: Place
    value: ast.expr | None = None
    unpack: tuple[int, ...] = ()
    statement: ast.AST | None = None


@dataclass(eq=False)
class Module:
    """A Python file (or the Python of a document) with its tree and its text."""

    path: str
    text: str
    tree: ast.Module
    _lines_of: dict[str, list[int]] = field(default_factory=dict)
    _carriers: dict[str, list[Chain]] = field(default_factory=dict)
    _carriers_in: dict[str, dict[int, list[Chain]]] = field(default_factory=dict)
    _scopes: dict[int, Scope] = field(default_factory=dict)
    _bindings: dict[str, dict[Scope, list[Binding]]] = field(default_factory=dict)
    _given_back: dict[str, dict[ast.AST, list[tuple[ast.expr, Place]]]] = field(
        default_factory=dict
    )
    _declarations: dict[str, dict[Scope, type[ast.AST]]] = field(default_factory=dict)
    _self_stores: dict[str, dict[ast.ClassDef, list[Binding]]] = field(default_factory=dict)

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends; only what Python takes for a line end is one."""
        return _LINE_END.split(self.text)

    @cached_property
    def tests_types(self) -> bool:
        """Whether a test anywhere in the text may narrow down what a name is."""
        return any(word in self.text for word in ("isinstance", "match ", "type("))

    @property
    def is_stub(self) -> bool:
        return self.path.endswith(".pyi")

    @cached_property
    def scope(self) -> Scope:
        return Scope(self, self.tree, None, ((self.tree, ""),))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(m.end() for m in _LINE_END.finditer(self.text))]

    # Words and the nodes that carry them

    def line_at(self, offset: int) -> int:
        """The number (from 1) of the line that holds the character at `offset` of the text."""
        index = bisect_left(self._starts, offset + 1)
        return max(index, 1)

    def lines_of(self, pattern: str) -> list[int]:
        """Line numbers on which a regular expression matches, in order."""
        found = self._lines_of.get(pattern)
        if found is None:
            hits = (self.line_at(m.start()) for m in re.finditer(pattern, self.text))
            found = self._lines_of[pattern] = list(dict.fromkeys(hits))
        return found

    def carriers(self, word: str) -> list[Chain]:
        """Every node in which `word` stands as a name, keyword, attribute, import or string, with its chain."""
        found = self._carriers.get(word)
        if found is None:
            lines = self._lines_with(word)
            found = descend(self.tree, lines, lambda node: _carries(node, word)) if lines else []
            self._carriers[word] = found
        return found

    def carriers_in(self, node: ast.AST, word: str) -> list[Chain]:
        """The carriers of a word inside a definition (or anything else that opens a scope)."""
        found = self._carriers_in.get(word)
        if found is None:
            found = self._carriers_in[word] = {}
            for chain in self.carriers(word):
                for step, _ in chain:
                    if isinstance(step, OPENERS):
                        found.setdefault(id(step), []).append(chain)
        return found.get(id(node), [])

    def _lines_with(self, word: str) -> list[int]:
        """Line numbers on which a word stands as a whole; plain finding beats a pattern here."""
        text, size, found = self.text, len(word), []
        at = text.find(word) if word else -1
        while at >= 0:
            end = at + size
            before = at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_")
            if not before and not (end < len(text) and (text[end].isalnum() or text[end] == "_")):
                found.append(self.line_at(at))
            at = text.find(word, end)
        return list(dict.fromkeys(found))

    @cached_property
    def _declared_names(self) -> frozenset[str]:
        """Every name in a `global` or `nonlocal` statement (by the look of the text)."""
        found: list[str] = []
        for keyword in ("global", "nonlocal"):
            at = self.text.find(keyword)
            while at >= 0:
                found += re.split(r"[\n;#]", self.text[at + len(keyword) : at + 400], maxsplit=1)[
                    0
                ].split(",")
                at = self.text.find(keyword, at + 1)
        return frozenset(name.strip(" \t\\\r") for name in found)

    def chains(
        self, pattern: str, kind: type[ast.AST] | tuple[type[ast.AST], ...]
    ) -> Iterator[Chain]:
        """Nodes of some type that cover a line on which the pattern matches."""
        lines = self.lines_of(pattern)
        if lines:
            yield from descend(self.tree, lines, lambda node: isinstance(node, kind))

    def chain_to(self, node: ast.AST) -> Chain:
        """The chain of a node of this tree. Raises LookupError where it is not in it."""
        line = getattr(node, "lineno", None)
        for lines in (None if line is None else [line], None):
            found = descend(self.tree, lines, lambda other: other is node)
            if found:
                return found[0]
        raise LookupError(f"{self.path}: node is not in the tree")

    # Spans

    def span(self, line: int, column: int, text: str) -> Span | None:
        """The span of `text` that starts at a node's line and byte column, if the source says so there."""
        source = self.lines[line - 1]
        if not source.isascii():
            column = len(source.encode()[:column].decode(errors="replace"))
        if source[column : column + len(text)] != text:
            return None
        return Span(line, column, line, column + len(text))

    def name_span(self, node: ast.AST, word: str) -> Span | None:
        """Where the identifier (or the content of the string literal) `word` of a node stands."""
        if isinstance(node, ast.Attribute):
            line, column = node.end_lineno or node.lineno, node.end_col_offset or 0
            return self.span(line, column - len(word.encode()), word)
        if isinstance(node, ast.Constant):
            return self._literal_span(node, word)
        if isinstance(node, (ast.Name, ast.arg, ast.keyword)):
            return self.span(node.lineno, node.col_offset, word)
        return self._search_span(node, word)

    def _literal_span(self, node: ast.Constant, word: str) -> Span | None:
        line, end = node.lineno, node.end_lineno
        if line != end:
            return None
        source = self.lines[line - 1]
        start, stop = node.col_offset, node.end_col_offset or 0
        if not source.isascii():
            data = source.encode()
            start, stop = len(data[:start].decode()), len(data[:stop].decode())
        match = re.fullmatch(
            rf"([rRuU]?)(\"\"\"|'''|\"|'){word}((?:\.[\w.]*)?)\2", source[start:stop]
        )
        if match is None:
            return None
        begin = start + len(match[1]) + len(match[2])
        return Span(line, begin, line, begin + len(word))

    def _search_span(self, node: ast.AST, word: str) -> Span | None:
        """For nodes that keep a name without its position: the first such word in their header."""
        line = getattr(node, "lineno", 0)
        column = getattr(node, "col_offset", 0)
        for number in range(line, (getattr(node, "end_lineno", line) or line) + 1):
            source = self.lines[number - 1]
            skip = 0
            if number == line:
                skip = len(source.encode()[:column].decode(errors="replace"))
            match = re.compile(rf"\b{word}\b").search(source, skip)
            if match:
                return Span(number, match.start(), number, match.end())
        return None

    # Scopes

    def scope_for(self, node: ast.AST, parent: Scope, chain: Chain) -> Scope:
        found = self._scopes.get(id(node))
        if found is None:
            found = self._scopes[id(node)] = Scope(self, node, parent, chain)
        return found

    def place(self, chain: Chain, *, inside: bool = False) -> Place:
        """Where the last node of a chain is evaluated; `inside`: within the scope that this node opens."""
        scope = self.scope
        frames: list[Frame] = []
        outer: list[tuple[Scope, list[Frame]]] = []
        steps = [*chain, (chain[-1][0], "body")] if inside else chain
        for index in range(1, len(steps)):
            node, (child, name) = steps[index - 1][0], steps[index]
            if _opens(node, name, child):
                outer.append((scope, frames))
                scope = self.scope_for(node, scope, chain[:index])
                frames = []
            elif (isinstance(node, ast.arguments) and name in ("defaults", "kw_defaults")) or (
                isinstance(node, ast.arg) and name == "annotation"
            ):
                scope, frames = outer.pop()
            elif isinstance(node, ast.comprehension) and name == "iter" and outer:
                owner = steps[index - 2][0]
                if getattr(owner, "generators", [None])[0] is node:
                    scope, frames = outer.pop()
            elif isinstance(node, (ast.If, *LOOPS, ast.With, ast.AsyncWith)) and name in (
                "body",
                "orelse",
            ):
                frames = [*frames, (node, name)]
            elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
                frames = [*frames, (node, id(child) if name == "handlers" else name)]
            elif isinstance(node, ast.Match) and name == "cases":
                frames = [*frames, (node, id(child))]
        return Place(scope, _order(chain), tuple(frames), chain)

    # Bindings

    def bindings(self, scope: Scope, name: str) -> list[Binding]:
        """Everything that binds `name` in `scope`, in source order; star imports are not among them."""
        by_home = self._bindings.get(name)
        if by_home is None:
            by_home = self._bindings[name] = self._by_home(name)
        return by_home.get(scope, [])

    def _by_home(self, name: str) -> dict[Scope, list[Binding]]:
        """Everything in the module that binds a name, by the scope that it belongs to."""
        made = [b for chain in self.carriers(name) if (b := self._binding(chain, name))]
        made.sort(key=lambda b: b.place.order)
        local = {b.place.scope for b in made if not self._declared(b.place.scope, name)}
        found: dict[Scope, list[Binding]] = {}
        for binding in made:
            home = self._home(binding.place.scope, name, local)
            found.setdefault(home, []).append(binding)
        return found

    def _home(self, scope: Scope, name: str, local: set[Scope]) -> Scope:
        """The scope a binding belongs to, `global` and `nonlocal` considered."""
        declared = self._declared(scope, name)
        if declared is ast.Global:
            return self.scope
        if declared is ast.Nonlocal:
            outer = scope.parent
            while outer is not None and not (outer.is_function and outer in local):
                outer = outer.parent
            return outer or self.scope
        return scope

    def _declared(self, scope: Scope, name: str) -> type[ast.AST] | None:
        if not scope.is_function or name not in self._declared_names:
            return None
        found = self._declarations.get(name)
        if found is None:
            found = self._declarations[name] = {}
            for chain in self.carriers(name):
                node = chain[-1][0]
                if isinstance(node, (ast.Global, ast.Nonlocal)):
                    found.setdefault(self.place(chain).scope, type(node))
        return found.get(scope)

    def self_stores(self, owner: ast.ClassDef, name: str) -> list[Binding]:
        """What methods of a class store as an attribute of their first parameter."""
        found = self._self_stores.get(name)
        if found is None:
            found = self._self_stores[name] = {}
            for chain in self.carriers(name):
                node = chain[-1][0]
                if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                    continue
                around, method = _method_around(chain)
                if around is None or not isinstance(node.value, ast.Name):
                    continue
                if first_parameter(method) == node.value.id:
                    binding = self.store(chain, f"{node.value.id}.{name}")
                    found.setdefault(around, []).append(binding)
        return found.get(owner, [])

    def resolve(self, scope: Scope, name: str) -> Scope | None:
        """The scope whose binding a use of `name` in `scope` means; None for a builtin or a star import."""
        current: Scope | None = scope
        while current is not None:
            skip = current.is_class and current is not scope
            if not skip:
                declared = self._declared(current, name)
                if declared is ast.Global:
                    return self.scope if self.bindings(self.scope, name) else None
                if declared is None and self.bindings(current, name):
                    return current
            current = current.parent
        return None

    def _binding(self, chain: Chain, name: str) -> Binding | None:
        node = chain[-1][0]
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                return None
            return self.store(chain, name)
        if isinstance(node, ast.arg):
            return Binding("param", name, node, self._at(chain, START))
        if isinstance(node, ast.alias):
            bound = node.asname or node.name.partition(".")[0]
            if bound != name:
                return None
            return Binding("import", name, node, self.place(chain), statement=chain[-2][0])
        if isinstance(node, DEFS) and node.name == name:
            return Binding("def", name, node, self.place(chain))
        if isinstance(node, ast.ClassDef) and node.name == name:
            return Binding("class", name, node, self.place(chain))
        if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name == name:
            kind = CAUGHT.get(type(node), "opaque")
            return Binding(kind, name, node, self.place(chain))
        if isinstance(node, ast.MatchMapping) and node.rest == name:
            return Binding("opaque", name, node, self.place(chain))
        return None

    def _at(self, chain: Chain, order: Order) -> Place:
        place = self.place(chain)
        return Place(place.scope, order, place.frames, place.chain)

    def store(self, chain: Chain, name: str) -> Binding:
        """The binding that a target (a name, attribute or subscript in Store or Del context) makes."""
        unpack: list[int] = []
        for depth in range(len(chain) - 2, -1, -1):
            node, child = chain[depth][0], chain[depth + 1][0]
            if isinstance(node, (ast.Tuple, ast.List)):
                starred = isinstance(child, ast.Starred)
                unpack.insert(0, -1 if starred else node.elts.index(child))  # type: ignore[arg-type]
            elif isinstance(node, ast.Starred):
                continue
            elif isinstance(node, ast.Assign):
                return self._store("value", chain, name, node.value, unpack, depth, _end(node))
            elif isinstance(node, ast.AnnAssign):
                return self._store("annotated", chain, name, node.value, unpack, depth, _end(node))
            elif isinstance(node, ast.AugAssign):
                return self._store("augment", chain, name, node.value, unpack, depth, _end(node))
            elif isinstance(node, ast.NamedExpr):
                return self._walrus(chain, name, node, depth)
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                binding = self._store(
                    "each", chain, name, node.iter, unpack, depth, _end(node.iter)
                )
                frames = (*binding.place.frames, (node, "body"))
                place = Place(binding.place.scope, binding.place.order, frames, binding.place.chain)
                return Binding("each", name, binding.node, place, node.iter, binding.unpack, node)
            elif isinstance(node, ast.comprehension):
                return self._store("each", chain, name, node.iter, unpack, depth, START)
            elif isinstance(node, ast.withitem):
                end = _end(node.context_expr)
                return self._store("enter", chain, name, node.context_expr, unpack, depth, end)
            elif type(node).__name__ == "TypeAlias":
                value: ast.expr = node.value  # type: ignore[attr-defined]
                return self._store("value", chain, name, value, unpack, depth, _end(node))
            elif isinstance(node, ast.Delete):
                return self._store("delete", chain, name, None, unpack, depth, _end(node))
            elif isinstance(node, ast.stmt):
                break
        return Binding("opaque", name, chain[-1][0], self.place(chain))

    def _store(
        self,
        kind: str,
        chain: Chain,
        name: str,
        value: ast.expr | None,
        unpack: list[int],
        depth: int,
        order: Order,
    ) -> Binding:
        place = self._at(chain, order)
        return Binding(kind, name, chain[-1][0], place, value, tuple(unpack), chain[depth][0])

    def _walrus(self, chain: Chain, name: str, node: ast.NamedExpr, depth: int) -> Binding:
        place = self.place(chain[: depth + 1])
        scope, order, frames = place.scope, _end(node), place.frames
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
            # the element stands before the conditions in the text, but runs after them
            order = (scope.node.lineno, scope.node.col_offset)
            frames = self.place(scope.chain).frames
            scope = scope.parent
        placed = Place(scope, order, frames, chain)
        return Binding("value", name, chain[-1][0], placed, node.value, (), node)

    def given_back(self, function: ast.AST, word: str) -> list[tuple[ast.expr, Place]]:
        """The expressions that a function returns (or yields), with their places."""
        found = self._given_back.get(word)
        if found is None:
            found = self._given_back[word] = {}
            kind = ast.Return if word == "return" else (ast.Yield, ast.YieldFrom)
            for chain in self.chains(rf"\b{word}\b", kind):
                place, value = self.place(chain), chain[-1][0].value  # type: ignore[attr-defined]
                if value is not None:
                    found.setdefault(place.scope.node, []).append((value, place))
        return found.get(function, [])

    @cached_property
    def star_imports(self) -> list[tuple[ast.ImportFrom, Place]]:
        found = []
        for chain in self.chains(r"\bimport\s*\(?\s*\*", ast.ImportFrom):
            node = chain[-1][0]
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                found.append((node, self.place(chain)))
        return found


def descend(
    root: ast.AST, lines: list[int] | None, accept: Callable[[ast.AST], bool] | None = None
) -> list[Chain]:
    """The chain of every accepted node that covers one of the (sorted) lines; of all lines where None."""
    found: list[Chain] = []
    _descend(((root, ""),), lines, accept, found, True)
    return found


def _descend(
    chain: Chain,
    lines: list[int] | None,
    accept: Callable[[ast.AST], bool] | None,
    found: list[Chain],
    exact: bool,
) -> None:
    node = chain[-1][0]
    if accept is None or accept(node):
        found.append(chain)
    exact = exact and (EXACT_FSTRINGS or not isinstance(node, ast.JoinedStr))
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            children = value
            if lines is not None and len(value) > MANY and isinstance(value[0], ast.stmt):
                children = _covering(value, lines)
        elif isinstance(value, ast.AST):
            children = [value]
        else:
            continue
        for child in children:
            if not isinstance(child, ast.AST):
                continue
            if lines is not None and exact:
                start = getattr(child, "lineno", None)
                if start is not None:
                    decorators = getattr(child, "decorator_list", None)
                    if decorators:
                        start = min(start, decorators[0].lineno)
                    index = bisect_left(lines, start)
                    if index == len(lines) or lines[index] > (child.end_lineno or start):  # type: ignore[attr-defined]
                        continue
            _descend((*chain, (child, name)), lines, accept, found, exact)


def _covering(body: list[ast.stmt], lines: list[int]) -> list[ast.stmt]:
    """The statements of a long block that cover one of the lines, without a look at all the others."""
    found: dict[int, ast.stmt] = {}
    first, last = (
        bisect_left(lines, _first_line(body[0])),
        bisect_right(lines, _last_line(body[-1])),
    )
    for line in lines[first:last]:
        index = bisect_right(body, line, key=_first_line) - 1
        while index >= 0 and _last_line(body[index]) >= line:
            found[index] = body[index]
            index -= 1
    return [found[index] for index in sorted(found)]


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", None)
    return min(node.lineno, decorators[0].lineno) if decorators else node.lineno


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _carries(node: ast.AST, word: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == word
    if isinstance(node, ast.Attribute):
        return node.attr == word
    if isinstance(node, (ast.arg, ast.keyword)):
        return node.arg == word
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and word in node.value
    if isinstance(node, ast.alias):
        return word in node.name.split(".") or node.asname == word
    if isinstance(node, (*DEFS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name == word
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return word in node.names
    if isinstance(node, ast.MatchMapping):
        return node.rest == word
    if isinstance(node, ast.MatchClass):
        return word in node.kwd_attrs
    return False


def function_around(chain: Chain) -> ast.AST | None:
    """The innermost `def` that a node is or stands in."""
    return next((node for node, _ in reversed(chain) if isinstance(node, DEFS)), None)


def _opens(node: ast.AST, name: str, child: ast.AST) -> bool:
    if isinstance(node, DEFS):
        return name in ("body", "args")
    if isinstance(node, ast.Lambda):
        return name in ("body", "args")
    if isinstance(node, ast.ClassDef):
        return name == "body"
    return isinstance(node, COMPREHENSIONS)


def _order(chain: Chain) -> Order:
    """A use's position; inside an f-string of an older Python that of the whole string."""
    found: Order = START
    for node, _ in chain:
        line = getattr(node, "lineno", None)
        if line is not None:
            found = (line, node.col_offset)  # type: ignore[attr-defined]
            if isinstance(node, ast.JoinedStr) and not EXACT_FSTRINGS:
                break
    return found


def _end(node: ast.AST) -> Order:
    return (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)


def first_parameter(node: ast.AST | None) -> str | None:
    """The name of a function's first positional parameter."""
    if not isinstance(node, FUNCTIONS):
        return None
    arguments = [*node.args.posonlyargs, *node.args.args]
    return arguments[0].arg if arguments else None


def _method_around(chain: Chain) -> tuple[ast.ClassDef | None, ast.AST | None]:
    """The innermost class that a chain goes through, and its method on the way."""
    method: ast.AST | None = None
    for node, _ in reversed(chain):
        if isinstance(node, ast.ClassDef):
            return node, method
        if isinstance(node, DEFS):
            method = node
    return None, None


def path_of(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of attributes on a name (constant subscripts included), else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = path_of(node.value)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = path_of(node.value)
        return None if base is None else f"{base}[{node.slice.value!r}]"
    return None


def leaves(body: list[ast.stmt]) -> str:
    """'hard' where a block always returns or raises, 'soft' where it leaves its loop turn, else ''."""
    if not body:
        return ""
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise)):
        return "hard"
    if isinstance(last, (ast.Continue, ast.Break)):
        return "soft"
    if isinstance(last, ast.If) and last.orelse:
        both = leaves(last.body), leaves(last.orelse)
        return "" if "" in both else ("soft" if "soft" in both else "hard")
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return leaves(last.body)
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        called = path_of(last.value.func)
        if called in (
            "sys.exit",
            "exit",
            "quit",
            "os._exit",
            "pytest.skip",
            "pytest.fail",
            "self.fail",
        ):
            return "hard"
    return ""
