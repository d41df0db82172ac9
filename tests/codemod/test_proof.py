"""What is proven of an edited file before it is written, and what is refused."""

from __future__ import annotations

import re

import pytest

from actor_wg_codemod.model import Edit, Span
from actor_wg_codemod.proof import ProofError, prove
from actor_wg_codemod.source import Source, parse
from actor_wg_codemod.splicing import replacements, splice

MARKED = re.compile(r"<(\w+)>")


def proven(marked, new="actor_wg", result=None):
    """Proves that the words in <angle brackets> may become `new`."""
    source = Source(MARKED.sub(r"\1", marked))
    edits, shift = [], 0
    for match in MARKED.finditer(marked):
        line, column = source.place(match.start() - shift)
        edits.append(Edit(Span(line, column, line, column + len(match[1])), new))
        shift += 2
    changes = replacements(source, edits)
    words = sorted({change.old for change in changes})
    tree = parse(source.text, words=words)
    prove(source, tree, splice(source.text, changes) if result is None else result, changes)


@pytest.mark.parametrize(
    "marked",
    [
        "f(<trainer>=trainer)\n",
        "class C(M):\n    def __init__(self, <trainer>):\n        super().__init__(<trainer>=<trainer>)\n",
        "def f(<trainer>):\n    def g():\n        nonlocal <trainer>\n        return [<trainer> for x in <trainer>]\n    return lambda: <trainer>\n",
        "def f(<trainer>):\n    return lambda trainer: trainer\n",
        "def f(<trainer>):\n    class A:\n        trainer = 1\n    return f'{<trainer>!r:{<trainer>}} trainer {A.trainer}'\n",
        "def f(<trainer>):\n    del <trainer>\n    return lambda: g(trainer=1).trainer\n",
        "<trainer> = 1\ndef f():\n    global <trainer>\n    return <trainer>\n",
        "x.<trainer>.trainer = x.y. \\\n    <trainer>\n",
        "x = '<trainer>' + trainer\ny = 'a' '<trainer>'  # <trainer>\n",
        "x = f'<trainer> {trainer} <trainer>'\n",
        "x = b'<trainer>'\nd = {'<trainer>': 1}\n",
        "match x:\n    case A(<trainer>=1): pass\n    case {'a': 1, **<trainer>}: <trainer>\n",
        "try: pass\nexcept A as <trainer>: <trainer>\n",
        "with a as <trainer>: <trainer>.x\nimport b as <trainer>\n",
        "x = '\u00e9'; f(<trainer>=x.<trainer>('\u00e9').<trainer>)\n",
        "@d(<trainer>=1)\ndef f(): pass\n",
        "# <trainer>\n",
        "x = (\n    1,  # <trainer>\n)\n",
        "def f(a, <trainer>=1, *, b: <trainer> = 2): ...\n<trainer> = 1\n",
    ],
)
def test_a_consistent_rename_is_proven(marked):
    proven(marked)


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        ("def f(<trainer>, actor_wg): ...\n", "would not compile: duplicate argument"),
        ("def f(<trainer>):\n    actor_wg = 1\n    return <trainer>\n", "would be merged"),
        ("def f(<trainer>):\n    return trainer\n", "only some uses of 'trainer'"),
        ("def f(trainer):\n    return <trainer>\n", "only some uses of 'trainer'"),
        (
            "def f(<trainer>):\n    return lambda: trainer\n",
            "only some uses of 'trainer' in function 'lambda'",
        ),
        ("def f(<trainer>):\n    return lambda: actor_wg, <trainer>\n", "would mean another"),
        (
            "actor_wg = 1\ndef f(<trainer>):\n    return lambda actor_wg: <trainer>\n",
            "merged|another",
        ),
        (
            "import actor_wg\ndef f(<trainer>):\n    return [actor_wg for x in <trainer>]\n",
            "another|merged",
        ),
        (
            "trainer = 1\ndef f():\n    return <trainer>\n",
            "'actor_wg' in function 'f' .line 2. would be undefined",
        ),
        ("def f():\n    return <trainer>\n", "would be undefined"),
        ("class A:\n    <trainer> = 1\n    actor_wg = <trainer>\n", "would be merged"),
        ("def f(<trainer>):\n    class A:\n        x = actor_wg\n", "would mean another"),
    ],
)
def test_a_name_undefined_captured_or_merged_is_refused(marked, reason):
    with pytest.raises(ProofError, match=reason):
        proven(marked)


@pytest.mark.parametrize(
    ("marked", "result", "reason"),
    [
        ("f(<trainer>=1)\n", "f(actor_wg=1\n", "the result would not parse: line 1"),
        ("f(<trainer>=1)\nx = 1\n", "f(actor_wg=1)\nx = 2\n", "differ in more"),
        ("f(<trainer>=1)\n", "f(actor_wg=2)\n", "line 1: the result would differ in more"),
        ("f(<trainer>=1)\n", "f(trainer=1)\n", "the edit of 'trainer' changes no name"),
        ("f(<trainer>=1, trainer_=1)\n", "f(trainer=1, actor_wg=1)\n", "differ in more"),
        ("f(<trainer>=1)\n", "f(actor_wg=1)\ng()\n", "differ in more"),
        ("f(<trainer>=1)\n", "f(actor_wg=1); g()\n", "differ in more"),
        ("f(<trainer>=1)\nx = 1\n", "f(actor_wg=1)\n\nx = 1\n", "differ in more"),
        ("x = '<trainer>'\n", "x = 'actor wg'\n", "differ in more"),
        ("x = '<trainer>'\n", "x = b'actor_wg'\n", "differ in more"),
        ("x.<trainer>\n", "x.actor_wg.y\n", "differ in more"),
        ("x + <trainer>\n", "x - actor_wg\n", "differ in more"),
    ],
)
def test_any_other_difference_is_refused(marked, result, reason):
    with pytest.raises(ProofError, match=reason):
        proven(marked, result=result)


def test_an_edit_of_something_that_is_no_name_is_refused():
    with pytest.raises(ProofError, match="would not parse"):
        proven("x = <1>\nassert x\n", new="class")
    with pytest.raises(ProofError, match="differ in more"):
        proven("<pass>\n", new="x")


def test_a_keyword_as_the_new_name_is_refused():
    with pytest.raises(ProofError, match="the result would not parse"):
        proven("f(<trainer>=1)\n", new="class")
