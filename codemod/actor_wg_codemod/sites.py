"""The sites of one module: every old name in it, and the verdict on each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, FUNCTIONS, Binding, Chain, Module, Place, Scope, path_of
from actor_wg_codemod.forwarding import Taking, kwargs_use, parameter_names
from actor_wg_codemod.guards import Guards
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.local_names import Renaming
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from actor_wg_codemod.values import (
    ClassValue,
    Constructor,
    Container,
    Foreign,
    Function,
    Group,
    Instance,
    Library,
    Mock,
    Nothing,
    Other,
    Super,
    Unknown,
    Value,
    Values,
    elements,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

BY_STRING = frozenset({"getattr", "hasattr", "setattr", "delattr"})
BY_METHOD = frozenset({"setattr", "delattr", "object"})
DUNDERS = frozenset({"__setattr__", "__getattribute__", "__delattr__", "__getattr__"})
TAKEN = frozenset({Taking.OURS, Taking.READS, Taking.UNPROVEN, Taking.MANUAL})


class Sites:
    """Decides about the old names of one module."""

    def __init__(self, evaluator: Evaluator, module: Module) -> None:
        self.ev = evaluator
        self.module = module
        self.names = evaluator.names
        self.guards = Guards(evaluator)
        self.found: dict[tuple[Span, str], Finding] = {}

    def findings(self) -> list[Finding]:
        """All breaking findings of the module, proven or not, in source order."""
        for word in (self.names.group, self.names.size):
            for chain in self.module.carriers(word):
                self._site(chain, word)
        for chain in self.module.chains(r"\*\*", ast.Call):
            self._splats(chain)
        for chain in self.module.carriers(renames.WITHDRAWN_KEYWORD):
            if isinstance(chain[-1][0], ast.keyword) and self._looks_constructed(chain[-2][0]):
                self._withdrawn(chain)
        return sorted(self.found.values(), key=lambda f: (f.span, f.code))

    def _site(self, chain: Chain, word: str) -> None:
        node = chain[-1][0]
        if isinstance(node, ast.keyword):
            if isinstance(chain[-2][0], ast.Call):
                self._keyword(chain, word)
        elif isinstance(node, ast.Attribute):
            self._attribute(chain, word)
        elif isinstance(node, ast.Constant):
            self._string(chain, word)
        elif isinstance(node, ast.arg):
            self._parameter(chain, word)
        elif isinstance(node, ast.MatchClass):
            self._pattern(chain, word)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._class_level(chain, word)

    # Reporting

    def _report(
        self,
        code: str,
        node: ast.AST,
        word: str,
        message: str,
        *,
        spans: Iterable[Span] = (),
        proven: bool = True,
    ) -> None:
        if not proven and not self.ev.project.mentions_verl:
            return
        span = self.module.name_span(node, word)
        new = self.names.table[word]
        if span is None:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
            rough = Span(line, column, line, column + 1)
            why = f"{message} Its text is spelled in a way that no edit can rename: rename it to {new} by hand."
            self.found[rough, "AWG902"] = Finding("AWG902", rough, why, Safety.MANUAL)
            return
        edits = tuple(Edit(s, new) for s in sorted({span, *spans}))
        if proven:
            finding = Finding(
                code, span, message, Safety.SAFE, Fix(f"Rename {word} to {new}", edits)
            )
        else:
            unsure = f"{message} Not proven: that this is verl's is only likely from its shape."
            finding = Finding(
                "AWG901", span, unsure, Safety.UNSAFE, Fix(f"Rename {word} to {new}", edits)
            )
        self.found.setdefault((span, finding.code), finding)

    def _manual(self, node: ast.AST, word: str, message: str) -> None:
        span = self.module.name_span(node, word)
        if span is None:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
            span = Span(line, column, line, column + 1)
        self.found.setdefault((span, "AWG902"), Finding("AWG902", span, message, Safety.MANUAL))

    # Keywords of calls

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

    def _serve(
        self, chain: Chain, new: str, report: Callable[[], None], receiver: ast.expr | None = None
    ) -> None:
        if not self.guards.serves_both(chain, self.module, new, receiver):
            report()

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
        from actor_wg_codemod.values import Partial

        if isinstance(value, Partial):
            return Sites._constructed(value.target)
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
            if keyword.arg is not None:
                continue
            for word in (self.names.group, self.names.size):
                if not self._may_hold(keyword.value, word, place):
                    continue
                takings = self.ev.forwarding.call_takings(call, place, word)
                shape = not takings & TAKEN
                if shape and not (word == self.names.group and takings == {Taking.UNKNOWN}):
                    continue
                self._splat(chain, keyword, word, takings, place, shape=shape)

    def _may_hold(self, node: ast.expr, word: str, place: Place) -> bool:
        """A cheap look before the callee is asked: does the dictionary have the key at all?"""
        if not self.module.lines_of(rf"[\"']{word}[\"']|\b{word}\s*=(?!=)"):
            root = (path_of(node) or "").partition(".")[0]
            if not root or all(
                b.kind != "import" for b in self.module.bindings(self.module.scope, root)
            ):
                return False
        return bool(self.ev.flows.keys(node, place, word, self.names.table[word]).sites)

    def _splat(
        self,
        chain: Chain,
        keyword: ast.keyword,
        word: str,
        takings: frozenset[Taking],
        place: Place,
        *,
        shape: bool,
    ) -> None:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        new = self.names.table[word]
        flow = self.ev.flows.keys(keyword.value, place, word, new)
        if not flow.sites:
            return
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
            if Taking.OTHER in takings or Taking.MANUAL in takings or both:
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

    # Attributes

    def _attribute(self, chain: Chain, word: str) -> None:
        node = chain[-1][0]
        assert isinstance(node, ast.Attribute)
        if not _configuration(node.value):
            self._by_receiver(node.value, chain, node, word)

    def _by_receiver(self, receiver: ast.expr, chain: Chain, node: ast.AST, word: str) -> None:
        """The verdict on `receiver.word`, whether it stands there as an attribute or as a string."""
        place = self.module.place(chain)
        new = self.names.table[word]
        verdict, why = self.attribute_verdict(receiver, place, word)
        if verdict is None or self._made_by_a_replacement(receiver, place):
            return
        if verdict is Taking.MANUAL:
            self._serve(chain, new, lambda: self._manual(node, word, why), receiver)
            return
        code = "AWG003" if word == self.names.group else "AWG013"
        message = self._attribute_message(node, word)
        proven = verdict is Taking.OURS
        self._serve(
            chain, new, lambda: self._report(code, node, word, message, proven=proven), receiver
        )

    def _made_by_a_replacement(self, receiver: ast.expr, place: Place) -> bool:
        """Whether this function puts a class of its own in the manager's place, and a call gave the receiver."""
        function = next((n for n, _ in reversed(place.chain) if isinstance(n, DEFS)), None)
        if function is None or renames.MANAGER not in self.module.text:
            return False
        node: ast.expr | None = receiver
        if isinstance(receiver, ast.Name):
            home = self.module.resolve(place.scope, receiver.id)
            bindings = self.module.bindings(home, receiver.id) if home is not None else []
            node = bindings[-1].value if bindings else None
        if not isinstance(node, ast.Call):
            return False
        if any(isinstance(v, ClassValue) for v in self.ev.evaluate(node.func, place)):
            return False
        return self._replaces_manager(function)

    def _replaces_manager(self, function: ast.AST) -> bool:
        """Whether a function sets an attribute of the manager's name, by assignment or setattr."""
        for chain in self.module.carriers(renames.MANAGER):
            if not any(n is function for n, _ in chain):
                continue
            leaf, parent = chain[-1][0], chain[-2][0]
            if isinstance(leaf, ast.Attribute) and isinstance(leaf.ctx, ast.Store):
                return True
            if (
                isinstance(leaf, ast.Constant)
                and isinstance(parent, ast.Call)
                and leaf in parent.args[:2]
            ):
                setter = isinstance(parent.func, ast.Attribute) and parent.func.attr == "setattr"
                if setter and str(leaf.value).rpartition(".")[2] == renames.MANAGER:
                    return True
        return False

    def _attribute_message(self, node: ast.AST, word: str) -> str:
        new = self.names.table[word]
        written = isinstance(getattr(node, "ctx", None), ast.Store)
        if word == self.names.size:
            return f"The Kimi engine keeps it as .{new} {self.names.since}."
        if written:
            return (
                f"The manager keeps its worker group as .{new} {self.names.since}; "
                f"writing .{word} makes a dead attribute and changes nothing."
            )
        return f"The manager keeps its worker group as .{new} {self.names.since}; .{word} raises AttributeError."

    def attribute_verdict(
        self, receiver: ast.expr, place: Place, word: str
    ) -> tuple[Taking | None, str]:
        """(OURS, UNPROVEN, MANUAL or None for no finding; why a person is needed)."""
        values = self.ev.evaluate(receiver, place)
        new = self.names.table[word]
        ours = unproven = foreign = False
        manual = ""
        for value in values:
            if isinstance(value, (Nothing, Unknown)) or self._is_stub(value, word):
                continue
            verdict, why = self._owned(value, word)
            ours |= verdict is Taking.OURS
            unproven |= verdict is Taking.UNPROVEN
            manual = manual or (why if verdict is Taking.MANUAL else "")
            foreign |= verdict is None
        if manual:
            return Taking.MANUAL, manual
        if (ours or unproven) and foreign:
            if self._is_element(receiver, place):
                return None, ""
            return Taking.MANUAL, (
                f"The receiver can be verl's manager or something else that has its own .{word}; "
                f"tell the two apart and rename only the manager's to .{new}."
            )
        if ours:
            return Taking.OURS, ""
        if unproven:
            return Taking.UNPROVEN, ""
        unknown = not foreign and any(isinstance(v, Unknown) for v in values)
        if not foreign and (unknown or all(isinstance(v, Nothing) for v in values)):
            if word == self.names.group and _hinted(receiver) and self.ev.project.mentions_verl:
                return Taking.UNPROVEN, ""
        return None, ""

    def _is_stub(self, value: Value, word: str) -> bool:
        """An object of a stand-in class that takes anything and keeps nothing (where verl is missing)."""
        if not isinstance(value, Instance) or value.info.node is None:
            return False
        if self.ev.link.roles(value.info).manager or self._stores_group(value.info, word):
            return False
        return self.ev.forwarding.constructor(value.info) is Taking.NONE

    def _owned(self, value: Value, word: str) -> tuple[Taking | None, str]:
        if isinstance(value, Super):
            value = Instance(value.info)
        if not isinstance(value, Instance):
            return None, ""
        roles = self.ev.link.roles(value.info)
        if word == self.names.size:
            return (Taking.OURS, "") if self.ev.link.is_kimi(value.info) else (None, "")
        if not roles.manager:
            return self._in_mixin(value.info, word)
        conflict = self._conflict(value.info, word)
        if conflict == "own":
            return None, ""
        if conflict:
            return Taking.MANUAL, conflict
        if (roles.named or not roles.proven) and not self._stores_group(value.info, word):
            inherited = any(c.verl == renames.MANAGER for c in self.ev.link.mro(value.info))
            open_base = roles.open
            if not inherited and not open_base:
                return None, ""
        proven = value.proven and roles.proven
        return (Taking.OURS if proven else Taking.UNPROVEN), ""

    def _in_mixin(self, info: ClassInfo, word: str) -> tuple[Taking | None, str]:
        """A class without a manager base that managers of the project inherit from."""
        if info.node is None or self._stores_group(info, word):
            return None, ""
        leaves = self.ev.link.leaf_classes(info)
        managers = [c for c in leaves if self.ev.link.roles(c).manager]
        if not managers:
            return None, ""
        if len(managers) < len(leaves):
            return Taking.MANUAL, (
                f"{info.name} is a base of {managers[0].name}, a manager, and of a class that is none; "
                f"{self.names.release} keeps the group as .{self.names.table[word]} in the manager only."
            )
        verdicts = {self._owned(Instance(c), word)[0] for c in managers}
        return (
            verdicts.pop() if len(verdicts) == 1 else Taking.MANUAL
        ), "The managers that inherit this differ."

    def _stores_group(self, info: ClassInfo, word: str) -> bool:
        return any(
            self.ev.link.self_assignments(c, word) or self.ev.link.own_bindings(c, word)
            for c in self.ev.link.mro(info)
        )

    def _conflict(self, info: ClassInfo, word: str) -> str:
        """'own' where the class defines the name as a method or property itself; a reason for a person; or ''."""
        key = f"conflict {word}"
        if key not in info.extra:
            info.extra[key] = ""  # against cycles
            info.extra[key] = self._find_conflict(info, word)
        return str(info.extra[key])

    def _find_conflict(self, info: ClassInfo, word: str) -> str:
        new = self.names.table[word]
        for current in self.ev.link.mro(info):
            if any(b.kind == "def" for b in self.ev.link.own_bindings(current, word)):
                return "own"
            if any(b.kind == "def" for b in self.ev.link.own_bindings(current, new)):
                return f"{current.name} already defines {new} itself; decide which of the two names stays."
            for binding in (
                *self.ev.link.self_assignments(current, word),
                *self.ev.link.own_bindings(current, word),
            ):
                if self._stores_other(current, binding):
                    return (
                        f"{current.name} stores something other than the worker group as .{word}; rename that "
                        f"attribute first, since {self.names.release} keeps the group as .{new}."
                    )
        return ""

    def _stores_other(self, info: ClassInfo, binding: Binding) -> bool:
        value = binding.value
        if value is None or binding.unpack:
            return False
        function = binding.place.scope.node
        if (
            isinstance(value, ast.Name)
            and isinstance(function, DEFS)
            and function.name == "__init__"
        ):
            init = self.ev.link.own_method(info, "__init__")
            if init is not None and init.node is function and value.id in parameter_names(function):
                group = self.ev.forwarding.group_parameter(info, init)
                if group is not None and group != value.id:
                    return True
                if group == value.id:
                    return False
        known = [
            v
            for v in self.ev.evaluate(value, binding.place)
            if not isinstance(v, (Nothing, Unknown, Group))
        ]
        return bool(known) and all(self._is_other(v) for v in known)

    def _is_other(self, value: Value) -> bool:
        hint = renames.GROUP_CLASS_HINT
        if isinstance(value, Foreign):
            return hint not in value.name and "ock" not in value.name.rpartition(".")[2]
        if isinstance(value, Instance):
            return not any(hint in c.name for c in self.ev.link.mro(value.info))
        if isinstance(value, Other):
            return value.what != "mock"
        return isinstance(value, (Function, Container, ClassValue))

    def _is_element(self, receiver: ast.expr, place: Place) -> bool:
        """Whether a receiver comes out of a container, where a mixed one says nothing."""
        if isinstance(receiver, (ast.Subscript, ast.Call)):
            return True
        if isinstance(receiver, ast.Name):
            home = self.module.resolve(place.scope, receiver.id)
            bindings = self.module.bindings(home, receiver.id) if home is not None else []
            return bool(bindings) and all(b.kind == "each" for b in bindings)
        return False

    # Strings

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
                    self.ev._filled(receiver, self.ev.evaluate(receiver, where), where)
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

    # Kimi's topology keys

    def _kimi_key(self, chain: Chain, node: ast.AST, word: str) -> None:
        if word == self.names.size and self.ev.kimi.holds(node):
            message = (
                f"A Kimi engine's init_process_group takes {self.names.new_size} {self.names.since}, "
                "so its topology has to say it."
            )
            self._serve(
                chain, self.names.new_size, lambda: self._report("AWG013", node, word, message)
            )

    # Parameters

    def _parameter(self, chain: Chain, word: str) -> None:
        node = chain[-1][0]
        place = self.module.place(chain)
        function = place.scope.node
        if not isinstance(function, FUNCTIONS):
            return
        outer = self.module.place(place.scope.chain)
        owner = self.ev.link.owner_of(outer.scope)
        name = self._function_name(function, outer)
        if word == self.names.group:
            if owner is not None and name == "__init__":
                self._group_parameter(node, place, owner, function, outer)
            elif owner is not None and name == "__new__" and isinstance(function, DEFS):
                self._new_parameter(node, place, owner, function)
        elif name == renames.TOPOLOGY_METHOD and owner is not None:
            self._topology_parameter(node, place, owner, function)
        elif name == renames.INIT_METHOD and owner is not None:
            if self.ev.link.is_kimi(owner) and self.ev.kimi.unclear(owner):
                message = (
                    f"The parameter {word}: it has to be {self.names.new_size} on {self.names.release} together with the key "
                    f"of the topology, and who writes that key for {owner.name} cannot be seen; rename both by hand."
                )
                self._manual(node, word, message)
            elif self.ev.link.is_kimi(owner):
                self._rename_parameter("AWG012", node, place, word, owner.name, proven=True)
        else:
            self._attached_parameter(node, place, function, outer)

    @staticmethod
    def _function_name(function: ast.AST, outer: Place) -> str:
        if isinstance(function, DEFS):
            return function.name
        for holder, _ in reversed(outer.chain):
            if isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Name):
                return holder.targets[0].id
            if isinstance(holder, ast.stmt):
                break
        return ""

    def _group_parameter(
        self, node: ast.AST, place: Place, owner: ClassInfo, function: ast.AST, outer: Place
    ) -> None:
        roles = self.ev.link.roles(owner)
        if not roles.manager or not isinstance(function, DEFS):
            return
        init = Function(self.module, function, outer, owner, bound=True)
        if self.ev.forwarding.group_parameter(owner, init) == self.names.group:
            self._rename_parameter(
                "AWG002", node, place, self.names.group, owner.name, proven=roles.proven
            )

    def _new_parameter(
        self,
        node: ast.AST,
        place: Place,
        owner: ClassInfo,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
    ) -> None:
        """`__new__` gets the constructor's arguments, so its parameter has to follow."""
        roles = self.ev.link.roles(owner)
        names = parameter_names(function)
        if roles.manager and self.names.group in names and names.index(self.names.group) == 2:
            self._rename_parameter(
                "AWG002", node, place, self.names.group, owner.name, proven=roles.proven
            )

    def _topology_parameter(
        self, node: ast.AST, place: Place, owner: ClassInfo, function: ast.AST
    ) -> None:
        word = self.names.size
        roles = self.ev.link.roles(owner)
        if self.ev.link.is_engine(owner):
            self._rename_parameter("AWG012", node, place, word, owner.name, proven=True)
        elif (roles.engine or self._open_engine(owner, function)) and self.ev.project.mentions_verl:
            self._rename_parameter("AWG012", node, place, word, owner.name, proven=False)

    def _open_engine(self, owner: ClassInfo, function: ast.AST) -> bool:
        """The override's exact shape under a base class that cannot be resolved."""
        if not self.ev.link.roles(owner).open or not isinstance(function, FUNCTIONS):
            return False
        others = [n for n in parameter_names(function) if n not in ("cls", "self", self.names.size)]
        return (
            len(others) >= 2
            and others[0] == "rollout_world_size"
            and others[1].startswith("metadata")
        )

    def _attached_parameter(
        self, node: ast.AST, place: Place, function: ast.AST, outer: Place
    ) -> None:
        word = self.names.size
        if word not in {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}:
            return
        for info, attribute in self.ev.link.attachments(function, outer, self.module):
            roles = self.ev.link.roles(info)
            fits = attribute == renames.TOPOLOGY_METHOD and self.ev.link.is_engine(info)
            if fits or (attribute == renames.INIT_METHOD and roles.kimi):
                self._rename_parameter("AWG012", node, place, word, info.name, proven=True)
                return

    def _rename_parameter(
        self, code: str, node: ast.AST, place: Place, word: str, owner: str, *, proven: bool
    ) -> None:
        new = self.names.table[word]
        renaming: Renaming = self.ev.forwarding.locals.rename(place.scope, word, new)
        if code == "AWG002":
            what = f"verl constructs managers with {new}= {self.names.since}, so {owner} raises TypeError"
        elif getattr(place.scope.node, "name", "") == renames.INIT_METHOD:
            what = f"a Kimi topology passes {new} {self.names.since} and {owner} raises TypeError"
        else:
            what = f"verl calls this by position and {owner} runs, but keyword callers pass {new} {self.names.since}"
        if renaming.problem is not None:
            if proven or self.ev.project.mentions_verl:
                self._manual(
                    node,
                    word,
                    f"The parameter {word}: {what}. Rename it by hand: {renaming.problem}.",
                )
            return
        if not proven and not self.ev.project.mentions_verl:
            return
        self._report(
            code, node, word, f"The parameter {word}: {what}.", spans=renaming.spans, proven=proven
        )

    # Class level and patterns

    def _class_level(self, chain: Chain, word: str) -> None:
        """A declaration `word: Type` or `word = None` in the body of a manager subclass."""
        place = self.module.place(chain)
        owner = self.ev.link.owner_of(place.scope)
        if owner is None or not isinstance(chain[-2][0], (ast.Assign, ast.AnnAssign)):
            return
        roles = self.ev.link.roles(owner)
        ours = roles.manager if word == self.names.group else self.ev.link.is_kimi(owner)
        if not ours:
            return
        verdict, why = self._owned(Instance(owner), word)
        node = chain[-1][0]
        if verdict is Taking.MANUAL:
            self._manual(node, word, why)
        elif verdict is not None:
            message = self._attribute_message(node, word)
            code = "AWG003" if word == self.names.group else "AWG013"
            self._report(code, node, word, message, proven=verdict is Taking.OURS)

    def _pattern(self, chain: Chain, word: str) -> None:
        """`case Manager(word=x)`."""
        node = chain[-1][0]
        assert isinstance(node, ast.MatchClass)
        place = self.module.place(chain)
        verdicts = {
            self._owned(v, word)[0]
            for v in self.ev.instances(self.ev.evaluate(node.cls, place))
            if not isinstance(v, Unknown)
        }
        if verdicts == {Taking.OURS}:
            self._report(
                "AWG003" if word == self.names.group else "AWG013",
                node,
                word,
                self._attribute_message(node, word),
            )


def kwargs_use_of(evaluator: Evaluator, function: Function, node: ast.Constant, word: str) -> str:
    """How a function's kwargs are used at a given string."""
    for chain, _ in evaluator.forwarding.kwargs_uses(function):
        kind, detail = kwargs_use(chain, word)
        if detail is node:
            return kind
    return ""


def _spelled(node: ast.expr) -> str:
    """A callee as the message names it."""
    text = path_of(node) or ast.unparse(node)
    return text if len(text) <= 60 and "\n" not in text else "this call"


def _configuration(receiver: ast.expr) -> bool:
    """`config.word`, `self.cfg.word`: the configuration of something else."""
    last = (path_of(receiver) or "").rpartition(".")[2]
    return last.endswith(("config", "cfg"))


def _hinted(receiver: ast.expr) -> bool:
    """Whether the last name of a receiver says that it is a checkpoint manager."""
    node: ast.AST = receiver
    while isinstance(node, (ast.Subscript, ast.Call, ast.Await)):
        node = node.func if isinstance(node, ast.Call) else node.value
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return any(hint in last.lower() for hint in renames.MANAGER_NAME_HINTS)
