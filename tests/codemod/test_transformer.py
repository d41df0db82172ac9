"""Edits through libcst: every kind of word, every layout, and what is refused."""

from __future__ import annotations

import keyword
import re
import sysconfig
from pathlib import Path

import libcst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actor_wg_codemod import chunks, splicing, transformer
from actor_wg_codemod.model import Edit, Span
from actor_wg_codemod.source import Source, SourceError, decode, parse
from actor_wg_codemod.splicing import EditError

OLD, NEW = "trainer", "actor_wg"


def edits_of(source, word=OLD, new=NEW, keep=()):
    """An edit for each whole word, but for those whose number is in `keep`."""
    found = []
    for number, match in enumerate(re.finditer(rf"\b{word}\b", source.text)):
        if number not in keep:
            line, column = source.place(match.start())
            found.append(Edit(Span(line, column, line, column + len(word)), new))
    return found


def applied(text, **options):
    source = Source(text)
    return transformer.apply(source, parse(text), edits_of(source, **options))


TEXTS = [
    "f(trainer=trainer)",
    "x = 1\nf(trainer=1)\ny = 2\n",
    "def f(self, trainer, *, k=trainer):\n    del trainer\n    return trainer\n",
    "class A:\n    def f(self):\n        # trainer\n        return self.trainer.trainer\n",
    "async def f():\n    await g(trainer=1)\n    yield trainer\n    async with trainer as t: pass\n",
    "if a:\n    f(trainer=1)\nelif trainer:\n    g(trainer=2)\nelse:\n    h(trainer=3)\n",
    "try:\n    f(trainer=1)\nexcept trainer:\n    g(trainer=2)\nfinally:\n    h(trainer=3)\n",
    "match x:\n    case A(trainer=1):\n        f(trainer=1)\n    case trainer:\n        pass\n",
    "if a: f(trainer=1)\nelse: f(trainer=2)\n",
    "while trainer: f(); g(trainer=1)\n",
    "class A: trainer = 1\n",
    "a = (\n1); f(trainer=1); b = (\n2)\nc = 3\n",
    "x = f(\n    trainer=1); y = [\n    trainer]\n",
    "a = 1; \\\n  f(trainer=1)\nb = trainer\n",
    "@trainer(\n    trainer)\ndef f(): pass\n",
    "@a\n@b(trainer=1)\nclass C(trainer): trainer: int\n",
    "print((  # trainer\n    trainer  # trainer\n))\n",
    "f((  # trainer\n  'trainer'  # trainer\n  'trainer'))\n",
    "f'{trainer} trainer {x:{trainer}} {y!r:trainer}' 'trainer' f'''{trainer\n}'''\n",
    '"""trainer\n\ntrainer"""\nx = b"trainer"\n',
    "# trainer\n\n\n# trainer \\\nif a:\n    # trainer\n    pass\n    # trainer\n# trainer",
    "global_ = 1\ndef f():\n    global trainer\n    nonlocal_ = lambda trainer: trainer\n",
    "from a import trainer as b, c as trainer\nimport trainer.trainer\n",
    "for trainer in [t for trainer in trainer if trainer]: pass\n",
    "with a as trainer, \\\n        b(trainer=1) as c:\n    pass\n",
    "def f():\n\tif x:\n\t    return g(trainer=1)\n\treturn trainer\n",
    "def f():\n  if x:\n        g(trainer=1)\n  return trainer",
    "x = 1\r\nif x:\r\n    f(trainer=1)\r\n\r\n    g('''\r\n trainer''')\r\n",
    "x = 1\rif x:\r    f(trainer=1)\r",
    "x = 1\r\nif x:\n    f(trainer=1)\r\n    g(trainer=2)\n",
    "\x0cif x:\n\x0c    f(trainer=1)\n    \x0c\n    g(trainer=2)  \t \n",
    "if x:\n    f(trainer=1)\n    \n  \n    # c\n  # trainer\n    g(trainer=2)\n",
    "x = 1\n\x0cf(trainer=1)\n\x0c\ndef g():\n\x0c    trainer\n\x0c# trainer\n",
    "x = '\u00e9\u00e9'; f(trainer='\U0001f600', a=trainer)\n",
    "num_trainer = trainer_world_size = trainer\n",
    "def f(a, /, trainer, *trainers, b: trainer = trainer, **c) -> trainer: ...\n",
    "x = trainer if trainer else not trainer\nassert trainer, trainer\nraise trainer from trainer\n",
    "f(*trainer, **trainer)[trainer:trainer, ...]\n{**trainer, trainer: trainer}\n",
    "'\\ntrainer' + r'\\trainer'\n",
    "#!/usr/bin/trainer\n# coding: utf-8\n",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_word_is_found_and_nothing_else_moves(text):
    assert applied(text) == re.sub(rf"\b{OLD}\b", NEW, text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_whole_module_gives_the_same(text):
    module = libcst.parse_module(text)
    if module.code != text:
        pytest.skip("libcst itself does not keep every byte of this text")
    assert transformer.transform(module, edits_of(Source(text))).code == applied(text)


def test_only_the_words_of_the_edits_change():
    text = "f(trainer=trainer)  # trainer\ntrainer = 'trainer'\n"
    assert applied(text, keep={0, 2, 4}) == "f(trainer=actor_wg)  # trainer\nactor_wg = 'trainer'\n"


def test_a_word_after_an_escape_can_be_edited():
    text = "'\\ntrainer trainer'"
    edit = Edit(Span(1, 3, 1, 10), NEW)
    assert transformer.apply(Source(text), parse(text), [edit]) == "'\\nactor_wg trainer'"


def test_the_same_edit_twice_is_one_edit():
    source = Source("trainer\n")
    edits = edits_of(source) * 2
    assert transformer.apply(source, parse(source.text), edits) == "actor_wg\n"


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([(1, 0, 1, 6)], "overlap|stale"),
        ([(1, 0, 1, 7), (1, 5, 1, 7)], "line 1, column 6: two edits overlap"),
        ([(1, 8, 1, 9)], "line 1, column 9: the edit is stale, '=' is not a name"),
        ([(1, 0, 1, 0)], "the edit is stale, '' is not a name"),
        ([(1, 0, 2, 3)], "is not a name"),
        ([(3, 0, 3, 7)], "line 3, column 1: the edit is stale, the text has no such place"),
        ([(1, 7, 1, 70)], "the text has no such place"),
    ],
)
def test_stale_and_overlapping_edits_are_refused(spans, reason):
    source = Source("trainer = 1\nx = 2")
    edits = [Edit(Span(*span), NEW) for span in spans]
    if spans == [(1, 0, 1, 6)]:  # a part of a word is spliced, but it is no name of libcst's
        edits.append(Edit(Span(1, 0, 1, 7), NEW))
    with pytest.raises(EditError, match=reason):
        transformer.apply(source, parse(source.text), edits)


def test_too_deep_for_libcst_is_refused():
    text = "x = " + "(" * 90 + "a" + ".b" * 700 + ")" * 90 + "(trainer=1)\n"
    with pytest.raises(EditError, match="nested too deeply"):
        transformer.apply(Source(text), parse(text), edits_of(Source(text)))


def test_a_long_chain_of_elif_is_no_nesting():
    text = "if a:\n    b\n" + "elif c:\n    f(trainer=1)\n" * 900
    edits = edits_of(Source(text))
    try:
        tree = parse(text)
    except SourceError:
        pytest.skip("too deep for this Python's own parser")
    assert transformer.apply(Source(text), tree, edits[-1:]).count("actor_wg") == 1


def test_small_statements_are_all_that_libcst_sees():
    body = "".join(f"    x{n} = {n}\n" for n in range(1000))
    text = f"def f():\n{body}    g(trainer=1)\n{body}\nclass A:\n    def h(self, trainer): ...\n"
    source = Source(text)
    changes = splicing.replacements(source, edits_of(source))
    sizes = [chunk.end - chunk.start for chunk in chunks.chunks(source, parse(text), changes)]
    assert len(sizes) == 2
    assert max(sizes) < 50


def sources():
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            source = decode(path.read_bytes())
            yield path.name, source, parse(source.text)
        except SourceError:
            continue


SOURCES = list(sources())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_words_of_real_files(data):
    name, source, tree = data.draw(st.sampled_from(SOURCES), label="file")
    words = sorted({w for w in re.findall(r"[a-z_]{4,}", source.text) if not keyword.iskeyword(w)})
    word = data.draw(st.sampled_from(words), label="word")
    edits = edits_of(source, word, "renamed")
    if edits:
        some = data.draw(st.lists(st.sampled_from(edits), min_size=1, max_size=20))
        changes = splicing.replacements(source, some)
        assert transformer.apply(source, tree, some) == splicing.splice(source.text, changes), name
