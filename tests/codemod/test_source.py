"""Reading source: encodings, line endings, and the reason why a file does not parse."""

from __future__ import annotations

import sys

import pytest

from actor_wg_codemod.source import Source, SourceError, decode, encode, parse


@pytest.mark.parametrize(
    ("data", "encoding", "bom"),
    [
        (b"", "utf-8", False),
        (b"x = 1\r\ny = 2\rz = 3\n", "utf-8", False),
        ("name = 'd\u00e9j\u00e0'\n".encode(), "utf-8", False),
        (b"\xef\xbb\xbfx = 1\r\n", "utf-8", True),
        (b"\xef\xbb\xbf# coding: utf-8\nx = 1\n", "utf-8", True),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "latin-1", False),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n", "cp1252", False),
        (b"\x0c# coding=iso-8859-15\rx = '\xa4'", "iso-8859-15", False),
        (b"x = 1\n# coding: latin-1\n", "utf-8", False),
    ],
)
def test_comes_back_byte_for_byte(data, encoding, bom):
    source = decode(data)
    assert (source.encoding, source.bom) == (encoding, bom)
    assert encode(source, source.text) == data


@pytest.mark.parametrize(
    ("data", "reason", "line"),
    [
        (b"x = 1\r\ny = '\xff'\n", "byte 0xff is not UTF-8, and no encoding is declared", 2),
        (b"# coding: ascii\nx = '\xc3'\n", "byte 0xc3 is not ascii", 2),
        (b"# coding: klingon\n", "declares the unknown encoding klingon", 1),
        (b"# coding: rot13\n", "declares the unknown encoding rot13", 1),
        (b"\xef\xbb\xbf# coding: latin-1\n", "byte order mark but declares latin-1", 1),
        (b"# coding: raw_unicode_escape\nx = '\\u0041'\n", "cannot be written back", None),
    ],
)
def test_says_why_it_cannot_be_decoded(data, reason, line):
    with pytest.raises(SourceError) as caught:
        decode(data)
    assert reason in caught.value.reason
    assert caught.value.line == line


def test_refuses_a_text_that_the_encoding_cannot_express():
    with pytest.raises(SourceError, match="cannot be encoded as latin-1"):
        encode(decode(b"# coding: latin-1\n"), "\u20ac")


def test_lines_split_only_where_python_splits():
    source = Source("a\x0cb\vc\u2028d\r\ne\rf\n\x85g")
    assert source.lines == ("a\x0cb\vc\u2028d", "e", "f", "\x85g")
    assert [source.place(start) for start in source.starts] == [(n, 0) for n in range(1, 5)]
    assert source.text[source.offset(2, 0) :].startswith("e\r")


@pytest.mark.parametrize("place", [(0, 0), (3, 0), (1, 2), (1, -1)])
def test_refuses_places_outside_of_the_text(place):
    with pytest.raises(ValueError, match="no line"):
        Source("a\nb").offset(*place)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("x = 1\nprint 'x'\n", "code for Python 2", 2),
        ("def f(:\n", "syntax error", 1),
        ("a\r\nb\0\n", "holds a null byte", 2),
        ("(" * 500 + ")" * 500, "too many nested parentheses", 1),
        ("-" * 50000 + "1", "nested too deeply", None),
        ("x = " + "1" * 6000, "limit", 1),
        ("x = '\ud800'", "surrogates not allowed", None),
        ("\n\nf'{a b}'\n", "f-string" if sys.version_info < (3, 12) else "syntax error", 3),
        ("t'{x}'\n", "template strings Python 3.14 is needed", 1),
        ("def f[T = int](): ...\n", "type parameters Python 3.1", 1),
        ("def f[T](): ...\n", "type parameters Python 3.12 is needed", 1),
        ("type X = int\n", "the type statement Python 3.12 is needed", 1),
        ("f'{d['a']}'\n", "if the file is right, it needs Python 3.12 or newer", 1),
        ("x = 0\nf\"{chr(92) + '\\n'}\"\n", "backslash: needs Python 3.12 or newer", 2),
        ("try: ...\nexcept* E: ...\n", "except* Python 3.11 is needed", 2),
        ("x[*a]\n", "unpacking in an index Python 3.11 is needed", 1),
    ],
)
def test_says_why_it_does_not_parse(text, reason, line):
    if "3.11" in reason and sys.version_info >= (3, 11):
        pytest.skip("this Python reads it")
    if ("3.12" in reason or "3.1" in reason[-4:]) and sys.version_info >= (3, 12):
        if sys.version_info >= (3, 13) or "3.12" in reason:
            pytest.skip("this Python reads it")
    if "3.14" in reason and sys.version_info >= (3, 14):
        pytest.skip("this Python reads it")
    with pytest.raises(SourceError) as caught:
        parse(text, "x.py")
    assert reason in caught.value.reason
    assert caught.value.line == line


def test_warnings_of_the_parsed_file_stay_inside(recwarn):
    parse("x = '\\d' is 1\n", "x.py")
    assert not recwarn.list


def test_lines_of_the_tree_are_those_of_the_source():
    text = "a\rb\r\nc\n\x0cd\n"
    assert [node.lineno for node in parse(text).body] == [1, 2, 3, 4]
    assert Source(text).lines[3] == "\x0cd"
