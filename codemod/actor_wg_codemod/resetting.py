"""What code outside a class puts under a name of the class's: `C.name = ...`, setattr, a dataclass's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod.bindings import Chain, Module, Place, annotated_names, path_of
from actor_wg_codemod.callers import MOST_FILES
from actor_wg_codemod.replacing import put_by
from actor_wg_codemod.values import UNKNOWN, ClassValue, Instance, Value, Values

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator
    from actor_wg_codemod.linking import ClassInfo


class Resetting:
    """The evaluator's part that looks from a class's attribute to those who set it to something else."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def added(self, info: ClassInfo, name: str, values: Values) -> Values:
        """The values of an attribute in a class's body, with what may replace a manager class among them."""
        held = {
            v for v in values if isinstance(v, ClassValue) and self.ev.link.roles(v.info).manager
        }
        key = ("reset", id(info.node), name)
        if not held or info.node is None or key in self.ev._active:
            return values
        self.ev._active.add(key)
        try:
            found: set[Value] = set()
            for new, place in self._put(info, name):
                found |= UNKNOWN if new is None else self.ev.evaluate(new, place)
            return values | found
        finally:
            self.ev._active.discard(key)

    def _put(self, info: ClassInfo, name: str) -> Iterator[tuple[ast.expr | None, Place]]:
        for module in self._modules(name):
            for chain in module.carriers(name):
                yield from self._at(chain, info, name, module)
        index = self._field(info, name)
        for module in self._modules(info.name) if index is not None else ():
            for chain in module.chains(rf"\b{info.name}\b", ast.Call):
                call, place = chain[-1][0], module.place(chain)
                assert isinstance(call, ast.Call)
                given = call.args[index : index + 1] if index is not None else []
                if given and self._is(call.func, info, place, made=False):
                    yield given[0], place

    def _modules(self, word: str) -> Iterator[Module]:
        paths = self.ev.project.mentions(word)
        for path in paths if len(paths) <= MOST_FILES else ():
            module = self.ev.module(path)
            if module is not None:
                yield module

    def _at(
        self, chain: Chain, info: ClassInfo, name: str, module: Module
    ) -> Iterator[tuple[ast.expr | None, Place]]:
        node, place = chain[-1][0], module.place(chain)
        above = chain[-2][0] if len(chain) > 1 else None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if path_of(node.value) != "self" and self._is(node.value, info, place):
                binding = module.store(chain, name)
                whole = binding.kind == "value" and not binding.unpack
                yield (binding.value if whole else None), place
        elif isinstance(node, ast.keyword) and isinstance(above, ast.Call):
            if self._field(info, name) is not None and self._is(
                above.func, info, place, made=False
            ):
                yield node.value, place
        elif isinstance(node, ast.Constant) and isinstance(above, ast.Call):
            put = put_by(above)
            # Without a third one, patch.object puts a mock there.
            if len(put) > 2 and put[1] is node and self._is(put[0], info, place):
                yield put[2], place

    def _is(self, target: ast.expr, info: ClassInfo, place: Place, *, made: bool = True) -> bool:
        """Whether an expression is the class or one below it, or with `made` an object of these."""
        kinds = (ClassValue, Instance) if made else (ClassValue,)
        return any(
            isinstance(v, kinds) and any(c is info for c in self.ev.link.mro(v.info))
            for v in self.ev.evaluate(target, place)
        )

    def _field(self, info: ClassInfo, name: str) -> int | None:
        """The position of a dataclass's field, behind those that it inherits; None where it is none."""
        if not _is_dataclass(info):
            return None
        family = [c for c in reversed(self.ev.link.mro(info)) if _is_dataclass(c)]
        fields = list(dict.fromkeys(n for c in family if c.node for n in annotated_names(c.node)))
        return fields.index(name) if name in fields else None


def _is_dataclass(info: ClassInfo) -> bool:
    decorators = info.node.decorator_list if info.node is not None else []
    paths = [path_of(getattr(d, "func", d)) or "" for d in decorators]
    return any(path.rpartition(".")[2] == "dataclass" for path in paths)
