"""Markdown and reStructuredText: which blocks are Python, and edits at document lines."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod import documents
from actor_wg_codemod.documents import EditError
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from helpers import sites_in

OLD, NEW = "trainer", "actor_wg"


def sites(path: str, text: str) -> list[Finding]:
    """A finding for each old name in the view, as an analysis would make them."""
    return sites_in(documents.view(path, text), OLD, NEW)


def places(path: str, text: str) -> list[tuple[int, int]]:
    return [(site.span.line, site.span.column) for site in sites(path, text)]


def migrated(path: str, text: str) -> str:
    return documents.apply(path, text, sites(path, text))


MARKDOWN_NOTHING = {
    "prose": f"f({OLD}=1) and `{OLD}=1`",
    "indented code": f"    f({OLD}=1)",
    "no language": f"```\nf({OLD}=1)\n```",
    "other language": f"```bash\nf({OLD}=1)\n```",
    "language that starts alike": f"```pythonic\nf({OLD}=1)\n```",
    "fence shown in a fence": f"````markdown\n```python\nf({OLD}=1)\n```\n````",
    "tilde fence holds backticks": f"~~~\n```python\nf({OLD}=1)\n```\n~~~",
    "backticks in the info string": f"```python `x` \nf({OLD}=1)\n",
    "HTML comment": f"<!--\n```python\nf({OLD}=1)\n```\n-->",
    "MyST directive of another language": f"```{{code-block}} bash\nf({OLD}=1)\n```",
    "MyST option": f"```{{code-cell}}\n:tags: [{OLD}]\nx = 1\n```",
    "MyST front matter of a cell": f"```{{code-cell}}\n---\ntags: [{OLD}]\n---\nx = 1\n```",
    "excerpt that does not parse": f"```python\nf(a=1, ..., {OLD}=1)\n```",
    "output of a session": f"```pycon\n>>> f()\n{OLD} = 1\n```",
    "division": f"::: note\nf({OLD}=1)\n:::",
    "shell line": f"```python\n!run {OLD}=1\n```",
}


@pytest.mark.parametrize("text", MARKDOWN_NOTHING.values(), ids=MARKDOWN_NOTHING)
def test_other_markdown_is_left_alone_and_what_follows_is_seen(text):
    assert places("a.md", text) == []
    after = f"{text}\n\n```python\nf({OLD}=1)\n```\n"
    assert places("a.md", after) == [(text.count("\n") + 4, 2)]


MARKDOWN = {
    "fence": (f"x\n```python\nf({OLD}=1)\n```", [(3, 2)]),
    "tildes": (f"~~~ py\nf({OLD}=1)\n~~~", [(2, 2)]),
    "capitals": (f"```Python\nf({OLD}=1)\n```", [(2, 2)]),
    "longer fence": (f"````python3\nx = '''\n```\n'''\nf({OLD}=1)\n````", [(5, 2)]),
    "unclosed": (f"```python\nf({OLD}=1)\n", [(2, 2)]),
    "attributes behind": (f'```python title="a.py" {{1,2}}\nf({OLD}=1)\n```', [(2, 2)]),
    "comma behind": (f"```python,ignore\nf({OLD}=1)\n```", [(2, 2)]),
    "braces": (f"```{{python}}\nf({OLD}=1)\n```", [(2, 2)]),
    "class attribute": (f"```{{.python .numberLines}}\nf({OLD}=1)\n```", [(2, 2)]),
    "list item": (f"- x\n\n  ```python\n  f({OLD}=1)\n  ```", [(4, 4)]),
    "opened on the bullet": (f"1. ```python\n   f({OLD}=1)\n   ```", [(2, 5)]),
    "deep list": (f"- - - x\n\n      ```py\n      f({OLD}=1)\n      ```", [(4, 8)]),
    "quote": (f"> ```python\n> f({OLD}=1)\n> ```\n", [(2, 4)]),
    "quote in a quote": (f"> > ```python\n> > f({OLD}=1)\n> > ```\n", [(2, 6)]),
    "quote that ends the fence": (f"> ```bash\n> x\n\n```py\nf({OLD}=1)\n```", [(5, 2)]),
    "session": (f">>> x\n```pycon\n>>> f(\n...   {OLD}=1)\n{OLD}\n```", [(4, 6)]),
    "session in a Python fence": (f"```python\n>>> f({OLD}=1)\n1\n```", [(2, 6)]),
    "session with a broken statement": (f"```py\n>>> f(\n>>> f({OLD}=1)\n```", [(3, 6)]),
    "IPython session": (
        f"```ipython\nIn [1]: if x:\n   ...:     f({OLD}=1)\nOut[1]: {OLD}\n```",
        [(3, 14)],
    ),
    "MyST code block": (f"```{{code-block}} python\n:linenos:\n\nf({OLD}=1)\n```", [(4, 2)]),
    "MyST code cell": (f"```{{code-cell}} ipython3\n%pwd\nf({OLD}=1)\n```", [(3, 2)]),
    "MyST colons": (f":::{{code-block}} python\nf({OLD}=1)\n:::", [(2, 2)]),
    "inside a MyST note": (
        f"````{{note}}\n```python\nf({OLD}=1)\n```\n````\n```py\nf({OLD}=1)\n```",
        [(3, 2), (7, 2)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), MARKDOWN.values(), ids=MARKDOWN)
def test_python_in_markdown_is_seen_at_its_document_line(text, expected):
    assert_migrates("a.md", text, expected)


RST_NOTHING = {
    "prose": f"Say ``{OLD}=1``.",
    "literal block": f"x::\n\n    f({OLD}=1)",
    "other language": f".. code-block:: bash\n\n    f({OLD}=1)",
    "no language": f".. code-block::\n\n    f({OLD}=1)",
    "option": f".. code-block:: python\n    :caption: {OLD}\n\n    x = 1",
    "comment": f".. hidden\n\n    .. code-block:: python\n\n        f({OLD}=1)",
    "session of another language": f".. code-block:: text\n\n    >>> f({OLD}=1)",
    "expected output": f">>> f()\n{OLD}",
    "inside a paragraph": f"x\n>>> f({OLD}=1)",
    "excerpt that does not parse": f".. code:: python\n\n    f(a=1, ..., {OLD}=1)",
}


@pytest.mark.parametrize("text", RST_NOTHING.values(), ids=RST_NOTHING)
def test_other_restructured_text_is_left_alone_and_what_follows_is_seen(text):
    assert places("a.rst", text) == []
    after = f"{text}\n\n.. code:: python\n\n    f({OLD}=1)\n"
    assert places("a.rst", after) == [(text.count("\n") + 5, 6)]


RST = {
    "code block": (f".. code-block:: python\n\n    f({OLD}=1)", [(3, 6)]),
    "options": (f".. code-block:: python\n   :linenos:\n   :name: x\n\n   f({OLD}=1)", [(5, 5)]),
    "blank lines inside": (f".. code:: py\n\n    a\n\n\n    f({OLD}=1)\n\nx", [(6, 6)]),
    "source code": (f".. sourcecode:: python3\n\n  f({OLD}=1)", [(3, 4)]),
    "in a note": (f".. note::\n\n    .. code:: python\n\n        f({OLD}=1)", [(5, 10)]),
    "in a list": (f"* x\n\n  .. code:: python\n\n     f({OLD}=1)\n\n* y", [(5, 7)]),
    "on the bullet": (f"* .. code:: python\n\n     f({OLD}=1)\n", [(3, 7)]),
    "below an empty comment": (f"..\n\n.. code:: python\n\n  f({OLD}=1)", [(5, 4)]),
    "below a target": (f".. _x:\n\n.. code:: python\n\n  f({OLD}=1)", [(5, 4)]),
    "test code": (f".. testcode::\n\n    f({OLD}=1)", [(3, 6)]),
    "session": (f".. code-block:: pycon\n\n    >>> f({OLD}=1)\n    {OLD}", [(3, 10)]),
    "doctest": (f"x\n\n>>> f(\n...   {OLD}=1)\n{OLD}\n\ny", [(4, 6)]),
    "indented doctest": (f"x\n\n    >>> f({OLD}=1)\n    1\n    >>> {OLD}\n", [(3, 10), (5, 8)]),
}


@pytest.mark.parametrize(("text", "expected"), RST.values(), ids=RST)
def test_python_in_restructured_text_is_seen_at_its_document_line(text, expected):
    assert_migrates("a.rst", text, expected)


def assert_migrates(path: str, text: str, expected: list[tuple[int, int]]) -> None:
    for end in ("\n", "\r\n"):
        before = text.replace("\n", end)
        assert places(path, before) == expected
        lines = text.split("\n")
        for line, column in reversed(expected):
            row = lines[line - 1]
            assert row[column:].startswith(OLD)
            lines[line - 1] = row[:column] + NEW + row[column + len(OLD) :]
        after = end.join(lines)
        assert migrated(path, before) == after
        assert migrated(path, after) == after
        assert migrated(path, "\ufeff" + before) == "\ufeff" + after


def test_names_flow_from_block_to_block():
    text = "```python\nimport a\n```\nx\n```python\na.f()\n```"
    body = ast.parse(documents.view("a.md", text).source).body
    assert [(type(node).__name__, node.lineno) for node in body] == [("Import", 2), ("Expr", 6)]


def test_form_feeds_and_odd_separators_are_no_line_ends():
    text = f"a\x0cb\u2028c\x85d\n```py\nx = '\x0c\u2028'; f({OLD}=1)\n```"
    assert places("a.md", text) == [(3, 12)]
    assert migrated("a.md", text) == text.replace(OLD, NEW)


def test_stale_and_overlapping_edits_are_refused():
    span, inside = Span(1, 0, 1, 7), Span(1, 2, 1, 5)
    fixes = [Fix("rename", (Edit(where, NEW),)) for where in (span, inside)]
    found = [Finding("AWG102", span, "old", Safety.NAMING, fix) for fix in fixes]
    with pytest.raises(EditError):
        documents.apply("a.md", "trainer", found)
    with pytest.raises(EditError):
        documents.apply("a.md", "a b c d", found[:1])
    assert documents.apply("a.md", "trainer", [found[0], found[0]]) == "actor_wg"


def test_other_files_are_no_documents():
    assert documents.kind("a.toml") is None
    with pytest.raises(ValueError):
        documents.apply("a.toml", "", [])
    with pytest.raises(ValueError):
        documents.view("a.yaml", "")


def test_each_kind_of_document_is_read_and_written_as_what_it_is():
    cell = '{"cells": [{"cell_type": "code", "source": "f(trainer=1)"}]}'
    assert migrated("a.ipynb", cell) == cell.replace(OLD, NEW)
    assert documents.apply("a.yml", "x: 1", []) == "x: 1"


PIECES = st.sampled_from(
    [
        *("```python", "```", "~~~", "> ```py", "> x", "- ```python", "  ", "````{note}", "````"),
        *(f"f({OLD}=1)", f"  f({OLD}=1)", f"> f({OLD}=1)", f">>> f({OLD}=1)", "... x", OLD),
        *(
            ".. code:: python",
            "",
            "   x = 1",
            "..",
            ".. x",
            "::",
            "<!--",
            "-->",
            "%pwd",
            "(",
            "'''",
        ),
    ]
)


@given(st.lists(PIECES, max_size=14).map("\n".join), st.sampled_from(["a.md", "a.rst"]))
def test_generated_documents_change_only_in_names(text, path):
    view = documents.view(path, text)
    ast.parse(view.source)
    after = migrated(path, text)
    assert re.sub(NEW, OLD, after) == text
    assert len(re.findall(NEW, after)) == len(sites(path, text))
    assert sites(path, after) == []
