"""Old names as attributes: who owns them, and what speaks against an edit."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import (
    DEFS,
    FUNCTIONS,
    Binding,
    Chain,
    Place,
    function_around,
    path_of,
)
from actor_wg_codemod.forwarding import Taking, parameter_names
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.values import (
    ClassValue,
    Container,
    Foreign,
    Function,
    Group,
    Instance,
    Nothing,
    Other,
    Super,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    pass

from actor_wg_codemod.reporting import Reporting


class AttributeSites(Reporting):
    """Attributes of managers and Kimi engines."""

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
        if self._gives_new_name(place, new):
            verdict, why = (
                Taking.MANUAL,
                (
                    f"This makes .{new} of .{word} for a verl that has no .{new}; {self.names.release} has it, so "
                    f"remove this, or put it under a test of verl's version."
                ),
            )
        if verdict is Taking.MANUAL:
            self._serve(chain, new, lambda: self._manual(node, word, why), receiver)
            return
        code = "AWG003" if word == self.names.group else "AWG013"
        message = self._attribute_message(node, word)
        proven = verdict is Taking.OURS
        self._serve(
            chain, new, lambda: self._report(code, node, word, message, proven=proven), receiver
        )

    def _gives_new_name(self, place: Place, new: str) -> bool:
        """Whether the function around is put on a class under the new name."""
        if new not in self.module.text:
            return False
        for depth in range(len(place.chain) - 1, 0, -1):
            node = place.chain[depth][0]
            if isinstance(node, FUNCTIONS):
                outer = self.module.place(place.chain[: depth + 1])
                owners = self.ev.link.attachments(node, outer, self.module)
                return any(attribute == new for _, attribute in owners)
        return False

    def _made_by_a_replacement(self, receiver: ast.expr, place: Place) -> bool:
        """Whether this function puts a class of its own in the manager's place, and a call gave the receiver."""
        function = function_around(place.chain)
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
        return any(
            r.name == renames.MANAGER
            and any(n is function for n, _ in r.place.chain)
            and not any(self._manages(v) for v in self.ev.replacing.put(r))
            for r in self.ev.replacing.of(self.module)
        )

    def _manages(self, value: Value) -> bool:
        return isinstance(value, ClassValue) and self.ev.link.roles(value.info).manager

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
        ours = unproven = foreign = stand_in = False
        manual = ""
        for value in values:
            if isinstance(value, (Nothing, Unknown)) or self._is_stub(value, word):
                continue
            verdict, why = self._owned(value, word)
            ours |= verdict is Taking.OURS
            unproven |= verdict is Taking.UNPROVEN
            manual = manual or (why if verdict is Taking.MANUAL else "")
            foreign |= verdict is None
            stand_in |= verdict is Taking.UNPROVEN and self._keeps_group(value, word)
        if manual:
            return Taking.MANUAL, manual
        if ours and stand_in:
            return Taking.MANUAL, (
                f"The receiver can be verl's manager or a stand-in of this project that keeps .{word} itself; "
                f"rename both to .{new} together."
            )
        if (ours or unproven) and foreign:
            if self._is_element(receiver, place):
                return None, ""
            return Taking.MANUAL, (
                f"The receiver can be verl's manager or something else that has its own .{word}; "
                f"tell the two apart and rename only the manager's to .{new}."
            )
        if ours and not any(isinstance(v, Unknown) for v in values):
            return Taking.OURS, ""
        if ours or unproven:
            return Taking.UNPROVEN, ""
        unknown = not foreign and any(isinstance(v, Unknown) for v in values)
        if not foreign and (unknown or all(isinstance(v, Nothing) for v in values)):
            if word == self.names.group and _hinted(receiver) and self.ev.project.mentions_verl:
                return Taking.UNPROVEN, ""
        return None, ""

    def _keeps_group(self, value: Value, word: str) -> bool:
        if not isinstance(value, Instance) or value.info.node is None:
            return False
        return self._stores_group(value.info, word)

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
            if self._keeps_its_own(current, word):
                return "own"
            if any(b.kind == "def" for b in self.ev.link.own_bindings(current, word)):
                return "own"
            if any(b.kind == "def" for b in self.ev.link.own_bindings(current, new)):
                return f"{current.name} already defines {new} itself; decide which of the two names stays."
            for binding in (
                *self.ev.link.self_assignments(current, word),
                *self.ev.link.own_bindings(current, word),
            ):
                if not self.ev.link.roles(current).manager:
                    return (
                        f"{current.name}, which is no manager, keeps a .{word} of its own, and {self.names.release} "
                        f"keeps the group as .{new}; decide which of the two is meant."
                    )
                if self._stores_other(current, binding):
                    return (
                        f"{current.name} stores something other than the worker group as .{word}; rename that "
                        f"attribute first, since {self.names.release} keeps the group as .{new}."
                    )
        return ""

    def _keeps_its_own(self, info: ClassInfo, word: str) -> bool:
        """Whether a base that is no manager sets the name itself, after its `super().__init__(...)`."""
        if self.ev.link.roles(info).manager or info.node is None:
            return False
        init = self.ev.link.own_method(info, "__init__")
        if init is None:
            return False
        handed_up = [chain[-1][0] for chain in self.ev.forwarding.constructor_calls(init)]
        return bool(handed_up) and any(
            b.place.scope.node is init.node and _line(b.node) > _line(handed_up[-1])
            for b in self.ev.link.self_assignments(info, word)
        )

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
        if isinstance(receiver, ast.Call):
            callees = self.ev.evaluate(receiver.func, place)
            return not any(isinstance(v, Function) for v in callees)
        if isinstance(receiver, ast.Subscript):
            return True
        if isinstance(receiver, ast.Name):
            home = self.module.resolve(place.scope, receiver.id)
            bindings = self.module.bindings(home, receiver.id) if home is not None else []
            return bool(bindings) and all(b.kind == "each" for b in bindings)
        return False


def _configuration(receiver: ast.expr) -> bool:
    """`config.word`, `self.cfg.word`: the configuration of something else."""
    last = (path_of(receiver) or "").rpartition(".")[2]
    return last.endswith(("config", "cfg"))


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _hinted(receiver: ast.expr) -> bool:
    """Whether the last name of a receiver says that it is a checkpoint manager."""
    node: ast.AST = receiver
    while isinstance(node, (ast.Subscript, ast.Call, ast.Await)):
        node = node.func if isinstance(node, ast.Call) else node.value
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return any(hint in last.lower() for hint in renames.MANAGER_NAME_HINTS)
