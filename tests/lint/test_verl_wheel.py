"""On verl 0.8.0, from the package index, flake8 finds what `check` finds, and less after `migrate`."""

from __future__ import annotations

import shutil

import pytest
from flake8_runs import by_check, by_our_plugin

from helpers import run

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def release(wheel):
    return wheel("0.8.0")


@pytest.mark.parametrize(
    ("flags", "argv", "code"),
    [
        ((), (), "AWG003"),
        (("--naming", "--unsafe-fixes"), ("--extend-select=AWG1,AWG901",), "AWG101"),
        (("--select=AWG201",), ("--select=AWG201",), "AWG201"),
    ],
)
def test_flake8_and_check_agree(release, flags, argv, code):
    found = by_our_plugin(release, *argv)
    assert found == by_check(release, *flags)
    assert code in {site[3] for site in found}


def test_what_migrate_fixed_is_not_reported_again(release, tmp_path):
    copy = tmp_path / "verl"
    shutil.copytree(release, copy)
    assert run("migrate", "--quiet", folder=copy).status == 0
    assert by_our_plugin(copy) == []
