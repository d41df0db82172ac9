"""What stands in a class's place where code puts something else there: setattr, patch, `module.Name = ...`, sys.modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import DEFS, Chain, Module, Place, path_of
from actor_wg_codemod.values import (
    UNKNOWN,
    ClassValue,
    External,
    ModuleValue,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

SETUPS = frozenset({"setUp", "setUpClass", "asyncSetUp", "setup_method", "setup_class"})
_STORES = r"(?m)^[ \t]*(?!self\.|cls\.)[\w.]+\.[A-Z]\w*[ \t]*=(?!=)"
"""Assignments to what may be a class in a module: not those of `self`, nor of lower-case names."""
FILLERS = frozenset({"setitem", "dict", "update", "setdefault"})


@dataclass(frozen=True, eq=False)
class Replacement:
    """Something that is put under a name of a module.

    `region` is the statement or definition in which it holds, None for the whole module. An empty `name` stands
    for every name of the modules `inside` and below them. `new` is None where nothing is known of it.
    """

    region: ast.AST | None
    place: Place
    inside: frozenset[str]
    name: str
    new: ast.expr | None

    def holds_at(self, place: Place) -> bool:
        """Whether code at a place meets what was put there."""
        if self.region is not None and all(node is not self.region for node, _ in place.chain):
            return False
        return self.place.scope is not place.scope or self.place.order < place.order


class Replacing:
    """The evaluator's part that knows what a module replaces in others, and in itself."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self._found: dict[str, tuple[Module, list[Replacement]]] = {}

    def replaced(self, node: ast.Name | ast.Attribute, values: Values, place: Place) -> Values:
        """The values of a name, where it gives a manager class and something may stand in that one's place."""
        classes = {v for v in values if isinstance(v, ClassValue)}
        if not classes:
            return values
        met = [r for r in self.of(place.scope.module) if self._meets(r, node, place)]
        classes = {v for v in classes if met and self.ev.link.roles(v.info).manager}
        if not classes:
            return values
        known: frozenset[Value] = frozenset().union(*map(self.put, met))
        if any(isinstance(v, Unknown) for v in known):
            known |= {ClassValue(c.info, proven=False) for c in classes}
        return (values - classes) | known

    def put(self, found: Replacement) -> Values:
        """What stands in the place."""
        return UNKNOWN if found.new is None else self.ev.evaluate(found.new, found.place)

    def _meets(self, found: Replacement, node: ast.Name | ast.Attribute, place: Place) -> bool:
        if not found.holds_at(place):
            return False
        if isinstance(node, ast.Attribute):
            return found.name == node.attr and bool(
                found.inside & self._identities(self.ev.evaluate(node.value, place))
            )
        module = place.scope.module
        home = module.resolve(place.scope, node.id)
        if found.name == node.id and home is module.scope and module.path in found.inside:
            return True
        for binding in module.bindings(home, node.id) if home is not None else ():
            statement, alias = binding.statement, binding.node
            if not isinstance(statement, ast.ImportFrom) or not isinstance(alias, ast.alias):
                continue
            early = binding.place.scope is module.scope is not found.place.scope
            if found.name in ("", alias.name) and not early and found.holds_at(binding.place):
                source = self._identities(
                    self.ev.import_module(statement.module or "", module.path)
                )
                if source & found.inside or (not found.name and self._below(found, source)):
                    return True
        return False

    @staticmethod
    def _below(found: Replacement, source: frozenset[str]) -> bool:
        return any(name.startswith(f"{parent}.") for name in source for parent in found.inside)

    @staticmethod
    def _identities(values: Values) -> frozenset[str]:
        """Modules by their files, or by their names where they are not the project's."""
        return frozenset(
            (v.path if isinstance(v, ModuleValue) else None) or v.name
            for v in values
            if isinstance(v, (ModuleValue, External))
        )

    def of(self, module: Module) -> list[Replacement]:
        """Everything that a module's code puts in the place of something else."""
        found = self._found.get(module.path)
        if found is None or found[0] is not module:
            found = self._found[module.path] = (module, [])  # against cycles
            found[1].extend(self._search(module))
        return found[1]

    def _search(self, module: Module) -> Iterator[Replacement]:
        for chain in module.chains(r"\b(setattr|patch)\b", ast.Call):
            yield from self._by_call(chain, module)
        for chain in module.chains(_STORES, ast.Attribute):
            target = chain[-1][0]
            if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store):
                yield from self._by_assignment(chain, target, module)
        for chain in module.chains(r"\bsys\.modules\b", (ast.Call, ast.Assign)):
            yield from self._by_module(chain, module)

    def _by_call(self, chain: Chain, module: Module) -> Iterator[Replacement]:
        call = chain[-1][0]
        assert isinstance(call, ast.Call)
        called = path_of(call.func) or ""
        place = module.place(chain)
        if called.endswith("patch.multiple") and call.args:
            for keyword in call.keywords:
                if keyword.arg is not None:
                    yield from self._put(chain, call.args[0], keyword.arg, keyword.value, module)
            return
        put = put_by(call)
        whole = bool(put) and not called.endswith(".object")
        if whole and len(put) == 2 and self.ev.calls.text(put[0], place) is not None:
            yield from self._put(chain, put[0], "", put[1], module)
        elif len(put) == 3:
            word = self.ev.calls.text(put[1], place)
            if word:
                yield from self._put(chain, put[0], word, put[2], module)

    def _by_assignment(
        self, chain: Chain, target: ast.Attribute, module: Module
    ) -> Iterator[Replacement]:
        binding = module.store(chain, target.attr)
        if binding.kind == "value" and binding.value is not None and not binding.unpack:
            yield from self._put(chain, target.value, target.attr, binding.value, module)

    def _put(
        self, chain: Chain, target: ast.expr, name: str, new: ast.expr, module: Module
    ) -> Iterator[Replacement]:
        """`target.name` becomes `new`; without a name, `target` is a string that holds both."""
        place = module.place(chain)
        text = self.ev.calls.text(target, place)
        if not name and text is not None:
            text, _, name = text.rpartition(".")
        if text:
            values = self.ev.import_module(text, module.path)
        elif self._imported(target, place):
            values = self.ev.evaluate(target, place)
        else:
            return
        inside = self._identities(values)
        if inside and name:
            yield Replacement(_region(chain), place, inside, name, new)

    @staticmethod
    def _imported(target: ast.expr, place: Place) -> bool:
        """Whether a dotted name begins with an import; an object's attribute is not a module's name."""
        root = (path_of(target) or "").partition(".")[0]
        module = place.scope.module
        home = module.resolve(place.scope, root) if root else None
        return home is not None and any(b.kind == "import" for b in module.bindings(home, root))

    def _by_module(self, chain: Chain, module: Module) -> Iterator[Replacement]:
        node = chain[-1][0]
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Assign):
            keys = [
                t.slice
                for t in node.targets
                if isinstance(t, ast.Subscript) and path_of(t.value) == "sys.modules"
            ]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in FILLERS:
                keys = [k for a in node.args for k in (a.keys if isinstance(a, ast.Dict) else [a])]
        place = module.place(chain)
        names = {self.ev.calls.text(k, place) for k in keys if k is not None}
        inside = frozenset(
            identity
            for name in names - {None, "sys.modules"}
            for identity in self._identities(self.ev.import_module(str(name), module.path))
        )
        if inside:
            yield Replacement(_region(chain), place, inside, "", None)


def put_by(call: ast.Call, called: str = "") -> list[ast.expr]:
    """What setattr, monkeypatch's or patch is given: target, name and new value, as far as it is; else nothing.

    A target that is a string holds the name too, and the new value follows it. `called` is what the
    call's own name stands for, where that is known.
    """
    called = called or path_of(call.func) or ""
    last = called.rpartition(".")[2]
    if last not in ("setattr", "__setattr__", "patch") and not called.endswith("patch.object"):
        return []
    words = ("target", "name", "value") if last == "setattr" else ("target", "attribute", "new")
    named = {k.arg: k.value for k in call.keywords}
    return [*call.args, *(named[word] for word in words if word in named)]


def _region(chain: Chain) -> ast.AST | None:
    """Where a replacement holds: a `with`, the definition it decorates, the function around it, else everywhere."""
    for depth in range(len(chain) - 1, -1, -1):
        node, by = chain[depth]
        if by == "decorator_list":
            return chain[depth - 1][0]
        if by == "items" and isinstance(node, ast.withitem):
            return chain[depth - 1][0]
        if isinstance(node, DEFS):
            decorators = [path_of(getattr(d, "func", d)) or "" for d in node.decorator_list]
            if any("fixture" in d for d in decorators):
                return None
            if node.name in SETUPS and depth:
                return chain[depth - 1][0]
            return node
    return None
