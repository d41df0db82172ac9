"""Old names in strings that name an attribute or a key."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import FUNCTIONS, Chain, Place, Scope, path_of
from actor_wg_codemod.forwarding import Taking, kwargs_use
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import (
    Container,
    Function,
    Mock,
    Nothing,
    Unknown,
    Values,
    elements,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

from actor_wg_codemod.attribute_sites import AttributeSites

BY_STRING = frozenset({"getattr", "hasattr", "setattr", "delattr"})
BY_METHOD = frozenset({"setattr", "delattr", "object"})
DUNDERS = frozenset({"__setattr__", "__getattribute__", "__delattr__", "__getattr__"})


class StringSites(AttributeSites):
    """getattr and its kin, mocks, forwarded keywords, topologies."""

    def _string(self, chain: Chain, word: str) -> None:
        node, parent = chain[-1][0], chain[-2][0]
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, str)
        exact = node.value == word
        if isinstance(parent, ast.Call) and node in parent.args:
            self._string_argument(chain, parent, node, word, exact=exact)
        elif exact and isinstance(parent, ast.Subscript) and parent.slice is node:
            self._key(chain[:-1], parent.value, node, word)
        elif exact and isinstance(parent, ast.Compare) and parent.left is node:
            if isinstance(parent.ops[0], (ast.In, ast.NotIn)):
                self._key(chain[:-1], parent.comparators[0], node, word)
        elif exact and isinstance(parent, ast.Dict) and node in parent.keys:
            self._instantiated(chain[:-1], parent, node, word)
        if exact:
            self._kimi_key(chain, node, word)

    def _string_argument(
        self, chain: Chain, call: ast.Call, node: ast.Constant, word: str, *, exact: bool
    ) -> None:
        called = path_of(call.func) or (
            call.func.attr if isinstance(call.func, ast.Attribute) else ""
        )
        last = called.rpartition(".")[2]
        index = call.args.index(node)
        if last == "attrgetter" and (exact or str(node.value).startswith(f"{word}.")):
            self._attrgetter(chain, call, node, word)
        if not exact:
            return
        if (
            index == 1
            and (
                called in BY_STRING or (last in BY_METHOD and isinstance(call.func, ast.Attribute))
            )
        ) or (index == 1 and last in DUNDERS):
            self._by_receiver(call.args[0], chain, node, word)
        elif index == 0 and last in DUNDERS and isinstance(call.func, ast.Attribute):
            self._by_receiver(call.func.value, chain, node, word)
        elif (
            index == 0
            and last in ("get", "pop", "__getitem__", "__contains__")
            and isinstance(call.func, ast.Attribute)
        ):
            self._key(chain[:-1], call.func.value, node, word)

    def _instantiated(self, chain: Chain, node: ast.Dict, key: ast.Constant, word: str) -> None:
        """A key beside `_target_`, which Hydra passes to what that names."""
        place = self.module.place(chain)
        targets = self.ev.forwarding.instantiated(node, place)
        takings = {self.ev.forwarding.takes(t, word) for t in targets}
        new = self.names.table[word]
        if takings and takings <= {Taking.OURS, Taking.UNPROVEN}:
            message = f"Hydra passes the key {word} to what _target_ names, which takes {new} {self.names.since}."
            around = (n for n, _ in reversed(chain) if not isinstance(n, (ast.Dict, ast.List)))
            if isinstance(next(around), ast.Call):
                self._report("AWG001", key, word, message, proven=Taking.OURS in takings)
            else:  # a mapping that has a name can be read by its keys
                why = f"{message} Rename it here and wherever this mapping is read by the key."
                self._manual(key, word, why)
        elif takings & {Taking.MANUAL, Taking.READS}:
            why = f"What _target_ names takes {new} on {self.names.release}; change it first, then this key."
            self._manual(key, word, why)

    def _attrgetter(self, chain: Chain, call: ast.Call, node: ast.Constant, word: str) -> None:
        """`attrgetter("word")` applied to a manager, directly, by map or key=, or through a name."""
        outer, by = chain[-3][0], chain[-2][1]
        place = self.module.place(chain)
        receivers: list[tuple[ast.expr, bool, Place]] = []
        if isinstance(outer, ast.Call) and by == "func":
            receivers = [(a, False, place) for a in outer.args[:1]]
        elif (
            isinstance(outer, ast.Call)
            and by == "args"
            and path_of(outer.func) in ("map", "filter")
        ):
            receivers = [(a, True, place) for a in outer.args[1:2]]
        elif (
            isinstance(outer, ast.keyword)
            and outer.arg == "key"
            and isinstance(chain[-4][0], ast.Call)
        ):
            sorter = chain[-4][0]
            if isinstance(sorter.func, ast.Attribute) and sorter.func.attr == "sort":
                receivers = [(sorter.func.value, True, place)]
            else:
                receivers = [(a, True, place) for a in sorter.args[:1]]
        elif isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
            receivers = list(self._applications(outer.targets[0].id, place))
        verdicts = set()
        for receiver, many, where in receivers:
            if many:
                values = elements(
                    self.ev.filling.filled(receiver, self.ev.evaluate(receiver, where), where)
                )
                verdicts.add(self._of_values(values, word))
            else:
                verdicts.add(self.attribute_verdict(receiver, where, word)[0])
        if not verdicts or verdicts == {None}:
            return
        if None in verdicts or Taking.MANUAL in verdicts:
            message = f"This reads .{word} of a manager, which is .{self.names.table[word]} {self.names.since}, and of something else."
            self._manual(node, word, message)
        else:
            message = self._attribute_message(node, word)
            self._report(
                "AWG003" if word == self.names.group else "AWG013",
                node,
                word,
                message,
                proven=Taking.UNPROVEN not in verdicts,
            )

    def _of_values(self, values: Values, word: str) -> Taking | None:
        verdicts = {
            self._owned(v, word)[0] for v in values if not isinstance(v, (Nothing, Unknown))
        }
        return verdicts.pop() if len(verdicts) == 1 else None

    def _applications(self, name: str, place: Place) -> Iterator[tuple[ast.expr, bool, Place]]:
        home = self.module.resolve(place.scope, name)
        for chain in self.module.carriers(name):
            use = chain[-1][0]
            if not isinstance(use, ast.Name) or not isinstance(use.ctx, ast.Load) or len(chain) < 2:
                continue
            where = self.module.place(chain)
            if self.module.resolve(where.scope, name) is not home:
                continue
            outer, by = chain[-2][0], chain[-1][1]
            if isinstance(outer, ast.Call) and by == "func" and outer.args:
                yield outer.args[0], False, where
            elif (
                isinstance(outer, ast.Call)
                and by == "args"
                and path_of(outer.func) in ("map", "filter")
            ):
                yield outer.args[1], True, where
            elif (
                isinstance(outer, ast.keyword)
                and isinstance(chain[-3][0], ast.Call)
                and chain[-3][0].args
            ):
                yield chain[-3][0].args[0], True, where

    def _key(self, chain: Chain, holder: ast.expr, node: ast.Constant, word: str) -> None:
        """A key of something like a dictionary: a mock's keywords, vars(), forwarded kwargs, a topology."""
        place = self.module.place(chain)
        new = self.names.table[word]
        owner = self._instance_dict(holder, place)
        if owner is not None:
            verdict, _ = self.attribute_verdict(owner, place, word)
            if verdict in (Taking.OURS, Taking.MANUAL):
                message = f"This reads the manager's attributes by name; on {self.names.release} the key is {new}, rename it by hand."
                self._serve(chain, new, lambda: self._manual(node, word, message), owner)
            return
        for value in self.ev.evaluate(holder, place):
            if isinstance(value, Mock) and value.aspect == "arguments" and word == self.names.group:
                message = f"The patched manager is called with {new}= on {self.names.release}."
                self._report("AWG001", node, word, message)
                return
            if (
                isinstance(value, Container)
                and value.topology is not None
                and word == self.names.size
            ):
                if self.ev.link.roles(value.topology).kimi:
                    message = f"The Kimi engine's topology has the key {new} {self.names.since}."
                    self._serve(chain, new, lambda m=message: self._report("AWG013", node, word, m))  # type: ignore[misc]
                    return
        self._kwargs_key(chain, holder, node, word, place)

    def _instance_dict(self, holder: ast.expr, place: Place) -> ast.expr | None:
        """x of `vars(x)` or `x.__dict__`."""
        if (
            isinstance(holder, ast.Call)
            and path_of(holder.func) == "vars"
            and len(holder.args) == 1
        ) and self.module.resolve(place.scope, "vars") is None:
            return holder.args[0]
        if isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
            return holder.value
        return None

    def _kwargs_key(
        self, chain: Chain, holder: ast.expr, node: ast.Constant, word: str, place: Place
    ) -> None:
        """`kwargs["word"]` on keywords that also go to a manager or come from a Kimi topology."""
        if not isinstance(holder, ast.Name):
            return
        home = self.module.resolve(place.scope, holder.id)
        if home is None or not isinstance(home.node, FUNCTIONS):
            return
        kwarg = home.node.args.kwarg
        if kwarg is None or kwarg.arg != holder.id:
            return
        function = Function(
            self.module, home.node, self.module.place(home.chain), self._owner(home)
        )
        new = self.names.table[word]
        if word == self.names.size:
            if self._is_kimi_init(function):
                message = f"The Kimi engine's topology passes {new} {self.names.since}."
                self._report("AWG013", node, word, message)
            return
        if kwargs_use_of(self.ev, function, node, word) != "key":
            return
        if self.ev.forwarding.forward(function, word) is Taking.MANUAL or self._constructor_pops(
            function, word
        ):
            message = (
                f"These keywords are forwarded to the manager and {word} is read from them here; on {self.names.release} "
                f"callers pass {new}: rename the key and its callers together."
            )
            self._serve(chain, new, lambda: self._manual(node, word, message))

    def _constructor_pops(self, function: Function, word: str) -> bool:
        owner = function.owner
        return (
            owner is not None
            and getattr(function.node, "name", "") == "__init__"
            and self.ev.link.roles(owner).manager
            and self.ev.forwarding.constructor(owner) is Taking.MANUAL
        )

    def _owner(self, scope: Scope) -> ClassInfo | None:
        return self.ev.link.owner_of(scope.parent) if scope.parent is not None else None

    def _is_kimi_init(self, function: Function) -> bool:
        named = getattr(function.node, "name", "") == renames.INIT_METHOD
        return named and function.owner is not None and self.ev.link.is_kimi(function.owner)


def kwargs_use_of(evaluator: Evaluator, function: Function, node: ast.Constant, word: str) -> str:
    """How a function's kwargs are used at a given string."""
    for chain, _ in evaluator.forwarding.kwargs_uses(function):
        kind, detail = kwargs_use(chain, word)
        if detail is node:
            return kind
    return ""
