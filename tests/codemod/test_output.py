"""What is printed: text, JSON with ruff's field names, the summary, and unified diffs."""

from __future__ import annotations

import json
import subprocess

import pytest

from actor_wg_codemod import diffs, output
from actor_wg_codemod.discovery import Target
from actor_wg_codemod.model import Edit, FileResult, Finding, Fix, Problem, Safety, Span
from actor_wg_codemod.runner import Outcome, Run
from actor_wg_codemod.source import Source

EDIT = Edit(Span(3, 4, 3, 11), "actor_wg")
FIXABLE = Finding("AWG001", EDIT.span, "takes actor_wg=", Safety.SAFE, Fix("use actor_wg", (EDIT,)))
UNSAFE = Finding("AWG901", EDIT.span, "perhaps", Safety.UNSAFE, Fix("use actor_wg", (EDIT,)))
MANUAL = Finding("AWG902", Span(5, 0, 5, 7), "look here", Safety.MANUAL)
IN_CELL = Finding("AWG003", Span(1, 0, 1, 7), "reads it", Safety.SAFE, FIXABLE.fix, cell=2)


def outcome(name="a.py", findings=(), fixed=(), new=None):
    return Outcome(Target(name, name), Source(""), tuple(findings), tuple(fixed), new)


def test_text_has_a_line_for_each_finding():
    listed = [FileResult("pkg/a.py", [FIXABLE, MANUAL]), FileResult("n.ipynb", [IN_CELL])]
    assert output.text(listed) == (
        "pkg/a.py:3:5: AWG001 [*] takes actor_wg=\n"
        "pkg/a.py:5:1: AWG902 look here\n"
        "n.ipynb:cell 2:1:1: AWG003 [*] reads it\n"
    )


def test_json_has_the_fields_of_ruff():
    first, second, third = json.loads(
        output.as_json([FileResult("a.py", [FIXABLE, UNSAFE, MANUAL])])
    )
    location, end_location = {"row": 3, "column": 5}, {"row": 3, "column": 12}
    edit = {"content": "actor_wg", "location": location, "end_location": end_location}
    assert first == {
        "code": "AWG001",
        "message": "takes actor_wg=",
        "filename": "a.py",
        "location": location,
        "end_location": end_location,
        "fix": {"applicability": "safe", "message": "use actor_wg", "edits": [edit]},
        "noqa_row": 3,
        "url": None,
        "cell": None,
    }
    assert second["fix"]["applicability"] == "unsafe"
    assert third["fix"] is None
    assert json.loads(output.as_json([FileResult("n.ipynb", [IN_CELL])]))[0]["cell"] == 2
    assert json.loads(output.as_json([])) == []


@pytest.mark.parametrize(
    ("run", "writes", "line"),
    [
        (Run((), (), 1, 0), True, "1 file read, changed 0, 0 skipped, 0 findings left"),
        (
            Run((outcome(findings=[MANUAL]), outcome(fixed=[FIXABLE], new=b"")), (), 7, 2),
            True,
            "7 files read, changed 1 (1 edit), 2 skipped, 1 finding left in 1 file",
        ),
        (
            Run((outcome(findings=[MANUAL, MANUAL], fixed=[FIXABLE], new=b""),), (), 7, 0),
            False,
            "7 files read, would change 1 (1 edit), 0 skipped, 2 findings left in 1 file",
        ),
    ],
)
def test_the_summary_always_counts_read_changed_skipped_and_left(run, writes, line):
    assert output.summary(run, writes=writes) == line


def test_hints_say_what_to_do_next():
    run = Run((outcome(findings=[FIXABLE, MANUAL]),), (), 1, 0, hidden=2)
    assert list(output.hints(run, migrating=False)) == [
        "1 finding [*] fixable with `actor-wg migrate`",
        "2 more findings are not proven to be about verl (AWG901): `--unsafe-fixes` includes them",
    ]
    assert len(list(output.hints(run, migrating=True))) == 1
    assert list(output.hints(Run((), (), 1, 0), migrating=False)) == []


def test_problems_are_among_the_results():
    run = Run((outcome(), outcome("b.py", [MANUAL])), (Problem("c.py", "is broken"),), 2, 1)
    results = output.results(run)
    assert [result.path for result in results] == ["b.py", "c.py"]
    assert results[1].problem == Problem("c.py", "is broken")


LINES = [b"line %d\n" % number for number in range(1, 31)]


@pytest.mark.parametrize(
    "changed",
    [
        [0],
        [29],
        [14],
        [0, 29],
        [3, 4, 5],
        [3, 9],
        [3, 10],
        [3, 11],
        [0, 1, 7, 8, 20],
        list(range(30)),
    ],
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_git_applies_the_diff(tmp_path, changed, ending):
    old = b"".join(LINES)[:-1] + ending
    lines = old.split(b"\n")
    for number in changed:
        lines[number] = lines[number].replace(b"line", b"l\xe9ne")
    new = b"\n".join(lines)
    (tmp_path / "a.py").write_bytes(old)
    diff = diffs.unified("a.py", old, new)
    for options in (["--numstat"], []):
        apply = ["git", "apply", "--whitespace=nowarn", *options, "-"]
        done = subprocess.run(apply, cwd=tmp_path, input=diff, capture_output=True, check=True)
        if options:
            assert done.stdout.split() == [b"%d" % len(changed)] * 2 + [b"a.py"]
    assert (tmp_path / "a.py").read_bytes() == new


def test_a_diff_reads_like_one():
    old = b"one\ntwo\nthree\nfour\nfive"
    assert diffs.unified("pkg/a.py", old, old.replace(b"five", b"5")) == (
        b"--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -2,4 +2,4 @@\n two\n three\n four\n-five\n"
        b"\\ No newline at end of file\n+5\n\\ No newline at end of file\n"
    )
    assert diffs.unified("a", b"x\n", b"y\n") == b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"


def test_a_diff_is_only_of_lines_changed_in_place():
    with pytest.raises(ValueError, match="added or taken away"):
        diffs.unified("a.py", b"x\n", b"x\ny\n")
