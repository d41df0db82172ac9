"""Across modules: which classes are managers and engines, what their members are, who becomes a method."""

from __future__ import annotations

import ast
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actor_wg_codemod import fields, renames, stack
from actor_wg_codemod.bindings import (
    DEFS,
    END,
    Binding,
    Chain,
    Module,
    Place,
    Scope,
    first_parameter,
    path_of,
)
from actor_wg_codemod.filling import with_added
from actor_wg_codemod.reaching import at_end
from actor_wg_codemod.replacing import put_by
from actor_wg_codemod.values import (
    NOTHING,
    UNKNOWN,
    ClassValue,
    Constructor,
    External,
    Foreign,
    Function,
    Group,
    Instance,
    Library,
    Nothing,
    Super,
    Unknown,
    Value,
    Values,
)

if TYPE_CHECKING:
    from actor_wg_codemod.evaluate import Evaluator

OWN_ATTACH = frozenset(
    {"unittest", "mock", "pytest", "ray", "functools", "typing", "dataclasses", "builtins"}
)

TYPED_DICTS = frozenset({"typing.TypedDict", "typing_extensions.TypedDict"})


@dataclass(eq=False)
class ClassInfo:
    """A class of the project, or one of verl's own that is not in the tree (`node` is None)."""

    name: str
    node: ast.ClassDef | None = None
    place: Place | None = None
    scope: Scope | None = None
    verl: str = ""
    """verl's public name for it, where it is one of verl's own classes."""
    _roles: Roles | None = None
    _bases: list[Values] | None = None
    _mro: list[ClassInfo] | None = None
    _busy: bool = False
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def module(self) -> Module | None:
        return self.scope.module if self.scope is not None else None


@dataclass(frozen=True)
class Roles:
    """What a class is for the rename. `proven` is False where only its shape says so."""

    manager: bool = False
    engine: bool = False
    kimi: bool = False
    registry: bool = False
    proven: bool = True
    named: bool = False
    """A manager because a `checkpoint_manager_class` setting names it."""
    open: bool = False
    """A base class could not be resolved."""


class Linker:
    """The evaluator's part that knows classes."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self._verl: dict[str, ClassInfo] = {}
        self._classes: dict[int, ClassInfo] = {}
        self._descendant: dict[tuple[int, str], bool] = {}
        self._attached: dict[int, Values | None] = {}
        self._named: frozenset[int] | None = None
        self._based: dict[tuple[Module, str], list[Chain]] = {}

    # Classes

    def verl_class(self, name: str) -> ClassInfo:
        """verl's own class from outside the tree."""
        if name not in self._verl:
            self._verl[name] = ClassInfo(name, verl=name)
        return self._verl[name]

    def project_class(self, module: Module, node: ast.ClassDef, place: Place) -> ClassInfo:
        """The class that a definition in the project makes."""
        found = self._classes.get(id(node))
        if found is None:
            chain = place.chain
            if chain[-1][0] is not node:
                chain = module.chain_to(node)
            scope = module.scope_for(node, place.scope, chain)
            found = ClassInfo(
                node.name, node, place, scope, self._verl_identity(module, node, place)
            )
            self._classes[id(node)] = found
        return found

    def _verl_identity(self, module: Module, node: ast.ClassDef, place: Place) -> str:
        if place.scope is not module.scope:
            return ""
        within = self.ev.project.verl_name(module.path)
        if within is None:
            return ""
        if node.name in renames.PUBLIC_CLASSES and f".{renames.ENGINE_PACKAGE}" in within:
            return node.name
        return ""

    def owner_of(self, scope: Scope | None) -> ClassInfo | None:
        """The class whose body a scope is."""
        if scope is None or not isinstance(scope.node, ast.ClassDef):
            return None
        place = scope.module.place(scope.chain)
        return self.project_class(scope.module, scope.node, place)

    def bases(self, info: ClassInfo) -> list[Values]:
        """What each base class expression can be."""
        if info.node is None or info.place is None:
            return []
        if info._bases is None:
            if info._busy:
                return []
            info._busy = True
            try:
                info._bases = [self.ev.evaluate(b, info.place) for b in info.node.bases]
            finally:
                info._busy = False
        return info._bases

    def mro(self, info: ClassInfo) -> list[ClassInfo]:
        """The class and its bases, nearest first."""
        if info._mro is not None:
            return info._mro
        found: dict[ClassInfo, bool] = {}
        queue = deque([info])
        while queue:
            current = queue.popleft()
            if current in found:
                continue
            parents = [v.info for b in self.bases(current) for v in b if isinstance(v, ClassValue)]
            found[current] = current.node is None or current._bases is not None
            queue.extend(parents)
        if all(found.values()):
            info._mro = list(found)
        return list(found)

    # Roles

    def roles(self, info: ClassInfo) -> Roles:
        """What a class is for the rename, by its own name and everything it inherits from."""
        if info._roles is None:
            # the farthest bases first, so that no depth of inheritance is too deep
            for current in reversed(self.mro(info)):
                if current._roles is None:
                    current._roles = Roles()  # against cycles
                    current._roles = self._find_roles(current)
        return info._roles or Roles()

    def _find_roles(self, info: ClassInfo) -> Roles:
        manager, engine = info.verl == renames.MANAGER, info.verl in renames.ENGINES
        kimi, registry = info.verl == renames.KIMI, info.verl == renames.REGISTRY
        named = id(info.node) in self.named_classes() if info.node is not None else False
        unproven_manager = unproven_engine = is_open = False
        for values in self.bases(info):
            for value in values:
                if isinstance(value, ClassValue):
                    base = self.roles(value.info)
                    manager |= base.manager and base.proven
                    engine |= base.engine and base.proven
                    unproven_manager |= base.manager and not base.proven
                    unproven_engine |= base.engine and not base.proven
                    kimi |= base.kimi
                    registry |= base.registry
                    is_open |= base.open
                    named |= base.named
                elif self._unresolved(value):
                    is_open = True
                    hint = value.name if isinstance(value, External) else getattr(value, "hint", "")
                    unproven_manager |= hint.endswith(renames.MANAGER) and (
                        not isinstance(value, External) or renames.ENGINE_PACKAGE in hint
                    )
                    unproven_engine |= self._engine_hint(value, hint)
        manager |= named
        if not engine and info.node is not None:
            engine = self.registered(info)
        if manager or engine:
            return Roles(manager, engine, kimi, registry, True, named, is_open)
        if not unproven_manager:
            unproven_manager = self._duck(info)
        proven = not (unproven_manager or unproven_engine)
        return Roles(unproven_manager, unproven_engine, False, registry, proven, False, is_open)

    def _engine_hint(self, value: Value, hint: str) -> bool:
        if isinstance(value, Unknown) and not hint:
            return True
        return renames.ENGINE_PACKAGE in hint.lower() or renames.ENGINE.lower() in hint.lower()

    def _unresolved(self, value: Value) -> bool:
        if isinstance(value, Unknown):
            return True
        if not isinstance(value, External):
            return False
        top = value.name.partition(".")[0]
        return top not in sys.stdlib_module_names and top not in (
            "builtins",
            renames.VERL,
            "ray",
            "torch",
            "pydantic",
        )

    def _duck(self, info: ClassInfo) -> bool:
        """An own class of the manager's exact shape whose name says that it stands in for it."""
        if info.node is None or not info.name.endswith(renames.MANAGER) or info.verl:
            return False
        init = self.own_method(info, "__init__")
        if init is None or not isinstance(init.node, DEFS):
            return False
        arguments = init.node.args
        positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
        optional = len(arguments.defaults)
        required = positional[: len(positional) - optional] if optional else positional
        names = positional + [a.arg for a in arguments.kwonlyargs]
        wanted = self.ev.names.manager_parameters
        fitting = all(n in names for n in wanted) and all(n in wanted for n in required)
        return fitting and (
            not positional or tuple(positional[:3]) == wanted[: len(positional[:3])]
        )

    def named_classes(self) -> frozenset[int]:
        """ids of the class definitions that a `checkpoint_manager_class` setting names."""
        if self._named is None:
            self._named = frozenset()
            found = set()
            for dotted in self.ev.project.manager_class_names | self._named_in_python():
                for value in self.ev.by_name(dotted, "x.py"):
                    if isinstance(value, ClassValue) and value.info.node is not None:
                        found.add(id(value.info.node))
            self._named = frozenset(found)
            for info in self._classes.values():
                info._roles = None
        return self._named

    def _named_in_python(self) -> frozenset[str]:
        setting = renames.MANAGER_CLASS_SETTING
        found: set[str] = set()
        for path in self.ev.project.setting_files:
            module = self.ev.module(path)
            if module is None:
                continue
            for chain in module.carriers(setting):
                value = _setting_value(chain, setting)
                if isinstance(value, str):
                    found.add(value)
                elif value is not None:
                    place = module.place(chain)
                    text = self.ev.calls.text(value, place)
                    if text is not None:
                        found.add(text)
                    for known in self.ev.evaluate(value, place):
                        if (
                            isinstance(known, ClassValue)
                            and known.info.node is not None
                            and known.info.module
                        ):
                            found.add(self._dotted(known.info))
        return frozenset(f for f in found if "." in f)

    def _dotted(self, info: ClassInfo) -> str:
        from actor_wg_codemod.module_names import dotted

        assert info.module is not None
        return f"{dotted(info.module.path)}.{info.name}"

    def registered(self, info: ClassInfo) -> bool:
        """Whether the registry takes the class, by decorator here or by a call anywhere."""
        node, place = info.node, info.place
        if node is None or place is None:
            return False
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and self._is_register(decorator, place):
                return True
        return False

    def _is_register(self, call: ast.Call, place: Place) -> bool:
        return any(
            isinstance(v, Library) and v.name == "registry.register"
            for v in self.ev.evaluate(call.func, place)
        )

    def _elsewhere(self, info: ClassInfo, role: str) -> bool:
        """Whether other code makes the class an engine: registers it by a call, or inherits from it into one."""
        if info.node is None:
            return False
        key = (id(info.node), role)
        if key not in self._descendant:
            self._descendant[key] = False
            made = self._made
            if stack.nearly_full():
                self._descendant[key] = stack.on_a_fresh_one(made, info, role)
            else:
                self._descendant[key] = made(info, role)
        return self._descendant[key]

    def _made(self, info: ClassInfo, role: str) -> bool:
        for path in self.ev.project.mentions(info.name):
            module = self.ev.module(path)
            if module is None:
                continue
            for chain in module.carriers(info.name):
                if role == "engine" and self._registers(chain, info, module):
                    return True
                child = self._subclass(chain, info, module)
                if child is not None and (
                    self.is_engine(child) if role == "engine" else self.is_kimi(child)
                ):
                    return True
        return False

    def is_engine(self, info: ClassInfo) -> bool:
        """Proven to be an engine, forwards or through what other code does with it."""
        roles = self.roles(info)
        return (roles.engine and roles.proven) or self._elsewhere(info, "engine")

    def is_shared(self, info: ClassInfo) -> bool:
        """Whether a mixin is a base of engines and of classes that are none."""
        if self.roles(info).engine:
            return False
        engines = [self.roles(leaf).engine for leaf in self.leaf_classes(info)]
        return any(engines) and not all(engines)

    def is_kimi(self, info: ClassInfo) -> bool:
        """A Kimi engine or a mixin of one."""
        return self.roles(info).kimi or self._elsewhere(info, "kimi")

    def leaf_classes(self, info: ClassInfo) -> list[ClassInfo]:
        """The project's classes below a class that nothing else inherits from."""
        found: list[ClassInfo] = []
        queue, seen = self.subclasses(info), {id(info)}
        while queue:
            current = queue.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            below = self.subclasses(current)
            queue += below
            if not below or self.roles(current).manager:
                found.append(current)
        return found

    def _registers(self, chain: Chain, info: ClassInfo, module: Module) -> bool:
        if len(chain) < 3:
            return False
        parent, by = chain[-2][0], chain[-1][1]
        if (
            not isinstance(parent, ast.Call)
            or by != "args"
            or not isinstance(parent.func, (ast.Call, ast.Name))
        ):
            return self._stored_in_registry(chain, info, module)
        place = module.place(chain[:-1])
        wraps = any(
            isinstance(v, Library) and v.name == "registry.wrapper"
            for v in self.ev.evaluate(parent.func, place)
        )
        return wraps and self._means(chain[-1][0], info, place)

    def _stored_in_registry(self, chain: Chain, info: ClassInfo, module: Module) -> bool:
        statement = chain[-2][0]
        if not isinstance(statement, ast.Assign) or not isinstance(
            statement.targets[0], ast.Subscript
        ):
            return False
        holder = statement.targets[0].value
        if not isinstance(holder, ast.Attribute):
            return False
        place = module.place(chain[:-1])
        owners = self.ev.evaluate(holder.value, place)
        return any(
            isinstance(v, ClassValue) and self.roles(v.info).registry for v in owners
        ) and self._means(chain[-1][0], info, place)

    def _means(self, node: ast.AST, info: ClassInfo, place: Place) -> bool:
        return isinstance(node, ast.expr) and any(
            isinstance(v, ClassValue) and v.info is info for v in self.ev.evaluate(node, place)
        )

    def _subclass(self, chain: Chain, info: ClassInfo, module: Module) -> ClassInfo | None:
        for depth in range(len(chain) - 1, 0, -1):
            node, by = chain[depth - 1][0], chain[depth][1]
            if isinstance(node, ast.ClassDef) and by == "bases":
                child = self.project_class(module, node, module.place(chain[:depth]))
                if any(
                    isinstance(v, ClassValue) and v.info is info
                    for b in self.bases(child)
                    for v in b
                ):
                    return child
            if not isinstance(node, ast.Attribute):
                return None
        return None

    def subclasses(self, info: ClassInfo) -> list[ClassInfo]:
        """The project's direct subclasses of a class of the project."""
        found = []
        for path in self.ev.project.mentions(info.name):
            module = self.ev.module(path)
            for chain in self._in_bases(module, info.name) if module is not None else ():
                child = self._subclass(chain, info, module) if module is not None else None
                if child is not None and child not in found:
                    found.append(child)
        return found

    def _in_bases(self, module: Module, name: str) -> list[Chain]:
        """Where a name stands in the bases of a class; few of its carriers do, and this is asked often."""
        found = self._based.get((module, name))
        if found is None:
            chains = module.carriers(name)
            found = self._based[module, name] = [
                c for c in chains if any(by == "bases" for _, by in c)
            ]
        return found

    def descendants(self, info: ClassInfo) -> list[ClassInfo]:
        """All of the project's classes below a class."""
        found = self.subclasses(info)
        for child in found:
            found += [c for c in self.subclasses(child) if c not in found and c is not info]
        return found

    # Members

    def own_bindings(self, info: ClassInfo, name: str) -> list[Binding]:
        """What the class body itself binds under a name."""
        if info.scope is None:
            return []
        return at_end(info.scope.module.bindings(info.scope, name), END)

    def own_method(self, info: ClassInfo, name: str) -> Function | None:
        """The method that the class body itself defines under a name."""
        for binding in self.own_bindings(info, name):
            if binding.kind == "def" and isinstance(binding.node, DEFS):
                return Function(
                    binding.place.scope.module, binding.node, binding.place, info, bound=True
                )
            if binding.kind == "value" and isinstance(binding.value, ast.Lambda):
                return Function(
                    binding.place.scope.module, binding.value, binding.place, info, bound=True
                )
        return None

    def attribute(self, value: ClassValue | Instance, name: str) -> Values:
        """What an attribute of a class or of its instances can be."""
        info = value.info
        special = self._special(value, name)
        if special is not None:
            return special
        found: set[Value] = set()
        family = self.mro(info)
        for current in family:
            found |= self.own_attribute(current, name, value)
            if found and not all(isinstance(v, (Nothing, Unknown)) for v in found):
                found |= self._overridden(info, name)
                holders = family[: family.index(current) + 1]
                return self.ev.resetting.added(info, name, frozenset(found), holders)
            if name in renames.HOLDERS.get(current.name, ()) and self._is_verls(current):
                return frozenset({Instance(self.verl_class(renames.MANAGER))})
        if info.node is not None and isinstance(value, Instance):
            for child in self.subclasses(info):
                found |= self.own_attribute(child, name, Instance(child))
        known = frozenset(found) - NOTHING or frozenset({Unknown(name)})
        return self.ev.resetting.added(info, name, known, family)

    def _overridden(self, info: ClassInfo, name: str) -> Values:
        """What subclasses have under a name that is known to be something, where that is in the project."""
        found: set[Value] = set()
        for child in self.subclasses(info) if info.node is not None else ():
            for known in self.own_attribute(child, name, Instance(child)):
                plain = isinstance(known, (ClassValue, Instance, Foreign))
                if plain or (isinstance(known, Function) and self._gives_known(known)):
                    found.add(known)
        return frozenset(found)

    def _gives_known(self, function: Function) -> bool:
        given = self.ev.function_result(function)
        return all(isinstance(v, (ClassValue, Instance, Foreign)) for v in given)

    def _is_verls(self, info: ClassInfo) -> bool:
        if info.node is None:
            return True
        return info.module is not None and self.ev.project.verl_name(info.module.path) is not None

    def _special(self, value: ClassValue | Instance, name: str) -> Values | None:
        info, names = value.info, self.ev.names
        roles = self.roles(info)
        if name == "__class__" and isinstance(value, Instance):
            return frozenset({ClassValue(info, value.proven)})
        if name == "__new__":
            return frozenset({Library("new", value)})
        if name == "__init__":
            return frozenset(
                {Constructor(info, takes_self=isinstance(value, ClassValue), proven=value.proven)}
            )
        if roles.registry and name in ("get", "new", "register"):
            return frozenset({Library(f"registry.{name}")})
        if roles.manager and isinstance(value, Instance):
            if name in (names.group, names.new_group):
                return frozenset({Group()})
            if name == renames.BACKEND_CLASS_ATTRIBUTE:
                return frozenset({ClassValue(self.verl_class(renames.ENGINE))})
        if roles.engine and name == renames.TOPOLOGY_METHOD:
            return frozenset({Library("topology", value)})
        if name == renames.INIT_METHOD and roles.kimi:
            return frozenset({Library("kimi_init", value)})
        return None

    def super_attribute(self, value: Super, name: str) -> Values:
        """What `super().name` is: the same attribute looked up from the next class on."""
        info, names = value.info, self.ev.names
        roles = self.roles(info)
        if name == "__init__":
            for base in self.mro(info)[1:]:
                if self.own_method(base, "__init__") is not None or base.node is None:
                    return frozenset({Constructor(base)})
            return (
                frozenset({Constructor(self.mro(info)[-1])}) if len(self.mro(info)) > 1 else UNKNOWN
            )
        if name in (names.group, names.new_group) and roles.manager:
            return frozenset({Group()})
        if name == renames.TOPOLOGY_METHOD and (roles.engine or self.is_engine(info)):
            return frozenset({Library("topology", Instance(info))})
        if name == renames.INIT_METHOD and roles.kimi:
            return frozenset({Library("kimi_init", Instance(info))})
        found: set[Value] = set()
        for base in self.mro(info)[1:]:
            found |= self.own_attribute(base, name, Instance(info))
            if found:
                return self.ev.resetting.added(base, name, frozenset(found), [base])
        return frozenset({Unknown(name)})

    def own_attribute(self, info: ClassInfo, name: str, value: Value) -> Values:
        """What a class's own body and methods put under a name."""
        found: set[Value] = set()
        for binding in self.own_bindings(info, name):
            if binding.kind == "def" and isinstance(binding.node, DEFS):
                found |= self._method(info, binding, isinstance(value, Instance))
            else:
                for known in self.ev.bound(binding):
                    found |= self._described(known)
        for binding in self.self_assignments(info, name):
            found |= self.ev.bound(binding)
        if any(hasattr(v, "declared") and not v.declared for v in found) and info.scope is not None:
            place = Place(info.scope, END, (), info.scope.chain)
            return with_added(frozenset(found), self._fills(info, name, place))
        return frozenset(found)

    def _described(self, value: Value) -> Values:
        """What an object in a class body gives as an attribute: a descriptor's `__get__`, else itself."""
        for current in self.mro(value.info) if isinstance(value, Instance) else ():
            getter = self.own_method(current, "__get__")
            if getter is not None:
                return self.ev.function_result(getter)
        return frozenset({value})

    def _fills(self, info: ClassInfo, name: str, place: Place) -> Values:
        found: set[Value] = set()
        assert info.node is not None
        for method in info.node.body:
            first = first_parameter(method)
            if first is not None and isinstance(method, DEFS):
                inner = place.scope.module.place((*place.chain, (method, "body")), inside=True)
                found |= self.ev.filling.fills(f"{first}.{name}", inner)
                break
        return frozenset(found)

    def _method(self, info: ClassInfo, binding: Binding, on_instance: bool) -> Values:
        node = binding.node
        assert isinstance(node, DEFS)
        function = Function(binding.place.scope.module, node, binding.place, info, bound=True)
        stand_in = self.ev.decorating.stand_in(function, node.decorator_list, binding.place)
        if stand_in is not None:
            return self._described(stand_in)
        for decorator in node.decorator_list:
            last = (path_of(decorator) or "").rpartition(".")[2]
            if last in ("property", "cached_property", "abstractproperty", "getter"):
                return self.ev.function_result(function) if on_instance else UNKNOWN
            if last in ("setter", "deleter"):
                getters = [
                    b.node
                    for b in binding.place.scope.module.bindings(binding.place.scope, binding.name)
                    if isinstance(b.node, DEFS) and b.node is not node
                ]
                if getters:
                    first = getters[0]
                    assert isinstance(first, DEFS)
                    return self.ev.function_result(
                        Function(function.module, first, binding.place, info, bound=True)
                    )
        return frozenset({function})

    def key(self, info: ClassInfo, name: str) -> Values:
        """What a TypedDict of the project has under a key."""
        classes = self.mro(info)
        typed = any(
            isinstance(v, External) and v.name in TYPED_DICTS
            for current in classes
            for b in self.bases(current)
            for v in b
        )
        for current in classes if typed else ():
            found = self.own_attribute(current, name, Instance(current))
            if found:
                return found
        return frozenset()

    def field(self, info: ClassInfo, index: int) -> Values:
        """What the field at a position of a NamedTuple of the project can be."""
        names = fields.positional(self, info) if fields.is_named_tuple(self, info) else []
        return (
            self.attribute(Instance(info), names[index]) if 0 <= index < len(names) else frozenset()
        )

    def metaclass_call(self, info: ClassInfo) -> Function | None:
        """The `__call__` of the project's metaclass that a construction goes through."""
        for current in self.mro(info):
            for keyword in current.node.keywords if current.node is not None else ():
                if keyword.arg != "metaclass" or current.place is None:
                    continue
                for meta in self.ev.evaluate(keyword.value, current.place):
                    for known in self.mro(meta.info) if isinstance(meta, ClassValue) else ():
                        method = self.own_method(known, "__call__")
                        if method is not None:
                            return method
        return None

    def constructor(self, info: ClassInfo) -> Function | None:
        """The `__init__` of the project that a construction runs first."""
        inits = (self.own_method(current, "__init__") for current in self.mro(info))
        return next(filter(None, inits), None)

    def constructed(self, value: ClassValue) -> Values:
        """What calling a class gives: an instance, or what its own `__new__` returns in its place."""
        own, family = Instance(value.info, value.proven), self.mro(value.info)
        for current in family:
            method = self.own_method(current, "__new__")
            if method is not None:
                made = self.ev.function_result(method) - NOTHING
                ours = {
                    v for v in made if isinstance(v, Unknown) or getattr(v, "info", None) in family
                }
                return (made - ours) | ({own} if ours or not made else set())
        return frozenset({own})

    def self_assignments(self, info: ClassInfo, name: str) -> list[Binding]:
        """The places in a class's methods that assign `self.name`."""
        if info.scope is None or info.node is None:
            return []
        return info.scope.module.self_stores(info.node, name)

    # Functions that become methods

    def attached(self, function: ast.AST, outer: Place, module: Module) -> Values | None:
        """The instances that the first parameter of a function is, where it is put on a class."""
        key = id(function)
        if key not in self._attached:
            self._attached[key] = None
            owners = self.attachments(function, outer, module)
            found: Values = frozenset(Instance(info) for info, _ in owners if self._concerns(info))
            if not found and isinstance(function, DEFS):
                found = self._decorated_with_class(function, outer)
            self._attached[key] = found or None
        return self._attached[key]

    def _concerns(self, info: ClassInfo) -> bool:
        roles = self.roles(info)
        return roles.manager or roles.engine or info.node is not None

    def _decorated_with_class(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: Place
    ) -> frozenset[Value]:
        found: set[Value] = set()
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            known = self.ev.evaluate(decorator.func, outer)
            if any(
                isinstance(v, External) and v.name.partition(".")[0] in OWN_ATTACH for v in known
            ):
                continue
            for argument in (*decorator.args, *(k.value for k in decorator.keywords)):
                for value in self.ev.evaluate(argument, outer):
                    if isinstance(value, ClassValue) and self.roles(value.info).manager:
                        found.add(Instance(value.info, proven=False))
        return frozenset(found)

    def attachments(
        self, function: ast.AST, outer: Place, module: Module
    ) -> list[tuple[ClassInfo, str]]:
        """(class, attribute name) for every place that assigns the function to a class."""
        found: list[tuple[ClassInfo, str]] = []
        if isinstance(function, ast.Lambda):
            return self._attachment(outer.chain, function, module)
        name = getattr(function, "name", "")
        if not name or outer.scope.is_class:
            return []
        for path in self.ev.project.mentions(name):
            other = self.ev.module(path)
            if other is None or not _attaches(other.text):
                continue
            for chain in other.carriers(name):
                node = chain[-1][0]
                if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(
                    node.ctx, ast.Load
                ):
                    continue
                for info, attribute in self._attachment(chain[:-1], node, other):
                    values = self.ev.evaluate(node, other.place(chain))
                    if any(isinstance(v, Function) and v.node is function for v in values):
                        found.append((info, attribute))
        return found

    def _attachment(
        self, chain: Chain, node: ast.AST, module: Module
    ) -> list[tuple[ClassInfo, str]]:
        steps = [n for n, _ in chain if n is not node]
        parent = steps[-1]
        place = module.place(chain)
        wrapped: ast.AST = node
        if isinstance(parent, ast.Call) and (path_of(parent.func) or "") in (
            "classmethod",
            "staticmethod",
            "property",
            "functools.partialmethod",
        ):
            wrapped = parent
            parent = steps[-2]
        if isinstance(parent, ast.keyword):
            wrapped, parent = parent, steps[-2]
        target: ast.expr | None = None
        attribute = ""
        if isinstance(parent, ast.Assign) and parent.value is wrapped:
            first = parent.targets[0]
            if isinstance(first, ast.Attribute):
                target, attribute = first.value, first.attr
        elif isinstance(parent, ast.Call):
            target, attribute = self._setter(parent, wrapped, place)
        if target is None:
            return []
        values = self.ev.evaluate(target, place)
        return [(v.info, attribute) for v in values if isinstance(v, ClassValue)]

    def _setter(self, call: ast.Call, given: ast.AST, place: Place) -> tuple[ast.expr | None, str]:
        """(the class, the name) of `setattr(C, "x", fn)`, monkeypatch's and patch.object's."""
        value = given.value if isinstance(given, ast.keyword) else given
        put = put_by(call)
        if len(put) > 2 and put[2] is value:
            return put[0], self.ev.calls.text(put[1], place) or ""
        return None, ""

    # Fixtures

    def fixture(
        self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module
    ) -> Values | None:
        """What the pytest fixture of a parameter's name gives, from this file or a conftest above it."""
        decorated = [
            (path_of(d.func if isinstance(d, ast.Call) else d) or "")
            for d in function.decorator_list
        ]
        if not function.name.startswith("test") and not any("fixture" in d for d in decorated):
            return None
        folder = module.path.rpartition("/")[0]
        paths = [module.path]
        while True:
            paths.append(f"{folder}/conftest.py" if folder else "conftest.py")
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        for path in paths:
            if path not in self.ev.project.files:
                continue
            other = self.ev.module(path)
            for carrier in other.carriers(name) if other is not None else ():
                chain = _fixture_chain(carrier, name)
                node = chain[-1][0] if chain else None
                if other is not None and isinstance(node, DEFS) and node is not function:
                    return self._fixture_value(other, node, chain)
        return None

    def _fixture_value(self, module: Module, node: ast.AST, chain: Chain) -> Values:
        assert isinstance(node, DEFS)
        function = Function(module, node, module.place(chain))
        yields = self.ev.returns(module, node, "yield")
        if yields:
            return frozenset(v for e, p in yields for v in self.ev.evaluate(e, p))
        return self.ev.function_result(function)


def _fixture_chain(chain: Chain, name: str) -> Chain:
    """The chain of the fixture that a place defines under a name, its own or `name=`; else empty."""
    node, by = chain[-1]
    if isinstance(node, DEFS) and node.name == name:
        decorators = [path_of(getattr(d, "func", d)) or "" for d in node.decorator_list]
        return chain if any("fixture" in d for d in decorators) else ()
    named = isinstance(node, ast.Constant) and node.value == name and by == "value"
    if not named or len(chain) < 4:
        return ()
    (keyword, _), (call, where) = chain[-2], chain[-3]
    if not isinstance(keyword, ast.keyword) or keyword.arg != "name":
        return ()
    decorates = isinstance(call, ast.Call) and where == "decorator_list"
    return chain[:-3] if decorates and "fixture" in (path_of(call.func) or "") else ()  # type: ignore[attr-defined]


def _attaches(text: str) -> bool:
    return "setattr" in text or "patch" in text or ("." in text and "= " in text)


def _setting_value(chain: Chain, setting: str) -> ast.expr | str | None:
    """The value that a place in Python gives to the setting, as an expression or as `key=value` text."""
    node, by = chain[-1]
    parent = chain[-2][0]
    if isinstance(node, ast.keyword):
        return node.value
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return getattr(parent, "value", None)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        head, equals, tail = node.value.partition("=")
        if equals and head.rstrip().endswith(setting):
            return tail.strip().strip("'\"")
        if not node.value.endswith(setting):
            return None
        if isinstance(parent, ast.Dict) and by == "keys":
            return parent.values[parent.keys.index(node)]
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            return getattr(chain[-3][0], "value", None)
        if isinstance(parent, ast.Call) and node in parent.args:
            index = parent.args.index(node)
            return parent.args[index + 1] if index + 1 < len(parent.args) else None
    if isinstance(node, ast.Name) and isinstance(parent, ast.AnnAssign):
        return parent.value
    return None
