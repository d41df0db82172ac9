"""Does a callee take the renamed keyword? Constructors, overrides, forwarders of **kwargs, partials, mocks."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Chain, Module, Place, path_of
from actor_wg_codemod.linking import ClassInfo
from actor_wg_codemod.local_names import LocalNames
from actor_wg_codemod.stack import nearly_full, on_a_fresh_one
from actor_wg_codemod.values import (
    ClassValue,
    Constructor,
    Container,
    External,
    Foreign,
    Function,
    Instance,
    Library,
    Mock,
    Nothing,
    Other,
    Partial,
    Remote,
    Tuple,
    Unknown,
    Value,
    Values,
    elements,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator


PASSERS = frozenset(
    {
        "functools.partial",
        "functools.partialmethod",
        "asyncio.to_thread",
        "anyio.to_thread.run_sync",
        "joblib.delayed",
    }
)
STARTERS = frozenset(
    {
        "threading.Thread",
        "threading.Timer",
        "multiprocessing.Process",
        "multiprocessing.context.Process",
        "torch.multiprocessing.Process",
        "torch.multiprocessing.spawn",
    }
)
"""They call `target` (or `function`) with the keywords in `kwargs`."""
POOLED = frozenset({"apply", "apply_async"})
"""Methods of a pool that call their first argument with the keywords in `kwds`."""
CALL_RECORDS = frozenset({"unittest.mock.call", "mock.call"})
INSTANTIATORS = frozenset({"hydra.utils.instantiate", "hydra.utils.call"})


class Taking(enum.Enum):
    """What a callee does with the keyword."""

    OURS = "takes it as the renamed one"
    READS = "forwards it, but reads its keywords besides"
    UNPROVEN = "looks as if it took it"
    MANUAL = "takes it, but a person has to change it first"
    OTHER = "is something else"
    NONE = "does not take it"
    UNKNOWN = "is unknown"


TAKEN = frozenset({Taking.OURS, Taking.READS, Taking.UNPROVEN, Taking.MANUAL})


class Forwarding:
    """The evaluator's part that knows who takes which keyword."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.locals = LocalNames()
        self._constructors: dict[int, Taking] = {}
        self._groups: dict[int, str | None] = {}
        self._forwards: dict[tuple[int, str], Taking] = {}
        self._init_calls: dict[str, tuple[Module, dict[int, list[Chain]]]] = {}

    # Calls

    def targets(self, call: ast.Call, place: Place) -> Values:
        """What a call's keywords go to: `partial(X, k=v)` passes them to X."""
        callees = self.ev.evaluate(call.func, place)
        started = self._started(call, callees)
        if started:
            return self.ev.evaluate(started[0], place)
        if any(isinstance(c, External) and c.name in INSTANTIATORS for c in callees) and call.args:
            return self.instantiated(call.args[0], place) or callees
        if any(isinstance(c, External) and c.name == "builtins.dict" for c in callees):
            return self.instantiated(call, place) or callees
        found: set[Value] = set()
        for callee in callees:
            if self._passes_on(callee, call):
                if call.args:
                    found |= self.ev.evaluate(call.args[0], place)
            elif isinstance(callee, External) and callee.name in CALL_RECORDS:
                found |= self._compared(place) or {callee}
            else:
                found.add(callee)
        return frozenset(found)

    def hands_on(self, call: ast.Call, keyword: ast.keyword, place: Place) -> bool:
        """Whether a keyword holds the keywords of what a thread, a process or a pool is given to call."""
        if keyword.arg not in ("kwargs", "kwds"):
            return False
        return bool(self._started(call, self.ev.evaluate(call.func, place)))

    def instantiated(self, node: ast.expr, place: Place) -> Values:
        """What Hydra makes of a mapping: the value of its `_target_`; empty where none is spelled."""
        target: ast.expr | None = None
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            target = next((v for k, v in pairs if _spells(k, "_target_")), None)
        elif isinstance(node, ast.Call):
            target = next((k.value for k in node.keywords if k.arg == "_target_"), None)
        elif isinstance(node, ast.Name):
            for value, where in self.ev.definitions(node, place):
                if isinstance(value, (ast.Dict, ast.Call)):
                    return self.instantiated(value, where)
        name = self.ev.calls.text(target, place) if target is not None else None
        return self.ev.by_name(name, place.scope.module.path) if name else frozenset()

    def _started(self, call: ast.Call, callees: Values) -> list[ast.expr]:
        """What a thread, a process or a pool is given to call."""
        if any(isinstance(c, External) and c.name in STARTERS for c in callees):
            named = [k.value for k in call.keywords if k.arg in ("target", "function")]
            return named or call.args[1:2]
        if isinstance(call.func, ast.Attribute) and call.func.attr in POOLED:
            if any(k.arg == "kwds" for k in call.keywords):
                return call.args[:1]
        return []

    def _compared(self, place: Place) -> set[Value]:
        """The mocks of a manager class whose calls a `mock.call(...)`, alone or in a list, is compared with."""
        steps = [node for node, _ in place.chain]
        while len(steps) > 1 and isinstance(steps[-2], (ast.List, ast.Tuple)):
            steps.pop()
        node, parent = steps[-1], steps[-2]
        values: Values = frozenset()
        if isinstance(parent, ast.Compare):
            others = [o for o in (parent.left, *parent.comparators) if o is not node]
            values = frozenset().union(*(self.ev.evaluate(o, place) for o in others))
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
            values = self.ev.evaluate(parent.func, place)
        values |= elements(frozenset(v for v in values if isinstance(v, Container)))
        return {
            Mock(v.info, "assertion")
            for v in values
            if isinstance(v, Mock) and v.aspect in ("call", "assertion")
        }

    def _passes_on(self, callee: Value, call: ast.Call) -> bool:
        """Whether a call's keywords are those of its first argument: partial, to_thread, submit."""
        if isinstance(callee, External):
            return callee.name in PASSERS
        if isinstance(callee, Library):
            return callee.name == "method.submit"
        return (
            isinstance(callee, Unknown)
            and callee.hint == "submit"
            and self.ev.likely_method(callee.hint)
        )

    def call_takings(self, call: ast.Call, place: Place, word: str) -> frozenset[Taking]:
        """How the possible callees of a call take a keyword."""
        found = {
            self.takes(t, word) for t in self.targets(call, place) if not isinstance(t, Nothing)
        }
        return frozenset(found)

    def names_it(self, call: ast.Call, place: Place, word: str) -> bool:
        """Whether something of the project that a call reaches has the keyword as a parameter."""
        for target in self.targets(call, place):
            if isinstance(target, Partial):
                target = target.target
            taker = target if isinstance(target, Function) else None
            if isinstance(target, ClassValue):
                taker = self.ev.link.constructor(target.info)
            if taker is not None and word in keyword_names(taker.node):
                return True
        return False

    def takes(self, value: Value, word: str) -> Taking:
        """How one callee takes a keyword."""
        names = self.ev.names
        if isinstance(value, (Unknown, Instance)) and not isinstance(value, Instance):
            return Taking.UNKNOWN
        if isinstance(value, External):
            return self._external(value, word)
        if isinstance(value, (ClassValue, Constructor)):
            if word != names.group:
                return Taking.OTHER
            return _weaken(self.constructor(value.info), value.proven)
        if isinstance(value, Library):
            return self._library(value, word)
        if isinstance(value, Partial):
            return self.takes(value.target, word)
        if isinstance(value, Function):
            return self.function(value, word)
        if isinstance(value, Instance):
            return self._called_instance(value, word)
        if isinstance(value, Mock):
            ours = word == names.group and value.aspect in ("class", "assertion")
            return Taking.OURS if ours else Taking.OTHER
        if isinstance(value, Remote | Foreign | Other | Container | Tuple):
            return Taking.OTHER
        return Taking.OTHER

    def _external(self, value: External, word: str) -> Taking:
        if value.name in INSTANTIATORS:
            return Taking.UNKNOWN
        looks = value.last == renames.MANAGER and renames.ENGINE_PACKAGE in value.name
        if looks and word == self.ev.names.group:
            return Taking.UNPROVEN
        return Taking.OTHER

    def _library(self, value: Library, word: str) -> Taking:
        if word != self.ev.names.size or value.name not in ("topology", "kimi_init"):
            return Taking.OTHER
        receiver = value.receiver
        if isinstance(receiver, (ClassValue, Instance)):
            proven = receiver.proven and self.ev.link.roles(receiver.info).proven
            if value.name == "topology":
                own = self._own_topology(receiver.info, word)
                if own is not None:
                    return _weaken(own, proven)
            return Taking.OURS if proven else Taking.UNPROVEN
        return Taking.OURS

    def _own_topology(self, info: ClassInfo, word: str) -> Taking | None:
        """Where an override forwards `**kwargs` or has neither name, what it does counts."""
        for current in self.ev.link.mro(info):
            method = self.ev.link.own_method(current, renames.TOPOLOGY_METHOD)
            if method is None:
                continue
            parameters = parameter_names(method.node)
            if self.stands_before(method) or self.ev.link.is_shared(current):
                return Taking.MANUAL
            if word in parameters or self.ev.names.new_size in parameters:
                return None
            if method.node.args.kwarg is None:
                return Taking.NONE
            uses = [kwargs_use(chain, word)[0] for chain, _ in self.kwargs_uses(method)]
            return Taking.MANUAL if "key" in uses else None
        return None

    def _called_instance(self, value: Instance, word: str) -> Taking:
        found = [
            self.function(m, word)
            for m in self.ev.link.attribute(value, "__call__")
            if isinstance(m, Function)
        ]
        return found[0] if found else Taking.OTHER

    def function(self, value: Function, word: str) -> Taking:
        """A function of the project: its own parameter is its own, forwarded `**kwargs` are not."""
        names = self.ev.names
        owner = value.owner
        name = getattr(value.node, "name", "")
        if owner is not None and name == renames.TOPOLOGY_METHOD and word == names.size:
            if self.ev.link.is_engine(owner):
                return Taking.MANUAL if self.ev.link.is_shared(owner) else Taking.OURS
            roles = self.ev.link.roles(owner)
            if roles.engine and not roles.proven:
                return Taking.UNPROVEN
        if owner is not None and name == "__init__" and word == names.group:
            return self.constructor(owner)
        if word in parameter_names(value.node):
            if word == names.size and self._put_on_engine(value):
                return Taking.OURS
            return Taking.OTHER
        if value.node.args.kwarg is None:
            return Taking.OTHER
        found = self.forward(value, word)
        return Taking.OTHER if found is Taking.NONE else found

    def _put_on_engine(self, function: Function) -> bool:
        """Whether a function becomes the build_topology of an engine."""
        if function.owner is not None or not isinstance(function.node, DEFS):
            return False
        owners = self.ev.link.attachments(function.node, function.place, function.module)
        return any(
            name == renames.TOPOLOGY_METHOD and self.ev.link.is_engine(info)
            for info, name in owners
        )

    # Constructors

    def constructor(self, info: ClassInfo) -> Taking:
        """How a class's constructor takes the group keyword."""
        key = id(info)
        if key not in self._constructors:
            self._constructors[key] = Taking.NONE  # against cycles
            self._constructors[key] = self._constructor(info)
        return self._constructors[key]

    def _constructor(self, info: ClassInfo) -> Taking:
        taking = self._initializer(info)
        return self._after_new(info) or taking if taking is Taking.OURS else taking

    def _after_new(self, info: ClassInfo) -> Taking | None:
        """What an own `__new__`, which gets the keywords as well, makes of the group's."""
        word = self.ev.names.group
        for current in self.ev.link.mro(info):
            method = self.ev.link.own_method(current, "__new__")
            if method is None:
                continue
            uses = [kwargs_use(chain, word) for chain, _ in self.kwargs_uses(method)]
            if any(kind == "key" for kind, _ in uses):
                return Taking.MANUAL
            others = [node for kind, node in uses if kind in ("splat", "reads")]
            if not all(isinstance(n, ast.Call) and _is_new(n.func) for n in others):
                return Taking.READS
            return None
        return None

    def _initializer(self, info: ClassInfo) -> Taking:
        roles = self.ev.link.roles(info)
        proven = roles.proven
        made = self.ev.link.metaclass_call(info)
        if made is not None and self.ev.names.group in parameter_names(made.node):
            return Taking.OTHER  # the metaclass takes the keyword for itself
        if Instance(info) not in self.ev.link.constructed(ClassValue(info)):
            return Taking.OTHER  # its __new__ makes something else of the keyword
        for current in self.ev.link.mro(info):
            if current.node is None:
                return (
                    _weaken(Taking.OURS, proven)
                    if current.verl == renames.MANAGER
                    else Taking.OTHER
                )
            init = self.ev.link.own_method(current, "__init__")
            if init is not None and current is not info and self._hands_up(current, init):
                continue
            if init is not None:
                return _weaken(self._own_constructor(current, init), proven)
        if roles.manager:
            return Taking.UNPROVEN
        return Taking.OTHER

    def _hands_up(self, info: ClassInfo, init: Function) -> bool:
        """A mixin's constructor that passes its keywords to `super()`, whoever that is in the end."""
        if self.ev.link.roles(info).manager or init.node.args.kwarg is None:
            return False
        if self.ev.names.group in keyword_names(init.node):
            return False  # it takes the keyword itself
        uses = self.kwargs_uses(init)
        calls = [kwargs_use(chain, self.ev.names.group) for chain, _ in uses]
        return bool(calls) and all(
            kind == "harmless"
            or (
                kind == "splat"
                and isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "__init__"
                and isinstance(node.func.value, ast.Call)
                and path_of(node.func.value.func) == "super"
            )
            for kind, node in calls
        )

    def _own_constructor(self, info: ClassInfo, init: Function) -> Taking:
        names = self.ev.names
        parameters = parameter_names(init.node)
        if self.stands_before(init):
            return Taking.MANUAL
        if not self.ev.link.roles(info).manager:
            if init.node.args.vararg and init.node.args.kwarg and len(parameters) == 1:
                return self.forward(init, names.group)  # what takes anything suits either name
            if names.group in parameters or init.node.args.kwarg is None:
                return Taking.OTHER
            found = self.forward(init, names.group)
            return Taking.OTHER if found is Taking.NONE else found
        group = self.group_parameter(info, init)
        if names.group in parameters:
            if group != names.group:
                return Taking.OTHER
            if init.node.args.kwarg is not None and names.group not in keyword_names(init.node):
                return Taking.NONE  # positional only: the keyword is somebody else's
            return Taking.MANUAL if self.parameter_problem(init, names.group) else Taking.OURS
        if group is not None and group == names.new_group:
            stale = group in keyword_names(init.node) or init.node.args.kwarg is None
            return Taking.OURS if stale else Taking.NONE
        if init.node.args.kwarg is not None:
            return self.forward(init, names.group)
        return Taking.NONE

    def stands_before(self, function: Function) -> bool:
        """Whether a decorator of the project puts something before a function that takes a renamed keyword itself."""
        decorators = getattr(function.node, "decorator_list", [])
        if not decorators:
            return False
        return self.ev.decorating.stand_in(function, decorators, function.place) is not None

    def parameter_problem(self, function: Function, word: str) -> str | None:
        """Why a parameter of a function cannot be renamed by an edit, else None."""
        scope = function.module.place(
            (*function.place.chain, (function.node, "body")), inside=True
        ).scope
        return self.locals.rename(scope, word, self.ev.names.table[word]).problem

    def group_parameter(self, info: ClassInfo, init: Function) -> str | None:
        """The name of the constructor's parameter that is the worker group."""
        key = id(init.node)
        if key not in self._groups:
            self._groups[key] = None
            self._groups[key] = self._group_parameter(info, init)
        return self._groups[key]

    def _group_parameter(self, info: ClassInfo, init: Function) -> str | None:
        names = self.ev.names
        parameters = parameter_names(init.node)
        roles = self.ev.link.roles(info)
        spelled = next((n for n in (names.group, names.new_group) if n in parameters), None)
        if info.verl == renames.MANAGER or roles.named or not roles.proven:
            return spelled
        if isinstance(init.node, DEFS) and _is_stub(init):
            return spelled
        passed, called = self._passed_up(init)
        if passed is not None or called:
            return passed
        for word in (names.group, names.new_group):
            for binding in self.ev.link.self_assignments(info, word):
                if binding.value is not None and any(
                    n is init.node for n, _ in binding.place.chain
                ):
                    source = self._source(binding.value, init, binding.place)
                    if source is not None:
                        return source
        return None

    def _passed_up(self, init: Function) -> tuple[str | None, bool]:
        """(the parameter that a constructor passes on as the group, whether it calls another constructor)."""
        module, called = init.module, False
        for chain in self.constructor_calls(init):
            call = chain[-1][0]
            assert isinstance(call, ast.Call)
            place = module.place(chain)
            for value in self.ev.evaluate(call.func, place):
                if not isinstance(value, Constructor) or not self.ev.link.roles(value.info).manager:
                    continue
                called = True
                argument = self._group_argument(call, value, place)
                source = self._source(argument, init, place) if argument is not None else None
                if source is not None:
                    return source, True
        return None, called

    def constructor_calls(self, init: Function) -> list[Chain]:
        """The calls of some `__init__` in a constructor, in the order of the text."""
        module = init.module
        found = self._init_calls.get(module.path)
        if found is None or found[0] is not module:
            index: dict[int, list[Chain]] = {}
            for chain in module.chains(r"\b__init__\b", ast.Call):
                call = chain[-1][0]
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    if call.func.attr == "__init__":
                        for node, _ in chain:
                            if isinstance(node, DEFS):
                                index.setdefault(id(node), []).append(chain)
            found = self._init_calls[module.path] = (module, index)
        return found[1].get(id(init.node), [])

    def _group_argument(self, call: ast.Call, target: Constructor, place: Place) -> ast.expr | None:
        names = self.ev.names
        wanted = {names.group, names.new_group}
        index = 1
        for base in self.ev.link.mro(target.info):
            own = self.ev.link.own_method(base, "__init__")
            if own is not None:
                parameter = self.group_parameter(base, own)
                if parameter is not None:
                    wanted.add(parameter)
                    positional = [a.arg for a in (*own.node.args.posonlyargs, *own.node.args.args)]
                    index = positional.index(parameter) - 1 if parameter in positional else 99
                break
        for keyword in call.keywords:
            if keyword.arg in wanted:
                return keyword.value
            if keyword.arg is None:
                found = self._splatted_value(keyword.value, wanted, place)
                if found is not None:
                    return found
        index += 1 if target.takes_self else 0
        if index < len(call.args) and not any(
            isinstance(a, ast.Starred) for a in call.args[: index + 1]
        ):
            return call.args[index]
        return None

    def _splatted_value(self, node: ast.expr, wanted: set[str], place: Place) -> ast.expr | None:
        """What a splatted dictionary holds under one of the wanted keys."""
        found = (v for word in sorted(wanted) for v, _ in self.splatted(node, word, place))
        return next(found, None)

    def splatted(self, node: ast.expr, word: str, place: Place) -> Iterator[tuple[ast.expr, Place]]:
        """Everything that a splatted dictionary may hold under a key, and where that is written."""
        for site, _, module in self.ev.flows.keys(node, place, word, "").sites:
            chain = module.chain_to(site)
            parent = chain[-2][0]
            value: ast.expr | None = None
            if isinstance(site, ast.keyword):
                value = site.value
            elif isinstance(parent, ast.Dict):
                value = parent.values[parent.keys.index(site)]  # type: ignore[arg-type]
            elif isinstance(parent, ast.Subscript):
                value = getattr(chain[-3][0], "value", None)
            elif isinstance(parent, ast.Call) and len(parent.args) > 1:
                value = parent.args[1]
            if value is not None:
                yield value, module.place(chain)

    def _source(self, node: ast.expr, init: Function, place: Place) -> str | None:
        """The parameter that an expression hands on, through one local name, `or`, `if` or a wrapping call."""
        if isinstance(node, ast.Name):
            if node.id in parameter_names(init.node):
                return node.id
            scope = place.scope
            for binding in scope.module.bindings(scope, node.id):
                if binding.kind == "value" and binding.value is not None and not binding.unpack:
                    found = self._source(binding.value, init, binding.place)
                    if found is not None:
                        return found
            return None
        if isinstance(node, ast.NamedExpr):
            return self._source(node.value, init, place)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Call):
            parts = [*node.args, *(k.value for k in node.keywords)]
        for part in parts:
            found = self._source(part, init, place)
            if found is not None and found in (self.ev.names.group, self.ev.names.new_group):
                return found
        return None

    # Forwarded keyword arguments

    def forward(self, function: Function, word: str) -> Taking:
        """What a function does with a keyword that arrives in its `**kwargs`."""
        key = (id(function.node), word)
        if key not in self._forwards:
            self._forwards[key] = Taking.NONE  # against cycles
            if nearly_full():
                self._forwards[key] = on_a_fresh_one(self._forward, function, word)
            else:
                self._forwards[key] = self._forward(function, word)
        return self._forwards[key]

    def _forward(self, function: Function, word: str) -> Taking:
        kwarg = function.node.args.kwarg
        assert kwarg is not None
        taken: set[Taking] = set()
        reads = manual = False
        for chain, place in self.kwargs_uses(function):
            kind, detail = kwargs_use(chain, word)
            if kind == "splat" and isinstance(detail, ast.Call):
                takings = self.call_takings(detail, function.module.place(chain[:-2]), word)
                if takings & TAKEN:
                    taken |= takings
                elif any(
                    isinstance(v, External) and v.name == "builtins.dict"
                    for v in self.ev.evaluate(detail.func, place)
                ):
                    reads = True
                else:
                    reads = True
            elif kind == "key":
                manual = True
            elif kind == "reads":
                reads = True
                for call, where in self._kept(chain, function):
                    taken |= self.call_takings(call, where, word) & TAKEN
        if not taken:
            return Taking.NONE
        if manual or Taking.MANUAL in taken:
            return Taking.MANUAL
        if reads or Taking.READS in taken:
            return Taking.READS
        if Taking.OURS in taken:
            return Taking.MANUAL if Taking.OTHER in taken else Taking.OURS
        return Taking.UNPROVEN

    def _kept(self, chain: Chain, function: Function) -> Iterator[tuple[ast.Call, Place]]:
        """The calls that `self.kept = kwargs` is splatted into by other methods of the class."""
        node, statement = chain[-1][0], chain[-2][0]
        if function.owner is None or not isinstance(statement, ast.Assign):
            return
        target = statement.targets[0]
        if statement.value is not node or not isinstance(target, ast.Attribute):
            return
        for use in function.module.carriers(target.attr):
            owner = function.owner.node
            if isinstance(use[-2][0], ast.keyword) and any(n is owner for n, _ in use):
                call = use[-3][0]
                if use[-2][0].arg is None and isinstance(call, ast.Call):
                    yield call, function.module.place(use[:-2])

    def kwargs_uses(self, function: Function) -> list[tuple[Chain, Place]]:
        """The uses of a function's `**kwargs` name inside it."""
        kwarg = function.node.args.kwarg
        if kwarg is None:
            return []
        module = function.module
        scope = module.place((*function.place.chain, (function.node, "body")), inside=True).scope
        found = []
        for chain in module.carriers(kwarg.arg):
            node = chain[-1][0]
            if isinstance(node, ast.Name):
                place = module.place(chain)
                if module.resolve(place.scope, kwarg.arg) is scope:
                    found.append((chain, place))
        return found


def kwargs_use(chain: Chain, word: str) -> tuple[str, ast.AST | None]:
    """How one use of a kwargs dictionary treats a key: splat, key (reads it), write, harmless, reads."""
    node, parent = chain[-1][0], chain[-2][0]
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return "splat", chain[-3][0]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        if not isinstance(parent.slice, ast.Constant):
            return "reads", None
        if parent.slice.value != word:
            return "harmless", None
        return ("write" if isinstance(parent.ctx, ast.Store) else "key"), parent.slice
    if (
        isinstance(parent, ast.Attribute)
        and parent.value is node
        and isinstance(chain[-3][0], ast.Call)
    ):
        call = chain[-3][0]
        first = call.args[0] if call.args else None
        if (
            parent.attr in ("get", "pop", "setdefault", "__contains__", "__getitem__")
            and first is not None
        ):
            if not isinstance(first, ast.Constant):
                return "reads", None
            if first.value != word:
                return "harmless", None
            return ("write" if parent.attr == "setdefault" else "key"), first
        if parent.attr == "update":
            return "harmless", None
        return "reads", None
    if isinstance(parent, ast.Compare) and isinstance(parent.left, ast.Constant):
        return ("key", parent.left) if parent.left.value == word else ("harmless", None)
    if isinstance(parent, (ast.If, ast.While, ast.Assert)) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        return "harmless", None
    return "reads", None


def parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    """The names of the single parameters."""
    return [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def keyword_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    """The names that a call can give by keyword."""
    return [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]


def _weaken(taking: Taking, proven: bool) -> Taking:
    return Taking.UNPROVEN if taking is Taking.OURS and not proven else taking


def _spells(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _is_new(callee: ast.expr) -> bool:
    return isinstance(callee, ast.Attribute) and callee.attr == "__new__"


def _is_stub(function: Function) -> bool:
    node = function.node
    assert isinstance(node, DEFS)
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )
