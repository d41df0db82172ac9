"""Every fixture case through the command line: found, fixed, left, and then settled."""

from __future__ import annotations

import sys

import pytest

from helpers import FIXTURES, check_case, read_case

PATHS = sorted(FIXTURES.glob("cases*/*.case"))


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_case(path):
    if path.stem.startswith("py312-") and sys.version_info < (3, 12):
        pytest.skip("this Python cannot parse it")
    check_case(read_case(path))


def test_names_are_those_of_the_files_and_are_there_once():
    names = [read_case(path).name for path in PATHS]
    assert names == [path.stem for path in PATHS]
    assert len(names) == len(set(names))
