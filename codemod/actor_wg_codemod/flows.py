"""Backwards from a dictionary that is splatted (or returned) to the places that write one of its keys."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import DEFS, FUNCTIONS, Binding, Chain, Module, Place, Scope, path_of
from actor_wg_codemod.reaching import reaching
from actor_wg_codemod.values import ClassValue, External, Function, Instance

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


def kwargs_kind(chain: Chain, key: str) -> str:
    """How a use of a `**kwargs` dictionary treats a key."""
    from actor_wg_codemod.forwarding import kwargs_use

    return kwargs_use(chain, key)[0]


READERS = frozenset({"get", "pop", "setdefault", "__contains__"})
HARMLESS_METHODS = frozenset({"copy", "update", "setdefault", "get", "pop", "clear"})


@dataclass
class Flow:
    """The nodes (string constants or keywords) that spell the key, and whether the dictionary has other readers."""

    sites: list[tuple[ast.AST, Chain, Module]] = field(default_factory=list)
    escapes: bool = False
    """It is also passed, printed, iterated or stored where the key can be seen."""
    other: bool = False
    """The new key is written as well."""
    claimed: bool = False
    """It is also splatted into something of the project that takes the key as a parameter of its own."""


@dataclass
class _Search:
    """What is looked for, what was found of it, and where was looked already."""

    key: str
    new: str
    flow: Flow = field(default_factory=Flow)
    seen: set[object] = field(default_factory=set)


class Flows:
    """Finds the writers of one key."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def keys(self, node: ast.expr, place: Place, key: str, new: str) -> Flow:
        """Everything that writes `key` into the dictionary that an expression is."""
        search = _Search(key, new)
        self._walk(node, place, search)
        return search.flow

    def _walk(self, node: ast.expr, place: Place, search: _Search) -> None:
        module = place.scope.module
        if isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=False):
                if name is None:
                    self._copied(value, place, search)
                elif isinstance(name, ast.Constant):
                    self._note(name, name.value, module, place, search)
        elif isinstance(node, ast.Call):
            self._call(node, place, search)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            self._walk(node.left, place, search)
            self._walk(node.right, place, search)
        elif isinstance(node, ast.IfExp):
            self._walk(node.body, place, search)
            self._walk(node.orelse, place, search)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self._walk(value, place, search)
        elif isinstance(node, (ast.NamedExpr, ast.Await)):
            self._walk(node.value, place, search)
        elif isinstance(node, ast.DictComp):
            self._comprehension(node, place, search)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            self._variable(node, place, search)

    def _copied(self, node: ast.expr, place: Place, search: _Search) -> None:
        """A dictionary whose entries are copied: who else sees it matters where the key is among them."""
        before, escapes, claimed = len(search.flow.sites), search.flow.escapes, search.flow.claimed
        self._walk(node, place, search)
        if len(search.flow.sites) == before:
            search.flow.escapes, search.flow.claimed = escapes, claimed

    def _comprehension(self, node: ast.DictComp, place: Place, search: _Search) -> None:
        """`{k: ... for k, v in other.items()}` has the other dictionary's keys."""
        source = node.generators[0].iter
        if isinstance(node.key, ast.Constant):
            self._note(node.key, node.key.value, place.scope.module, place, search)
        elif isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            if source.func.attr == "items" and isinstance(node.key, ast.Name):
                self._walk(source.func.value, place, search)
        elif isinstance(node.key, ast.Name):
            self._walk(source, place, search)

    def _note(
        self, node: ast.AST, word: object, module: Module, place: Place, search: _Search
    ) -> None:
        if word == search.key:
            if all(s is not node for s, _, _ in search.flow.sites):
                search.flow.sites.append((node, place.chain, module))
        elif word == search.new:
            search.flow.other = True

    def _call(self, node: ast.Call, place: Place, search: _Search) -> None:
        module = place.scope.module
        callees = self.ev.evaluate(node.func, place)
        if any(isinstance(c, External) and c.name == "builtins.dict" for c in callees):
            for argument in node.args:
                self._copied(argument, place, search)
            self._keywords(node, module, place, search)
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" and not node.args:
            self._copied(node.func.value, place, search)
            return
        last = (path_of(node.func) or "").rpartition(".")[2]
        if last in ("copy", "deepcopy", "MappingProxyType") and node.args:
            self._walk(node.args[0], place, search)
            return
        for callee in callees:
            if isinstance(callee, Function) and isinstance(callee.node, ast.Lambda):
                outer = callee.module.place(
                    (*callee.place.chain, (callee.node, "value"), (callee.node.body, "body"))
                )
                self._walk(callee.node.body, outer, search)
            if (
                isinstance(callee, Function)
                and isinstance(callee.node, DEFS)
                and id(callee.node) not in search.seen
            ):
                search.seen.add(id(callee.node))
                before = len(search.flow.sites)
                for value, inner in self.ev.returns(callee.module, callee.node):
                    self._walk(value, inner, search)
                if len(search.flow.sites) > before and not self._only_splatted(callee, search):
                    search.flow.escapes = True

    def _keywords(self, node: ast.Call, module: Module, place: Place, search: _Search) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                self._copied(keyword.value, place, search)
            else:
                self._note(keyword, keyword.arg, module, place, search)

    def _only_splatted(self, function: Function, search: _Search) -> bool:
        """Whether every use of the function in the project is a call that is splatted into a taker of the key."""
        name = getattr(function.node, "name", "")
        for path in self.ev.project.mentions(name):
            module = self.ev.module(path)
            if module is None:
                return False
            for chain in module.carriers(name):
                use = chain[-1][0]
                if not isinstance(use, (ast.Name, ast.Attribute)):
                    continue
                if (
                    len(chain) < 3
                    or not isinstance(chain[-2][0], ast.Call)
                    or chain[-2][0].func is not use
                ):
                    return False
                holder = chain[-3][0]
                if not (isinstance(holder, ast.keyword) and holder.arg is None):
                    return False
                if not self._same_sink(chain[:-1], module, search):
                    return False
        return True

    def _variable(self, node: ast.Name | ast.Attribute, place: Place, search: _Search) -> None:
        path = path_of(node)
        module = place.scope.module
        if path is None:
            return
        region = self.ev.filling.region(path, place)
        if (id(region), path) in search.seen:
            return
        search.seen.add((id(region), path))
        received = False
        home: Scope | None = None
        wanted: set[int] | None = None
        bindings = []
        if isinstance(node, ast.Name):
            home = module.resolve(place.scope, node.id)
            if home is None:
                return
            bindings = module.bindings(home, node.id)
            local = home is place.scope and all(b.place.scope is home for b in bindings)
            if local and len(bindings) > 1:
                wanted = {id(b) for b in reaching(bindings, place)}
            kwarg = home.node.args.kwarg if isinstance(home.node, FUNCTIONS) else None
            received = kwarg is not None and kwarg.arg == node.id
            if any(b.kind == "import" for b in bindings):
                self._imported(node, place, search)
                return
            if home is module.scope and len(self.ev.project.mentions(node.id)) > 1:
                search.flow.escapes = True
        for binding in bindings:
            if binding.kind == "param" and isinstance(binding.node, ast.arg) and not received:
                self._passed(binding.node, binding.place, search)
        if isinstance(node, ast.Attribute):
            self._class_level(node, place, search)
        word = path.rpartition(".")[2]
        for chain in module.carriers(word):
            use = chain[-1][0]
            if path_of(use) != path or not any(n is region for n, _ in chain):
                continue
            if (
                isinstance(node, ast.Name)
                and module.resolve(module.place(chain).scope, path) is not home
            ):
                continue
            if wanted is not None and not self._same_value(chain, module, bindings, wanted):
                continue
            if received and kwargs_kind(chain, search.key) == "key":
                continue  # what the callers pass, not what is written here
            self._use(chain, module, search, is_sink=use is node)

    def _passed(self, node: ast.arg, place: Place, search: _Search) -> None:
        """A dictionary that comes in as a parameter: what the calls write there."""
        scope = place.scope
        outer = scope.module.place(scope.chain)
        for passed in self.ev.callers.arguments(node, scope.node, outer):
            if passed is None:
                search.flow.escapes = True
            else:
                self._walk(*passed, search)

    def _class_level(self, node: ast.Attribute, place: Place, search: _Search) -> None:
        """A dictionary in the body of a class, reached through an instance or the class."""
        for owner in self.ev.evaluate(node.value, place):
            for current in (
                self.ev.link.mro(owner.info) if isinstance(owner, (ClassValue, Instance)) else ()
            ):
                for binding in self.ev.link.own_bindings(current, node.attr):
                    if binding.kind in ("value", "annotated") and binding.value is not None:
                        self._walk(binding.value, binding.place, search)
                        search.flow.escapes = True  # the class and its instances share it

    @staticmethod
    def _same_value(
        chain: Chain, module: Module, bindings: list[Binding], wanted: set[int]
    ) -> bool:
        """Whether a use of a rebound name can be about the dictionary that is asked for."""
        node = chain[-1][0]
        made = next((b for b in bindings if b.node is node), None)
        if made is not None and made.kind != "augment":
            return id(made) in wanted
        return any(id(b) in wanted for b in reaching(bindings, module.place(chain)))

    def _imported(self, node: ast.Name, place: Place, search: _Search) -> None:
        """A dictionary of another file of the project: follow it, its readers are many."""
        module = place.scope.module
        home = module.resolve(place.scope, node.id)
        for binding in module.bindings(home, node.id) if home is not None else ():
            alias, statement = binding.node, binding.statement
            if not isinstance(alias, ast.alias) or not isinstance(statement, ast.ImportFrom):
                continue
            path = self.ev._import_path(module, statement)
            other = self.ev.module(path) if path and not path.endswith("/") else None
            if other is None:
                continue
            for chain in other.carriers(alias.name):
                if isinstance(chain[-1][0], ast.Name):
                    self._walk(chain[-1][0], other.place(chain), search)
                    search.flow.escapes = True
                    return

    def _use(self, chain: Chain, module: Module, search: _Search, *, is_sink: bool) -> None:
        node, by = chain[-1]
        parent = chain[-2][0]
        place = module.place(chain)
        if isinstance(getattr(node, "ctx", None), ast.Store):
            binding = module.store(chain, "")
            if (
                binding.value is not None
                and binding.kind in ("value", "annotated", "augment")
                and not binding.unpack
            ):
                self._walk(binding.value, binding.place, search)
            return
        if isinstance(getattr(node, "ctx", None), ast.Del):
            return
        if isinstance(parent, ast.Subscript) and parent.value is node:
            if isinstance(parent.slice, ast.Constant):
                self._note(
                    parent.slice, parent.slice.value, module, module.place(chain[:-1]), search
                )
            elif isinstance(parent.ctx, ast.Load):
                search.flow.escapes = True
            return
        if (
            isinstance(parent, ast.Attribute)
            and parent.value is node
            and isinstance(chain[-3][0], ast.Call)
        ):
            call = chain[-3][0]
            if call.func is parent:
                self._method(call, parent.attr, module.place(chain[:-2]), module, search)
                return
        if isinstance(parent, ast.keyword) and self._splats(parent, chain[-3][0], place):
            if not is_sink and not self._same_sink(chain, module, search):
                search.flow.escapes = True
            return
        if isinstance(parent, ast.Compare):
            left = parent.left
            if isinstance(left, ast.Constant) and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
                self._note(left, left.value, module, module.place(chain[:-1]), search)
                return
            if all(isinstance(o, (ast.Is, ast.IsNot)) for o in parent.ops):
                return
        if isinstance(parent, (ast.If, ast.While, ast.Assert)) or (
            isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
        ):
            return
        if isinstance(parent, ast.IfExp) and by == "test":
            return
        if isinstance(parent, (ast.BinOp, ast.Dict, ast.BoolOp, ast.IfExp)) or self._is_dict_call(
            parent, place
        ):
            whole = self._outermost(chain)
            if self._reaches_sink(whole, module, search):
                return
        if (
            isinstance(parent, ast.Assign)
            and parent.value is node
            and isinstance(parent.targets[0], ast.Name)
        ):
            target = parent.targets[0]
            self._walk(target, module.place((*chain[:-1], (target, "targets"))), search)
            return
        if isinstance(parent, ast.Return) and is_sink:
            return
        if is_sink and not isinstance(parent, (ast.Call, ast.keyword)):
            return
        search.flow.escapes = True

    def _splats(self, keyword: ast.keyword, call: ast.AST, place: Place) -> bool:
        """Whether what a keyword is given becomes the keywords of a call."""
        if keyword.arg is None or not isinstance(call, ast.Call):
            return keyword.arg is None
        return self.ev.forwarding.hands_on(call, keyword, place)

    def _is_dict_call(self, node: ast.AST, place: Place) -> bool:
        return isinstance(node, ast.Call) and path_of(node.func) in (
            "dict",
            "copy.copy",
            "copy.deepcopy",
        )

    @staticmethod
    def _outermost(chain: Chain) -> Chain:
        depth = len(chain) - 1
        while (
            depth > 0
            and isinstance(
                chain[depth - 1][0], (ast.BinOp, ast.Dict, ast.BoolOp, ast.IfExp, ast.Call)
            )
            and chain[depth][1] != "func"
        ):
            called = chain[depth - 1][0]
            if isinstance(called, ast.Call) and path_of(called.func) not in (
                "dict",
                "copy.copy",
                "copy.deepcopy",
            ):
                break
            depth -= 1
        return chain[: depth + 1]

    def _reaches_sink(self, chain: Chain, module: Module, search: _Search) -> bool:
        parent = chain[-2][0]
        if isinstance(parent, ast.keyword) and parent.arg is None:
            return self._same_sink(chain, module, search)
        return isinstance(
            parent, (ast.Assign, ast.AnnAssign, ast.Return, ast.AugAssign, ast.NamedExpr)
        )

    def _same_sink(self, chain: Chain, module: Module, search: _Search) -> bool:
        """Whether the call that a dictionary is splatted into takes the key as ours."""
        from actor_wg_codemod.forwarding import Taking

        call = chain[-3][0]
        if not isinstance(call, ast.Call):
            return False
        place = module.place(chain[:-2])
        if any(
            isinstance(c, External) and c.name == "builtins.dict"
            for c in self.ev.evaluate(call.func, place)
        ):
            return True
        takings = self.ev.forwarding.call_takings(call, place, search.key)
        if Taking.OTHER in takings and self.ev.forwarding.names_it(call, place, search.key):
            search.flow.claimed = True
        return (
            bool(takings)
            and takings <= {Taking.OURS, Taking.UNPROVEN, Taking.UNKNOWN}
            and Taking.OURS in takings
        )

    def _method(
        self, call: ast.Call, method: str, place: Place, module: Module, search: _Search
    ) -> None:
        if method == "update":
            for argument in call.args:
                self._walk(argument, place, search)
            self._keywords(call, module, place, search)
        elif method in READERS and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant):
                self._note(first, first.value, module, place, search)
            else:
                search.flow.escapes = True
        elif method not in HARMLESS_METHODS:
            search.flow.escapes = True
