"""Old names as keywords of calls, and as keys of dictionaries that are splatted into them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Chain, Place, Scope, function_around, path_of
from actor_wg_codemod.flows import Flow
from actor_wg_codemod.forwarding import TAKEN, Taking, parameter_names
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import (
    ClassValue,
    Constructor,
    Library,
    Mock,
    Partial,
    Value,
)

if TYPE_CHECKING:
    pass

from actor_wg_codemod.reporting import Reporting

MOST_FILES = 12
"""A name that more files say is too common to look for what they do with it."""


class CallSites(Reporting):
    """Keywords and splatted dictionaries."""

    def _keyword(self, chain: Chain, word: str) -> None:
        node, call = chain[-1][0], chain[-2][0]
        assert isinstance(call, ast.Call)
        place = self.module.place(chain[:-1])
        takings = self.ev.forwarding.call_takings(call, place, word)
        callee = _spelled(call.func)
        new = self.names.table[word]
        if not takings & TAKEN:
            self._kimi_key(chain, node, word)
            if self._fits_shape(call, word, takings) and not self._both(call, new, place):
                self._serve(
                    chain, new, lambda: self._keyword_report(word, node, callee, proven=False)
                )
            return
        if self._with_a_stand_in(call, place, takings):
            problem = (
                f"{callee} can be verl's manager or a stand-in of this project that takes {word}= itself; "
                f"rename the stand-in's parameter and this keyword to {new} together."
            )
        elif Taking.OTHER in takings:
            problem = (
                f"{callee} can be verl's manager or another class that takes {word}= itself; "
                f"split the two calls and rename only the manager's to {new}=."
            )
        elif Taking.MANUAL in takings:
            problem = (
                f"{callee} needs {new}= on {self.names.release}, but what it calls reads or binds the name itself; "
                f"change that function first, then this keyword."
            )
        elif self._both(call, new, place):
            problem = f"Both {word}= and {new}= reach {callee}; keep {new}= and remove the other."
        elif word == self.names.size and self._in_clashing_override(place):
            problem = f"The override around this call cannot be renamed by an edit; rename {word} here with it."
        else:
            problem = ""
        if problem:
            self._serve(chain, new, lambda: self._manual(node, word, problem))
            return
        proven = Taking.OURS in takings and Taking.READS not in takings
        self._serve(chain, new, lambda: self._keyword_report(word, node, callee, proven=proven))

    def _with_a_stand_in(self, call: ast.Call, place: Place, takings: frozenset[Taking]) -> bool:
        """Whether the callee is verl's manager or else an own class of its shape, which is not proven."""
        if not {Taking.OURS, Taking.UNPROVEN} <= takings:
            return False
        return any(
            isinstance(t, ClassValue)
            and t.info.node is not None
            and not self.ev.link.roles(t.info).proven
            for t in self.ev.forwarding.targets(call, place)
        )

    def _keyword_report(self, word: str, node: ast.AST, callee: str, *, proven: bool) -> None:
        new = self.names.table[word]
        if word == self.names.group:
            message = f"{callee} takes {new}= {self.names.since}; {word}= raises TypeError."
            self._report("AWG001", node, word, message, proven=proven)
        else:
            message = f"{callee} takes {new}= {self.names.since}; {word}= raises TypeError."
            self._report("AWG011", node, word, message, proven=proven)

    def _fits_shape(self, call: ast.Call, word: str, takings: frozenset[Taking]) -> bool:
        """An unknown callee with the manager's keywords, or an unknown receiver's build_topology."""
        if takings != {Taking.UNKNOWN} or not self.ev.project.mentions_verl:
            return False
        if word == self.names.group:
            return any(k.arg == self.names.manager_parameters[2] for k in call.keywords)
        return isinstance(call.func, ast.Attribute) and call.func.attr == renames.TOPOLOGY_METHOD

    def _both(self, call: ast.Call, new: str, place: Place) -> bool:
        for keyword in call.keywords:
            if keyword.arg == new:
                return True
            if keyword.arg is None:
                flow = self.ev.flows.keys(keyword.value, place, new, "")
                if flow.sites:
                    return True
        return False

    def _in_clashing_override(self, place: Place) -> bool:
        scope: Scope | None = place.scope
        while scope is not None:
            node = scope.node
            if isinstance(node, DEFS) and node.name == renames.TOPOLOGY_METHOD:
                word = self.names.size
                owner = self.ev.link.owner_of(scope.parent)
                if owner is not None and self.ev.link.is_shared(owner):
                    return True
                if word in parameter_names(node):
                    return (
                        self.ev.forwarding.locals.rename(
                            scope, word, self.names.table[word]
                        ).problem
                        is not None
                    )
            scope = scope.parent
        return False

    def _looks_constructed(self, node: ast.AST) -> bool:
        """Whether a call passes another of the manager's keywords, so that asking what it calls pays."""
        wanted = {*self.names.manager_parameters[1:], self.names.new_group, None}
        return isinstance(node, ast.Call) and any(k.arg in wanted for k in node.keywords)

    def _withdrawn(self, chain: Chain) -> None:
        """`backend=` in a call of the manager."""
        node, call = chain[-1][0], chain[-2][0]
        assert isinstance(call, ast.Call)
        place = self.module.place(chain[:-1])
        for value in self.ev.forwarding.targets(call, place):
            info = self._constructed(value)
            if info is None or self._takes_withdrawn(info):
                continue
            if self.ev.forwarding.constructor(info) in (Taking.OURS, Taking.MANUAL, Taking.READS):
                message = (
                    f"No release of verl takes {renames.WITHDRAWN_KEYWORD}= here; "
                    "pass config=<the checkpoint engine's config>, which names the backend."
                )
                self._manual(node, renames.WITHDRAWN_KEYWORD, message)
                return

    @staticmethod
    def _constructed(value: Value) -> ClassInfo | None:
        if isinstance(value, Partial):
            return CallSites._constructed(value.target)
        if isinstance(value, (ClassValue, Constructor)):
            return value.info
        if isinstance(value, Mock) and value.aspect in ("class", "assertion"):
            return value.info
        return None

    def _takes_withdrawn(self, info: ClassInfo) -> bool:
        for current in self.ev.link.mro(info):
            init = self.ev.link.own_method(current, "__init__")
            if init is not None and renames.WITHDRAWN_KEYWORD in parameter_names(init.node):
                return True
        return False

    # Splatted dictionaries

    def _splats(self, chain: Chain) -> None:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        place = self.module.place(chain)
        for keyword in call.keywords:
            if keyword.arg is not None and not self.ev.forwarding.hands_on(call, keyword, place):
                continue
            for word in (self.names.group, self.names.size):
                flow = self._key_flow(keyword.value, word, place)
                if flow.sites:  # asked before the callee is, which costs more
                    self._reached(chain, keyword, word, flow, place)

    def _reached(
        self, chain: Chain, keyword: ast.keyword, word: str, flow: Flow, place: Place
    ) -> None:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        takings = self.ev.forwarding.call_takings(call, place, word)
        shape = not takings & TAKEN
        if not shape or (word == self.names.group and takings == {Taking.UNKNOWN}):
            self._splat(chain, keyword, word, flow, takings, place, shape=shape)

    def _splatted_elsewhere(self, chain: Chain, word: str) -> None:
        """A key of a dictionary that other files take from here, by a function's or a variable's name."""
        node = chain[-1][0]
        for name in _given_names(chain):
            paths = self.ev.project.mentions(name)
            for path in paths if len(paths) <= MOST_FILES and not name.startswith("__") else ():
                if path == self.module.path or b"**" not in self.ev.project.read(path):
                    continue
                for splat, keyword, place in self._splats_near(path, name):
                    flow = self.ev.flows.keys(keyword.value, place, word, self.names.table[word])
                    if any(site is node for site, _, _ in flow.sites):
                        self._reached(splat, keyword, word, flow, place)

    def _splats_near(self, path: str, name: str) -> Iterator[tuple[Chain, ast.keyword, Place]]:
        """The dictionaries that a file splats in the functions that use a name, or have it."""
        other = self.ev.module(path)
        if other is None:
            return
        uses = [c for c in other.carriers(name) if not isinstance(c[-1][0], ast.alias)]
        near = {function_around(use) for use in uses}
        for chain in other.chains(r"\*\*", ast.Call):
            call = chain[-1][0]
            if isinstance(call, ast.Call) and function_around(chain) in near:
                for keyword in call.keywords:
                    if keyword.arg is None:
                        yield chain, keyword, other.place(chain)

    def _key_flow(self, node: ast.expr, word: str, place: Place) -> Flow:
        """What writes the key into a splatted dictionary; empty where nothing in this file can."""
        if not any(_may_write(chain, word) for chain in self.module.carriers(word)):
            return Flow()
        return self.ev.flows.keys(node, place, word, self.names.table[word])

    def _splat(
        self,
        chain: Chain,
        keyword: ast.keyword,
        word: str,
        flow: Flow,
        takings: frozenset[Taking],
        place: Place,
        *,
        shape: bool,
    ) -> None:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        new = self.names.table[word]
        if shape:
            wanted = self.names.manager_parameters[2]
            partner = self.ev.flows.keys(keyword.value, place, wanted, "").sites
            if not partner and all(k.arg != wanted for k in call.keywords):
                return
            if not self.ev.project.mentions_verl:
                return
        callee = _spelled(call.func)
        both = any(k.arg == new for k in call.keywords) or flow.other
        proven = (
            not shape
            and Taking.OURS in takings
            and Taking.READS not in takings
            and not flow.escapes
        )
        for node, _, module in flow.sites:
            if module is not self.module:
                continue  # reported with the file that holds it
            if self.guards.serves_both(module.chain_to(node), module, new):
                continue
            if flow.claimed:
                self._manual(
                    node,
                    word,
                    f"The key {word} reaches {callee}, which needs {new} on {self.names.release}, and another call "
                    f"that takes {word} itself; give each a dictionary of its own.",
                )
            elif Taking.OTHER in takings or Taking.MANUAL in takings or both:
                why = f"The key {word} reaches {callee}, which needs {new} on {self.names.release}; a person has to change both together."
                self._manual(node, word, why)
            elif word == self.names.group:
                message = f"The key {word} reaches {callee}, which takes {new} {self.names.since}."
                self._report("AWG001", node, word, message, proven=proven)
            else:
                kimi = any(
                    isinstance(t, Library) and t.name == "kimi_init"
                    for t in self.ev.forwarding.targets(call, place)
                )
                message = f"The key {word} reaches {callee}, which takes {new} {self.names.since}."
                self._report("AWG013" if kimi else "AWG011", node, word, message, proven=proven)


def _given_names(chain: Chain) -> set[str]:
    """The names by which other files reach a dictionary: of the function around it, else of the variable."""
    steps = [node for node, _ in reversed(chain)]
    called = {
        (path_of(node.func) or "").rpartition(".")[2]
        for node in steps
        if isinstance(node, ast.Call)
    }
    for node in steps:
        if isinstance(node, DEFS):
            return {node.name} | called - {""}
    for node in steps:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {(path_of(t) or "").partition(".")[0].partition("[")[0] for t in targets}
            return (names | called) - {""}
    return called - {""}


def _may_write(chain: Chain, word: str) -> bool:
    """Whether a place may be where a key is written: a string of its own, or a keyword of dict or update."""
    node, parent = chain[-1][0], chain[-2][0]
    if isinstance(node, ast.Constant):
        return bool(node.value == word)
    if not isinstance(node, ast.keyword) or not isinstance(parent, ast.Call):
        return False
    return (path_of(parent.func) or "update").rpartition(".")[2] in ("dict", "update")


def is_key(chain: Chain) -> bool:
    """Whether a string or a keyword puts a key into a dictionary."""
    node, parent = chain[-1][0], chain[-2][0]
    if isinstance(node, ast.keyword):
        return isinstance(parent, ast.Call) and path_of(parent.func) == "dict"
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    return isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)


def _spelled(node: ast.expr) -> str:
    """A callee as the message names it."""
    text = path_of(node) or ast.unparse(node)
    return text if len(text) <= 60 and "\n" not in text else "this call"
