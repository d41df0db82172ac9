"""What an expression can be, as far as the rename needs to know."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actor_wg_codemod.bindings import Module, Place
    from actor_wg_codemod.linking import ClassInfo


@dataclass(frozen=True)
class Unknown:
    """Nothing is known about it. `hint` is the last name by which it was reached."""

    hint: str = ""


@dataclass(frozen=True)
class Nothing:
    """None; says nothing about what else the name may be."""


@dataclass(frozen=True)
class Other:
    """Known to be nothing of ours: a literal, another library's object."""

    what: str = ""


@dataclass(frozen=True)
class Group:
    """The actor worker group: what a manager's renamed attribute holds."""


@dataclass(frozen=True)
class ModuleValue:
    """A module: a file (or namespace folder) of the project, else a dotted name from outside."""

    name: str
    path: str | None = None


@dataclass(frozen=True)
class External:
    """Something of a module outside the project, by its qualified name."""

    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def looks_like_class(self) -> bool:
        return self.last[:1].isupper() and not self.last.isupper()


@dataclass(frozen=True)
class ClassValue:
    """A class: of the project, or one of verl's own."""

    info: ClassInfo
    proven: bool = True


@dataclass(frozen=True)
class Instance:
    """An object of a class."""

    info: ClassInfo
    proven: bool = True


@dataclass(frozen=True)
class Foreign:
    """An object of a class from outside the project."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function or lambda of the project, unbound."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    place: Place
    owner: ClassInfo | None = None
    bound: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and other.node is self.node and other.bound == self.bound

    def __hash__(self) -> int:
        return hash((id(self.node), self.bound))


@dataclass(frozen=True)
class Partial:
    """A callable with some arguments given: `partial(target, ...)`; `given` are positional ones."""

    target: Value
    given: int = 0


@dataclass(frozen=True)
class Remote:
    """A class or function made remote by Ray; its `.remote` calls it."""

    target: Value


@dataclass(frozen=True)
class Constructor:
    """`C.__init__`, `super().__init__` or `RemoteC.remote`: called, it takes the constructor's arguments.

    `takes_self` where the instance is passed by hand.
    """

    info: ClassInfo
    takes_self: bool = False
    proven: bool = True


@dataclass(frozen=True)
class Super:
    """`super()` in a method of a class."""

    info: ClassInfo


@dataclass(frozen=True)
class Mock:
    """A mock that stands for a class (patched) or for what came of calling it."""

    info: ClassInfo
    aspect: str = "class"
    """class, call (its last call), arguments (that call's keywords), assertion (an assert method)"""


@dataclass(frozen=True)
class Library:
    """A known helper of the standard library, Ray, typing or verl, by its canonical name."""

    name: str
    receiver: Value | None = None


@dataclass(frozen=True)
class Container:
    """A list, set, dict (its values) or iterator, all of whose known elements are among `items`."""

    items: frozenset[Value]
    mapping: bool = False
    declared: bool = False
    topology: ClassInfo | None = None
    """The engine whose `build_topology` returned this dictionary."""


@dataclass(frozen=True)
class Tuple:
    """A tuple whose positions are known."""

    items: tuple[frozenset[Value], ...]


@dataclass(frozen=True)
class Giver:
    """A library's object that gives what it holds when it is called, awaited or asked for it.

    Futures, tasks, context variables, weak references, and callables annotated with their result.
    """

    items: frozenset[Value]


Value = (
    Unknown
    | Nothing
    | Other
    | Group
    | ModuleValue
    | External
    | ClassValue
    | Instance
    | Foreign
    | Function
    | Partial
    | Remote
    | Constructor
    | Super
    | Mock
    | Library
    | Container
    | Tuple
    | Giver
)
Values = frozenset[Value]

UNKNOWN: Values = frozenset({Unknown()})
NOTHING: Values = frozenset({Nothing()})
OTHER: Values = frozenset({Other()})
MOCK: Values = frozenset({Other("a mock that takes anything")})


def given(values: Values) -> Values:
    """What awaiting such values gives; a coroutine stands for its result already."""
    found: set[Value] = set()
    for value in values:
        found |= value.items if isinstance(value, Giver) else {value}
    return frozenset(found)


def elements(values: Values) -> Values:
    """What iterating such values gives; of a mapping's keys nothing is known."""
    return held(frozenset(Unknown() if _is_mapping(v) else v for v in values))


def _is_mapping(value: Value) -> bool:
    return isinstance(value, Container) and value.mapping


def held(values: Values) -> Values:
    """What indexing such values gives: the elements of a list, the values of a mapping."""
    found: set[Value] = set()
    for value in values:
        if isinstance(value, Container):
            found |= value.items if value.items else UNKNOWN
        elif isinstance(value, Tuple):
            for item in value.items:
                found |= item
        elif isinstance(value, (Unknown, External, Foreign)):
            found |= UNKNOWN
        elif isinstance(value, Other):
            found.add(value)
    return frozenset(found) or UNKNOWN


def mapped(values: Values) -> Values:
    """What a dictionary holds that is made of such values: mappings, or iterables of pairs."""
    found: set[Value] = set()
    for value in values:
        for item in held(frozenset({value})):
            pair = not _is_mapping(value) and isinstance(item, Tuple) and len(item.items) == 2
            found |= item.items[1] if pair and isinstance(item, Tuple) else {item}
    return frozenset(found)
