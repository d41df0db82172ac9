"""What code puts under an attribute that holds a manager class: `C.name = ...`, setattr, patch, a field's argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actor_wg_codemod import fields
from actor_wg_codemod.bindings import Chain, Module, Place, path_of
from actor_wg_codemod.forwarding import keyword_names
from actor_wg_codemod.replacing import put_by
from actor_wg_codemod.values import (
    MOCK,
    UNKNOWN,
    ClassValue,
    External,
    Function,
    Instance,
    Nothing,
    Partial,
    Remote,
    Super,
    Tuple,
    Unknown,
    Value,
    Values,
)
from actor_wg_codemod.writing import Writing

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator
    from actor_wg_codemod.linking import ClassInfo

SETTERS = ("setattr", "__setattr__", "delattr", "patch")
PLAIN_MOCKS = frozenset({"Mock", "MagicMock", "AsyncMock"})
HARMLESS_PATCHES = frozenset({"create", "name", "return_value", "autospec"})
"""What patch may be told of the mock that it makes without giving it a signature of its own."""
CHANGERS = ("side_effect", "mock_add_spec", "configure_mock")
"""What gives a mock a signature later."""


@dataclass(frozen=True)
class _Asked:
    """An attribute of a class; `holders` are the classes from there up to the one that has it."""

    info: ClassInfo
    name: str
    holders: tuple[ClassInfo, ...]


class Resetting:
    """The evaluator's part that looks from an attribute to those who set it to something else."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.writing = Writing(evaluator.project)
        self._found: dict[tuple[str, int, str], tuple[Values, bool]] = {}
        self._cycles = 0

    def added(self, info: ClassInfo, name: str, values: Values, holders: list[ClassInfo]) -> Values:
        """The values of an attribute, with what may replace a manager class among them.

        Where something unknown may, no manager class is a proven one any more.
        """
        if info.node is None or not any(self._manages(v) for v in values):
            return values
        put, in_view = self._put(_Asked(info, name, tuple(holders)))
        found = values | put
        return found if in_view else frozenset(map(_weakened, found))

    def _manages(self, value: Value) -> bool:
        while isinstance(value, (Partial, Remote)):
            value = value.target
        return isinstance(value, ClassValue) and self.ev.link.roles(value.info).manager

    def _put(self, asked: _Asked) -> tuple[Values, bool]:
        """What is put there, and whether all of it is known; asked as if nothing else were being asked.

        What the attribute itself gives while it is looked at is what it had before, as in
        `saved = C.name` and `C.name = saved`.
        """
        key = ("reset", id(asked.info.node), asked.name)
        if key in self._found:
            return self._found[key]
        if key in self.ev._active:
            self._cycles += 1
            return frozenset(), True
        active, memo, cycles = self.ev._active, self.ev._memo, self._cycles
        above = {k for k in active if isinstance(k, tuple) and k[0] == "reset"}
        self.ev._active, self.ev._memo = {*above, key}, {}
        try:
            found = self._all_put(asked)
        finally:
            self.ev._active, self.ev._memo = active, memo
        if not above or self._cycles == cycles:
            self._found[key] = found
        return found

    def _all_put(self, asked: _Asked) -> tuple[Values, bool]:
        found: set[Value] = set()
        in_view = True
        for values in self._writes(asked):
            known = {v for v in values if not isinstance(v, (Unknown, Nothing))}
            if any(isinstance(v, Unknown) for v in values):
                # what a configuration names in the manager's place is used as the manager is
                in_view &= any(self._manages(v) for v in known)
            found |= known
        return frozenset(found), in_view

    def _writes(self, asked: _Asked) -> Iterator[Values]:
        """What each place in the project puts there."""
        link, name = self.ev.link, asked.name
        below = link.descendants(asked.info)
        for child in below:
            if any(b.kind != "annotated" or b.value for b in link.own_bindings(child, name)):
                yield link.own_attribute(child, name, Instance(child))
        classes = [*asked.holders, *below]
        paths = self.writing.of(name, self.writing.aliases(c.name for c in classes))
        if paths is None:
            yield UNKNOWN
        for path in paths or ():
            module = self.ev.module(path)
            if module is not None:
                yield from self._in_module(module, asked)
        for owner in [asked.info, *below]:
            yield from self._by_position(owner, asked)

    def _in_module(self, module: Module, asked: _Asked) -> Iterator[Values]:
        for chain in module.carriers(asked.name):
            node = chain[-1][0]
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield from self._by_target(chain, node, module, asked)
            elif isinstance(node, ast.keyword):
                yield from self._by_keyword(chain, node, module, asked)
            elif isinstance(node, ast.Constant) and node.value == asked.name:
                yield from self._by_key(chain, module, asked)
        words = [*SETTERS, *re.findall(rf"\b(?:{'|'.join(SETTERS)})\s+as\s+(\w+)", module.text)]
        for chain in module.chains(rf"\b(?:{'|'.join(words)})\b", ast.Call):
            yield from self._by_setter(chain, module, asked)

    # Whose attribute it is

    def _meant(
        self, owners: Values, put: Values, module: Module, asked: _Asked
    ) -> Iterator[Values]:
        """What is put under the name of such owners, where they may be the class or its objects."""
        put = self._without_mocks(put, module)
        if any(self._is(v, asked) for v in owners):
            yield put
        elif any(isinstance(v, Unknown) for v in owners) and any(map(self._stands_in, put)):
            yield UNKNOWN

    def _is(self, owner: Value, asked: _Asked) -> bool:
        """Whether it is the class, one below it or one it gets the attribute from, or an object of these."""
        if not isinstance(owner, (ClassValue, Instance)):
            return False
        above = asked.holders if isinstance(owner, ClassValue) else self.ev.link.mro(asked.info)
        return owner.info in above or asked.info in self.ev.link.mro(owner.info)

    def _stands_in(self, value: Value) -> bool:
        """Whether it takes the manager's keyword as one of its own."""
        made = self.ev.link.constructor(value.info) if isinstance(value, ClassValue) else value
        takes = isinstance(made, Function) and self.ev.names.group in keyword_names(made.node)
        return takes and not self._manages(value)

    def _without_mocks(self, put: Values, module: Module) -> Values:
        """A plain mock takes either keyword, where nobody asks it for the one that it was given."""
        asked = any(
            isinstance(chain[-1][0], (ast.keyword, ast.Constant))
            for chain in module.carriers(self.ev.names.group)
        )
        if asked or any(word in module.text for word in CHANGERS):
            return put
        return frozenset(v for v in put if v not in MOCK and not _is_mock_class(v))

    def _within(self, node: ast.expr, place: Place) -> Values:
        """The owners that an expression is: an object, or a string that names one, or `vars(...)` of one."""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            node = node.value
        elif isinstance(node, ast.Call) and path_of(node.func) == "vars" and node.args:
            node = node.args[0]
        text = self.ev.calls.text(node, place)
        return (
            self.ev.evaluate(node, place)
            if text is None
            else self.ev.by_name(text, place.scope.module.path)
        )

    # Ways to put something there

    def _by_target(
        self, chain: Chain, node: ast.Attribute, module: Module, asked: _Asked
    ) -> Iterator[Values]:
        """`C.name = ...`, in a tuple, in a `for`, in a `with` and by `del` as well."""
        owners = self.ev.evaluate(node.value, module.place(chain))
        if isinstance(node.ctx, ast.Del):
            yield from self._deleted(owners, asked)
        elif self._in_body(asked) or not self._is_own(node, asked):
            yield from self._meant(owners, self.ev.bound(module.store(chain, "")), module, asked)

    def _in_body(self, asked: _Asked) -> bool:
        return any(self.ev.link.own_bindings(c, asked.name) for c in asked.holders)

    def _is_own(self, node: ast.Attribute, asked: _Asked) -> bool:
        """Whether a method of the class sets it: where the body does not, that is where its values come from."""
        own = (self.ev.link.self_assignments(c, asked.name) for c in asked.holders)
        return any(binding.node is node for bindings in own for binding in bindings)

    def _deleted(self, owners: Values, asked: _Asked) -> Iterator[Values]:
        """What is there once a class has lost it: what its bases have."""
        for owner in owners:
            if isinstance(owner, ClassValue) and self._is(owner, asked):
                left = self.ev.link.super_attribute(Super(owner.info), asked.name)
                yield left if any(map(self._manages, left)) else left | UNKNOWN

    def _by_keyword(
        self, chain: Chain, node: ast.keyword, module: Module, asked: _Asked
    ) -> Iterator[Values]:
        """`C(name=...)` where nothing of the project takes it, `replace(c, name=...)`, `patch.multiple(C, ...)`."""
        call = chain[-2][0]
        if isinstance(call, ast.Call):
            place = module.place(chain)
            owners = self._filled(call, place)
            yield from self._meant(owners, self.ev.evaluate(node.value, place), module, asked)

    def _filled(self, call: ast.Call, place: Place) -> Values:
        """The owners whose fields a call's keywords may be."""
        made = self._constructed(call, place)
        called = self.ev.evaluate(call.func, place)
        if made or any(isinstance(v, (ClassValue, Function)) for v in called):
            return made
        found = self._within(call.args[0], place) if call.args else frozenset()
        if isinstance(call.func, ast.Attribute):
            found |= self._within(call.func.value, place)
        return found - UNKNOWN

    def _constructed(self, call: ast.Call, place: Place) -> Values:
        """The classes without a constructor of the project that a call, or a partial one, constructs."""
        return frozenset(
            v
            for v in self.ev.forwarding.targets(call, place)
            if isinstance(v, ClassValue) and self.ev.link.constructor(v.info) is None
        )

    def _by_key(self, chain: Chain, module: Module, asked: _Asked) -> Iterator[Values]:
        """`vars(c)["name"] = ...` and `c.__dict__["name"] = ...`."""
        held, by = chain[-2][0], chain[-1][1]
        if isinstance(held, ast.Subscript) and by == "slice" and isinstance(held.ctx, ast.Store):
            place = module.place(chain)
            if self._within(held.value, place) != self.ev.evaluate(held.value, place):
                put = self.ev.bound(module.store(chain[:-1], ""))
                yield from self._meant(self._within(held.value, place), put, module, asked)

    def _by_setter(self, chain: Chain, module: Module, asked: _Asked) -> Iterator[Values]:
        """setattr, delattr, monkeypatch's and patch, by object and name or by a string that holds both."""
        call, place = chain[-1][0], module.place(chain)
        assert isinstance(call, ast.Call)
        called = path_of(call.func) or ""
        known = (
            self.ev.evaluate(call.func, place) if called.partition(".")[0] not in SETTERS else ()
        )
        called = next((v.name for v in known if isinstance(v, External)), called)
        deletes = called.rpartition(".")[2] == "delattr"
        given = call.args if deletes else put_by(call, called)
        text = self.ev.calls.text(given[0], place) if given else None
        if text is not None:
            target, _, name = text.rpartition(".")
            owners, rest = self.ev.by_name(target, module.path), given[1:]
        elif len(given) > 1:
            name, rest = self.ev.calls.text(given[1], place) or "", given[2:]
            owners = self.ev.evaluate(given[0], place) if name == asked.name else frozenset()
        else:
            return
        if name != asked.name:
            return
        if deletes:
            yield from self._deleted(owners, asked)
        else:
            put = self.ev.evaluate(rest[0], place) if rest else self._patched_in(call, place)
            yield from self._meant(owners, put, module, asked)

    def _patched_in(self, call: ast.Call, place: Place) -> Values:
        """What patch puts in a place without being given it: a mock, or what it is told to call."""
        makers = [k.value for k in call.keywords if k.arg == "new_callable"]
        others = (
            {k.arg for k in call.keywords}
            - HARMLESS_PATCHES
            - {"new_callable", "target", "attribute"}
        )
        if others or any(
            isinstance(k.value, ast.Name) for k in call.keywords if k.arg == "autospec"
        ):
            return UNKNOWN
        if not makers:
            return frozenset()
        return frozenset().union(
            *(self._called(maker) for maker in self.ev.evaluate(makers[0], place))
        )

    def _called(self, maker: Value) -> Values:
        if isinstance(maker, Function):
            return self.ev.function_result(maker)
        if isinstance(maker, ClassValue):
            return self.ev.link.constructed(maker)
        return MOCK if _is_mock_class(maker) else UNKNOWN

    # Fields

    def _by_position(self, owner: ClassInfo, asked: _Asked) -> Iterator[Values]:
        """What constructions of a class put into a field by its position or by a dictionary's key."""
        words = self.writing.aliases([owner.name])
        paths = self.writing.calling([*words]) if self._has_field(owner, asked) else []
        if paths is None:
            yield UNKNOWN
        for path in paths or ():
            module = self.ev.module(path)
            if module is None:
                continue
            near = "|".join([*words, "cls"] if module is owner.module else words)
            for chain in module.chains(rf"\b({near})\b", ast.Call):
                call, place = chain[-1][0], module.place(chain)
                assert isinstance(call, ast.Call)
                for made in self._constructed(call, place):
                    if isinstance(made, ClassValue) and made.info is owner:
                        yield from self._argued(call, owner, place, module, asked)

    def _has_field(self, owner: ClassInfo, asked: _Asked) -> bool:
        if self.ev.link.constructor(owner) is not None:
            return False
        return any(self.ev.link.own_bindings(c, asked.name) for c in self.ev.link.mro(owner))

    def _argued(
        self, call: ast.Call, owner: ClassInfo, place: Place, module: Module, asked: _Asked
    ) -> Iterator[Values]:
        """What one construction, or a partial one, gives for the field without naming it."""
        names = fields.positional(self.ev.link, owner)
        called = self.ev.evaluate(call.func, place)
        given = self._spread(call.args if self._among(owner, called) else call.args[1:], place)
        if asked.name in names and names.index(asked.name) < len(given):
            yield self._without_mocks(given[names.index(asked.name)], module)
        for keyword in call.keywords:
            if keyword.arg is None:
                flow = self.ev.forwarding.splatted(keyword.value, asked.name, place)
                for value, where in flow:
                    yield self._without_mocks(self.ev.evaluate(value, where), where.scope.module)

    @staticmethod
    def _among(owner: ClassInfo, values: Values) -> bool:
        return any(isinstance(v, ClassValue) and v.info is owner for v in values)

    def _spread(self, arguments: list[ast.expr], place: Place) -> list[Values]:
        """What is given at each position, where that is known; what is unpacked may go on for ever."""
        found: list[Values] = []
        for argument in arguments:
            if not isinstance(argument, ast.Starred):
                found.append(self.ev.evaluate(argument, place))
                continue
            values = self.ev.evaluate(argument.value, place)
            known = [v.items for v in values if isinstance(v, Tuple)]
            if len(known) != 1 or len(values) != 1:
                return [*found, *[UNKNOWN] * 99]
            found += known[0]
        return found


def _weakened(value: Value) -> Value:
    """The same, where a class in it is not proven any more."""
    if isinstance(value, ClassValue):
        return ClassValue(value.info, proven=False)
    if isinstance(value, Partial):
        return Partial(_weakened(value.target), value.given)
    return Remote(_weakened(value.target)) if isinstance(value, Remote) else value


def _is_mock_class(value: Value) -> bool:
    return isinstance(value, External) and value.last in PLAIN_MOCKS and "mock" in value.name
