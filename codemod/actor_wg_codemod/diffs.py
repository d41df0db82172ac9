"""Unified diffs of files whose lines changed in place, byte for byte and in any encoding."""

from __future__ import annotations

from collections.abc import Iterator

CONTEXT = 3


def unified(path: str, old: bytes, new: bytes) -> bytes:
    """The diff that `git apply` and `patch -p1` take, run where `path` starts.

    Args:
        path: the file's name, relative and with forward slashes.
        old: its bytes.
        new: bytes with as many lines, some of them changed.
    """
    before, after = old.split(b"\n"), new.split(b"\n")
    if len(before) != len(after):
        raise ValueError(f"{path}: lines were added or taken away")
    name = path.encode("utf-8", "surrogateescape")
    parts = [b"--- a/" + name + b"\n+++ b/" + name + b"\n"]
    changed = [n for n, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    # After a last newline, splitting leaves an empty string that is no line.
    count = len(before) - (not before[-1] and not after[-1])
    for first, last in _hunks(changed, count):
        parts.append(b"@@ -%b +%b @@\n" % ((_range(first, last),) * 2))
        parts += _lines(before, after, first, last)
    return b"".join(parts)


def _hunks(changed: list[int], count: int) -> Iterator[tuple[int, int]]:
    """The first line and the line after the last of each hunk."""
    start = end = None
    for number in changed:
        if start is not None and end is not None and number - CONTEXT > end:
            yield start, end
            start = None
        if start is None:
            start = max(0, number - CONTEXT)
        end = min(count, number + CONTEXT + 1)
    if start is not None and end is not None:
        yield start, end


def _range(first: int, last: int) -> bytes:
    size = last - first
    return b"%d" % (first + 1) if size == 1 else b"%d,%d" % (first + 1, size)


def _lines(before: list[bytes], after: list[bytes], first: int, last: int) -> Iterator[bytes]:
    number = first
    while number < last:
        stop = number
        while stop < last and before[stop] != after[stop]:
            stop += 1
        for sign, lines in ((b"-", before), (b"+", after)):
            for changed in range(number, stop):
                yield _line(sign, lines, changed)
        if stop < last:
            yield _line(b" ", before, stop)
        number = stop + 1


def _line(sign: bytes, lines: list[bytes], number: int) -> bytes:
    if number < len(lines) - 1:
        return sign + lines[number] + b"\n"
    return sign + lines[number] + b"\n\\ No newline at end of file\n"
