"""Programs made of installed packages by giving their names away to verl's: no crash, and agreement."""

from __future__ import annotations

import ast
import keyword
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from flake8_runs import by_check, by_our_plugin

from actor_wg_codemod import renames
from helpers import run

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_HEAD = f"from {renames.VERL}.{renames.ENGINE_PACKAGE} import *\n"
_SMALL, _LARGE = 40, 1500
_LONGEST = 60_000
_TARGETS = (
    *renames.FORWARD.table,
    *renames.FORWARD.table.values(),
    renames.MANAGER,
    renames.KIMI,
    renames.ENGINE,
    renames.TOPOLOGY_METHOD,
    renames.INIT_METHOD,
    "kwargs",
    "ray",
)


def programs(count: int, seed: int) -> Iterator[str]:
    """Installed modules in which some of the frequent names are now names of the rename."""
    chance = random.Random(seed)
    roots = {sysconfig.get_path(name) for name in ("purelib", "stdlib")}
    paths = sorted(path for root in roots for path in Path(root).rglob("*.py"))
    while count:
        data = chance.choice(paths).read_bytes()
        if len(data) > _LONGEST:
            continue
        text = data.decode("utf-8", "replace")
        names = [name for name in set(_WORD.findall(text)) if not keyword.iskeyword(name)]
        names.sort(key=lambda name: (-text.count(name), name))
        frequent = names[: 3 * len(_TARGETS)]
        chance.shuffle(frequent)
        table = dict(zip(frequent, _TARGETS, strict=False))
        text = _WORD.sub(lambda match, t=table: t.get(match[0], match[0]), text)
        if "from __future__" not in text:
            text = _HEAD + text
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        count -= 1
        yield text


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("count", "seed"),
    [(_SMALL, 1), pytest.param(_LARGE, 2, marks=[pytest.mark.fuzz, pytest.mark.timeout(3000)])],
)
def test_nothing_crashes_and_the_faces_agree(tmp_path, count, seed):
    for number, text in enumerate(programs(count, seed)):
        (tmp_path / f"made_{number}.py").write_text(text, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'made'\n", "utf-8")
    found = by_our_plugin(tmp_path, "--select=AWG0,AWG1,AWG2,AWG9")
    told = by_check(tmp_path, "--naming", "--unsafe-fixes")
    advised = by_check(tmp_path, "--select", "AWG201")
    assert found == sorted({*told, *advised})
    assert found, "the programs have nothing to find"
    run("migrate", "--quiet", "--naming", "--unsafe-fixes", folder=tmp_path)
    left = by_check(tmp_path, "--naming", "--unsafe-fixes")
    assert by_our_plugin(tmp_path, "--select=AWG0,AWG1,AWG9") == left
