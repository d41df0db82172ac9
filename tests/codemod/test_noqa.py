"""Which lines `# noqa` silences, and for which codes."""

from __future__ import annotations

import pytest

from actor_wg_codemod.noqa import NoqaLines, is_silenced
from actor_wg_codemod.source import Source


@pytest.mark.parametrize(
    ("line", "silenced"),
    [
        ("x  # noqa", True),
        ("x  # NoQA", True),
        ("x  # noqa: AWG001", True),
        ("x  # noqa:AWG001", True),
        ("x  # noqa: E501,AWG001", True),
        ("x  # noqa: E501, AWG001", True),
        ("x  # noqa: E501 AWG001", True),
        ("x  # noqa: awg001", True),
        ("x  # noqa: AWG0", True),
        ("x  # noqa: AWG001 because", True),
        ("x  # type: ignore  # noqa: AWG001", True),
        ("x  # noqa : AWG002", True),
        ("x  # noqa because", True),
        ("x  # noqa: AWG002", False),
        ("x  # noqa: E501", False),
        ("x  # noqa:  AWG002", True),
        ("x  # nosec", False),
        ("x", False),
    ],
)
def test_noqa_is_read_as_flake8_reads_it(line, silenced):
    assert is_silenced(line, "AWG001") is silenced


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1  # noqa\nb = 2\n", {1}),
        ("a = f(\n    b,  # noqa\n    c,\n)\n", {2}),
        ('a = """\ntrainer\n"""  # noqa\nb = 2\n', {1, 2, 3}),
        ("a = b + \\\n    c  # noqa\nd = 1\n", {1, 2}),
        ('f(\n    """\n    x""", y)  # noqa\n', {2, 3}),
        ("a = (  # noqa\n", {1}),
        ("a = 1\r\nb = 2  # noqa\r\n", {2}),
    ],
)
def test_noqa_counts_on_all_lines_of_a_string_or_a_continuation(text, lines):
    source = Source(text)
    noqa = NoqaLines(source, python=True)
    found = {n for n in range(1, len(source.lines) + 1) if noqa.silences(n, "AWG001")}
    assert found == lines


def test_noqa_in_other_files_counts_on_its_own_line():
    noqa = NoqaLines(Source("a: |\n  'x\n  y'  # noqa\n"), python=False)
    assert [noqa.silences(n, "AWG021") for n in (1, 2, 3)] == [False, False, True]


def test_flake8_reads_the_same_lines():
    defaults = pytest.importorskip("flake8.defaults")
    pattern = getattr(defaults, "NOQA_INLINE_REGEXP", None) or defaults.NOQA_INLINE_REGEX
    for line in ("x  # noqa", "x  # noqa: E501,W1", "x  # NOQA:A1", "x # nosec", "# noqa : A1"):
        assert bool(pattern.search(line)) == is_silenced(line, "E501") | is_silenced(line, "A1")
