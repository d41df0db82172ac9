"""Nothing but the renamed names differs in a written file, whatever its bytes look like."""

from __future__ import annotations

import pytest

from helpers import run, snapshot, write_tree

IMPORT = b"from verl.checkpoint_engine import CheckpointEngineManager"
CALL = b"CheckpointEngineManager(config=None, trainer=None, replicas=[])"
METHOD = b"class A:\n    def f(self, wg):\n        return " + CALL + b"\n"

FILES = {
    "crlf": b"\r\n".join([IMPORT, b"", b"x = " + CALL, b""]),
    "cr": b"\r".join([IMPORT, b"", b"x = " + CALL, b""]),
    "mixed endings": IMPORT + b"\r\nif IMPORT:\n    x = " + CALL + b"\r\n    y = 1\r",
    "byte order mark": b"\xef\xbb\xbf" + IMPORT + b"\nx = " + CALL + b"\n",
    "mark, crlf and cookie": b"\xef\xbb\xbf# coding: utf-8\r\n" + IMPORT + b"\r\nx = " + CALL,
    "latin-1 cookie": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n" + IMPORT + b"\nx = '\xe9', " + CALL + b"\n",
    "cp1252 cookie on line 2": b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\n" + IMPORT + b"\nx = '\x80', " + CALL + b" # \x80\n",
    "tabs": IMPORT + b"\nif x:\n\tif y:\n\t\tx =\t" + CALL + b"\t\n\telse:\n\t        pass\n",
    "form feeds": b"\x0c" + IMPORT + b"\n\x0c\nx = 1\n\x0cy = " + CALL + b"\n\x0c",
    "no final newline": IMPORT + b"\nx = " + CALL,
    "comment at the end": IMPORT + b"\nx = " + CALL + b"  # trainer \\",
    "trailing blanks": IMPORT + b"   \n\n  \t \nx = " + CALL + b"  \t \n\n\n   ",
    "non-ASCII on the line": IMPORT + "\nx = '\u00e9\U0001f600', ".encode() + CALL + b"\n",
    "non-ASCII names": IMPORT + "\n\u00e9t\u00e9 = ".encode() + CALL + "  # \u00fc\n".encode(),
    "separators that end no line": IMPORT + "\ns = '\u2028\x0b\x1c\x85'; x = ".encode() + CALL + b"\n",
    "backslashes": IMPORT + b"\nx = \\\n  " + CALL + b"; \\\n  y = 1\n",
    "semicolons": IMPORT + b"; x = 1; y = " + CALL + b"; z = (\n1)\n",
    "on several lines": IMPORT + b"\nx = CheckpointEngineManager(\n  config=None,  # one\n\ttrainer  = (  # two\n   None),\n replicas=[]  ,\n)\n",
    "in a class": IMPORT + b"\n" + METHOD,
    "in a string of lines": IMPORT + b"\nx = f'''\n {" + CALL + b"!r:>{y}}\n''', '''trainer\n'''\n",
    "in a decorator": IMPORT + b"\n@f(" + CALL + b")\ndef g(): pass\n",
    "one line": b"if 1: " + IMPORT + b"; " + CALL,
}  # fmt: skip


@pytest.mark.parametrize("data", FILES.values(), ids=FILES.keys())
def test_only_the_name_changes(tmp_path, data):
    write_tree(tmp_path, {"a.py": data})
    result = run("migrate", folder=tmp_path)
    assert (result.status, result.out) == (0, ""), result.err
    expected = data.replace(b"trainer=N", b"actor_wg=N").replace(b"trainer  = (", b"actor_wg  = (")
    assert expected != data
    assert snapshot(tmp_path) == {"a.py": expected}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES.keys())
def test_reverse_gives_back_the_same_bytes(tmp_path, data):
    write_tree(tmp_path, {"a.py": data})
    assert run("migrate", folder=tmp_path).status == 0
    assert run("migrate", "--reverse", folder=tmp_path).status == 0
    assert snapshot(tmp_path) == {"a.py": data}


HUGE = b"\n".join([IMPORT, *(b"x%d = [%d, 'filler']" % (n, n) for n in range(40_000)), CALL, b""])
FAILING = {
    "binary.py": (b"\x7fELF\x00\x01CheckpointEngineManager(trainer=1)\n", "null byte"),
    "latin.py": (IMPORT + b"\nx = '\xe9', " + CALL, "line 2: byte 0xe9 is not UTF-8"),
    "cookie.py": (b"# coding: klingon\n" + IMPORT + b"\n" + CALL, "unknown encoding klingon"),
    "broken.py": (IMPORT + b"\ndef f(:\n" + CALL, "line 2: syntax error"),
    "python2.py": (IMPORT + b"\nprint 'x'\n" + CALL, "Python 2"),
    "deep.py": (IMPORT + b"\n" + CALL + b"\n" + b"-" * 20_000 + b"1\n", "nested too deeply"),
}


def test_files_that_fail_are_named_and_never_stop_the_rest(tmp_path):
    good = {"good.py": IMPORT + b"\n" + CALL, "huge.py": HUGE}
    files = {**good, **{name: data for name, (data, _) in FAILING.items()}}
    write_tree(tmp_path, files)
    result = run("migrate", folder=tmp_path)
    assert (result.status, result.out) == (2, "")
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert sorted(line.split(":")[1].strip() for line in lines) == sorted(FAILING)
    for name, (_, reason) in FAILING.items():
        (line,) = [line for line in lines if line.startswith(f"error: {name}: ")]
        assert reason in line
    assert "Traceback" not in result.err
    assert result.err.splitlines()[-1] == (
        "2 files read, changed 2 (2 edits), 6 skipped, 0 findings left"
    )
    fixed = {name: data.replace(b"trainer=", b"actor_wg=") for name, data in good.items()}
    assert snapshot(tmp_path) == {**files, **fixed}


def test_files_that_fail_and_hold_no_old_name_are_nobody_s_business(tmp_path):
    write_tree(tmp_path, {"binary.py": b"\x00\xff", "broken.py": b"def f(:\n"})
    assert run("migrate", folder=tmp_path).status == 0
