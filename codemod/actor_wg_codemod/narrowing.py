"""What tests around a use say about it: isinstance, type(), match, assertions and early exits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import COMPREHENSIONS, DEFS, Order, Place, leaves, path_of
from actor_wg_codemod.values import (
    ClassValue,
    Container,
    External,
    Foreign,
    Instance,
    Nothing,
    Other,
    Tuple,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

Condition = tuple[ast.AST, bool, Order]
"""A test (or a match case), whether it holds, and where it stands."""


def narrow(evaluator: Evaluator, node: ast.expr, values: Values, place: Place) -> Values:
    """The values that remain for `node` (a name or dotted path) where it is used."""
    if not place.scope.module.tests_types:
        return values
    path = path_of(node)
    if path is None:
        return values
    for test, holds, order in conditions(place):
        if isinstance(test, ast.match_case):
            facts = _case_facts(test, place)
        else:
            facts = list(_facts(test, holds))
        for tested, classes, positive in facts:
            if path_of(tested) != path or _rebound(path, order, place):
                continue
            known = _classes(evaluator, classes, place)
            values = (
                _keep(evaluator, values, known) if positive else _drop(evaluator, values, known)
            )
    return values


def conditions(place: Place) -> list[Condition]:
    """The tests in force at the end of a chain, outermost first, within the innermost function."""
    found: list[Condition] = []
    chain = place.chain
    for index in range(1, len(chain)):
        node, (child, name) = chain[index - 1][0], chain[index]
        if isinstance(node, DEFS) and name == "body":
            found = []
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and name in ("body", "orelse"):
            found.append((node.test, name == "body", _end(node.test)))
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                if value is child:
                    break
                found.append((value, isinstance(node.op, ast.And), _end(value)))
        elif isinstance(node, COMPREHENSIONS) and name in ("elt", "key", "value"):
            found += [(t, True, _end(t)) for g in node.generators for t in g.ifs]
        elif isinstance(node, ast.match_case) and name == "body":
            found.append((node, True, _at(node.pattern)))
        body = getattr(node, name, None)
        if isinstance(child, ast.stmt) and isinstance(body, list):
            found += _passed(body, child)
    return found


def _passed(body: list[ast.stmt], until: ast.stmt) -> Iterator[Condition]:
    for statement in body:
        if statement is until:
            return
        if isinstance(statement, ast.Assert):
            yield statement.test, True, _end(statement)
        elif isinstance(statement, ast.If):
            if leaves(statement.body):
                yield statement.test, False, _end(statement)
            elif statement.orelse and leaves(statement.orelse):
                yield statement.test, True, _end(statement)


def _facts(test: ast.AST, holds: bool) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """(what is tested, the classes, whether it is one of them) that a test says."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _facts(test.operand, not holds)
    elif isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And) == holds:
            for value in test.values:
                yield from _facts(value, holds)
    elif isinstance(test, ast.Call) and path_of(test.func) in ("isinstance", "builtins.isinstance"):
        if len(test.args) == 2:
            yield _target(test.args[0]), test.args[1], holds
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        same = isinstance(test.ops[0], (ast.Is, ast.Eq))
        if isinstance(left, ast.Call) and path_of(left.func) == "type" and len(left.args) == 1:
            if same and holds:
                yield _target(left.args[0]), right, True


def _target(node: ast.expr) -> ast.expr:
    return node.target if isinstance(node, ast.NamedExpr) else node


def _case_facts(case: ast.match_case, place: Place) -> list[tuple[ast.expr, ast.expr, bool]]:
    match = next(
        (n for n, _ in reversed(place.chain) if isinstance(n, ast.Match) and case in n.cases), None
    )
    pattern = case.pattern
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        pattern = pattern.pattern
    if match is None or not isinstance(pattern, ast.MatchClass):
        return []
    return [(_target(match.subject), pattern.cls, True)]


def _rebound(path: str, order: Order, place: Place) -> bool:
    root = path.partition(".")[0].partition("[")[0]
    module = place.scope.module
    home = module.resolve(place.scope, root)
    if home is None:
        return False
    return any(order < b.place.order <= place.order for b in module.bindings(home, root))


def _classes(evaluator: Evaluator, node: ast.expr, place: Place) -> Values:
    found: set[Value] = set()
    for value in evaluator.evaluate(node, place):
        if isinstance(value, Tuple):
            for item in value.items:
                found |= item
        elif isinstance(value, Container):
            found |= value.items
        elif not (isinstance(value, External) and value.name == "builtins.type"):
            found.add(value)
    return frozenset(found)


def _keep(evaluator: Evaluator, values: Values, classes: Values) -> Values:
    proven = evaluator.instances(classes)
    if not classes or all(isinstance(v, Unknown) for v in proven):
        return values
    kept = frozenset(v for v in values if _fits(evaluator, v, classes))
    return kept or proven


def _fits(evaluator: Evaluator, value: Value, classes: Values) -> bool:
    """Whether a known value is already one of the classes or of a subclass."""
    if isinstance(value, Instance):
        return any(
            isinstance(c, ClassValue) and c.info in evaluator.link.mro(value.info) for c in classes
        )
    if isinstance(value, Foreign):
        return any(isinstance(c, External) and c.name == value.name for c in classes)
    return False


def _drop(evaluator: Evaluator, values: Values, classes: Values) -> Values:
    kept = frozenset(v for v in values if not _fits(evaluator, v, classes))
    if any(isinstance(c, ClassValue) for c in classes):
        kept = frozenset(Other("excluded") if isinstance(v, Unknown) else v for v in kept)
    return kept or frozenset({Nothing()})


def _end(node: ast.AST) -> Order:
    return (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)


def _at(node: ast.AST) -> Order:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
