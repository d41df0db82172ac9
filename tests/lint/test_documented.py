"""Every code has a page, a case and a line in the changelog, and every page's example holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from actor_wg_codemod import rules
from actor_wg_codemod.formats import SUMMARIES
from actor_wg_codemod.selection import CODES
from helpers import FIXTURES, read_case, run

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "RULES.md").read_text("utf-8")
HEADINGS = ["What it does", "Why is this bad?", "Example", "Use instead", "Fix safety"]
FLAGS = {
    "AWG101": ["--naming"],
    "AWG102": ["--naming"],
    "AWG201": ["--select", "AWG201"],
    "AWG901": ["--unsafe-fixes"],
}
BY_HAND = ("AWG201", "AWG902")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(code: str) -> str:
    found = rules.section(PAGES, code)
    assert found is not None, f"RULES.md has no section for {code}"
    return found


def test_the_pages_are_those_of_the_codes_in_order():
    assert re.findall(r"^## (\w+): .+$", PAGES, re.MULTILINE) == list(CODES)
    assert set(SUMMARIES) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_the_five_headings_and_text_below_each(code):
    title, *parts = re.split(r"^### ", page(code), flags=re.MULTILINE)
    assert title.startswith(f"## {code}: ")
    assert [part.partition("\n")[0] for part in parts] == HEADINGS
    assert all(part.partition("\n")[2].strip() for part in parts)


@pytest.mark.parametrize("code", CODES)
def test_the_example_is_flagged_and_becomes_what_to_use_instead(code, tmp_path):
    (language, before), (_, after) = _BLOCK.findall(page(code))
    for text in (before, after):
        if language == "python":
            ast.parse(text)
    name = {"python": "example.py", "yaml": "example.yaml"}[language]
    flags = FLAGS.get(code, [])
    (tmp_path / name).write_text(before, "utf-8")
    found = run("check", "--output-format", "json", *flags, folder=tmp_path).findings
    assert code in {line.split(":")[2] for line in found}
    run("migrate", "--quiet", *flags, folder=tmp_path)
    assert (tmp_path / name).read_text("utf-8") == (before if code in BY_HAND else after)
    (tmp_path / name).write_text(after, "utf-8")
    assert run("check", "--quiet", *flags, folder=tmp_path).status == 0


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_case_that_expects_it(code):
    paths = sorted(FIXTURES.glob("cases*/*.case"))
    assert any(
        finding.split(":")[2] == code
        for path in paths
        if f":{code}:" in path.read_text("utf-8")
        for finding in read_case(path).findings
    )


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_line_in_the_changelog(code):
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^- {code}: \S", text, re.MULTILINE)


@pytest.mark.parametrize("code", CODES)
def test_the_command_line_prints_the_page(code):
    result = run("rule", code.lower())
    assert (result.status, result.err) == (0, "")
    assert result.out.strip() == page(code)


def test_a_number_sign_in_an_example_does_not_end_a_page():
    text = "# Rules\n\n## AWG001: one\n\n```python\n# AWG002 is no heading\n```\n\nEnd.\n\n## AWG002: two\n"
    assert (rules.section(text, "AWG001") or "").endswith("End.")
    assert rules.section(text, "AWG002") == "## AWG002: two"
