"""On every fixture case flake8 finds what `check` finds, and nothing of it after `migrate`."""

from __future__ import annotations

import sys

import pytest
from flake8_runs import by_check, by_flake8, translated

from helpers import FIXTURES, read_case, run, write_tree

PATHS = sorted(FIXTURES.glob("cases*/*.case"))


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_case(path, tmp_path):
    if path.stem.startswith("py312-") and sys.version_info < (3, 12):
        pytest.skip("this Python cannot parse it")
    case = read_case(path)
    if "--reverse" in case.flags:
        pytest.skip("flake8 only looks for the old names")
    argv = translated(case.flags)
    folder = tmp_path / "project"
    write_tree(folder, case.before)
    found = by_check(folder, *case.flags)
    assert by_flake8(folder, *argv) == found
    run("migrate", "--quiet", *case.flags, folder=folder)
    left = by_check(folder, *case.flags)
    assert by_flake8(folder, *argv) == left
