"""Notebooks: code cells become one view, edits go back into the raw JSON byte for byte."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod.documents import DocumentError, EditError, notebook
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from helpers import sites_in

OLD, NEW = "trainer", "actor_wg"


def book(*cells: str, language: str = "python", **layout: Any) -> str:
    """A notebook of code cells with a Markdown cell in front."""
    prose = {"cell_type": "markdown", "metadata": {}, "source": [f"# {OLD}"]}
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}}
    outputs = [{"output_type": "stream", "text": [f"{OLD}=1\n"]}]
    found: list[dict[str, Any]] = [prose]
    found += [{**code, "outputs": outputs, "source": cell.splitlines(True)} for cell in cells]
    info = {"language_info": {"name": language}}
    whole = {"cells": found, "metadata": info, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, **{"indent": 1, **layout})


def sites(text: str) -> list[Finding]:
    """A finding for each old name in the view, as an analysis would make them."""
    return sites_in(notebook.view(text), OLD, NEW)


def places(text: str) -> list[tuple[int | None, int, int]]:
    return [(site.cell, site.span.line, site.span.column) for site in sites(text)]


def migrated(text: str) -> str:
    return notebook.apply(text, sites(text))


NOT_PYTHON = {
    "shell": f"!run {OLD}=1",
    "shell captured": f"x = !run {OLD}=1",
    "shell captured into a key": f"found['a'] = !run {OLD}=1",
    "shell continued": f"!run \\\n  {OLD}=1 \\\n  {OLD}=2",
    "shell in a block": f"for i in range(3):\n    !run {OLD}=1",
    "line magic": f"%env {OLD}=1",
    "line magic assigned": f"x = %env {OLD}",
    "help before": f"?{OLD}",
    "help behind": f"{OLD}.world_size?",
    "source behind": f"{OLD}??  # look",
    "magic that times no Python": f"%time {OLD} to go",
    "automatic call": f"/run {OLD}",
    "bash cell": f"%%bash\nrun {OLD}=1",
    "unknown cell magic": f"\n%%sql\nselect {OLD} from t",
    "written file": f"%%writefile x.py\n{OLD} = 1",
}


@pytest.mark.parametrize("cell", NOT_PYTHON.values(), ids=NOT_PYTHON)
def test_what_is_not_python_stays_and_the_next_cell_is_seen(cell):
    text = book(cell, f"f({OLD}=1)")
    assert places(text) == [(2, 1, 2)]
    ast.parse(notebook.view(text).source)
    assert json.loads(migrated(text))["cells"][1] == json.loads(text)["cells"][1]


PYTHON = {
    "plain": (f"f({OLD}=1)", [(1, 2)]),
    "below a magic": (f"%load_ext x\nf({OLD}=1)", [(2, 2)]),
    "timed cell": (f"%%time\nf({OLD}=1)", [(2, 2)]),
    "timed cell below blank lines": (f"\n\n%%time\nf({OLD}=1)", [(4, 2)]),
    "captured and timed cell": (f"%%capture\n%%time\n!ls\nf({OLD}=1)", [(4, 2)]),
    "timed line": (f"%time m = f({OLD}=1)", [(1, 12)]),
    "timed line with options": (f"%timeit -n 10 -r3 f({OLD}=1)", [(1, 20)]),
    "timed line in a block": (f"if x:\n    %time f({OLD}=1)", [(2, 12)]),
    "timed line assigned": (f"{OLD} = %time f({OLD}=1)", [(1, 0), (1, 18)]),
    "timed line continued": (f"%time f(1, \\\n  {OLD}=1)", [(2, 2)]),
    "indented cell": (f"  a = 1\n  f({OLD}=1)", [(2, 4)]),
    "top-level await": (f"await f({OLD}=1)", [(1, 8)]),
    "top-level async for": (f"async for x in f({OLD}=1):\n    pass", [(1, 17)]),
    "modulo at a line start": (f"x = (a\n % f({OLD}=1))", [(2, 5)]),
    "modulo behind a backslash": (f"x = a \\\n % f({OLD}=1)", [(2, 5)]),
    "percent line in a string": (f'x = """\n%time\n!ls\n"""\nf({OLD}=1)', [(5, 2)]),
    "quote in a comment": (f"# don't\n%pwd\nf({OLD}=1)", [(3, 2)]),
    "bracket in a string": (f"x = '('\n%pwd\nf({OLD}=1)", [(3, 2)]),
    "not equal": (f"x != f({OLD}=1)", [(1, 7)]),
}


@pytest.mark.parametrize(("cell", "expected"), PYTHON.values(), ids=PYTHON)
def test_python_is_seen_where_it_stands(cell, expected):
    text = book(cell)
    assert places(text) == [(1, *place) for place in expected]
    source = "".join(json.loads(migrated(text))["cells"][1]["source"])
    lines = cell.split("\n")
    for line, column in reversed(expected):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + NEW + row[column + len(OLD) :]
    assert source == "\n".join(lines)


def test_names_flow_from_cell_to_cell_in_one_module():
    view = notebook.view(book("import a", "%pwd", "a.f()"))
    assert [type(node).__name__ for node in ast.parse(view.source).body] == [
        "Import",
        "Pass",
        "Expr",
    ]
    assert view.problem is None


def test_a_broken_cell_is_named_and_loses_no_other():
    text = book(f"f({OLD}=1)", f"def broken(:\n  {OLD}", f"g({OLD}=1)")
    view = notebook.view(text)
    assert view.problem is not None
    assert view.problem.startswith("cell 2, line 1: ")
    assert "\n" not in view.problem
    assert places(text) == [(1, 1, 2), (3, 1, 2)]


@pytest.mark.parametrize("language", ["julia", "R", "scala"])
def test_other_languages_are_left_alone(language):
    text = book(f"f({OLD}=1)", language=language)
    assert notebook.view(text).source == ""


def test_a_cell_of_another_language_is_left_alone():
    whole = json.loads(book(f"run {OLD}=1", f"f({OLD}=1)"))
    whole["cells"][1]["metadata"] = {"vscode": {"languageId": "shellscript"}}
    assert places(json.dumps(whole)) == [(2, 1, 2)]


LAYOUTS = {
    "one line": lambda text: json.dumps(json.loads(text)),
    "tight": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "tabs": lambda text: json.dumps(json.loads(text), indent="\t"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "final newline": lambda text: text + "\n",
    "raw unicode": lambda text: json.dumps(json.loads(text), ensure_ascii=False),
    "escaped slashes": lambda text: text.replace("/", "\\/"),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_byte_but_the_name_stays(layout):
    cell = f'x = "\u00fc/\U0001f600\\"\t"; f("""{OLD[:3]}""", {OLD}=1)\ng({OLD}=2)'
    text = layout(book(cell))
    expected = text.replace(f" {OLD}=", f" {NEW}=").replace(f"g({OLD}=", f"g({NEW}=")
    assert expected != text
    assert migrated(text) == expected
    assert migrated(expected) == expected


def test_a_source_of_one_string_and_escaped_letters():
    text = '{"cells": [{"source": "a\\nf(tr\\u0061iner=1)", "cell_type": "code"}]}'
    expected = '{"cells": [{"source": "a\\nf(actor_wg=1)", "cell_type": "code"}]}'
    assert places(text) == [(1, 2, 2)]
    assert migrated(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cells" 1}',
        '{"cells": [] 1}',
        "{1: 2}",
        '{"cells": 1}',
        '{"cells": [1]}',
        '{"cells": [{"source": [1]}]}',
        "<<<<<<<",
    ],
)
def test_what_is_no_notebook_says_so_in_one_line(text):
    with pytest.raises(DocumentError) as caught:
        notebook.view(text)
    assert "\n" not in str(caught.value)


def test_stale_edits_are_refused():
    text = book("f(x)")
    for cell, span in ((1, Span(1, 1, 1, 2)), (1, Span(9, 0, 9, 1)), (1, Span(1, 2, 1, 9))):
        fix = Fix("rename", (Edit(span, NEW),))
        with pytest.raises(EditError):
            notebook.apply(text, [Finding("AWG001", span, "old", Safety.SAFE, fix, cell)])


def test_a_name_that_cannot_be_reached_is_refused():
    spread = '{"cells": [{"cell_type": "code", "source": ["f(trai", "ner=1)"]}]}'
    assert places(spread) == [(1, 1, 2)]
    with pytest.raises(EditError):
        migrated(spread)
    site = Finding("AWG001", Span(1, 0, 1, 1), "old", Safety.SAFE, sites(spread)[0].fix, 7)
    with pytest.raises(DocumentError):
        notebook.apply(spread, [site])


def test_a_manual_finding_is_placed_too():
    view = notebook.view(book("%pwd\nf(x)"))
    moved = view.relocate(Finding("AWG902", Span(2, 2, 2, 3), "look", Safety.MANUAL))
    assert (moved.cell, moved.span, moved.fix) == (1, Span(2, 2, 2, 3), None)


def test_python_that_is_nested_too_deeply_is_a_broken_cell():
    view = notebook.view(book("(" * 5000 + ")" * 5000, "x = '\0'", f"f({OLD}=1)"))
    assert view.problem is not None
    assert view.source == f"f({OLD}=1)"


def test_a_fix_that_needs_two_cells_is_left_to_a_person():
    view = notebook.view(book(f"{OLD} = 1", f"f({OLD})"))
    first, second = Span(1, 0, 1, 7), Span(2, 2, 2, 9)
    fix = Fix("rename", (Edit(first, NEW), Edit(second, NEW)))
    moved = view.relocate(Finding("AWG101", first, "old", Safety.NAMING, fix))
    assert (moved.code, moved.safety, moved.fix, moved.cell) == ("AWG902", Safety.MANUAL, None, 1)


PIECES = st.sampled_from(
    [
        *(f"f({OLD}=1)", f"%time f({OLD}=2)", f"!run {OLD}", "%pwd", f"%%bash\n{OLD}"),
        *("x = '''\n%a\n'''", "if x:\n    !ls", "y = (1\n%2)", "def broken("),
        *("x = \U0001f600", "s = '\u00fc\\\\\\''", "", "# it's"),
    ]
)
CELLS = st.lists(st.lists(PIECES, max_size=4).map("\n".join), max_size=4)


@given(CELLS, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_generated_notebooks_change_only_in_names(cells, ascii_only, indent):
    text = book(*cells, ensure_ascii=ascii_only, indent=indent)
    view = notebook.view(text)
    ast.parse(view.source)
    assert len(view.rows) == view.source.count("\n") + 1 or not view.source
    after = migrated(text)
    assert re.sub(NEW, OLD, after) == text
    assert len(re.findall(NEW, after)) == len(sites(text))
    assert sites(after) == []
