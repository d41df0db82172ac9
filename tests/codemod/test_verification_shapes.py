"""Whether a call fits a signature: the same answer as Python's own binding, and a reason."""

from __future__ import annotations

import ast
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod.call_shapes import Shape, misfit, shape_of

SIGNATURES = (
    "self, config, actor_wg, replicas",
    "self, config, actor_wg, replicas, *, limit",
    "self, config, actor_wg=None, replicas=None, **kwargs",
    "self, config, /, actor_wg, *args",
    "self, *args, **kwargs",
    "self",
    "self, *, config, actor_wg=None",
)
WORDS = ("config", "actor_wg", "replicas", "limit", "trainer")


def arguments(text: str) -> ast.arguments:
    node = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node.args


def call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


@given(
    st.sampled_from(SIGNATURES),
    st.integers(0, 5),
    st.lists(st.sampled_from(WORDS), unique=True).map(tuple),
)
def test_python_binds_what_fits_and_nothing_else(text, positional, keywords):
    scope: dict[str, object] = {}
    exec(f"def f({text}): ...", scope)
    signature = inspect.signature(scope["f"])  # type: ignore[arg-type]
    problem = misfit(arguments(text), Shape(positional, keywords), bound=1)
    try:
        signature.bind(None, *range(positional), **dict.fromkeys(keywords))
    except TypeError:
        assert problem
    else:
        assert problem is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(c, g, r)", None),
        ("f(config=c, actor_wg=g, replicas=r)", None),
        ("f(c, trainer=g, replicas=r)", "takes no trainer=; it takes config, actor_wg, replicas"),
        ("f(c, g)", "needs replicas too"),
        ("f(c)", "needs actor_wg, replicas too"),
        ("f(c, g, r, 1)", "takes 3 positional arguments and gets 4"),
        ("f(c, config=c, actor_wg=g, replicas=r)", "gets config twice"),
        ("f(c, **more)", None),
        ("f(*all)", None),
        ("f(c, *more, trainer=g)", "takes no trainer=; it takes config, actor_wg, replicas"),
    ],
)
def test_the_reason_says_what_to_change(text, reason):
    found = misfit(arguments(SIGNATURES[0]), shape_of(call(text)), bound=1)
    assert found == reason


def test_arguments_that_come_later_are_not_missed():
    shape = shape_of(call("partial(Manager, c)"), skip=1, incomplete=True)
    assert shape == Shape(1, (), open=True)
    assert misfit(arguments(SIGNATURES[0]), shape, bound=1) is None
