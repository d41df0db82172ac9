"""An expression in its place -> everything it can be. Demand-driven, across the files of the project."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator

from actor_wg_codemod import renames, stack
from actor_wg_codemod.bindings import (
    COMPREHENSIONS,
    DEFS,
    END,
    Binding,
    Module,
    Place,
    Scope,
    path_of,
)
from actor_wg_codemod.callers import Callers
from actor_wg_codemod.calls import Calls
from actor_wg_codemod.decorating import Decorating
from actor_wg_codemod.filling import Filling
from actor_wg_codemod.flows import Flows
from actor_wg_codemod.forwarding import Forwarding
from actor_wg_codemod.kimi_keys import KimiKeys
from actor_wg_codemod.linking import Linker
from actor_wg_codemod.narrowing import narrow
from actor_wg_codemod.project import Project
from actor_wg_codemod.reaching import at_end, later, reaching
from actor_wg_codemod.replacing import Replacing
from actor_wg_codemod.resetting import Resetting
from actor_wg_codemod.source import SourceError, decode, parse
from actor_wg_codemod.values import (
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
)

STAR_IMPORT = re.compile(rb"\bimport\s*\*")
BUILTINS = frozenset(dir(builtins))
SHALLOW = 16
"""As many expressions inside one another leave the stack far from full."""
CONTAINER_METHODS = frozenset(
    {
        "values",
        "items",
        "get",
        "get_nowait",
        "pop",
        "copy",
        "setdefault",
        "popitem",
        "keys",
        "popleft",
    }
)
WRAPPED = frozenset(
    {
        "Optional",
        "Annotated",
        "ClassVar",
        "Final",
        "Awaitable",
        "Coroutine",
        "Required",
        "NotRequired",
    }
)
HOLDING = frozenset(
    [
        "list",
        "List",
        "set",
        "Set",
        "frozenset",
        "FrozenSet",
        "Iterable",
        "Iterator",
        "Sequence",
        "MutableSequence",
        "Collection",
        "deque",
        "Deque",
        "Generator",
        "AsyncIterator",
        "AsyncIterable",
        "AsyncGenerator",
        "Mapping",
        "MutableMapping",
        "dict",
        "Dict",
        "OrderedDict",
        "defaultdict",
        "DefaultDict",
        "Queue",
        "LifoQueue",
        "PriorityQueue",
        "SimpleQueue",
    ]
)
GIVING = frozenset(
    {"Future", "Task", "ContextVar", "ref", "ReferenceType", "ReadOnlyContextVar", "ObjectRef"}
)
ASKED = frozenset({"result", "get"})
"""Methods by which a giver is asked for what it holds."""
METHODS = frozenset(
    {
        "submit",
        "run_in_executor",
        "create_task",
        "run_until_complete",
        "enter_context",
        "enter_async_context",
    }
)
"""Methods of executors, event loops and exit stacks that give what becomes of their argument."""
MOCK_ASSERTIONS = frozenset(
    {
        "assert_called_with",
        "assert_called_once_with",
        "assert_any_call",
        "assert_has_calls",
        "assert_awaited_with",
        "assert_awaited_once_with",
        "assert_any_await",
    }
)
HANDLERS = ("asyncio.", "concurrent.futures.", "contextlib.")
UNTYPED = frozenset(
    {
        "typing.Any",
        "builtins.object",
        "builtins.type",
        "builtins.callable",
        "typing.Callable",
        "collections.abc.Callable",
    }
)
MAPPINGS = frozenset(
    ["Mapping", "MutableMapping", "dict", "Dict", "OrderedDict", "defaultdict", "DefaultDict"]
)


class Evaluator:
    """Knows what expressions can be. One for a whole project; remembers what it found out."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.names = project.vocabulary
        self.link = Linker(self)
        self.calls = Calls(self)
        self.callers = Callers(self)
        self.decorating = Decorating(self)
        self.filling = Filling(self)
        self.forwarding = Forwarding(self)
        self.flows = Flows(self)
        self.kimi = KimiKeys(self)
        self.replacing = Replacing(self)
        self.resetting = Resetting(self)
        self._modules: dict[str, Module | None] = {}
        self._memo: dict[int, Values] = {}
        self._exports: dict[tuple[str, str], Values | None] = {}
        self._active: set[object] = set()
        self._wanted: list[tuple[str, str]] = []
        """The parameter of each module `__getattr__` being looked into, and the name asked for."""
        self.words = tuple(self.names.table)

    # Modules

    def module(self, path: str) -> Module | None:
        """The parsed module of a project file; None where it cannot be read or parsed."""
        if path not in self._modules:
            self._modules[path] = self._load(path)
        return self._modules[path]

    def add(self, module: Module) -> None:
        """Takes a module that the caller has parsed already (flake8's tree, a notebook's cells)."""
        self._modules[module.path] = module

    def _load(self, path: str) -> Module | None:
        try:
            source = decode(self.project.read(path))
            tree = parse(source.text, path, words=self.words)
        except (SourceError, OSError):
            return None  # its own turn reports the reason
        return Module(path, source.text, tree)

    def import_module(self, name: str, importer: str) -> Values:
        """What `import name` (the module itself) means in a file."""
        path = self.project.modules.resolve(name, importer)
        if path is not None:
            return frozenset({ModuleValue(name, path)})
        return self.outside(name)

    def outside(self, name: str) -> Values:
        """Something outside the project by its qualified name; verl's own classes are known."""
        canonical = self.project.canonical(name)
        if canonical is None:
            return frozenset({External(name)})
        last = canonical.rpartition(".")[2]
        if last in renames.PUBLIC_CLASSES or last in renames.HOLDERS:
            return frozenset({ClassValue(self.link.verl_class(last))})
        return frozenset({External(canonical)})

    def by_name(self, dotted: str, importer: str) -> Values:
        """What a fully qualified name in a string means."""
        module, _, last = dotted.replace(":", ".").rpartition(".")
        if not module:
            return UNKNOWN
        owners = self.import_module(module, importer)
        outside = all(isinstance(v, External) for v in owners)
        if outside and self.project.modules.resolve(module.partition(".")[0], importer) is not None:
            within = self.by_name(module, importer)  # a class, or another object, on the way to it
            owners = frozenset(v for v in within if not isinstance(v, Unknown)) or owners
        return frozenset(v for owner in owners for v in self.member(owner, last))

    def export(self, path: str, name: str) -> Values | None:
        """What a module of the project has under a name; None where it has no such name."""
        key = (path, name)
        if key in self._exports:
            return self._exports[key]
        if key in self._active:
            return None
        self._active.add(key)
        try:
            found = self._export(path, name)
        finally:
            self._active.discard(key)
        self._exports[key] = found
        return found

    def _export(self, path: str, name: str) -> Values | None:
        if path.endswith("/") or path == "":
            return self._submodule(path, name)
        module = self.module(path)
        if module is None:
            return self._verl_fallback(path, name)
        scope = module.scope
        bindings = self._with_stars(module, name)
        if bindings:
            reached = at_end(bindings, END) or bindings
            values = self._union(self.bound(b) for b in reached)
            return (
                self._verl_fallback(path, name) if self._stands_in(path, name, values) else values
            )
        if path.endswith(("__init__.py", "__init__.pyi")):
            found = self._submodule(path.rpartition("/")[0] + "/" if "/" in path else "", name)
            if found is not None:
                return found
        if module.bindings(scope, "__getattr__"):
            found = self._lazy(module, name)
            if found is not None:
                return found
        return self._verl_fallback(path, name)

    def _stands_in(self, path: str, name: str, values: Values) -> bool:
        """Whether a file at verl's place gives another project's class under a public name of verl's."""
        within = self.project.verl_name(path)
        if (
            within is None
            or name not in renames.PUBLIC_CLASSES
            or renames.ENGINE_PACKAGE not in within
        ):
            return False
        return not any(isinstance(v, ClassValue) and v.info.verl for v in values)

    def _verl_fallback(self, path: str, name: str) -> Values | None:
        if self.project.verl_name(path) and name in renames.PUBLIC_CLASSES:
            return frozenset({ClassValue(self.link.verl_class(name))})
        return None

    def _submodule(self, folder: str, name: str) -> Values | None:
        found = self.project.modules.relative(folder + "x.py", 1, name)
        return None if found is None else frozenset({ModuleValue(name, found)})

    def _lazy(self, module: Module, name: str) -> Values | None:
        """A module `__getattr__(name)`: what it returns where its tests let this name through."""
        getter = module.bindings(module.scope, "__getattr__")[-1].node
        if not isinstance(getter, DEFS) or not getter.args.args:
            return None
        parameter = getter.args.args[0].arg
        body = module.place((*module.chain_to(getter), (getter, "body")), inside=True).scope
        if any(b.kind != "param" for b in module.bindings(body, parameter)):
            return frozenset({Unknown(name)})  # it looks for another name than it is asked for
        found: set[Value] = set()
        spelled = f'"{name}"' in module.text or f"'{name}'" in module.text
        self._wanted.append((parameter, name))
        memo, self._memo = self._memo, {}
        try:
            for value, place in self.returns(module, getter):
                tests = [
                    c.test for c, arm in place.frames if isinstance(c, ast.If) and arm == "body"
                ]
                named = {
                    n.value
                    for t in tests
                    for n in ast.walk(t)
                    if isinstance(n, ast.Constant) and isinstance(n.value, str)
                }
                if name in named if named else spelled:
                    found |= self.evaluate(value, place)
        finally:
            self._memo = memo
            self._wanted.pop()
        return frozenset(found) or None

    def _with_stars(self, module: Module, name: str) -> list[Binding]:
        bindings = module.bindings(module.scope, name)
        stars = [
            Binding("star", name, node, place)
            for node, place in module.star_imports
            if place.scope is module.scope and self._brings(module, node, name)
        ]
        return sorted([*bindings, *stars], key=lambda b: b.place.order) if stars else bindings

    def _star(self, module: Module, node: ast.ImportFrom, name: str) -> Values | None:
        """What `from m import *` brings under a name, if it brings it."""
        if not self._brings(module, node, name):
            return None
        path = self._import_path(module, node)
        if path is None:
            return self.outside(f"{self.project.canonical(node.module or '')}.{name}")
        return self.export(path, name)

    def _brings(self, module: Module, node: ast.ImportFrom, name: str) -> bool:
        """Whether `from m import *` brings a name, through however many more star imports."""
        queue, seen = [(module, node)], {module.path}
        while queue:
            importer, statement = queue.pop()
            path = self._import_path(importer, statement)
            if path is None:
                known = self.project.canonical(statement.module or "")
                if known and name in renames.PUBLIC_CLASSES and renames.ENGINE_PACKAGE in known:
                    return True
                continue
            fresh = path not in seen and not path.endswith("/")
            target = self.module(path) if fresh and self._may_bring(path, name) else None
            seen.add(path)
            if target is None or not self._gives_away(target, name):
                continue
            if target.bindings(target.scope, name):
                return True
            queue += [(target, n) for n, p in target.star_imports if p.scope is target.scope]
        return False

    def _may_bring(self, path: str, name: str) -> bool:
        """Whether a file says a name or imports all of another; asked before it is parsed."""
        try:
            data = self.project.read(path)
        except OSError:
            return False
        return name.encode() in data or STAR_IMPORT.search(data) is not None

    def _gives_away(self, module: Module, name: str) -> bool:
        """Whether a star import of the module takes a name along, if the module has it."""
        public = self._public(module)
        return name in public if public is not None else not name.startswith("_")

    def _public(self, module: Module) -> set[str] | None:
        """The names in `__all__`, literal or added to; None where there is none."""
        bindings = module.bindings(module.scope, "__all__")
        if not bindings:
            return None
        found: set[str] = set()
        for binding in bindings:
            for node in ast.walk(binding.value) if binding.value else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
        return found

    def _import_path(self, module: Module, node: ast.ImportFrom) -> str | None:
        if node.level:
            return self.project.modules.relative(module.path, node.level, node.module or "")
        return self.project.modules.resolve(node.module or "", module.path)

    # Names

    def _union(self, parts: Iterable[Values]) -> Values:
        found: set[Value] = set()
        for part in parts:
            found |= part
        return frozenset(found)

    def name(self, name: str, place: Place) -> Values:
        """What a name can be where it is used."""
        module = place.scope.module
        home = module.resolve(place.scope, name)
        if home is None or home is module.scope:
            bindings = self._with_stars(module, name)
            home = module.scope
        else:
            bindings = module.bindings(home, name)
        if not bindings:
            if name in BUILTINS:
                return frozenset({External(f"builtins.{name}")})
            return frozenset({Unknown(name)})
        direct: list[Binding] = []
        foreign: list[Binding] = []
        for binding in bindings:
            (direct if self._lives(binding, home) else foreign).append(binding)
        use, deferred = self._use_in(home, place)
        if deferred:
            reached = at_end(direct, END) if home is module.scope else later(direct, use)
        else:
            reached = reaching(direct, use)
        here = [b for b in foreign if b.place.scope is place.scope]
        near = reaching(here, place) if here else []
        if near and not near[-1].place.frames:
            reached = near
        else:
            reached = [*reached, *foreign]
        if not reached:
            return frozenset({Unknown(name)})
        return self._union(self.bound(b) for b in reached)

    def _lives(self, binding: Binding, home: Scope) -> bool:
        scope: Scope | None = binding.place.scope
        while scope is not None and scope is not home and isinstance(scope.node, COMPREHENSIONS):
            scope = scope.parent
        return scope is home

    def _use_in(self, home: Scope, place: Place) -> tuple[Place, bool]:
        """The place in an outer scope from which a nested use looks, and whether it looks later."""
        deferred = False
        while place.scope is not home and place.scope.parent is not None:
            deferred = deferred or place.scope.is_function
            place = place.scope.module.place(place.scope.chain)
        return place, deferred

    def bound(self, binding: Binding) -> Values:
        """What a binding gives its name."""
        key = ("binding", id(binding.node), binding.name)
        if key in self._active:
            return UNKNOWN
        self._active.add(key)
        try:
            if len(self._active) > SHALLOW and stack.nearly_full():
                return stack.on_a_fresh_one(self._bound, binding)
            return self._bound(binding)
        finally:
            self._active.discard(key)

    def _bound(self, binding: Binding) -> Values:
        place, node = binding.place, binding.node
        module = place.scope.module
        if binding.kind == "import":
            return self._imported(module, binding)
        if binding.kind == "star" and isinstance(node, ast.ImportFrom):
            return self._star(module, node, binding.name) or UNKNOWN
        if binding.kind == "class" and isinstance(node, ast.ClassDef):
            return self.decorating.decorated(
                ClassValue(self.link.project_class(module, node, place)), node, place
            )
        if binding.kind == "def" and isinstance(node, DEFS):
            owner = self.link.owner_of(place.scope)
            return self.decorating.decorated(Function(module, node, place, owner), node, place)
        if binding.kind == "param" and isinstance(node, ast.arg):
            return self.calls.parameter(node, place)
        if binding.kind == "handler" and isinstance(node, ast.ExceptHandler):
            caught = self.evaluate(node.type, place) if node.type is not None else UNKNOWN
            several = frozenset(v for v in caught if isinstance(v, (Tuple, Container)))
            return self.instances((caught - several) | (elements(several) if several else several))
        if binding.kind == "capture" and isinstance(node, ast.MatchAs):
            return self._captured(node, place)
        if binding.kind == "annotated" and isinstance(binding.statement, ast.AnnAssign):
            declared = self.annotation(binding.statement.annotation, place)
            if binding.value is None or any(
                not isinstance(v, (Unknown, Other, Foreign)) for v in declared
            ):
                return declared
            return self.evaluate(binding.value, place)
        if binding.value is None:
            return UNKNOWN
        if binding.kind == "each":
            values = elements(
                self.filling.filled(binding.value, self.evaluate(binding.value, place), place)
            )
        elif binding.kind == "enter":
            values = self.calls.entered(binding.value, place)
        elif binding.kind == "value":
            values = self.evaluate(binding.value, place)
        else:
            return UNKNOWN
        for index in binding.unpack:
            values = self._pick(values, index)
        return values

    def _imported(self, module: Module, binding: Binding) -> Values:
        alias, statement = binding.node, binding.statement
        if not isinstance(alias, ast.alias):
            return UNKNOWN
        if isinstance(statement, ast.Import):
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            return self.import_module(name, module.path)
        if not isinstance(statement, ast.ImportFrom):
            return UNKNOWN
        path = self._import_path(module, statement)
        if path is not None:
            found = self.export(path, alias.name)
            if found is None and not path.endswith("/") and path.endswith("__init__.py"):
                found = self._submodule(path.removesuffix("__init__.py"), alias.name)
            if found is not None:
                return found
        if statement.level:
            return frozenset({Unknown(alias.name)})
        if path is not None and not self.project.canonical(statement.module or ""):
            return frozenset({Unknown(alias.name)})
        return self.outside(f"{statement.module}.{alias.name}")

    def _captured(self, node: ast.MatchAs, place: Place) -> Values:
        pattern = node.pattern
        if isinstance(pattern, ast.MatchClass):
            return self.instances(self.evaluate(pattern.cls, place))
        for holder, _ in reversed(place.chain):
            if isinstance(
                holder, ast.MatchClass | ast.MatchSequence | ast.MatchMapping | ast.MatchOr
            ):
                return UNKNOWN
            if isinstance(holder, ast.Match):
                return self.evaluate(holder.subject, place)
        return UNKNOWN

    def _pick(self, values: Values, index: int) -> Values:
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Tuple) and -1 < index < len(value.items):
                found |= value.items[index]
            elif isinstance(value, Tuple) and index == -1:
                found.add(Container(self._union(value.items)))
            elif isinstance(value, Container):
                found |= elements(frozenset({value})) if index != -1 else {value}
            elif isinstance(value, Instance):
                found |= self.link.field(value.info, index)
            elif isinstance(value, Other):
                found.add(value)
        return frozenset(found) or UNKNOWN

    def definitions(self, node: ast.expr, place: Place) -> Iterator[tuple[ast.expr, Place]]:
        """The expressions that a name (or an attribute of a module) was assigned, also in other files."""
        module = place.scope.module
        if isinstance(node, ast.Name):
            home = module.resolve(place.scope, node.id)
            for binding in module.bindings(home, node.id) if home is not None else ():
                yield from self._defined(module, binding, 0)
        elif isinstance(node, ast.Attribute):
            for value in self.evaluate(node.value, place):
                if isinstance(value, ModuleValue) and value.path:
                    yield from self._exported(value.path, node.attr, 0)

    def _defined(
        self, module: Module, binding: Binding, depth: int
    ) -> Iterator[tuple[ast.expr, Place]]:
        if (
            binding.kind in ("value", "annotated")
            and binding.value is not None
            and not binding.unpack
        ):
            yield binding.value, binding.place
        elif binding.kind == "import" and isinstance(binding.statement, ast.ImportFrom):
            alias, path = binding.node, self._import_path(module, binding.statement)
            if path and isinstance(alias, ast.alias):
                yield from self._exported(path, alias.name, depth + 1)

    def _exported(self, path: str, name: str, depth: int) -> Iterator[tuple[ast.expr, Place]]:
        other = self.module(path) if not path.endswith("/") and depth < 8 else None
        if other is not None:
            for binding in at_end(other.bindings(other.scope, name), END):
                yield from self._defined(other, binding, depth)

    # Expressions

    def evaluate(self, node: ast.expr, place: Place) -> Values:
        """Everything that an expression can be at a place."""
        found = self._memo.get(id(node))
        if found is not None:
            return found
        key = id(node)
        if key in self._active:
            return UNKNOWN
        self._active.add(key)
        try:
            if len(self._active) > SHALLOW and stack.nearly_full():
                found = stack.on_a_fresh_one(self._evaluate, node, place)
            else:
                found = self._evaluate(node, place)
        finally:
            self._active.discard(key)
        self._memo[key] = found
        return found

    def _evaluate(self, node: ast.expr, place: Place) -> Values:
        if isinstance(node, ast.Name):
            found = narrow(self, node, self.name(node.id, place), place)
            return self.replacing.replaced(node, found, place)
        if isinstance(node, ast.Attribute):
            found = narrow(self, node, self._attribute(node, place), place)
            return self.replacing.replaced(node, found, place)
        if isinstance(node, ast.Call):
            return self.calls.result(node, place)
        if isinstance(node, ast.Constant):
            return NOTHING if node.value is None else OTHER
        if isinstance(node, ast.Await):
            return given(self.evaluate(node.value, place))
        if isinstance(node, ast.IfExp):
            return self.evaluate(node.body, place) | self.evaluate(node.orelse, place)
        if isinstance(node, ast.BoolOp):
            return self._union(self.evaluate(v, place) for v in node.values)
        if isinstance(node, ast.NamedExpr):
            return self.evaluate(node.value, place)
        if isinstance(node, ast.Lambda):
            return frozenset({Function(place.scope.module, node, place)})
        if isinstance(node, ast.Subscript):
            return self._subscript(node, place)
        return self._display(node, place)

    def _display(self, node: ast.expr, place: Place) -> Values:
        if isinstance(node, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in node.elts):
            return frozenset({Tuple(tuple(self.evaluate(e, place) for e in node.elts))})
        if isinstance(node, (ast.List, ast.Set, ast.Tuple)):
            parts = (
                elements(self.evaluate(e.value, place))
                if isinstance(e, ast.Starred)
                else self.evaluate(e, place)
                for e in node.elts
            )
            return frozenset({Container(self._union(parts))})
        if isinstance(node, ast.Dict):
            parts = (
                held(self.evaluate(v, place)) if k is None else self.evaluate(v, place)
                for k, v in zip(node.keys, node.values, strict=False)
            )
            return frozenset({Container(self._union(parts), mapping=True)})
        if isinstance(node, COMPREHENSIONS):
            chain = (*place.chain, (node, "value"))
            inner = place.scope.module.place(chain, inside=True)
            inside = Place(inner.scope, place.order, inner.frames, chain)
            element = node.value if isinstance(node, ast.DictComp) else node.elt
            items = self.evaluate(element, inside)
            return frozenset({Container(items, mapping=isinstance(node, ast.DictComp))})
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.Add):
            return self.evaluate(node.left, place) | self.evaluate(node.right, place)
        if isinstance(node, ast.Starred):
            return self.evaluate(node.value, place)
        return OTHER

    def _subscript(self, node: ast.Subscript, place: Place) -> Values:
        path = path_of(node)
        if path is not None:
            stored = self._stored(path, node, place)
            if stored is not None:
                return stored
        values = self.filling.filled(node.value, self.evaluate(node.value, place), place)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.USub):
            operand = node.slice.operand
            index = (
                -operand.value
                if isinstance(operand, ast.Constant) and isinstance(operand.value, int)
                else None
            )
        key = None if isinstance(node.slice, ast.Slice) else self.calls.text(node.slice, place)
        found: set[Value] = set()
        for value in values:
            if key is not None and self._is_modules(value):
                found |= self.import_module(key, place.scope.module.path)
            elif key is not None and isinstance(value, Library) and value.name == "module.dict":
                found |= self.member(value.receiver or Unknown(), key)
            elif key is not None and isinstance(value, Instance):
                found |= self.link.key(value.info, key)
            elif (
                isinstance(value, Tuple)
                and isinstance(index, int)
                and -len(value.items) <= index < len(value.items)
            ):
                found |= value.items[index]
            elif isinstance(value, Mock) and value.aspect == "call" and index == 1:
                found.add(Mock(value.info, "arguments"))
            elif isinstance(value, Container) and isinstance(node.slice, ast.Slice):
                found.add(value)
            elif isinstance(value, (ClassValue, External)) and not isinstance(
                node.slice, ast.Slice
            ):
                found.add(value)  # a generic class with its parameters
            elif isinstance(value, (Container, Tuple)):
                found |= held(frozenset({value}))
            elif isinstance(value, Other):
                found.add(value)
        return frozenset(found) or UNKNOWN

    @staticmethod
    def _is_modules(value: Value) -> bool:
        return isinstance(value, External) and value.name == "sys.modules"

    # Attributes

    def _attribute(self, node: ast.Attribute, place: Place) -> Values:
        path = path_of(node)
        if path is not None:
            stored = self._stored(path, node, place)
            if stored is not None:
                return stored
        found: set[Value] = set()
        for value in self.evaluate(node.value, place) - NOTHING:
            found |= self.member(value, node.attr)
        return frozenset(found) or UNKNOWN

    def _stored(self, path: str, node: ast.expr, place: Place) -> Values | None:
        """What was assigned to the same dotted path earlier in the same scope, where that is certain."""
        module = place.scope.module
        word = (
            node.attr
            if isinstance(node, ast.Attribute)
            else path.partition(".")[0].partition("[")[0]
        )
        bindings = []
        for chain in module.carriers(word):
            target = chain[-1][0]
            if isinstance(node, ast.Subscript):
                target = next(
                    (n for n, _ in reversed(chain) if isinstance(n, ast.Subscript)), target
                )
            if not isinstance(getattr(target, "ctx", None), ast.Store) or path_of(target) != path:
                continue
            if isinstance(node, ast.Subscript):
                chain = chain[: [n for n, _ in chain].index(target) + 1]
            binding = module.store(chain, path)
            if binding.place.scope is place.scope and not isinstance(
                getattr(binding.statement, "target", None), ast.Subscript
            ):
                bindings.append(binding)
        if not bindings:
            return None
        bindings.sort(key=lambda b: b.place.order)
        reached = reaching(bindings, place)
        sure = [b for b in reached if place.frames[: len(b.place.frames)] == b.place.frames]
        rebound = module.bindings(place.scope, path.partition(".")[0].partition("[")[0])
        if not sure or any(sure[-1].place.order < b.place.order <= place.order for b in rebound):
            return None
        values = self._union(self.bound(b) for b in reached)
        if all(isinstance(v, Nothing | Unknown) for v in values):
            return None
        return values

    def member(self, value: Value, name: str) -> Values:
        """What `value.name` can be."""
        if isinstance(value, (ModuleValue, External)) and name == "__dict__":
            return frozenset({Library("module.dict", value)})
        if isinstance(value, ModuleValue):
            found = self.export(value.path or "", name) if value.path is not None else None
            if found is not None:
                return found
            outside = self.project.canonical(value.name)
            return self.outside(f"{outside}.{name}") if outside else frozenset({Unknown(name)})
        if isinstance(value, External):
            return self.outside(f"{value.name}.{name}")
        if isinstance(value, (ClassValue, Instance)):
            return self.link.attribute(value, name)
        if isinstance(value, Super):
            return self.link.super_attribute(value, name)
        if isinstance(value, Remote):
            return self._remote(value, name)
        if isinstance(value, Mock):
            return self._mock(value, name)
        if isinstance(value, Giver) and name in ASKED:
            return frozenset({value})
        if isinstance(value, Foreign) and name in METHODS and value.name.startswith(HANDLERS):
            return frozenset({Library(f"method.{name}", value)})
        if isinstance(value, Container) and name in CONTAINER_METHODS:
            return frozenset({Library(f"container.{name}", value)})
        if isinstance(value, Partial) and name == "func":
            return frozenset({value.target})
        if isinstance(value, Unknown) and value.hint.endswith("mocker"):
            return frozenset({External(f"unittest.mock.{name}")})
        if isinstance(value, Other):
            return OTHER
        return frozenset({Unknown(name)})

    def _remote(self, value: Remote, name: str) -> Values:
        if name == "remote":
            target = value.target
            if isinstance(target, ClassValue):
                return frozenset({Constructor(target.info, proven=target.proven)})
            return frozenset({target})
        if name == "options":
            return frozenset({Library("ray.options", value)})
        if name in ("__ray_actor_class__", "__ray_metadata__"):
            return frozenset({value.target})
        return frozenset({Unknown(name)})

    def _mock(self, value: Mock, name: str) -> Values:
        if value.aspect == "class":
            if name == "call_args":
                return frozenset({Mock(value.info, "call")})
            if name in MOCK_ASSERTIONS:
                return frozenset({Mock(value.info, "assertion")})
            if name in ("call_args_list", "mock_calls"):
                return frozenset({Container(frozenset({Mock(value.info, "call")}))})
            if name == "return_value":
                return frozenset({Instance(value.info)})
            if name == "start":
                return frozenset({Library("mock.start", value)})
        if value.aspect == "call" and name == "kwargs":
            return frozenset({Mock(value.info, "arguments")})
        return OTHER

    def likely_method(self, name: str) -> bool:
        """Whether a method of an unknown object is the library's of that name, by its name."""
        return name in METHODS and not self.project.mentions(f"def {name}")

    # Annotations

    def instances(self, values: Values) -> Values:
        """Objects of the classes among the values."""
        found: set[Value] = set()
        for value in values:
            if isinstance(value, ClassValue):
                found.add(Instance(value.info, value.proven))
            elif isinstance(value, External) and value.name in UNTYPED:
                found.add(Unknown())
            elif isinstance(value, External):
                found.add(
                    Foreign(value.name)
                    if value.looks_like_class or value.name.startswith("builtins.")
                    else Unknown()
                )
            elif isinstance(value, Nothing):
                found.add(value)
        return frozenset(found) or UNKNOWN

    def annotation(self, node: ast.expr, place: Place) -> Values:
        """The objects that an annotation allows."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                try:
                    parsed = ast.parse(node.value.strip(), mode="eval").body
                except (SyntaxError, ValueError):
                    return UNKNOWN
                self._kept_alive.append(parsed)
                return self.annotation(parsed, place)
            return NOTHING if node.value is None else UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.annotation(node.left, place) | self.annotation(node.right, place)
        if isinstance(node, ast.Subscript):
            return self._generic(node, place)
        alias = self._alias(node, place)
        if alias is not None:
            return alias
        return self.instances(self.evaluate(node, place))

    _kept_alive: list[ast.AST] = []  # noqa: RUF012 - parsed annotations must outlive the memo's ids

    def _alias(self, node: ast.expr, place: Place) -> Values | None:
        """A name for a type: `Managers = list[Manager]`, a TypeVar with a bound, Self, NewType."""
        if not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute) and node.attr == "Self":
                return self._self_type(place)
            return None
        if node.id == "Self":
            return self._self_type(place)
        bound = self._type_parameter(node.id, place)
        if bound is not None:
            return bound
        home = place.scope.module.resolve(place.scope, node.id)
        if home is None:
            return None
        for value, where in self.definitions(node, place):
            key = ("alias", id(value))
            if key in self._active:
                continue
            self._active.add(key)
            try:
                if isinstance(value, (ast.Subscript, ast.BinOp)) or (
                    isinstance(value, ast.Constant) and isinstance(value.value, str)
                ):
                    return self.annotation(value, where)
                if isinstance(value, ast.Call):
                    called = (path_of(value.func) or "").rpartition(".")[2]
                    if called == "TypeVar":
                        bounds = [
                            k.value for k in value.keywords if k.arg == "bound"
                        ] or value.args[1:]
                        return self._union(self.annotation(b, where) for b in bounds) or UNKNOWN
                    if called == "NewType" and len(value.args) == 2:
                        return self.annotation(value.args[1], where)
            finally:
                self._active.discard(key)
        return None

    def _type_parameter(self, name: str, place: Place) -> Values | None:
        """The bound of a type parameter of the functions and classes around: `def f[T: Manager](...)`."""
        for holder, _ in reversed(place.chain):
            for parameter in getattr(holder, "type_params", ()):
                if parameter.name == name:
                    bound = getattr(parameter, "bound", None)
                    return UNKNOWN if bound is None else self.annotation(bound, place)
        return None

    def _self_type(self, place: Place) -> Values:
        scope: Scope | None = place.scope
        while scope is not None and not scope.is_class:
            scope = scope.parent
        owner = self.link.owner_of(scope) if scope is not None else None
        return frozenset({Instance(owner)}) if owner else UNKNOWN

    def _generic(self, node: ast.Subscript, place: Place) -> Values:
        head = (path_of(node.value) or "").rpartition(".")[2]
        inner = node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if head == "Union":
            return self._union(self.annotation(p, place) for p in parts)
        if head in WRAPPED:
            index = -1 if head == "Coroutine" else 0
            return self.annotation(parts[index], place)
        if head in ("type", "Type"):
            found = self.annotation(parts[0], place)
            return frozenset(
                ClassValue(v.info, v.proven) if isinstance(v, Instance) else Unknown()
                for v in found
            )
        if head in ("tuple", "Tuple"):
            if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
                return frozenset({Container(self.annotation(parts[0], place), declared=True)})
            return frozenset({Tuple(tuple(self.annotation(p, place) for p in parts))})
        if head in HOLDING:
            index = -1 if head in MAPPINGS else 0
            items = self.annotation(parts[index], place)
            return frozenset({Container(items, mapping=head in MAPPINGS, declared=True)})
        if head == "Callable" and len(parts) == 2:
            return frozenset({Giver(self.annotation(parts[1], place))})
        if head in GIVING:
            return frozenset({Giver(self.annotation(parts[0], place))})
        return self.annotation(node.value, place)

    # Functions

    def returns(
        self, module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef, word: str = "return"
    ) -> list[tuple[ast.expr, Place]]:
        """The expressions that a function returns (or yields), with their places."""
        return module.given_back(node, word)

    def function_result(self, function: Function) -> Values:
        """What calling a function of the project gives."""
        key = ("result", id(function.node))
        if key in self._active:
            return UNKNOWN
        self._active.add(key)
        try:
            return self._function_result(function)
        finally:
            self._active.discard(key)

    def _yielded(self, node: ast.expr, place: Place) -> Values:
        """What a `yield` or a `yield from` gives for each turn."""
        values = self.evaluate(node, place)
        return elements(values) if isinstance(place.chain[-1][0], ast.YieldFrom) else values

    def _function_result(self, function: Function) -> Values:
        node, module = function.node, function.module
        if isinstance(node, ast.Lambda):
            inner = module.place((*function.place.chain, (node, "value")), inside=True)
            return self.evaluate(node.body, inner)
        if node.returns is not None:
            declared = self.annotation(node.returns, function.place)
            if any(not isinstance(v, (Unknown, Nothing)) for v in declared):
                return declared
        yields = self.returns(module, node, "yield")
        if yields:
            return frozenset({Container(self._union(self._yielded(v, p) for v, p in yields))})
        found = self._union(self.evaluate(v, p) for v, p in self.returns(module, node))
        return found or NOTHING
