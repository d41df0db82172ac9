"""What code puts under an attribute that holds a manager class: `C.name = ...`, setattr, patch, a field's argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actor_wg_codemod import stack
from actor_wg_codemod.bindings import Chain, Module, Place, path_of
from actor_wg_codemod.fields import Fields
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


MOST_ROUNDS = 8
_Put = tuple[Values, bool]
"""What code puts somewhere, and whether all of it is known."""


@dataclass(frozen=True)
class _Asked:
    """An attribute of a class.

    `holders` are the classes from there up to the one that has it, `below` those that inherit from it, and
    `mixed` what these inherit from besides; where that comes before a holder, it is among the holders.
    """

    info: ClassInfo
    name: str
    holders: tuple[ClassInfo, ...]
    below: tuple[ClassInfo, ...]
    mixed: tuple[ClassInfo, ...]


class Resetting:
    """The evaluator's part that looks from an attribute to those who set it to something else."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.fields = Fields(evaluator)
        self.writing = Writing(evaluator.project)
        self._found: dict[tuple[int, str], _Put] = {}
        self._so_far: dict[tuple[int, str], _Put] = {}
        self._open: dict[tuple[int, str], bool] = {}
        """The attributes met in this round, and whether each is still being looked at."""
        self._unfinished = False

    def added(self, info: ClassInfo, name: str, values: Values, holders: list[ClassInfo]) -> Values:
        """The values of an attribute, with what may replace a manager class among them.

        Where something unknown may, no manager class is a proven one any more.
        """
        if info.node is None or not any(self._manages(v) for v in values):
            return values
        put, in_view = self._put(info, name, holders)
        found = values | put
        return found if in_view else frozenset(map(_weakened, found))

    def _manages(self, value: Value) -> bool:
        while isinstance(value, (Partial, Remote)):
            value = value.target
        return isinstance(value, ClassValue) and self.ev.link.roles(value.info).manager

    def _put(self, info: ClassInfo, name: str, holders: list[ClassInfo]) -> _Put:
        """What is put there, asked as if nothing else were being asked.

        What an attribute gives while it is looked at is what has been found so far, at first what it had before,
        as in `saved = C.name` and `C.name = saved`; then all is looked at again until nothing new comes up.
        """
        key = (id(info.node), name)
        if key in self._found:
            return self._found[key]
        if self._open:
            self._unfinished |= self._open.get(key, False)
            return self._so_far[key] if key in self._open else self._looked_at(key, info, holders)
        memo, found = self.ev._memo, (UNKNOWN, False)
        try:
            for _ in range(MOST_ROUNDS):
                before, self._unfinished, self.ev._memo = dict(self._so_far), False, {}
                found = self._looked_at(key, info, holders)
                self._open.clear()
                if not self._unfinished or before == self._so_far:
                    self._found |= self._so_far
                    return found
            return found[0], False
        finally:
            self.ev._memo = memo
            self._open.clear()
            self._so_far.clear()

    def _looked_at(self, key: tuple[int, str], info: ClassInfo, holders: list[ClassInfo]) -> _Put:
        active, self.ev._active = self.ev._active, set()
        self._so_far.setdefault(key, (frozenset(), True))
        self._open[key] = True
        try:
            asked = self._family(info, key[1], holders)
            deep = stack.nearly_full()
            found = stack.on_a_fresh_one(self._all_put, asked) if deep else self._all_put(asked)
        finally:
            self.ev._active = active
        self._open[key] = False
        self._so_far[key] = found
        return found

    def _all_put(self, asked: _Asked) -> _Put:
        found: set[Value] = set()
        in_view = True
        for values in self._writes(asked):
            known = {v for v in values if not isinstance(v, (Unknown, Nothing))}
            if any(isinstance(v, Unknown) for v in values):
                # what a configuration names in the manager's place is used as the manager is
                in_view &= any(self._manages(v) for v in known)
            found |= known
        return frozenset(found), in_view

    def _family(self, info: ClassInfo, name: str, holders: list[ClassInfo]) -> _Asked:
        link = self.ev.link
        own, below = link.mro(info), link.descendants(info)
        mixed: list[ClassInfo] = []
        before = list(holders)
        for child in below:
            family = link.mro(child)
            beside = [c for c in family if c not in own and c not in below]
            mixed += beside
            before += [c for c in beside if family.index(c) < family.index(holders[-1])]
        return _Asked(info, name, tuple(before), tuple(below), tuple(mixed))

    def _writes(self, asked: _Asked) -> Iterator[Values]:
        """What each place in the project puts there."""
        link, name = self.ev.link, asked.name
        others = [c for c in asked.mixed if c in asked.holders]
        for other in (*asked.below, *others):
            if any(b.kind != "annotated" or b.value for b in link.own_bindings(other, name)):
                yield link.own_attribute(other, name, Instance(other))
        words = self.writing.aliases(c.name for c in (*asked.holders, *asked.below))
        writers = self.writing.of(name, words)
        callers = self._constructing(asked)
        if writers is None or callers is None:
            yield UNKNOWN
        for path in sorted({*(writers or ()), *(callers or ())}):
            module = self.ev.module(path)
            if module is not None:
                yield from self._in_module(module, asked)
                if callers:
                    yield from self._unnamed(module, words, asked)

    def _constructing(self, asked: _Asked) -> list[str] | None:
        """The files that may construct the class or one below it, where the attribute is a field; None for too many."""
        made = [c for c in (asked.info, *asked.below) if self.ev.link.constructor(c) is None]
        if not self._in_body(asked) or not made:
            return []
        found = self.writing.calling(self.writing.aliases(c.name for c in made))
        own = {c.module.path for c in made if c.module is not None}
        return None if found is None else [*found, *own]

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
        above = asked.holders
        if isinstance(owner, Instance):
            above = (*self.ev.link.mro(asked.info), *asked.mixed)
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
            owners = self.fields.filled(call, place)
            yield from self._meant(owners, self.ev.evaluate(node.value, place), module, asked)

    def _by_key(self, chain: Chain, module: Module, asked: _Asked) -> Iterator[Values]:
        """`vars(c)["name"] = ...` and `c.__dict__["name"] = ...`."""
        held, by = chain[-2][0], chain[-1][1]
        if isinstance(held, ast.Subscript) and by == "slice" and isinstance(held.ctx, ast.Store):
            place = module.place(chain)
            if self.fields.within(held.value, place) != self.ev.evaluate(held.value, place):
                put = self.ev.bound(module.store(chain[:-1], ""))
                yield from self._meant(self.fields.within(held.value, place), put, module, asked)

    def _by_setter(self, chain: Chain, module: Module, asked: _Asked) -> Iterator[Values]:
        """setattr, delattr, monkeypatch's and patch, by object and name or by a string that holds both."""
        call, place = chain[-1][0], module.place(chain)
        assert isinstance(call, ast.Call)
        known = self.ev.evaluate(call.func, place)
        called = next((v.name for v in known if isinstance(v, External)), path_of(call.func) or "")
        deletes = called.rpartition(".")[2] == "delattr"
        given = call.args if deletes else put_by(call, called)
        text = self.ev.calls.text(given[0], place) if given else None
        if text is not None:
            target, _, name = text.rpartition(".")
            owners, rest = self.ev.by_name(target, module.path), given[1:]
        elif given and isinstance(given[0], (ast.JoinedStr, ast.BinOp)):
            parts = (n.value for n in ast.walk(given[0]) if isinstance(n, ast.Constant))
            ends = any(str(part).endswith(f".{asked.name}") for part in parts)
            name, owners, rest = asked.name if ends else "", UNKNOWN, given[1:]
        elif len(given) > 1:
            name, rest = self.ev.calls.text(given[1], place) or "", given[2:]
            if not name and self._spells(asked.name, module):
                name = asked.name  # computed, from a list of names as a rule
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

    @staticmethod
    def _spells(name: str, module: Module) -> bool:
        nodes = (chain[-1][0] for chain in module.carriers(name))
        return any(isinstance(node, ast.Constant) and node.value == name for node in nodes)

    def _unnamed(self, module: Module, words: list[str], asked: _Asked) -> Iterator[Values]:
        """What calls put into a field by its position or out of a dictionary."""
        pattern = rf"\b(?:{'|'.join(words)}|cls|_make|update)\b|\*\*"
        for chain in module.chains(pattern, ast.Call):
            call, place = chain[-1][0], module.place(chain)
            assert isinstance(call, ast.Call)
            for owner, put, where in self.fields.unnamed(call, asked.name, place):
                yield from self._meant(frozenset({owner}), put, where, asked)

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


def _weakened(value: Value) -> Value:
    """The same, where a class in it is not proven any more."""
    if isinstance(value, ClassValue):
        return ClassValue(value.info, proven=False)
    if isinstance(value, Partial):
        return Partial(_weakened(value.target), value.given)
    return Remote(_weakened(value.target)) if isinstance(value, Remote) else value


def _is_mock_class(value: Value) -> bool:
    return isinstance(value, External) and value.last in PLAIN_MOCKS and "mock" in value.name
