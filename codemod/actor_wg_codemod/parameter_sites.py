"""Old names as parameters of constructors and engine methods, as class attributes and in patterns."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, FUNCTIONS, Chain, Place, path_of
from actor_wg_codemod.forwarding import Taking, parameter_names
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.local_names import Renaming
from actor_wg_codemod.values import (
    ClassValue,
    Function,
    Instance,
    Unknown,
)

if TYPE_CHECKING:
    pass

from actor_wg_codemod.attribute_sites import AttributeSites


class ParameterSites(AttributeSites):
    """Parameters with all their uses."""

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
            if self._is_fake(function, owner, name):
                why = (
                    f"The parameter {word}: this is put in the manager's place, and what calls it there passes "
                    f"{self.names.new_group}= on {self.names.release}; rename it, with its uses, together with those calls."
                )
                self._serve(chain, self.names.new_group, lambda: self._manual(node, word, why))
            elif owner is not None and name == "__init__":
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

    def _is_fake(self, function: ast.AST, owner: ClassInfo | None, name: str) -> bool:
        """Whether this module puts a function or a class in the place of a manager that is called by keyword."""
        if owner is not None and (name != "__init__" or self.ev.link.roles(owner).manager):
            return False
        for found in self.ev.replacing.of(self.module):
            put = self.ev.replacing.put(found)
            fake = any(
                (isinstance(v, Function) and v.node is function)
                or (isinstance(v, ClassValue) and v.info is owner)
                for v in put
            )
            if fake and any(self._called_by_keyword(path, found.name) for path in found.inside):
                return True
        return False

    def _called_by_keyword(self, path: str, name: str) -> bool:
        """Whether a file calls the manager that it has under a name with the group as a keyword."""
        module = self.ev.module(path) if path in self.ev.project.files else None
        if module is None or not any(map(self._manages, self.ev.export(path, name) or ())):
            return False
        return any(
            isinstance(chain[-1][0], ast.keyword)
            and isinstance(chain[-2][0], ast.Call)
            and (path_of(chain[-2][0].func) or "").rpartition(".")[2] == name
            for word in (self.names.group, self.names.new_group)
            for chain in module.carriers(word)
        )

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
            what = f"keyword callers pass {new} {self.names.since} (verl itself passes it by position, so {owner} still runs)"
        problem = renaming.problem
        shared = self.ev.link.owner_of(place.scope.parent)
        if problem is None and shared is not None and self.ev.link.is_shared(shared):
            problem = f"{shared.name} is also a base of a class that is no engine"
        if problem is None and self._wrapped(place):
            problem = "a decorator of the project puts a function with that parameter before it"
        if problem is not None:
            if proven or self.ev.project.mentions_verl:
                self._manual(
                    node,
                    word,
                    f"The parameter {word}: {what}. Rename it by hand: {problem}.",
                )
            return
        if not proven and not self.ev.project.mentions_verl:
            return
        self._report(
            code, node, word, f"The parameter {word}: {what}.", spans=renaming.spans, proven=proven
        )

    def _wrapped(self, place: Place) -> bool:
        node = place.scope.node
        if not isinstance(node, DEFS):
            return False
        outer = self.module.place(place.scope.chain)
        function = Function(self.module, node, outer, self.ev.link.owner_of(outer.scope))
        return self.ev.forwarding.stands_before(function)

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

    def _own_property(self, chain: Chain, word: str) -> None:
        """A setter under the old name in a manager subclass: verl's constructor went through it."""
        node = chain[-1][0]
        assert isinstance(node, DEFS)
        if all(path_of(d) != f"{word}.setter" for d in node.decorator_list):
            return
        owner = self.ev.link.owner_of(self.module.place(chain).scope)
        if owner is None or word != self.names.group or not self.ev.link.roles(owner).manager:
            return
        new = self.names.table[word]
        why = (
            f"The constructor of the manager sets .{new} on {self.names.release}, so this setter of {owner.name} "
            f"is not called any more; rename the property, or set .{word} where it is needed."
        )
        self._serve(chain, new, lambda: self._manual(node, word, why))

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
