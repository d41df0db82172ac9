"""Nodes inside f-strings stand where the text has them, whatever Python runs."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actor_wg_codemod.source import Source, SourceError, decode, parse

OLD_PYTHON = sys.version_info < (3, 12)


def misplaced(text):
    """The names inside f-strings whose span does not hold exactly that name."""
    lines = [line.encode() for line in Source(text).lines]
    wrong = []
    found = 0
    for string in ast.walk(parse(text)):
        if not isinstance(string, ast.JoinedStr):
            continue
        for node in ast.walk(string):
            if isinstance(node, ast.Name):
                found += 1
                there = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                if there != node.id:
                    wrong.append((node.id, there))
    assert found, "nothing was looked at"
    return wrong


@pytest.mark.parametrize(
    "text",
    [
        "f'{a}'",
        "x = 1; y = f'{a}{b!r}{c:>10}'",
        "f'{a=}{b = }{c=!r}{d=:>4}'",
        "f'{{x}} {{{a}}} }}{{ {b}'",
        "f'{a:{b}}{c:{d}.{e}}'",
        "f'{a:%H:{b}:%M}'",
        "f'{a!r:^{b}}'",
        "f'{a!=b}{a==b}{a<=b}{a>=b}{a<b}{a>b}'",
        "f'{(lambda x: x)(a)}'",
        "f'{a[1:b]}{ {c: d} }{a if b else c}'",
        "f'{a[\"}:!\"]}{b}'",
        "f'''{a[\"'\"]}{b}'''",
        "f'''{f\"{a}{f'{b}'}\"}{c}'''",
        "f'{x:{f\"{a}\"}}{b}'",
        "'plain {a}' f'{a}' \"{b}\" f\"{c}\"",
        "(\n    'plain'\n    f'{a}'  # comment {b}\n    rF'\\{c}' \\\n    Rf'\\N{d}'\n)",
        "f'\\N{LATIN SMALL LETTER A}{a}\\{b}\\\\{c}\\'{d}'",
        "rf'\\N{a}\\'{b}'",
        "f'''\n{a}\n  {b\n    + c}\n{d:{e}}\n'''",
        "f'''\\\n{a}'''; f'\\\n{b}'",
        "x = '\u00e9\u00e9'; f'\u00e9{a}\U0001f600{b:\u00e9{c}}\u00e9' f'{d}'",
        "f'''\u00e9\n\u00e9{a}\n\U0001f600{b}'''",
        "def f():\n\tif x:\n\t\treturn f'{a}\t{b}'",
        "\x0cf'{a}'",
        "f'{a, b}{*c, d}{ e,}'",
        "f'{(a)}{ (b, c) }{((d))}'",
        "f'{a}'.format(f'{b}')[f'{c}']",
        "@f('x')\n@g(f'{a}')\ndef h(p=f'{b}') -> f'{c}': ...",
        "async def f():\n    f'{await a}{[x async for x in b]}'",
        "def f():\n    f'{(yield a)}{yield}'\n    f'{b}'",
        "f'{(a := b)}{c:=^4}'",
        "with open(f'{a}') as f: assert f'{b}', f'{c}'",
        "match f'{a}':\n    case x if f'{b}': f'{c}'",
        "f'{a}'\r\nf'''\r\n{b}\r\n'''\rf'{c}'",
    ],
)
def test_every_name_stands_where_the_text_has_it(text):
    assert misplaced(text) == []


NAMES = st.sampled_from(["a", "name", "self.trainer", "x[0]", "f(a, k=b)", "{k: v}", "(a, b)"])
LITERALS = st.sampled_from(
    ["", "text", "{{", "}}", "{{x}}", "\u00e9", "\U0001f600 ", "\\n", ": ! ="]
)


@st.composite
def fields(draw, depth=0):
    expression = draw(NAMES)
    if depth < 1 and draw(st.booleans()):
        expression = (
            'f"' + draw(st.sampled_from(["", "z"])) + "{" + draw(st.sampled_from("ab")) + '}"'
        )
    tail = draw(
        st.sampled_from(["", " ", "=", "!r", "=!s", ":>4", ":{w}", "!a:{w}.{p}", " = :{w}x"])
    )
    space = " " if expression.startswith("{") else draw(st.sampled_from(["", " "]))
    return "{" + space + expression + tail + "}"


@st.composite
def programs(draw):
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        quote = draw(st.sampled_from(["'", "'''"]))
        newline = draw(st.sampled_from(["", "\n"])) if quote == "'''" else ""
        inside = "".join(draw(st.lists(st.one_of(LITERALS, fields()), max_size=4)))
        parts.append(draw(st.sampled_from(["f", "F"])) + quote + newline + inside + quote)
    before = draw(st.sampled_from(["", "x = ", "'\u00e9' + ", "g(", "if y:\n    z = ("]))
    between = draw(st.sampled_from([" ", "\n  ", " # {c}\n", "\\\n"])) if "(" in before else " "
    return before + between.join([*parts, "f'{end}'"]) + (")" if "(" in before else "")


@given(programs())
@settings(max_examples=300, deadline=None)
def test_names_of_generated_strings_stand_where_the_text_has_them(text):
    assert misplaced(text) == []


@pytest.mark.skipif(not OLD_PYTHON, reason="positions are Python's own from 3.12 on")
def test_only_strings_with_a_wanted_word_are_touched():
    text = "f'{one}'\nf'{two}'\n"
    everything, some = parse(text), parse(text, words=["two"])
    untouched, touched = some.body
    assert ast.dump(touched, include_attributes=True) == ast.dump(
        everything.body[1], include_attributes=True
    )
    plain = ast.parse(text).body[0]
    assert ast.dump(untouched, include_attributes=True) == ast.dump(plain, include_attributes=True)


def positions(tree):
    """Every node in a field of an f-string, with its place."""
    rows = []
    for field in ast.walk(tree):
        if isinstance(field, ast.FormattedValue):
            for node in [field, *ast.walk(field.value)]:
                if isinstance(node, ast.expr):
                    place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
                    rows.append([type(node).__name__, *place])
    return rows


def newer_python():
    """A Python from 3.12 on that runs here, by its path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(name) for name in ("python3.12", "python3.13")]
    found += sorted(map(str, pyenv.glob("versions/3.1[2-9]*/bin/python")))
    for path in filter(None, found):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


DUMP = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
POSITIONS
for line in sys.stdin:
    print(json.dumps(positions(ast.parse(json.loads(line)))))
"""


@pytest.mark.skipif(not OLD_PYTHON, reason="positions are Python's own from 3.12 on")
def test_agrees_with_a_newer_python_on_the_standard_library():
    newer = newer_python()
    if newer is None:
        pytest.skip("no newer Python here to compare with")
    texts, ours = [], []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        data = path.read_bytes()
        if b'f"' not in data and b"f'" not in data:
            continue
        try:
            text = decode(data).text
            ours.append(positions(parse(text)))
        except SourceError:
            continue
        texts.append(text)
    program = DUMP.replace("POSITIONS", inspect.getsource(positions))
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run(
        [newer, "-c", program], input=lines, capture_output=True, text=True, check=True
    )
    theirs = [json.loads(line) for line in run.stdout.splitlines()]
    assert sum(map(len, ours)) > 1000
    assert ours == theirs
