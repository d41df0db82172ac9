"""Does the code around a site serve both old and new verl already? Then the site is no finding.

A version test is a comparison of verl's version, a test of the constructor's signature, or `except TypeError`;
for attributes also `hasattr` and `except AttributeError`. Nothing else is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Chain, Module, leaves, path_of
from actor_wg_codemod.values import External, Function, ModuleValue

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


def _suppresses(statement: ast.stmt) -> bool:
    """`with suppress(AttributeError):`"""
    if not isinstance(statement, ast.With):
        return False
    calls = [i.context_expr for i in statement.items if isinstance(i.context_expr, ast.Call)]
    return any(
        (path_of(c.func) or "").rpartition(".")[2] == "suppress"
        and any((path_of(a) or "").rpartition(".")[2] == "AttributeError" for a in c.args)
        for c in calls
    )


class Guards:
    """Recognises code that serves both spellings."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def serves_both(
        self, chain: Chain, module: Module, new: str, receiver: ast.expr | None = None
    ) -> bool:
        """Whether the site at the end of a chain is the old half of code that has a new half."""
        if new not in module.text:
            return False  # nothing here says the new name, so nothing can serve it
        attribute = receiver is not None
        if receiver is not None and self._asked_before(chain, new, path_of(receiver)):
            return True
        for index in range(len(chain) - 1, 0, -1):
            node, (child, name) = chain[index - 1][0], chain[index]
            if isinstance(node, (ast.If, ast.IfExp)) and name in ("body", "orelse"):
                other = node.orelse if name == "body" else node.body
                if self._is_test(node.test, chain[:index], module, receiver):
                    if _says(other, new) or (
                        isinstance(node, ast.If) and self._rest(chain, index, name, new)
                    ):
                        return True
            elif isinstance(node, (ast.If, ast.IfExp)) and name == "test" and receiver is not None:
                halves = (
                    _says(node.body, new)
                    or _says(node.orelse, new)
                    or self._rest(chain, index, "body", new)
                )
                if halves and self._is_test(node.test, chain[:index], module, receiver):
                    return True
            elif isinstance(node, ast.Try) and self._tried(node, name, child, new, attribute):
                return True
            elif isinstance(node, ast.BoolOp) and attribute and isinstance(node.op, ast.Or):
                if any(v is not child and self._asks(v, new) for v in node.values):
                    return True
            elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
                continue
            elif (
                attribute
                and isinstance(node, ast.Call)
                and path_of(node.func) == "getattr"
                and len(node.args) == 3
            ):
                inner, outer = node.args[2], node.args[1]
                asked = isinstance(outer, ast.Constant) and outer.value == new
                nested = (
                    isinstance(child, ast.Call)
                    and path_of(child.func) == "getattr"
                    and len(child.args) == 3
                )
                if (child is inner and asked and nested) or (child is outer and _says(inner, new)):
                    return True
            body = getattr(node, name, None)
            if isinstance(child, ast.stmt) and isinstance(body, list):
                for test, branch in _exits_before(body, child):
                    if _says(branch, new) and self._is_test(test, chain[:index], module, receiver):
                        return True
        return False

    @staticmethod
    def _asked_before(chain: Chain, new: str, receiver: str | None) -> bool:
        """Whether the new name of the same object is set from the old one, or was asked for with a fallback."""
        site = chain[-1][0]
        for index in range(len(chain) - 1, -1, -1):
            node, by = chain[index]
            if isinstance(node, ast.Assign):
                if any(path_of(t) == f"{receiver}.{new}" for t in node.targets):
                    return True
            body = getattr(chain[index - 1][0], by, None) if index else None
            if isinstance(node, ast.stmt) and isinstance(body, list) and node in body:
                before = body[: body.index(node)]
                if any(_suppresses(s) and _says([s], new) for s in before):
                    return True
            if isinstance(node, DEFS) or not index:
                return any(
                    isinstance(call, ast.Call)
                    and path_of(call.func) == "getattr"
                    and len(call.args) == 3
                    and isinstance(call.args[1], ast.Constant)
                    and call.args[1].value == new
                    and path_of(call.args[0]) == receiver
                    and call.lineno <= getattr(site, "lineno", 0)
                    and site not in call.args
                    for call in ast.walk(node)
                )
        return False

    def _rest(self, chain: Chain, index: int, name: str, new: str) -> bool:
        """Whether the old half leaves, and the new half is what follows the `if`."""
        node = chain[index - 1][0]
        if name != "body" or not isinstance(node, ast.If) or not leaves(node.body) or index < 2:
            return False
        outer, by = chain[index - 2][0], chain[index - 1][1]
        body = getattr(outer, by, None)
        if not isinstance(body, list) or node not in body:
            return False
        return _says(body[body.index(node) + 1 :], new)

    def _tried(self, node: ast.Try, name: str, child: ast.AST, new: str, attribute: bool) -> bool:
        wanted = {"TypeError", "AttributeError"} if attribute else {"TypeError"}
        for handler in node.handlers:
            caught = {(path_of(n) or "").rpartition(".")[2] for n in _types(handler.type)}
            if not caught & wanted:
                continue
            if name == "handlers" and child is handler and _says(node.body, new):
                return True
            if name == "body" and _says(handler.body, new):
                return True
        return False

    def _asks(self, node: ast.AST, new: str) -> bool:
        return any(
            isinstance(n, ast.Call) and path_of(n.func) == "getattr" and _says(n.args[1:2], new)
            for n in ast.walk(node)
        )

    # Tests

    def _is_test(
        self, test: ast.expr, chain: Chain, module: Module, receiver: ast.expr | None
    ) -> bool:
        return self._tests(test, chain, module, receiver, set())

    def _tests(
        self,
        test: ast.expr,
        chain: Chain,
        module: Module,
        receiver: ast.expr | None,
        seen: set[int],
    ) -> bool:
        if id(test) in seen:
            return False
        seen.add(id(test))
        if isinstance(test, ast.UnaryOp):
            return self._tests(test.operand, chain, module, receiver, seen)
        if isinstance(test, ast.BoolOp):
            return any(self._tests(v, chain, module, receiver, seen) for v in test.values)
        if isinstance(test, ast.NamedExpr):
            return self._tests(test.value, chain, module, receiver, seen)
        if isinstance(test, ast.Compare):
            return self._is_version_or_signature(test, chain, module)
        if isinstance(test, ast.Call):
            called = path_of(test.func)
            if called == "hasattr":
                second = test.args[1] if len(test.args) == 2 else None
                names = {self.ev.names.group, self.ev.names.new_group}
                asks = isinstance(second, ast.Constant) and second.value in names
                return asks and receiver is not None and path_of(test.args[0]) == path_of(receiver)
            if called == "bool" and test.args:
                return self._tests(test.args[0], chain, module, receiver, seen)
            return self._by_definition(test.func, chain, module, receiver, seen)
        if isinstance(test, (ast.Name, ast.Attribute)):
            return self._by_definition(test, chain, module, receiver, seen)
        return False

    def _by_definition(
        self,
        node: ast.expr,
        chain: Chain,
        module: Module,
        receiver: ast.expr | None,
        seen: set[int],
    ) -> bool:
        """A name, constant of another file, or function that holds the result of a test."""
        for value, where, owner in self._definitions(node, chain, module):
            if self._tests(value, where, owner, receiver, seen):
                return True
        return False

    def _definitions(
        self, node: ast.expr, chain: Chain, module: Module
    ) -> Iterator[tuple[ast.expr, Chain, Module]]:
        place = module.place(chain)
        for value, where in self.ev.definitions(node, place):
            yield value, where.chain, where.scope.module
        for known in self.ev.evaluate(node, place):
            if isinstance(known, Function) and isinstance(known.node, DEFS):
                for returned, inner in self.ev.returns(known.module, known.node):
                    yield returned, inner.chain, known.module

    def _is_version_or_signature(self, test: ast.Compare, chain: Chain, module: Module) -> bool:
        for side in (test.left, *test.comparators):
            if self._is_version(side, chain, module, 0) or self._is_signature(
                side, chain, module, test, 0
            ):
                return True
        return False

    def _is_version(self, node: ast.expr, chain: Chain, module: Module, depth: int) -> bool:
        """Whether an expression is made from verl's version."""
        place = module.place(chain)
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr in ("__version__", "version"):
                owners = self.ev.evaluate(part.value, place)
                if any(isinstance(v, (External, ModuleValue)) and self._is_verl(v) for v in owners):
                    return True
            if isinstance(part, ast.Call) and (path_of(part.func) or "").rpartition(".")[2] in (
                "version",
                "get_distribution",
                "distribution",
            ):
                if part.args and self.ev.calls.text(part.args[0], place) in (
                    renames.VERL,
                    *self.ev.project.named_roots,
                ):
                    return True
            if isinstance(part, ast.Name) and depth < 4:
                values = self.ev.evaluate(part, place)
                if any(
                    isinstance(v, External)
                    and v.name.startswith(f"{renames.VERL}.")
                    and "version" in v.last.lower()
                    for v in values
                ):
                    return True
                for value, where, owner in self._definitions(part, chain, module):
                    if value is not node and self._is_version(value, where, owner, depth + 1):
                        return True
        return False

    def _is_verl(self, value: External | ModuleValue) -> bool:
        name = value.name
        if self.ev.project.canonical(name) is not None and name.partition(".")[2] in (
            "",
            "version",
        ):
            return True
        return (
            isinstance(value, ModuleValue)
            and bool(value.path)
            and self.ev.project.verl_name(value.path or "") == renames.VERL
        )

    def _is_signature(
        self, node: ast.expr, chain: Chain, module: Module, test: ast.Compare, depth: int
    ) -> bool:
        """`"name" in inspect.signature(X).parameters`, also through a name."""
        if not all(isinstance(o, (ast.In, ast.NotIn)) for o in test.ops):
            return False
        names = set(self.ev.names.table) | set(self.ev.names.table.values())
        left = self.ev.calls.text(test.left, module.place(chain))
        if left not in names:
            return False
        return self._made_from_signature(node, chain, module, depth)

    def _made_from_signature(
        self, node: ast.expr, chain: Chain, module: Module, depth: int
    ) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                last = (path_of(part.func) or "").rpartition(".")[2]
                if last in ("signature", "getfullargspec", "getargspec"):
                    return True
            if isinstance(part, ast.Attribute) and part.attr in ("co_varnames", "__annotations__"):
                return True
            if isinstance(part, ast.Name) and depth < 4:
                for value, where, owner in self._definitions(part, chain, module):
                    if value is not node and self._made_from_signature(
                        value, where, owner, depth + 1
                    ):
                        return True
        return False


def _types(node: ast.expr | None) -> list[ast.expr]:
    if node is None:
        return []
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _exits_before(
    body: list[ast.stmt], until: ast.stmt
) -> Iterator[tuple[ast.expr, list[ast.stmt]]]:
    for statement in body:
        if statement is until:
            return
        if isinstance(statement, ast.If) and leaves(statement.body):
            yield statement.test, statement.body


def _says(nodes: ast.AST | list[ast.stmt] | list[ast.expr], word: str) -> bool:
    """Whether code uses a word as a keyword, attribute, key or name."""
    parts = nodes if isinstance(nodes, list) else [nodes]
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.keyword) and node.arg == word:
                return True
            if isinstance(node, ast.Attribute) and node.attr == word:
                return True
            if isinstance(node, ast.Constant) and node.value == word:
                return True
            if isinstance(node, (ast.arg, ast.Name)) and word == (
                node.arg if isinstance(node, ast.arg) else node.id
            ):
                return True
    return False
