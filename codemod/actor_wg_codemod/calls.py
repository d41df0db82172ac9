"""What a call gives back and what a parameter can be: the library calls that the analysis sees through."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import (
    DEFS,
    FUNCTIONS,
    Module,
    Place,
    Scope,
    first_parameter,
    path_of,
)
from actor_wg_codemod.module_names import dotted
from actor_wg_codemod.values import (
    MOCK,
    NOTHING,
    OTHER,
    UNKNOWN,
    ClassValue,
    Constructor,
    Container,
    External,
    Foreign,
    Function,
    Giver,
    Instance,
    Library,
    Mock,
    ModuleValue,
    Nothing,
    Other,
    Partial,
    Remote,
    Super,
    Tuple,
    Unknown,
    Value,
    Values,
    elements,
    given,
    held,
    mapped,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator
    from actor_wg_codemod.linking import ClassInfo

PASSED_AWAITED = frozenset(
    {
        "asyncio.run",
        "asyncio.wait_for",
        "asyncio.shield",
        "anyio.run",
        "ray.get",
        "contextlib.nullcontext",
    }
)
"""They give what awaiting (or fetching) their first argument gives."""
HOLDERS = frozenset(
    {
        "asyncio.create_task",
        "asyncio.ensure_future",
        "asyncio.run_coroutine_threadsafe",
        "weakref.ref",
        "weakref.ReferenceType",
    }
)
"""They hold on to their first argument until they are asked for it."""
APPLIERS = frozenset({"asyncio.to_thread", "anyio.to_thread.run_sync", "trio.to_thread.run_sync"})
"""They call their first argument with the others."""
LOOPS = frozenset({"asyncio.get_event_loop", "asyncio.get_running_loop", "asyncio.new_event_loop"})
SAME_ELEMENTS = frozenset({"list", "tuple", "set", "frozenset", "iter", "reversed", "sorted"})
ONE_ELEMENT = frozenset({"next", "min", "max"})
PASSED_THROUGH = frozenset(
    {
        "copy.copy",
        "copy.deepcopy",
        "weakref.proxy",
        "contextlib.closing",
        "contextlib.aclosing",
        "itertools.chain",
        "itertools.cycle",
        "builtins.classmethod",
        "builtins.staticmethod",
    }
)
LOADERS = frozenset(
    {
        "verl.utils.import_utils.load_class_from_fqn",
        "hydra.utils.get_class",
        "hydra.utils.get_object",
        "hydra.utils.get_method",
        "pydoc.locate",
        "pkgutil.resolve_name",
    }
)
KEYED = frozenset({"sorted", "min", "max", "itertools.groupby", "groupby", "heapq.nlargest"})
MOST_STEPS = 8
SPECCED = frozenset({"Mock", "MagicMock", "AsyncMock", "NonCallableMagicMock", "create_autospec"})


class Calls:
    """The evaluator's part that knows calls."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator

    def result(self, call: ast.Call, place: Place) -> Values:
        """What a call can give."""
        if isinstance(call.func, ast.Name) and call.func.id == "super":
            return self._super(call, place)
        found: set[Value] = set()
        callees = self.ev.evaluate(call.func, place) - NOTHING
        if any(isinstance(c, ClassValue) and self._is_manager(c.info) for c in callees):
            # what a configuration names in the manager's place is made and used as the manager is
            callees = frozenset(c for c in callees if not isinstance(c, Unknown))
        for callee in callees:
            if isinstance(callee, Unknown) and self.ev.likely_method(callee.hint):
                found |= self._method_result(callee.hint, call, place) | UNKNOWN
            else:
                found |= self._result(callee, call, place)
        return frozenset(found) or UNKNOWN

    def _method_result(self, name: str, call: ast.Call, place: Place) -> Values:
        index = 1 if name == "run_in_executor" else 0
        if len(call.args) <= index or isinstance(call.args[index], ast.Starred):
            return UNKNOWN
        argument = call.args[index]
        if name in ("enter_context", "enter_async_context"):
            return self.entered(argument, place)
        values = self.ev.evaluate(argument, place)
        if name == "run_until_complete":
            return given(values)
        if name == "create_task":
            return frozenset({Giver(given(values))})
        return frozenset({Giver(self._applied(values, call, place))})

    def _applied(self, callees: Values, call: ast.Call, place: Place) -> Values:
        """What a library gives that calls what it was given."""
        known = (Function, ClassValue, Partial, Giver)
        results = (self._result(c, call, place) for c in callees if isinstance(c, known))
        return given(frozenset().union(*results)) or UNKNOWN

    def _result(self, callee: Value, call: ast.Call, place: Place) -> Values:
        if isinstance(callee, External):
            return self._external(callee, call, place)
        if isinstance(callee, ClassValue):
            return self.ev.link.constructed(callee)
        if isinstance(callee, Instance):
            method = self.ev.link.attribute(callee, "__call__")
            return (
                frozenset(
                    v for m in method if isinstance(m, Function) for v in self.ev.function_result(m)
                )
                or UNKNOWN
            )
        if isinstance(callee, Function):
            return self.ev.function_result(callee)
        if isinstance(callee, Partial):
            return self._result(callee.target, call, place)
        if isinstance(callee, Constructor):
            return OTHER
        if isinstance(callee, Remote):
            return UNKNOWN
        if isinstance(callee, Mock):
            return frozenset({Instance(callee.info)}) if callee.aspect == "class" else OTHER
        if isinstance(callee, Library):
            return self._library(callee, call, place)
        if isinstance(callee, Other):
            return OTHER
        return callee.items if isinstance(callee, Giver) else UNKNOWN

    def _arguments(self, call: ast.Call, place: Place) -> list[Values]:
        return [self.ev.evaluate(a, place) for a in call.args if not isinstance(a, ast.Starred)]

    def _external(self, callee: External, call: ast.Call, place: Place) -> Values:
        name = callee.name
        args = call.args
        first = args[0] if args else None
        if name in ("functools.partial", "functools.partialmethod") and first is not None:
            return frozenset(Partial(t, len(args) - 1) for t in self.ev.evaluate(first, place))
        if name == "ray.remote":
            if first is None:
                return frozenset({Library("ray.remote")})
            return frozenset(
                Remote(t) if isinstance(t, (ClassValue, Function)) else Unknown()
                for t in self.ev.evaluate(first, place)
            )
        if name in ("typing.cast", "typing_extensions.cast") and first is not None:
            return self.ev.annotation(first, place)
        if name in ("importlib.import_module", "builtins.__import__") and first is not None:
            return self._imported(call, place)
        if name in LOADERS and first is not None:
            target = self.text(first, place)
            return self.ev.by_name(target, place.scope.module.path) if target else UNKNOWN
        if name in PASSED_THROUGH and first is not None:
            return self.ev.evaluate(first, place)
        if name in PASSED_AWAITED and first is not None:
            return given(self.ev.evaluate(first, place))
        if name in HOLDERS and first is not None:
            return frozenset({Giver(given(self.ev.evaluate(first, place)))})
        if name in APPLIERS and first is not None:
            return self._applied(self.ev.evaluate(first, place), call, place)
        if name in LOOPS:
            return frozenset({Foreign("asyncio.AbstractEventLoop")})
        if name == "asyncio.gather":
            return self._gathered(call, place)
        if name == "builtins.object.__new__" and first is not None:
            return self.ev.instances(self.ev.evaluate(first, place))
        if name.startswith("builtins."):
            return self._builtin(name.removeprefix("builtins."), call, place)
        if self._is_patch(name):
            return self._patched(name, call, place)
        if callee.last in SPECCED and "mock" in name:
            return self._specced(callee.last, call, place)
        if callee.last in (
            "deque",
            "OrderedDict",
            "defaultdict",
            "WeakSet",
            "WeakValueDictionary",
            "Queue",
        ):
            mapping = "ict" in callee.last
            items: Values = frozenset()
            if first is not None and callee.last != "defaultdict":
                values = self.ev.evaluate(first, place)
                items = mapped(values) if mapping else elements(values)
            return frozenset({Container(items, mapping)})
        if callee.looks_like_class:
            return frozenset({Foreign(name)})
        return UNKNOWN

    def _gathered(self, call: ast.Call, place: Place) -> Values:
        if any(isinstance(a, ast.Starred) for a in call.args):
            parts = [
                elements(self.ev.evaluate(a.value, place))
                if isinstance(a, ast.Starred)
                else self.ev.evaluate(a, place)
                for a in call.args
            ]
            return frozenset({Container(given(frozenset().union(*parts)))})
        return frozenset({Tuple(tuple(given(v) for v in self._arguments(call, place)))})

    def literal(self, node: ast.expr, place: Place, depth: int = 0) -> ast.expr | None:
        """The literal that an expression stands for, through names bound once and tables."""
        if isinstance(node, (ast.Constant, ast.Dict, ast.Tuple, ast.List)):
            return node
        if depth > MOST_STEPS:
            return None
        if isinstance(node, ast.Name):
            if self.ev._wanted and self.ev._wanted[-1][0] == node.id:
                return ast.Constant(self.ev._wanted[-1][1])
            module = place.scope.module
            home = module.resolve(place.scope, node.id)
            bindings = module.bindings(home, node.id) if home is not None else []
            if len(bindings) != 1 or bindings[0].value is None:
                return None
            found = self.literal(bindings[0].value, bindings[0].place, depth + 1)
            for index in bindings[0].unpack:
                found = _item(found, ast.Constant(index))
            return found if bindings[0].kind in ("value", "annotated") else None
        if isinstance(node, ast.Subscript):
            table = self.literal(node.value, place, depth + 1)
            return _item(table, self.literal(node.slice, place, depth + 1))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "pop") and node.args:
                table = self.literal(node.func.value, place, depth + 1)
                return _item(table, self.literal(node.args[0], place, depth + 1))
        return None

    def text(self, node: ast.expr, place: Place) -> str | None:
        """The string that an expression is, through one constant name or a table of constants."""
        if isinstance(node, ast.Name) and node.id in ("__name__", "__package__"):
            return self._own_name(node.id, place)
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.text(p.value if isinstance(p, ast.FormattedValue) else p, place)
                for p in node.values
            ]
            known = [p for p in parts if p is not None]
            return "".join(known) if len(known) == len(parts) else None
        if isinstance(node, (ast.Constant, ast.Name, ast.Subscript, ast.Call)):
            value = self.literal(node, place)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left, place), self.text(node.right, place)
            return left + right if left is not None and right is not None else None
        return None

    @staticmethod
    def _own_name(name: str, place: Place) -> str:
        path = place.scope.module.path
        package = path.endswith(("__init__.py", "__init__.pyi"))
        own = dotted(path)
        return own if package or name == "__name__" else own.rpartition(".")[0]

    def _imported(self, call: ast.Call, place: Place) -> Values:
        """The module that `import_module` gives, relative names considered."""
        name = self.text(call.args[0], place)
        if name is None:
            return UNKNOWN
        path = place.scope.module.path
        if not name.startswith("."):
            return self.ev.import_module(name, path)
        rest = name.lstrip(".")
        found = self.ev.project.modules.relative(path, len(name) - len(rest), rest)
        return UNKNOWN if found is None else frozenset({ModuleValue(rest, found)})

    def _builtin(self, name: str, call: ast.Call, place: Place) -> Values:
        values = self._arguments(call, place)
        args = [a for a in call.args if not isinstance(a, ast.Starred)]
        filled = [self.ev.filling.filled(a, v, place) for a, v in zip(args, values, strict=False)]
        if name == "getattr" and len(args) >= 2:
            word = self.text(args[1], place)
            if word is None and self.ev._wanted and isinstance(args[1], ast.Name):
                word = self.ev._wanted[-1][1]
            if word is None:
                return UNKNOWN
            found = frozenset(v for value in values[0] for v in self.ev.member(value, word))
            return found | (values[2] if len(values) > 2 else frozenset())
        if name in SAME_ELEMENTS:
            items = elements(filled[0]) if filled else frozenset()
            return frozenset({Container(items)})
        if name in ONE_ELEMENT and filled:
            found = frozenset(elements(filled[0]))
            if len(filled) > 1:
                found = found | filled[1] if name == "next" else frozenset().union(*filled)
            return found.union(
                *(self.ev.evaluate(k.value, place) for k in call.keywords if k.arg == "default")
            )
        if name == "zip":
            return frozenset({Container(frozenset({Tuple(tuple(elements(v) for v in filled))}))})
        if name == "enumerate" and filled:
            return frozenset({Container(frozenset({Tuple((OTHER, elements(filled[0])))}))})
        if name == "filter" and len(filled) == 2:
            return frozenset({Container(elements(filled[1]))})
        if name == "map" and len(values) == 2:
            return frozenset(
                {Container(frozenset(v for c in values[0] for v in self._result(c, call, place)))}
            )
        if name == "dict":
            parts = [mapped(v) for v in filled]
            parts += [
                self.ev.evaluate(k.value, place)
                if k.arg
                else held(self.ev.evaluate(k.value, place))
                for k in call.keywords
            ]
            return frozenset({Container(frozenset().union(*parts), mapping=True)})
        if name == "type" and len(values) == 1:
            return self._type(values[0])
        if name == "type" and len(values) == 3:
            bases = elements(values[1])  # a class made so constructs and holds as its bases do
            return frozenset(v for v in bases if isinstance(v, ClassValue)) or UNKNOWN
        if name == "vars" and len(values) == 1:
            modules = (v for v in values[0] if isinstance(v, (ModuleValue, External)))
            return frozenset(Library("module.dict", m) for m in modules) or UNKNOWN
        if name == "object":
            return OTHER
        if name == "super":
            return UNKNOWN
        return (
            UNKNOWN
            if name in ("vars", "eval", "globals", "locals", "aiter", "anext", "open")
            else OTHER
        )

    def _type(self, values: Values) -> Values:
        return frozenset(
            ClassValue(v.info, v.proven) if isinstance(v, Instance) else Unknown() for v in values
        )

    def _super(self, call: ast.Call, place: Place) -> Values:
        if call.args:
            return frozenset(
                Super(v.info) if isinstance(v, ClassValue) else Unknown()
                for v in self.ev.evaluate(call.args[0], place)
            )
        scope: Scope | None = place.scope
        while scope is not None and not scope.is_class:
            scope = scope.parent
        owner = self.ev.link.owner_of(scope) if scope is not None else None
        return frozenset({Super(owner)}) if owner else UNKNOWN

    def _library(self, callee: Library, call: ast.Call, place: Place) -> Values:
        name, receiver = callee.name, callee.receiver
        if name == "ray.options":
            return frozenset({receiver}) if receiver is not None else UNKNOWN
        if name == "ray.remote":
            return (
                frozenset(
                    Remote(t) if isinstance(t, (ClassValue, Function)) else Unknown()
                    for a in call.args
                    for t in self.ev.evaluate(a, place)
                )
                or UNKNOWN
            )
        if name == "mock.start" and receiver is not None:
            return frozenset({receiver})
        if name in ("registry.get", "registry.new"):
            backend = self.text(call.args[0], place) if call.args else None
            kind = renames.KIMI if backend == renames.KIMI_BACKEND else renames.ENGINE
            info = self.ev.link.verl_class(kind)
            return frozenset({ClassValue(info) if name == "registry.get" else Instance(info)})
        if name == "registry.register":
            return frozenset({Library("registry.wrapper")})
        if name == "registry.wrapper" and call.args:
            return self.ev.evaluate(call.args[0], place)
        if name == "new":
            if call.args:
                return self.ev.instances(self.ev.evaluate(call.args[0], place))
            return UNKNOWN
        if name.startswith("method."):
            return self._method_result(name.partition(".")[2], call, place)
        if name.startswith("container.") and isinstance(receiver, Container):
            return self._container(name.partition(".")[2], receiver, call, place)
        if name == "topology" and isinstance(receiver, (ClassValue, Instance)):
            side = frozenset({Container(frozenset(), mapping=True, topology=receiver.info)})
            return frozenset({Tuple((side, side))})
        return UNKNOWN

    def _container(self, method: str, receiver: Container, call: ast.Call, place: Place) -> Values:
        values = receiver
        if isinstance(call.func, ast.Attribute):
            filled = self.ev.filling.filled(call.func.value, frozenset({receiver}), place)
            values = next((v for v in filled if isinstance(v, Container)), receiver)
        items = values.items or UNKNOWN
        if method == "items":
            return frozenset({Container(frozenset({Tuple((UNKNOWN, items))}))})
        if method == "values":
            return frozenset({Container(items)})
        if method == "copy":
            return frozenset({values})
        if method == "keys":
            return frozenset({Container(OTHER)})
        if method == "popitem":
            return frozenset({Tuple((UNKNOWN, items))})
        if method in ("get", "pop", "setdefault") and values.topology is None:
            return items.union(*(self.ev.evaluate(a, place) for a in call.args[1:2]))
        return items if method == "popleft" else UNKNOWN

    # Mocks

    def _is_patch(self, name: str) -> bool:
        return name.startswith(("unittest.mock.patch", "mock.patch"))

    def _patched(self, name: str, call: ast.Call, place: Place) -> Values:
        """`patch(...)` gives, entered or as an argument, a mock of what it replaces."""
        target = self.patched_class(name.rpartition("patch")[2], call, place)
        return target if target is not None else UNKNOWN

    def patched_class(self, how: str, call: ast.Call, place: Place) -> Values | None:
        """The mock that a patch call makes: of a manager class, or None where it makes none."""
        given = len(call.args) + sum(k.arg == "new" for k in call.keywords)
        if how == "" and call.args:
            if given > 1 or any(k.arg == "new" for k in call.keywords):
                return None
            target = self.text(call.args[0], place)
            values = self.ev.by_name(target, place.scope.module.path) if target else UNKNOWN
        elif how == ".object" and len(call.args) >= 2:
            if given > 2:
                return None
            word = self.text(call.args[1], place)
            owners = self.ev.evaluate(call.args[0], place)
            values = (
                frozenset(v for o in owners for v in self.ev.member(o, word)) if word else UNKNOWN
            )
        else:
            return None
        mocks = frozenset(
            Mock(v.info)
            for v in values
            if isinstance(v, ClassValue) and v.proven and self._is_manager(v.info)
        )
        others = any(getattr(v, "info", v) not in {m.info for m in mocks} for v in values)
        return mocks | OTHER if others else mocks or OTHER

    def _is_manager(self, info: ClassInfo) -> bool:
        roles = self.ev.link.roles(info)
        return roles.manager and roles.proven

    def _specced(self, last: str, call: ast.Call, place: Place) -> Values:
        spec = [k.value for k in call.keywords if k.arg in ("spec", "spec_set", "instance")][:1]
        if last == "create_autospec":
            spec = call.args[:1] or spec
        elif not spec:
            spec = call.args[:1]
        if not spec:
            plain = {k.arg for k in call.keywords} <= {"name", "return_value"}
            return MOCK if plain else OTHER
        values = self.ev.evaluate(spec[0], place)
        whole = last == "create_autospec" and not any(k.arg == "instance" for k in call.keywords)
        found: set[Value] = set()
        for value in values:
            if isinstance(value, ClassValue):
                if not whole:
                    found.add(Instance(value.info, value.proven))
                elif self._is_manager(value.info):
                    found.add(Mock(value.info))
            elif isinstance(value, Instance):
                found.add(value)
        return frozenset(found) or OTHER

    # Contexts

    def entered(self, node: ast.expr, place: Place) -> Values:
        """What `with node as x` gives x."""
        values = self.ev.evaluate(node, place)
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Container) and isinstance(node, ast.Call):
                found |= elements(frozenset({value}))  # a generator under @contextmanager
            elif isinstance(value, Instance) and value.info.node is not None:
                for name in ("__enter__", "__aenter__"):
                    for method in self.ev.link.attribute(value, name):
                        if isinstance(method, Function):
                            found |= self.ev.function_result(method)
            else:
                found.add(value)
        return frozenset(found) or UNKNOWN

    # Parameters

    def parameter(self, node: ast.arg, place: Place) -> Values:
        """What a parameter can be inside its function."""
        function = place.scope.node
        if not isinstance(function, FUNCTIONS):
            return UNKNOWN
        module = place.scope.module
        outer = module.place(place.scope.chain)
        arguments = function.args
        if node.annotation is not None:
            declared = self.ev.annotation(node.annotation, outer)
            if node is arguments.vararg:
                return frozenset({Container(declared, declared=True)})
            if node is arguments.kwarg:
                return frozenset({Container(declared, mapping=True, declared=True)})
            if any(not isinstance(v, (Unknown, Nothing)) for v in declared):
                return declared
        own = self._receiver(node, function, outer)
        if own is not None:
            return own
        default = self._default(node, arguments)
        found = self._given(node, function, default, outer, module)
        if found is not None:
            return found
        if default is not None:
            values = self.ev.evaluate(default, outer)
            known = frozenset(
                v
                for v in values
                if isinstance(v, (ClassValue, Instance, Function, Partial, Remote))
            )
            if known:
                return known | UNKNOWN
        return frozenset({Unknown(node.arg)})

    @staticmethod
    def _default(node: ast.arg, arguments: ast.arguments) -> ast.expr | None:
        positional = [*arguments.posonlyargs, *arguments.args]
        for argument, default in zip(
            reversed(positional), reversed(arguments.defaults), strict=False
        ):
            if argument is node:
                return default
        for argument, keyword_default in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=False
        ):
            if argument is node:
                return keyword_default
        return None

    def _receiver(self, node: ast.arg, function: ast.AST, outer: Place) -> Values | None:
        """self or cls of a method."""
        if not outer.scope.is_class or first_parameter(function) != node.arg:
            return None
        owner = self.ev.link.owner_of(outer.scope)
        if owner is None:
            return None
        if isinstance(function, ast.Lambda):
            return frozenset({Instance(owner)}) if self._is_method(function, outer) else None
        if not isinstance(function, DEFS):
            return None
        decorators = {(path_of(d) or "").rpartition(".")[2] for d in function.decorator_list}
        if "staticmethod" in decorators:
            return None
        if "classmethod" in decorators or function.name in (
            "__new__",
            "__init_subclass__",
            "__class_getitem__",
        ):
            return frozenset({ClassValue(owner)})
        return frozenset({Instance(owner)})

    @staticmethod
    def _is_method(function: ast.Lambda, outer: Place) -> bool:
        """Whether a lambda in a class body is what a name there stands for, bare or as a property."""
        steps = [n for n, _ in outer.chain if n is not function]
        holder = steps[-1]
        if isinstance(holder, ast.Call) and path_of(holder.func) in (
            "property",
            "cached_property",
            "functools.cached_property",
        ):
            holder = steps[-2]
        return isinstance(holder, (ast.Assign, ast.AnnAssign))

    def _given(
        self,
        node: ast.arg,
        function: ast.AST,
        default: ast.expr | None,
        outer: Place,
        module: Module,
    ) -> Values | None:
        """What else is known: attached to a class, a pytest fixture, a mock from a patch decorator."""
        if first_parameter(function) == node.arg:
            attached = self.ev.link.attached(function, outer, module)
            if attached is not None:
                return attached
        if isinstance(function, ast.Lambda):
            element = self._element(node, function, outer)
            if element is not None:
                return element
        if isinstance(function, DEFS):
            mocked = self._mock_parameter(node, function, outer)
            if mocked is not None:
                return mocked
            fixture = self.ev.link.fixture(node.arg, function, module)
            if fixture is not None:
                return fixture
        missing = UNKNOWN if default is None else self.ev.evaluate(default, outer)
        return self.ev.callers.given(node, function, outer, missing)

    def _element(self, node: ast.arg, function: ast.Lambda, outer: Place) -> Values | None:
        """What a lambda is called with by sorted, min, max, map, filter or a list's sort."""
        steps = [n for n, _ in outer.chain if n is not function]
        keyword = steps.pop() if isinstance(steps[-1], ast.keyword) else None
        call, positional = steps[-1], function.args.args
        if not isinstance(call, ast.Call) or node not in positional:
            return None
        index, over = positional.index(node), call.args
        if isinstance(keyword, ast.keyword):
            if keyword.arg != "key" or index:
                return None
            if isinstance(call.func, ast.Attribute) and call.func.attr == "sort":
                over = [call.func.value]
            elif path_of(call.func) not in KEYED:
                return None
        elif path_of(call.func) in ("map", "filter") and over and over[0] is function:
            over = over[1:]
        else:
            return None
        if index >= len(over) or isinstance(over[index], ast.Starred):
            return None
        place = outer.scope.module.place(outer.chain[: [n for n, _ in outer.chain].index(call) + 1])
        values = self.ev.filling.filled(over[index], self.ev.evaluate(over[index], place), place)
        return elements(values)

    def _mock_parameter(
        self, node: ast.arg, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place
    ) -> Values | None:
        patches: list[Values] = []
        for decorator in reversed(function.decorator_list):
            if not isinstance(decorator, ast.Call):
                continue
            for value in self.ev.evaluate(decorator.func, outer):
                if isinstance(value, External) and self._is_patch(value.name):
                    how = value.name.rpartition("patch")[2]
                    found = self.patched_class(how, decorator, outer)
                    if found is not None:
                        patches.append(found)
                    elif how in ("", ".object"):
                        continue
        arguments = [a.arg for a in function.args.args]
        if outer.scope.is_class:
            arguments = arguments[1:]
        if node.arg in arguments and arguments.index(node.arg) < len(patches):
            return patches[arguments.index(node.arg)]
        return None


def _item(table: ast.expr | None, key: ast.expr | None) -> ast.expr | None:
    """What a literal dict, tuple or list has under a literal key."""
    if not isinstance(key, ast.Constant):
        return None
    if isinstance(table, ast.Dict):
        for name, value in zip(table.keys, table.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key.value:
                return value
    if isinstance(table, (ast.Tuple, ast.List)) and isinstance(key.value, int):
        if -len(table.elts) <= key.value < len(table.elts):
            return table.elts[key.value]
    return None
